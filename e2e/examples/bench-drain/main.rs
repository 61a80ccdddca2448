//! What a scheduler costs: it drains a backlog of pods through a real kube-apiserver. Prints one JSON line per run.
//!
//! `cargo xtask bench drain` builds all that this needs and runs it; docs/benchmarks.md says what the figures mean.

mod contestant;
mod drain;
mod meter;
mod workload;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;

use contestant::Contestant;
use drain::{Drain, Line, Placements};
use workload::Workload;

#[derive(Parser)]
#[command(about = "Drains a backlog of pods through a real kube-apiserver")]
struct Flags {
    /// Nodes of the cluster [default: 1000, or 5000 with --full]
    #[arg(long)]
    nodes: Option<usize>,
    /// Pods that wait when the scheduler starts [default: 3000, or 8000 with --full]
    #[arg(long)]
    pods: Option<usize>,
    #[arg(long, value_enum, default_value = "basic")]
    workload: Workload,
    /// A large cluster, several rounds, and the medians of all figures
    #[arg(long)]
    full: bool,
    /// How often all of them run [default: 1, or 3 with --full]
    #[arg(long)]
    rounds: Option<usize>,
    /// Only these schedulers
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Contestant>,
}

fn main() -> ExitCode {
    let Err(error) = run(&Flags::parse()) else {
        return ExitCode::SUCCESS;
    };
    #[expect(clippy::print_stderr, reason = "whoever runs it wants to know")]
    {
        eprintln!("error: {error:#}");
    }
    ExitCode::FAILURE
}

fn run(flags: &Flags) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(bench(flags))
}

async fn bench(flags: &Flags) -> Result<()> {
    if let Some(id) = meter::running_apiserver()? {
        bail!(
            "kube-apiserver of another test or benchmark is running (process {id}): figures taken \
             beside it would be worthless"
        );
    }
    let (nodes, pods, rounds) = if flags.full {
        (5_000, 8_000, 3)
    } else {
        (1_000, 3_000, 1)
    };
    let drain = Drain {
        workload: flags.workload,
        nodes: flags.nodes.unwrap_or(nodes),
        pods: flags.pods.unwrap_or(pods),
    };
    let is_wanted =
        |contestant: &Contestant| flags.only.is_empty() || flags.only.contains(contestant);
    let mut lines: Vec<Line> = Vec::new();
    let mut placements = Placements::new();
    let rounds = flags.rounds.unwrap_or(rounds);
    for round in 0..rounds {
        for contestant in Contestant::of_round(round).into_iter().filter(is_wanted) {
            let line = drain.run(contestant, &mut placements).await?;
            print(&line)?;
            lines.push(line);
        }
    }
    if rounds > 1 {
        for contestant in Contestant::of_round(0).into_iter().filter(is_wanted) {
            let name = contestant.name();
            let of_one: Vec<&Line> = lines.iter().filter(|line| line.scheduler == name).collect();
            Line::median(&of_one).iter().try_for_each(print)?;
        }
    }
    Ok(())
}

fn print(line: &Line) -> Result<()> {
    let text = serde_json::to_string(line)?;
    #[expect(clippy::print_stdout, reason = "it is what this program is for")]
    {
        println!("{text}");
    }
    Ok(())
}
