//! `tidepool config`: what a scheduler's configuration means, before it is used.

use std::{io::Write, path::PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

/// Look at the configuration of a scheduler
#[derive(Args)]
pub(crate) struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(CheckFlags),
}

/// Say what is wrong with a KubeSchedulerConfiguration, and what has no effect
///
/// Warnings and errors go to standard output, one per line, with the line of the file. The exit code is 1 if there is an
/// error.
#[derive(Args)]
struct CheckFlags {
    /// The file, or - for standard input
    file: PathBuf,
}

pub(crate) fn run(flags: Flags) -> Result<()> {
    match flags.command {
        Command::Check(flags) => check(&flags),
    }
}

fn check(flags: &CheckFlags) -> Result<()> {
    let name = flags.file.display();
    let found = api::config::check(&crate::read_input(&flags.file)?, engine::plugins::ALL);
    let warnings = found.warnings.iter().map(|warning| ("warning", warning));
    let errors = found.errors.iter().map(|error| ("error", error));
    let mut out = std::io::stdout().lock();
    for (kind, finding) in warnings.chain(errors) {
        writeln!(out, "{name}: {kind}: {finding}").context("cannot write the findings")?;
    }
    match found.errors.len() {
        0 => writeln!(out, "{name}: good").context("cannot write the findings"),
        1 => bail!("{name} has an error"),
        count => bail!("{name} has {count} errors"),
    }
}
