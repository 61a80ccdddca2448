//! The command line: flags, then one of the parts. Nothing is decided here.

mod kubeconfig;
mod logs;
mod up;

use std::{io::Write, process::ExitCode};

use clap::{Parser, Subcommand};

/// QoS-aware co-location for Kubernetes.
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    logs: logs::Flags,
}

#[derive(Subcommand)]
enum Command {
    Up(up::Flags),
}

fn main() -> ExitCode {
    // Flags that make no sense end here, with exit code 2.
    let cli = Cli::parse();
    cli.logs.start();
    let result = match cli.command {
        Command::Up(flags) => up::run(flags),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell when this fails.
            let _ = writeln!(std::io::stderr(), "tidepool: {error:#}");
            ExitCode::FAILURE
        }
    }
}
