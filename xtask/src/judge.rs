//! Kubernetes' own end-to-end tests of scheduling: builds them from the Go module registry and runs them on our clusters.
//!
//! The program stays in the cache under the hash of its sources and sums. `e2e/examples/judge` starts the clusters and reads the
//! results.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::controlplane::{self, Cache};
use crate::process;

const MODULE: &str = "e2e/judge";
const PROGRAM: &str = "judge";

pub(crate) fn run(flags: &[String]) -> Result<ExitCode> {
    // The status of the program is that of its tests.
    let status = command()?.args(flags).status();
    let status = status.context("cannot start the judge")?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Builds the tests, `tidepool` and the program that runs the one on the other; with the features of the whole workspace, as the
/// tests do, so that the dependencies are not compiled a second time.
pub(crate) fn command() -> Result<Command> {
    let tests = build()?;
    let mut build = process::cargo();
    build.args(["build", "--release", "--quiet", "--workspace", "--locked"]);
    build.args(["--bin", "tidepool", "--example", "judge"]);
    process::run(&mut build)?;
    let ourselves = std::env::current_exe().context("cannot find the directory of this program")?;
    let directory = ourselves.parent().context("xtask lies in a directory")?;
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
