//! `cargo xtask chaos`: builds the scheduler and `e2e/examples/chaos`, and runs the one against the other.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::{controlplane, process};

/// Selects a planted fault, and with it another build of the scheduler.
const PLANTED: &str = "--planted";

pub(crate) fn run(flags: &[String]) -> Result<ExitCode> {
    let is_planted = flags.iter().any(|flag| flag.starts_with(PLANTED));
    let mut chaos = command()?;
    if is_planted {
        chaos.arg("--program").arg(build_planted()?);
    }
    let status = chaos.args(flags).status();
    let status = status.context("cannot start the chaos run")?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The chaos run with the shipped scheduler; with the features of the whole workspace, as the tests do, so that the
/// dependencies are not compiled a second time.
pub(crate) fn command() -> Result<Command> {
    let mut build = process::cargo();
    build.args(["build", "--release", "--quiet", "--workspace", "--locked"]);
    build.args(["--bin", "tidepool", "--example", "chaos"]);
    process::run(&mut build)?;
    let mut chaos = Command::new(directory()?.join("examples/chaos"));
    chaos.env("TIDEPOOL_CONTROLPLANE", controlplane::directory()?);
    Ok(chaos)
}

/// A scheduler that can have planted faults.
fn build_planted() -> Result<PathBuf> {
    let mut build = process::cargo();
    build.args(["build", "--release", "--quiet", "--workspace", "--locked"]);
    build.args(["--features", "control-plane/planted-faults"]);
    process::run(build.args(["--example", "planted-scheduler"]))?;
    Ok(directory()?.join("examples/planted-scheduler"))
}

/// Where cargo puts programs.
fn directory() -> Result<PathBuf> {
    let ourselves = std::env::current_exe().context("cannot find the directory of this program")?;
    let directory = ourselves.parent().context("xtask lies in a directory")?;
    Ok(directory.to_owned())
}
