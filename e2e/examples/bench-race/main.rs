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
    /// Pods that are created; a fifth of them is reclaimed, some belong to a ResourcePolicy
    #[arg(long, default_value_t = 3000)]
    pods: usize,
    /// Nodes; the pods use most of their capacity
    #[arg(long, default_value_t = 300)]
    nodes: usize,
    /// Only with the gate, or only without it
    #[arg(long)]
    gate: Option<bool>,
    /// Only this --randomize-node-selection of our schedulers
    #[arg(long, value_name = "N")]
    among: Option<usize>,
    /// Only one process that has the names of all four schedulers
    #[arg(long, conflicts_with_all = ["split", "gate", "among"])]
    one_process: bool,
    /// Only four schedulers with a quarter of the nodes each
    #[arg(long, conflicts_with_all = ["gate", "among"])]
    split: bool,
}

/// The gate's own time per review at the 99th percentile.
const MOST_SECONDS: f64 = 0.002;
/// With the gate, at least this part of the pods per second without it is bound.
const LEAST_SHARE: f64 = 0.75;
const PATIENCE: Duration = Duration::from_secs(900);
/// Where nodes are split, pods may find no place although others have some: the race is over when none is bound for this time.
const QUIET: Duration = Duration::from_secs(15);

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
    if flags.one_process {
        return race(flags, Arrangement::OneProcess, &[]).map(drop);
    }
    if flags.split {
        return race(flags, Arrangement::Split, &[]).map(drop);
    }
    let gates = flags.gate.map_or(vec![false, true], |gate| vec![gate]);
    let counts = flags.among.map_or(vec![1, 10], |among| vec![among]);
    let mut rates: Vec<(usize, f64)> = Vec::new();
    for gate in gates {
        for &among in &counts {
            let rate = race(flags, Arrangement::Four { gate, among }, &rates)?;
            if !gate {
                rates.push((among, rate));
            }
        }
    }
    Ok(())
}

/// Who schedules.
#[derive(Debug, Clone, Copy)]
enum Arrangement {
    OneProcess,
    /// Four, each with nodes of its own.
    Split,
    Four {
        gate: bool,
        among: usize,
    },
}

/// One race; returns the pods that were bound in a second.
fn race(flags: &Flags, arrangement: Arrangement, ungated: &[(usize, f64)]) -> Result<f64> {
    let (processes, gate, among) = match arrangement {
        Arrangement::OneProcess => (1, false, 1),
        Arrangement::Split => (4, false, 1),
        Arrangement::Four { gate, among } => (4, gate, among),
    };
    let mut cluster = Cluster::start(flags.nodes, flags.pods, gate)?;
    match arrangement {
        Arrangement::OneProcess => cluster.start_one_process()?,
        Arrangement::Split => cluster.start_split_schedulers()?,
        Arrangement::Four { among, .. } => cluster.start_schedulers(among)?,
    }
    let binds = cluster.watch_binds()?;
    let begun = Instant::now();
    cluster.create_pods(flags.pods)?;
    let created = begun.elapsed().as_secs_f64();
    let mut most = None;
    let (mut bound, mut last) = (0, Instant::now());
    while binds.count() < flags.pods {
        if binds.count() > bound {
            (bound, last) = (binds.count(), Instant::now());
        } else if matches!(arrangement, Arrangement::Split) && last.elapsed() > QUIET {
            break;
        }
        if most.is_none() && binds.count() * 100 >= flags.pods * 95 {
            most = Some(begun.elapsed().as_secs_f64());
        }
        ensure!(
            begun.elapsed() < PATIENCE,
            "{} pods are bound",
            binds.count()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let unbound = flags.pods.saturating_sub(binds.count());
    let seconds = match unbound {
        0 => begun.elapsed(),
        _ => last.duration_since(begun),
    };
    let seconds = seconds.as_secs_f64();
    drop(binds);
    cluster.await_decided(unbound, PATIENCE)?;
    let outcome = cluster.outcome()?;
    let rate = (flags.pods - unbound) as f64 / seconds;
    let own = cluster.quantile("tidepool_gate_judge_duration_seconds", 0.99)?;
    let whole = cluster.quantile("tidepool_admission_review_duration_seconds", 0.99)?;
    let share = ungated.iter().find(|(known, _)| *known == among);
    let share = share.map(|(_, other)| rate / other);
    let line = json!({"benchmark": "race", "processes": processes, "gate": gate, "among": among, "split": matches!(arrangement, Arrangement::Split),
        "nodes": flags.nodes, "pods": flags.pods, "unbound": unbound,
        "seconds_to_create": created, "seconds_to_95_percent": most, "seconds": seconds, "last_binds": outcome.last_binds, "pods_per_second": rate, "share_of_ungated": share,
        "refused_by_kubelets": outcome.refused, "overcommitted_nodes": outcome.overcommitted, "pods_over_limit": outcome.over_limit,
        "refused_by_gate": cluster.refusals()?, "own_p99_seconds_at_most": own, "review_p99_seconds_at_most": whole});
    #[expect(clippy::print_stdout, reason = "the result of the benchmark")]
    {
        println!("{line}");
    }
    let is_clean = outcome.refused == 0 && outcome.overcommitted == 0 && outcome.over_limit == 0;
    if matches!(arrangement, Arrangement::Four { gate: false, .. }) {
        ensure!(
            !is_clean,
            "without the gate nothing collided: the race proves nothing"
        );
        return Ok(rate);
    }
    ensure!(is_clean, "a node or a unit has too many pods");
    ensure!(
        own.is_none_or(|own| own <= MOST_SECONDS),
        "the gate's own time per review is more than {MOST_SECONDS} s"
    );
    ensure!(
        share.is_none_or(|share| share >= LEAST_SHARE),
        "with the gate fewer than {LEAST_SHARE} of the pods per second are bound"
    );
    Ok(rate)
}
