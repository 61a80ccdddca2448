//! Our own binary, for tests that run it as a process.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

const BUILD: &str = "build it with `cargo build --workspace --bin tidepool --example chaos`";

/// The `tidepool` that was built into the same directory as we were. Tests of this package do not build it, so a binary older than its
/// sources is refused.
pub fn binary() -> Result<PathBuf> {
    let ourselves = std::env::current_exe()?;
    // `deps/NAME-HASH` of a test, `examples/NAME` of a benchmark.
    let directory = ourselves.ancestors().nth(2);
    let binary = directory
        .context("a test lies in a target directory")?
        .join("tidepool");
    if !binary.is_file() {
        bail!("{} does not exist: {BUILD}", binary.display());
    }
    let built = modified(&binary)?;
    for source in sources(&binary)? {
        // A source that is gone makes it as old as one that changed.
        if modified(&source).is_ok_and(|changed| changed <= built) {
            continue;
        }
        bail!(
            "{} is older than {}: {BUILD}",
            binary.display(),
            source.display()
        );
    }
    Ok(binary)
}

/// The sources of the binary, from cargo's dependency file, which `cargo build` writes and `cargo test` does not.
fn sources(binary: &Path) -> Result<Vec<PathBuf>> {
    let list = binary.with_extension("d");
    let text = std::fs::read_to_string(&list)
        .with_context(|| format!("cannot read {}: {BUILD}", list.display()))?;
    let (_, sources) = text
        .split_once(": ")
        .with_context(|| format!("{} names no sources", list.display()))?;
    // A space inside a path is escaped.
    let escaped = sources.trim().replace("\\ ", "\0");
    let paths = escaped.split(' ').map(|path| path.replace('\0', " "));
    Ok(paths.map(PathBuf::from).collect())
}

fn modified(path: &Path) -> Result<SystemTime> {
    let metadata =
        std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(metadata.modified()?)
}
