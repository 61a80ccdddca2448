//! `tidepool sim`: simulates clusters in virtual time.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use crate::output::count;

/// Simulate clusters in virtual time, without an API server
#[derive(Args)]
pub(crate) struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(RunFlags),
}

/// Run scenarios, print what happens, and check their expectations
///
/// The exit code is 1 if an expectation is not met or a scenario is invalid.
#[derive(Args)]
struct RunFlags {
    /// Scenario files, or - for standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print only the result of each scenario
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn run(flags: Flags) -> Result<()> {
    match flags.command {
        Command::Run(flags) => play_all(&flags),
    }
}

fn play_all(flags: &RunFlags) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let mut failed = 0;
    for file in &flags.files {
        let (lines, holds) = play(file, flags.quiet)?;
        failed += usize::from(!holds);
        for line in lines {
            writeln!(out, "{line}").context("cannot write to standard output")?;
        }
    }
    if failed > 0 {
        bail!(
            "{failed} of {} failed",
            count(flags.files.len(), "scenario")
        );
    }
    Ok(())
}

/// The output of a scenario, and whether its expectations are met.
fn play(file: &Path, quiet: bool) -> Result<(Vec<String>, bool)> {
    let name = file.display().to_string();
    let report = match sim::run(&crate::read_input(file)?) {
        Ok(report) => report,
        Err(bad) => {
            let lines = bad.0.iter().map(|finding| finding.in_file(&name, "error"));
            return Ok((lines.collect(), false));
        }
    };
    let mut lines = Vec::new();
    if !quiet {
        lines.push(format!("{name}:"));
        lines.extend(report.log.iter().map(|line| format!("  {line}")));
    }
    let unmet = report.failures.iter();
    lines.extend(unmet.map(|failure| failure.in_file(&name, "not met")));
    let holds = report.failures.is_empty();
    if holds {
        lines.push(format!("{name}: ok"));
    }
    Ok((lines, holds))
}
