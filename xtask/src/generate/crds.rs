//! Writes the definitions of custom kinds in the `api` crate to the files that users apply.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

/// From the root of the repository.
const FOLDER: &str = "deploy/crds";

pub(super) fn write(root: &Path) -> Result<()> {
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {FOLDER}"))?;
    for (name, text) in files()? {
        fs::write(folder.join(name), text)
            .with_context(|| format!("cannot write {FOLDER}/{name}"))?;
    }
    Ok(())
}

/// Fails when a file differs from what would be written, and when a file is no longer written.
pub(super) fn check(root: &Path) -> Result<()> {
    let folder = root.join(FOLDER);
    let files = files()?;
    for (name, text) in &files {
        if fs::read_to_string(folder.join(name)).unwrap_or_default() != *text {
            bail!("{FOLDER}/{name} is stale: run `cargo xtask gen` and commit the result");
        }
    }
    for entry in fs::read_dir(&folder)? {
        let found = entry?.file_name();
        if !files.iter().any(|(name, _)| found == *name) {
            bail!(
                "{FOLDER}/{} is not generated any more: delete it",
                found.display()
            );
        }
    }
    Ok(())
}

fn files() -> Result<Vec<(&'static str, String)>> {
    let text = |(name, definition)| {
        let text = api::crds::yaml(&definition).map_err(|error| anyhow!("{name}: {error}"))?;
        Ok((name, text))
    };
    api::crds::all().into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn definitions_are_fresh() {
        super::check(crate::process::root()).unwrap();
    }
}
