//! Measures the decisions of the engine, workload by workload: one JSON object per line.
//!
//! A decision runs from the queue to its outcome; the pod takes its capacity, and the next decision sees it. Time is the
//! CPU time of this thread, so that other work on the machine matters little. A probe measures every extension point, as
//! in production.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

mod meter;
mod probe;
mod workload;

use std::sync::Arc;

use clap::Parser;
use engine::model::Timestamp;
use engine::scheduling::hooks::Hooks;
use engine::scheduling::scheduler::{Input, Outcome, Scheduler};

use meter::{Meter, Piece};
use probe::Timings;
use workload::{Expected, Workload};

#[derive(Parser)]
#[command(
    name = "cargo xtask bench engine",
    about = "Measures decisions of the engine"
)]
struct Options {
    /// Run only this workload
    #[arg(long, value_parser = Workload::parse)]
    workload: Option<Workload>,
    /// Number of nodes, instead of 500 and 5,000
    #[arg(long)]
    nodes: Option<usize>,
    /// Seed of random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Pods of other workloads on each node
    #[arg(long, default_value_t = 2)]
    placed: usize,
    /// Number of decisions to measure; the default takes about a second
    #[arg(long)]
    decisions: Option<usize>,
    /// Run without the probe that measures extension points
    #[arg(long)]
    no_probe: bool,
    /// Run each workload once and read no clock, which Valgrind does not survive; print nothing
    #[arg(long)]
    without_clock: bool,
}

const NOW: Timestamp = Timestamp::from_secs(1_000_000);
/// How often both workloads of a ratio run.
const RATIO_TURNS: usize = 3;

fn main() {
    let options = Options::parse();
    let sizes = options.nodes.map_or(vec![500, 5_000], |nodes| vec![nodes]);
    for nodes in sizes {
        let workloads = options.workload.map_or(Workload::ALL.to_vec(), |w| vec![w]);
        for workload in workloads {
            run(workload, nodes, &options);
        }
    }
}

fn run(workload: Workload, nodes: usize, options: &Options) {
    let measured = measure(workload, nodes, options, true);
    if options.without_clock {
        return;
    }
    let figures = measured.all.figures();
    let mut line = serde_json::json!({
        "bench": "engine",
        "workload": workload.name(),
        "nodes": nodes,
        "evaluator": "scan",
        "probe": !options.no_probe,
        "decisions_per_s": (1e9 / figures.mean_ns).round(),
        "ns_per_node": round(figures.mean_ns / nodes as f64),
        "p50_ns": figures.p50_ns,
        "p99_ns": figures.p99_ns,
        "allocs_per_decision": round(figures.allocations),
        "bytes_per_node": measured.bytes / nodes,
    });
    if workload == Workload::Reclaimed {
        let quiet = measure(workload, nodes, options, false);
        let ordinary = measured.ordinary.figures().p50_ns as f64;
        let quietly = quiet.ordinary.figures().p50_ns as f64;
        let borrowing = quiet.borrowing.figures().p50_ns as f64;
        // The cost of a reclaimed pod relative to an ordinary one, and of reports for ordinary ones.
        line["reclaimed_ratio"] = (((borrowing / quietly) * 100.0).round() / 100.0).into();
        line["reports_ratio"] = (((ordinary / quietly) * 100.0).round() / 100.0).into();
    }
    let other = match workload {
        Workload::WithoutPolicy => Some(("basic_ratio", Workload::Basic)),
        // The cost of a dedicated pod relative to a plain one on the same nodes, and of zones for plain ones.
        Workload::Numa => Some(("plain_ratio", Workload::WithoutNuma)),
        Workload::WithoutNuma => Some(("colocation_ratio", Workload::Colocation)),
        _ => None,
    };
    if let Some((name, other)) = other {
        let ratio = ratio(workload, other, nodes, options);
        line[name] = ((ratio * 100.0).round() / 100.0).into();
    }
    println!("{line}");
}

/// The time of a workload divided by that of another. They run in turns and the best turn of each counts: the machine may be slower in
/// one second than in the next.
fn ratio(workload: Workload, other: Workload, nodes: usize, options: &Options) -> f64 {
    let mut best = [u64::MAX; 2];
    for _ in 0..RATIO_TURNS {
        for (best, workload) in best.iter_mut().zip([workload, other]) {
            let measured = measure(workload, nodes, options, true);
            *best = (*best).min(measured.all.figures().p50_ns);
        }
    }
    best[0] as f64 / best[1] as f64
}

