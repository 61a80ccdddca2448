//! The command line: parses flags and runs one subcommand.

mod admit;
mod agent;
mod ask;
mod certificates;
mod cluster;
mod completion;
mod component;
mod config;
mod controllers;
mod debug;
mod exit;
mod explain;
mod foreign;
mod gate;
mod kubeconfig;
mod logs;
mod memory;
mod nodes;
mod output;
mod replay;
mod scheduler;
mod schedulers;
mod signals;
mod sim;
mod status;
mod up;
mod webhook;

use std::{
    io::{ErrorKind, Read, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use control_plane::client::causes;

/// QoS-aware co-location for Kubernetes
#[derive(Parser)]
#[command(version, propagate_version = true, after_help = exit::CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    logs: logs::Flags,
}

#[derive(Subcommand)]
enum Command {
    Up(up::Flags),
    Status(status::Flags),
    Explain(explain::Flags),
    Schedulers(schedulers::Flags),
    Debug(debug::Flags),
    Admit(admit::Flags),
    Config(config::Flags),
    Sim(sim::Flags),
    Scheduler(Box<scheduler::Flags>),
    Controllers(Box<controllers::Flags>),
    Webhook(Box<webhook::Flags>),
    Gate(Box<gate::Flags>),
    Nodes(Box<nodes::Flags>),
    Agent(Box<agent::Flags>),
    Completion(completion::Flags),
    Replay(replay::Flags),
}

fn main() -> ExitCode {
    // Invalid flags end the process here, with exit code 2.
    let cli = Cli::parse();
    cli.logs.start(match cli.command {
        Command::Scheduler(_)
        | Command::Controllers(_)
        | Command::Webhook(_)
        | Command::Gate(_)
        | Command::Nodes(_)
        | Command::Agent(_) => logs::Level::Info,
        _ => logs::Level::Warn,
    });
    if matches!(
        cli.command,
        Command::Up(_)
            | Command::Scheduler(_)
            | Command::Controllers(_)
            | Command::Gate(_)
            | Command::Nodes(_)
    ) {
        memory::give_back();
    }
    let result = match cli.command {
        Command::Up(flags) => up::run(flags),
        Command::Status(flags) => status::run(&flags),
        Command::Explain(flags) => explain::run(&flags),
        Command::Schedulers(flags) => schedulers::run(&flags),
        Command::Debug(flags) => debug::run(&flags),
        Command::Admit(flags) => admit::run(&flags),
        Command::Config(flags) => config::run(flags),
        Command::Sim(flags) => sim::run(flags),
        Command::Scheduler(flags) => scheduler::run(*flags),
        Command::Controllers(flags) => controllers::run(&flags),
        Command::Webhook(flags) => webhook::run(&flags),
        Command::Gate(flags) => gate::run(&flags),
        Command::Nodes(flags) => nodes::run(&flags),
        Command::Agent(flags) => agent::run(&flags),
        Command::Completion(flags) => completion::run(&flags),
        Command::Replay(flags) => replay::run(&flags),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If stderr is closed, there is nowhere to report it.
            let text = causes::joined(error.chain());
            let _ = writeln!(std::io::stderr(), "tidepool: {text}");
            ExitCode::from(exit::code_of(&error) as u8)
        }
    }
}

/// Writes to standard output. A closed pipe, as with `head`, is no error.
fn say(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    match written.and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

/// Bytes of an input file.
const LONGEST_INPUT: u64 = 16 << 20;

/// The text of a file, or of standard input if it is named `-`.
fn read_input(path: &Path) -> Result<String> {
    let context = || format!("cannot read {}", path.display());
    let mut text = String::new();
    let length = if path == Path::new("-") {
        std::io::stdin()
            .take(LONGEST_INPUT)
            .read_to_string(&mut text)
    } else {
        let file = std::fs::File::open(path).with_context(context)?;
        file.take(LONGEST_INPUT).read_to_string(&mut text)
    };
    let length = length.with_context(context)?;
    anyhow::ensure!(
        (length as u64) < LONGEST_INPUT,
        "{} is longer than {} MiB",
        path.display(),
        LONGEST_INPUT >> 20
    );
    Ok(text)
}
