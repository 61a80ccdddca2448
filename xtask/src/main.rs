//! The repository's own commands. `cargo xtask --help` lists them.
//!
//! It starts other programs and reads their output.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line: printing is its work"
)]

mod annotations;
mod bench;
mod boundaries;
mod chaos;
mod controlplane;
mod deny;
#[cfg(test)]
mod docs;
mod generate;
mod guest;
mod judge;
mod layers;
mod mutants;
#[cfg(test)]
mod names;
mod parity;
mod process;
mod seed;
mod test;
#[cfg(test)]
mod unused;
mod wording;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds, tests and measures Tidepool")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every test; the last line is `N passed, N failed`
    Test(test::Options),
    /// Run the checks, unit tests and scenarios that the changes of the working copy may break: two minutes
    Quick(test::QuickOptions),
    /// Build the real Kubernetes control plane from the Go module registry, and print its directory
    Controlplane,
    /// Install containerd, runc and QEMU for the tests on real nodes, and print the directory of the guest's kernel
    Guest,
    /// Run a benchmark; it prints one JSON object per line
    Bench(bench::Options),
    /// Check licences, sources and banned crates with cargo-deny (installed when missing)
    Deny,
    /// Find phrases that are hard to read in texts for users, with file and line
    Wording,
    /// Compare with upstream's own code on random cases
    #[command(disable_help_flag = true)]
    Parity {
        /// `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Run Kubernetes' own tests of scheduling on our clusters
    #[command(disable_help_flag = true)]
    Judge {
        /// `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Run two schedulers on a real control plane while network, processes and clocks fail, and check them
    #[command(disable_help_flag = true)]
    Chaos {
        /// `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Change the engine in many small ways, one at a time, and find the changes that no test notices
    Mutants(mutants::Options),
    /// Write the embedded cluster's schema table, from Kubernetes' own types, and the definitions of custom kinds
    Gen {
        /// Write nothing; fail if the table in the repository is stale
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Test(options) => test::run(&options),
        Command::Quick(options) => test::quick(&options),
        Command::Controlplane => controlplane::print_directory(),
        Command::Guest => guest::print_directory(),
        Command::Bench(options) => bench::run(&options),
        Command::Deny => deny::run(),
        Command::Wording => wording::run(),
        Command::Parity { flags } => parity::run(&flags),
        Command::Judge { flags } => judge::run(&flags),
        Command::Chaos { flags } => chaos::run(&flags),
        Command::Mutants(options) => mutants::run(&options),
        Command::Gen { check } => generate::run(check).map(|()| ExitCode::SUCCESS),
    }
}
