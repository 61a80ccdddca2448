//! The kubeconfig file: where it goes by default, and how it is written so that nobody reads half of it.

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};

/// `tidepool/kubeconfig` in the user's cache directory.
pub(crate) fn default_path(variable: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<PathBuf> {
    // A relative path in this variable counts for nothing, says its specification.
    let absolute = |name: &str| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache =
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    let cache = cache.ok_or_else(|| {
        anyhow!("no cache directory is known because HOME is not set; say where the kubeconfig goes with --kubeconfig-out")
    })?;
    Ok(cache.join("tidepool").join("kubeconfig"))
}

/// Writes the file in one step; only its owner can read it, because it holds a token.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    try_write(path, text).with_context(|| {
        format!(
            "cannot write the kubeconfig to {}, choose another path with --kubeconfig-out",
            path.display()
        )
    })
}

fn try_write(path: &Path, text: &str) -> io::Result<()> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    if let Some(directory) = directory {
        fs::create_dir_all(directory)?;
    }
    let mut name = path
        .file_name()
        .ok_or(io::ErrorKind::IsADirectory)?
        .to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first failure is the one to tell.
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_path_is_in_the_cache_directory() {
        for (case, cache, home, want) in [
            (
                "cache directory",
                Some("/c"),
                Some("/h"),
                Some("/c/tidepool/kubeconfig"),
            ),
            (
                "home",
                None,
                Some("/h"),
                Some("/h/.cache/tidepool/kubeconfig"),
            ),
            (
                "relative ones do not count",
                Some("c"),
                Some("/h"),
                Some("/h/.cache/tidepool/kubeconfig"),
            ),
            ("neither", None, None, None),
        ] {
            let variable = |name: &str| match name {
                "XDG_CACHE_HOME" => cache.map(OsString::from),
                _ => home.map(OsString::from),
            };
            assert_eq!(
                default_path(variable).ok(),
                want.map(PathBuf::from),
                "{case}"
            );
        }
    }
}
