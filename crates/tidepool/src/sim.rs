//! `tidepool sim`: clusters in virtual time.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

/// Play clusters in virtual time, without any API
#[derive(Args)]
pub(crate) struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(RunFlags),
}

/// Play scenarios, say what happens, and check what they expect
///
/// The exit code is 1 if an expectation is not met or a scenario cannot be played.
#[derive(Args)]
struct RunFlags {
    /// Scenario files, or - for standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Only say which scenarios hold
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
            writeln!(out, "{line}").context("cannot write what happened")?;
        }
    }
    if failed > 0 {
        bail!("{failed} of {} scenarios failed", flags.files.len());
    }
    Ok(())
}

/// What to say about a scenario, and whether it holds.
fn play(file: &Path, quiet: bool) -> Result<(Vec<String>, bool)> {
    let name = file.display();
    let report = match sim::run(&crate::read_input(file)?) {
        Ok(report) => report,
        Err(bad) => {
            let lines = bad
                .0
                .iter()
                .map(|finding| format!("{name}: error: {finding}"));
            return Ok((lines.collect(), false));
        }
    };
    let mut lines = Vec::new();
    if !quiet {
        lines.push(format!("{name}:"));
        lines.extend(report.log.iter().map(|line| format!("  {line}")));
    }
    let unmet = report.failures.iter();
    lines.extend(unmet.map(|failure| format!("{name}: not met: {failure}")));
    let holds = report.failures.is_empty();
    if holds {
        lines.push(format!("{name}: ok"));
    }
    Ok((lines, holds))
}
