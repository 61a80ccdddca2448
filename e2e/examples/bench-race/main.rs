//! What the gate costs and what it prevents: three schedulers of ours and kube-scheduler race for the last places of a cluster with
//! simulated kubelets, on a real kube-apiserver. Prints one JSON line per run.
//!
//! `cargo xtask bench race` builds all that this needs and runs it; docs/many-schedulers.md says what the figures mean.

mod cluster;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use serde_json::json;

use cluster::Cluster;

#[derive(Parser)]
#[command(about = "Races four schedulers with and without the gate")]
struct Flags {
    /// Pods that are created; a fifth of them is reclaimed
    #[arg(long, default_value_t = 3000)]
    pods: usize,
    /// Nodes; their places are as many as the pods
    #[arg(long, default_value_t = 300)]
    nodes: usize,
    /// Only with the gate, or only without it
    #[arg(long)]
    gate: Option<bool>,
    /// Only this --randomize-node-selection of our schedulers
    #[arg(long, value_name = "N")]
    among: Option<usize>,
}

/// The gate's own time per bind at the 99th percentile.
const MOST_SECONDS: f64 = 0.002;
const PATIENCE: Duration = Duration::from_secs(900);

fn main() -> ExitCode {
    let Err(error) = run(&Flags::parse()) else {
        return ExitCode::SUCCESS;
    };
    #[expect(clippy::print_stderr, reason = "the user of a benchmark reads it")]
    {
        eprintln!("error: {error:#}");
    }
    ExitCode::FAILURE
}

fn run(flags: &Flags) -> Result<()> {
    ensure!(
        flags.nodes > 0 && flags.pods >= flags.nodes,
        "--pods must be at least --nodes"
    );
    let gates = flags.gate.map_or(vec![false, true], |gate| vec![gate]);
    let counts = flags.among.map_or(vec![1, 10], |among| vec![among]);
    let mut rates: Vec<(usize, f64)> = Vec::new();
    for gate in gates {
        for &among in &counts {
            let rate = race(flags, gate, among, &rates)?;
            if !gate {
                rates.push((among, rate));
            }
        }
    }
    Ok(())
}

/// One race; returns the pods that were bound in a second.
fn race(flags: &Flags, gate: bool, among: usize, ungated: &[(usize, f64)]) -> Result<f64> {
    let mut cluster = Cluster::start(flags.nodes, flags.pods, gate)?;
    cluster.start_schedulers(among)?;
    let begun = Instant::now();
    cluster.create_pods(flags.pods)?;
    let bound = cluster.await_decided(PATIENCE)?;
    let seconds = bound.duration_since(begun).as_secs_f64();
    let outcome = cluster.outcome()?;
    let rate = flags.pods as f64 / seconds;
    let p99 = cluster.review_seconds(0.99)?;
    let share = ungated.iter().find(|(known, _)| *known == among);
    let line = json!({"benchmark": "race", "gate": gate, "among": among, "nodes": flags.nodes, "pods": flags.pods,
        "seconds": seconds, "pods_per_second": rate, "share_of_ungated": share.map(|(_, other)| rate / other),
        "refused_by_kubelets": outcome.refused, "overcommitted_nodes": outcome.overcommitted,
        "refused_by_gate": cluster.refusals()?, "judge_p99_seconds_at_most": p99});
    #[expect(clippy::print_stdout, reason = "the result of the benchmark")]
    {
        println!("{line}");
    }
    if gate {
        ensure!(
            outcome.refused == 0 && outcome.overcommitted == 0,
            "the gate let a node overflow"
        );
        ensure!(
            p99.is_none_or(|p99| p99 <= MOST_SECONDS) || cfg!(debug_assertions),
            "a review takes more than {MOST_SECONDS} s"
        );
    } else {
        ensure!(
            outcome.refused > 0 || outcome.overcommitted > 0,
            "without the gate nothing collided: the race proves nothing"
        );
    }
    Ok(rate)
}
