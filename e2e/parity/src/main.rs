//! Parity: random cases are evaluated by the plugins of kube-scheduler, Koordinator or Katalyst, and by our engine, and the
//! results compared. `cargo xtask parity` builds the programs with upstream's code and starts this one.
//!
//! A case comes from `generate`, the real plugins answer through `oracle`, the engine through `ours`, and `compare` puts the two
//! side by side: `verdicts` has what is compared and `selection` the plugins, `coverage` what was exercised, `known` which
//! differences stay, and `shrink` makes a difference small enough to read. `admission` checks that kubelets admit the pods that we
//! place. `node` compares the figures of the node agent with those of the kubelet, Koordinator's agent and Katalyst's agent, `tiers`
//! the capacity of the tiers and `webhook` the admission of pods with Koordinator's.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line: printing is its work"
)]

mod admission;
mod compare;
mod coverage;
mod generate;
mod intended;
mod known;
mod node;
mod oracle;
mod ours;
mod random;
mod sample;
mod selection;
mod shrink;
mod tiers;
mod verdicts;
mod webhook;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use compare::Comparison;
use oracle::Oracle;
use ours::Ours;
use sample::{Cases, Sample};
use selection::Selection;

#[derive(Parser)]
#[command(
    name = "cargo xtask parity",
    about = "Compares random cases with upstream's own code"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare our engine with kube-scheduler, and cgroup values of pods with the kubelet
    Kube {
        #[command(flatten)]
        cases: Cases,
        /// Compare this plugin only, in a profile without the others; may be repeated
        #[arg(long = "plugin", value_name = "NAME")]
        plugins: Vec<String>,
    },
    /// Compare the default profile of `tidepool up` with kube-scheduler's
    Up(Cases),
    /// Compare our QoS-aware plugins and NodeResourceTopology with Katalyst's, and headroom with that of its agent
    Katalyst(Cases),
    /// Compare our engine with Koordinator's NodeResourcesFitPlus and ScarceResourceAvoidance, and our tier capacity with
    /// its controller of node resources
    Koordinator(Cases),
    /// Compare the figures of the node agent with those of Koordinator's agent
    Koordlet(Cases),
    /// Compare our admission of pods with Koordinator's webhook on random pods and profiles
    Webhook(Cases),
    /// Check the oracle itself: two runs must agree on every case, and the cases must cover
    /// every message and score
    Oracle(Cases),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the two sides of a comparison agree.
fn run(command: Command) -> Result<bool> {
    match command {
        Command::Kube { cases, plugins } => {
            let flags: String = plugins.iter().map(|it| format!(" --plugin {it}")).collect();
            let selection = Selection::new(plugins)?;
            cases.all(&format!("kube{flags}"), |sample| kube(sample, &selection))
        }
        Command::Up(cases) => cases.all("up", up),
        Command::Katalyst(cases) => cases.all("katalyst", katalyst),
        Command::Koordinator(cases) => cases.all("koordinator", koordinator),
        Command::Koordlet(cases) => cases.all("koordlet", |sample| {
            node::koordlet(&mut Oracle::start(oracle::KOORDLET)?, sample)
        }),
        Command::Webhook(cases) => cases.all("webhook", webhook::agrees),
        Command::Oracle(cases) => cases.all("oracle", stable),
    }
}

fn kube(sample: &Sample, selection: &Selection) -> Result<bool> {
    let missing = ours::not_built(selection);
    if !missing.is_empty() {
        println!("not implemented: {}", missing.join(", "));
    }
    let comparison = Comparison {
        name: "parity kube",
        sample,
        generate: generate::of_kubelets,
        selection,
        floor: &coverage::KUBE,
        known: known::KUBE,
    };
    let mut oracle = Oracle::start(oracle::KUBE)?;
    let plugins = comparison.run(&mut Ours, &mut oracle)?;
    // A run of one plugin is about that plugin alone.
    Ok((!selection.is_all() || node::kube(&mut oracle, sample)?) && plugins)
}

fn up(sample: &Sample) -> Result<bool> {
    let comparison = Comparison {
        name: "parity up",
        sample,
        generate: ours::case_of_up,
        selection: &Selection::ALL,
        floor: &coverage::UP,
        known: known::KUBE,
    };
    comparison.run(&mut ours::Up::new()?, &mut Oracle::start(oracle::KUBE)?)
}

fn katalyst(sample: &Sample) -> Result<bool> {
    let plugins = Comparison {
        name: "parity katalyst",
        sample,
        generate: generate::lending,
        selection: &Selection::PLUGINS,
        floor: &coverage::KATALYST,
        known: known::KATALYST,
    };
    let zones = Comparison {
        name: "parity katalyst zones",
        generate: generate::zones,
        floor: &coverage::ZONES,
        known: known::ZONES,
        ..plugins
    };
    let mut oracle = Oracle::start(oracle::KATALYST)?;
    let plugins = plugins.run(&mut Ours, &mut oracle)?;
    let zones = zones.run(&mut Ours, &mut oracle)?;
    Ok(node::katalyst(&mut oracle, sample)? && plugins && zones)
}

fn koordinator(sample: &Sample) -> Result<bool> {
    let comparison = Comparison {
        name: "parity koordinator",
        sample,
        generate: generate::scored,
        selection: &Selection::PLUGINS,
        floor: &coverage::KOORDINATOR,
        known: known::KOORDINATOR,
    };
    let plugins = comparison.run(&mut Ours, &mut Oracle::start(oracle::KOORDINATOR)?)?;
    Ok(tiers::agrees(sample)? && plugins)
}

/// Whether kube-scheduler's plugins answer the same when they are asked twice.
fn stable(sample: &Sample) -> Result<bool> {
    let comparison = Comparison {
        name: "parity oracle",
        sample,
        generate: generate::of_kubelets,
        selection: &Selection::ALL,
        floor: &coverage::KUBE,
        known: &[],
    };
    let mut other = Oracle::start(oracle::KUBE)?;
    comparison.run(&mut Oracle::start(oracle::KUBE)?, &mut other)
}