struct Measured {
    all: Meter,
    ordinary: Meter,
    borrowing: Meter,
    bytes: usize,
}

/// Applying an update is part of the decision that follows it.
fn measure(workload: Workload, nodes: usize, options: &Options, updates: bool) -> Measured {
    let decisions = options
        .decisions
        .unwrap_or_else(|| workload.decisions(nodes));
    let before = meter::live_bytes();
    let timings = (!options.no_probe).then(|| Arc::new(Timings::new()));
    let hooks = match &timings {
        Some(timings) => Hooks::default().with_probe(timings.clone()),
        None => Hooks::default(),
    };
    let mut scheduler = workload::scheduler(workload, hooks);
    for update in workload.cluster(nodes, options.placed, options.seed) {
        apply(&mut scheduler, update);
    }
    let mut measured = Measured {
        all: Meter::default(),
        ordinary: Meter::default(),
        borrowing: Meter::default(),
        bytes: meter::live_bytes() - before,
    };
    // The first decisions find cold caches.
    let warm_up = decisions / 10 + 1;
    for pod in workload.pods(warm_up + decisions, options.seed) {
        apply(&mut scheduler, Input::Pod(pod));
    }
    for _ in 0..warm_up {
        let outcome = act(workload, &mut scheduler);
        settle(workload, &mut scheduler, outcome);
    }
    let count = if updates { decisions } else { 0 };
    let mut updates = workload.updates(count, nodes, options.seed).into_iter();
    for _ in 0..decisions {
        let update = updates.next();
        let work = || {
            if let Some(timings) = &timings {
                timings.begin();
            }
            measured_work(workload, &mut scheduler, update)
        };
        let (outcome, piece) = match options.without_clock {
            true => (work(), Piece::default()),
            false => meter::measure(work),
        };
        measured.all.add(piece);
        match &outcome {
            Some(Outcome::Bind { pod, .. }) if pod.is_reclaimed() => measured.borrowing.add(piece),
            _ => measured.ordinary.add(piece),
        }
        settle(workload, &mut scheduler, outcome);
    }
    measured
}

/// An update, and the decision that sees it. `cargo xtask bench instructions` counts what runs inside of this function, by its name.
#[inline(never)]
fn measured_work(
    workload: Workload,
    scheduler: &mut Scheduler,
    update: Option<Input>,
) -> Option<Outcome> {
    if let Some(update) = update {
        apply(scheduler, update);
    }
    act(workload, scheduler)
}

/// A decision, or a report that is made between two decisions.
fn act(workload: Workload, scheduler: &mut Scheduler) -> Option<Outcome> {
    match workload {
        Workload::Explain => {
            let report = scheduler.explain("default", "pod-0", NOW);
            assert!(std::hint::black_box(report).is_some(), "no pod pod-0");
            None
        }
        Workload::ExplainPlaced => {
            let report = scheduler.explain("default", "placed-0-0", NOW);
            assert!(std::hint::black_box(report).is_some(), "no pod placed-0-0");
            None
        }
        Workload::Dump => {
            std::hint::black_box(scheduler.cluster().view());
            None
        }
        _ => scheduler.schedule_next(NOW),
    }
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn apply(scheduler: &mut Scheduler, input: Input) {
    scheduler
        .apply(input, NOW)
        .unwrap_or_else(|error| panic!("the engine rejects the workload: {error}"));
}

/// Checks that the outcome is the expected one, and does what the API server would do next.
fn settle(workload: Workload, scheduler: &mut Scheduler, outcome: Option<Outcome>) {
    match (workload.expected(), outcome) {
        (Expected::Node, Some(Outcome::Bind { .. }))
        | (Expected::NoNode, Some(Outcome::Park(_)))
        | (Expected::Nothing, None) => {}
        (
            Expected::Victims,
            Some(Outcome::Preempt {
                failure, victims, ..
            }),
        ) => {
            for victim in victims {
                apply(scheduler, Input::PodGone(victim.uid.clone()));
            }
            let uid = failure.pod.uid.clone();
            apply(scheduler, Input::PreemptionDone { uid, failed: false });
        }
        (_, other) => panic!("{}: unexpected outcome: {other:?}", workload.name()),
    }
}
