//! Benchmarks: each prints JSON lines on stdout, so that runs can be compared by a program.

mod instructions;

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::{controlplane, process};
pub(crate) use instructions::faults as faults_of_instructions;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Benchmark {
    /// The agent: CPU time and memory of sampling 200 pods every second; it needs root
    Agent,
    /// The embedded cluster: pod creates and bindings per second, memory of a large cluster
    Apiserver,
    /// The scheduler: binds a backlog of pods on a real kube-apiserver, next to kube-scheduler
    #[command(disable_help_flag = true)]
    Drain {
        /// `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// The engine: decisions per second of CPU time, by workload and size of the cluster
    #[command(disable_help_flag = true)]
    Engine {
        /// `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// The gate: the time to judge a bind at 5,000 nodes
    Gate,
    /// The engine: instructions of one decision, compared with those in the repository; installs Valgrind
    Instructions {
        /// Keep the new counts; the commit gives the reason
        #[arg(long)]
        write: bool,
    },
    /// The gate: four schedulers race for the last places of a cluster on a real kube-apiserver, with and without it
    #[command(disable_help_flag = true)]
    Race {
        /// `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// The admission webhook: CPU time of an answer, by size of the pod
    Webhook,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match &options.benchmark {
        Benchmark::Agent => process::run(&mut example("agent"))?,
        Benchmark::Apiserver => process::run(&mut example("apiserver"))?,
        Benchmark::Drain { flags } => on_apiserver("bench-drain", flags)?,
        Benchmark::Race { flags } => on_apiserver("bench-race", flags)?,
        Benchmark::Gate => process::run(&mut example_of("engine", "bench-gate"))?,
        Benchmark::Instructions { write: true } => instructions::write()?,
        Benchmark::Instructions { write: false } => {
            let faults = instructions::faults()?;
            faults.iter().for_each(|fault| println!("{fault}"));
            if !faults.is_empty() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Benchmark::Engine { flags } => process::run(example("engine").arg("--").args(flags))?,
        Benchmark::Webhook => process::run(&mut example_of("control-plane", "bench-webhook"))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the scheduler and the benchmark together, because the one starts the other.
fn on_apiserver(example: &str, flags: &[String]) -> Result<()> {
    let directory = process::build_release(&["--bin", "tidepool", "--example", example])?;
    let mut bench = Command::new(directory.join("examples").join(example));
    bench.env("TIDEPOOL_CONTROLPLANE", controlplane::directory()?);
    process::run(bench.args(flags))
}

/// The example `bench-PACKAGE` of a package.
fn example(package: &str) -> Command {
    example_of(package, &format!("bench-{package}"))
}

fn example_of(package: &str, example: &str) -> Command {
    let mut command = process::cargo();
    command.args(["run", "--release", "--quiet", "--package", package]);
    command.args(["--example", example]);
    command
}
