//! Benchmarks: each prints JSON lines on stdout, so that runs can be compared by a program.

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::process;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The embedded cluster: pod creates and bindings per second, memory of a large cluster
    Apiserver,
    /// The engine: decisions per second of CPU time, by workload and size of the cluster
    #[command(disable_help_flag = true)]
    Engine {
        /// `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match &options.what {
        What::Apiserver => process::run(&mut example("apiserver"))?,
        What::Engine { flags } => process::run(example("engine").arg("--").args(flags))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The example `bench-PACKAGE` of a package.
fn example(package: &str) -> Command {
    let mut command = process::cargo();
    command.args(["run", "--release", "--quiet", "--package", package]);
    command.args(["--example", &format!("bench-{package}")]);
    command
}
