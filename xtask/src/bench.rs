//! Benchmarks: each prints JSON lines on stdout, so that runs can be compared by a program.

use std::process::ExitCode;

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
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match options.what {
        What::Apiserver => process::run(process::cargo().args([
            "run",
            "--release",
            "--quiet",
            "--package",
            "apiserver",
            "--example",
            "bench",
        ]))?,
    }
    Ok(ExitCode::SUCCESS)
}
