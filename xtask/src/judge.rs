//! Kubernetes' own end-to-end tests of scheduling: builds them from the Go module registry and runs them on our clusters.
//!
//! The program stays in the cache under the hash of its sources and sums. `e2e/examples/judge` starts the clusters and reads the
//! results.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::controlplane::{self, Cache};
use crate::process;

const MODULE: &str = "e2e/judge";
const PROGRAM: &str = "judge";

pub(crate) fn run(flags: &[String]) -> Result<ExitCode> {
    process::hand_over(command()?.args(flags))
}

/// Builds the tests, `tidepool` and the program that runs the one on the other.
pub(crate) fn command() -> Result<Command> {
    let tests = build()?;
    let directory = process::build(&["--bin", "tidepool", "--example", "judge"])?;
    let mut judge = Command::new(directory.join("examples/judge"));
    judge.env("TIDEPOOL_CONTROLPLANE", controlplane::directory()?);
    judge.arg("--program").arg(tests);
    Ok(judge)
}

/// The program that has the tests.
fn build() -> Result<PathBuf> {
    let module = process::root().join(MODULE);
    let cache = Cache::open(PROGRAM, &[module.join("go.sum"), module.join("main.go")])?;
    let program = cache.directory.join(PROGRAM);
    if !program.is_file() {
        let directory = cache.directory.display();
        eprintln!(
            "building Kubernetes' tests of scheduling into {directory} (up to five minutes on two cores)"
        );
        cache.build(&module, PROGRAM, ".")?;
    }
    Ok(program)
}
