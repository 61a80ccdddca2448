//! What the agent continues from after a restart, in one file that is replaced as a whole.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use engine::node::Checkpoint;

/// A larger file is not one of ours: a thousand models take a few MiB.
const LARGEST: u64 = 64 << 20;

/// Why there is nothing to continue from.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read the checkpoint {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file was renamed, so that it is not read again and can be looked at.
    #[error("the checkpoint {} is corrupt ({why}); it is now {}", path.display(), aside.display())]
    Corrupt {
        path: PathBuf,
        aside: PathBuf,
        why: String,
    },
}

/// What happens to a file that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corrupt {
    SetAside,
    /// In a dry run.
    Leave,
}

/// None if there is no file.
pub fn load(path: &Path, corrupt: Corrupt) -> Result<Option<Checkpoint>, LoadError> {
    let read = || {
        if std::fs::metadata(path)?.len() > LARGEST {
            return Ok(Err("it is too large".to_owned()));
        }
        let text = std::fs::read(path)?;
        io::Result::Ok(serde_json::from_slice(&text).map_err(|error| error.to_string()))
    };
    match read() {
        Ok(Ok(checkpoint)) => Ok(Some(checkpoint)),
        Ok(Err(why)) => Err(set_aside(path, why, corrupt)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LoadError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Renames a file that cannot be used.
pub fn set_aside(path: &Path, why: String, corrupt: Corrupt) -> LoadError {
    let mut aside = path.with_extension("corrupt");
    // On a read-only disk it stays, too; the next checkpoint replaces it.
    if corrupt == Corrupt::Leave || std::fs::rename(path, &aside).is_err() {
        aside = path.to_owned();
    }
    LoadError::Corrupt {
        path: path.to_owned(),
        aside,
        why,
    }
}

/// A crash or a full disk leaves the old file.
pub fn save(path: &Path, checkpoint: &Checkpoint) -> io::Result<()> {
    let text = serde_json::to_vec(checkpoint)?;
    let unfinished = path.with_extension("unfinished");
    let write = || {
        let mut file = std::fs::File::create(&unfinished)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)
    };
    write().inspect_err(|_| {
        // Half a file is of no use and takes space.
        let _ = std::fs::remove_file(&unfinished);
    })
}
