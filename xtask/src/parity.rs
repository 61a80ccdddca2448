//! `cargo xtask parity`: builds the programs that call upstream's own code, and starts the comparison in `e2e/parity`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::{controlplane, guest, process};

/// A program in a Go module: one build list cannot hold the versions of Kubernetes that they need.
#[derive(Debug, Clone, Copy)]
struct Oracle {
    name: &'static str,
    module: &'static str,
    package: &'static str,
    /// A library that the program links by cgo: its header, and Debian's package.
    library: Option<(&'static str, &'static str)>,
}

const KUBE: Oracle = Oracle {
    name: "oracle-kube",
    module: "e2e",
    package: "./oracle-kube",
    library: None,
};

const KOORDINATOR: Oracle = Oracle {
    name: "oracle-koordinator",
    module: "e2e/oracle-koordinator",
    package: ".",
    library: None,
};

const TIERS: Oracle = Oracle {
    name: "oracle-tiers",
    module: "e2e/oracle-koordinator",
    package: "./tiers",
    library: None,
};

const WEBHOOK: Oracle = Oracle {
    name: "oracle-webhook",
    module: "e2e/oracle-koordinator",
    package: "./webhook",
    library: None,
};

const KATALYST: Oracle = Oracle {
    name: "oracle-katalyst",
    module: "e2e/oracle-katalyst",
    package: ".",
    library: None,
};

const KOORDLET: Oracle = Oracle {
    name: "oracle-koordlet",
    module: "e2e/oracle-koordlet",
    package: ".",
    library: Some(("/usr/include/perfmon/pfmlib.h", "libpfm4-dev")),
};

/// What a comparison asks.
fn oracles(comparison: &str) -> &'static [Oracle] {
    match comparison {
        "kube" | "up" | "oracle" => &[KUBE],
        "koordinator" => &[KOORDINATOR, TIERS],
        "koordlet" => &[KOORDLET],
        "webhook" => &[WEBHOOK],
        "katalyst" => &[KATALYST],
        // Help, or a mistake that the comparison names.
        _ => &[],
    }
}

pub(crate) fn run(flags: &[String]) -> Result<ExitCode> {
    process::hand_over(&mut command(flags)?)
}

/// The comparison with these flags; the first one names it.
pub(crate) fn command(flags: &[String]) -> Result<Command> {
    let comparison = flags.first().map_or("", String::as_str);
    let directory = directory()?;
    for oracle in oracles(comparison) {
        oracle.build(&directory)?;
    }
    let programs = process::build(&["--bin", "parity"])?;
    let mut command = Command::new(programs.join("parity"));
    command.args(flags).env("TIDEPOOL_ORACLES", directory);
    Ok(command)
}

/// Whether the oracles of a comparison are there, perhaps of older sources.
pub(crate) fn is_built(comparison: &str) -> Result<bool> {
    let directory = directory()?;
    let mut oracles = oracles(comparison).iter();
    Ok(oracles.all(|oracle| directory.join(oracle.name).is_file()))
}

/// Whether the C libraries of a comparison are installed.
pub(crate) fn has_libraries(comparison: &str) -> bool {
    oracles(comparison).iter().all(Oracle::has_library)
}

fn directory() -> Result<PathBuf> {
    Ok(process::directory()?.join("oracles"))
}

impl Oracle {
    fn has_library(&self) -> bool {
        let header = self.library.map(|(header, _)| Path::new(header));
        header.is_none_or(Path::is_file)
    }

    /// Go builds only what changed.
    fn build(self, directory: &Path) -> Result<()> {
        let module = process::root().join(self.module);
        let mut build = controlplane::go_build(&module, &directory.join(self.name));
        if let Some((_, package)) = self.library {
            if !self.has_library() {
                guest::install(&[package])?;
            }
            build.env("CGO_ENABLED", "1");
        }
        process::run(build.arg(self.package))
    }
}
