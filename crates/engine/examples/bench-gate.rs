//! Measures the CPU time of the gate's judgement of a bind at 5,000 nodes with 30 pods each: one JSON object per kind of pod. Fails if
//! the 99th percentile of one is above 2 ms.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use engine::binding::gate::{BindGate, BindRequest, GatePod};
use engine::cluster::kinds::Update;
use engine::model::{Name, Pod};
use engine::testing::{Numbers, PodBuilder, node, pod, policy, report};
use rustix::time::{ClockId, clock_gettime};

const NODES: u64 = 5_000;
const PODS_PER_NODE: u64 = 30;
const BINDS: usize = 5_000;
const MOST: Duration = Duration::from_millis(2);
const RECLAIMED: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";

fn main() -> ExitCode {
    let mut is_slow = false;
    for (kind, make) in KINDS {
        let times = measure(*make);
        let micros = |percent: usize| times[BINDS * percent / 100 - 1].as_nanos() as f64 / 1e3;
        let line = serde_json::json!({"bench": "gate", "pods": kind, "nodes": NODES, "placed": NODES * PODS_PER_NODE,
            "p50_us": micros(50), "p99_us": micros(99), "max_us": micros(100)});
        println!("{line}");
        is_slow |= times[BINDS * 99 / 100 - 1] > MOST;
    }
    match is_slow {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

type Make = fn(&str) -> PodBuilder;

const KINDS: &[(&str, Make)] = &[
    ("native", |name| {
        pod(name).container("cpu=100m memory=128Mi")
    }),
    ("reclaimed", |name| {
        pod(name).reclaimed().container(&format!("{RECLAIMED}=100"))
    }),
    ("of a ResourcePolicy", |name| {
        pod(name)
            .label("app", "web")
            .container("cpu=100m memory=128Mi")
    }),
];

fn node_name(number: u64) -> Name {
    format!("node-{number:04}").into()
}

/// A tenth of the nodes is in the first unit, a third in the second.
fn objects() -> Vec<Update> {
    let most = u32::try_from(NODES * PODS_PER_NODE).ok();
    let policy = policy("web").selects("app", "web").prefers();
    let policy = policy.unit("reserved", 2, most, "kind=reserved");
    let mut objects = vec![policy.unit("spot", 1, most, "kind=spot").into()];
    for number in 0..NODES {
        let kind = match number {
            number if number.is_multiple_of(10) => "reserved",
            number if number.is_multiple_of(3) => "spot",
            _ => "other",
        };
        let name = node_name(number);
        let node = node(&name).allocatable("cpu=64 memory=256Gi pods=110");
        objects.push(node.label("kind", kind).build().into());
        objects.push(report(&name).lends(64_000, 256 << 30).into());
    }
    objects
}

/// The times of all judgements, sorted.
fn measure(make: Make) -> Vec<Duration> {
    let mut gate = BindGate::default();
    objects().into_iter().for_each(|object| gate.apply(object));
    for number in 0..NODES * PODS_PER_NODE {
        let pod = make(&format!("placed-{number}")).on(&node_name(number % NODES));
        gate.set_pod(GatePod::new(pod.build()));
    }
    let mut numbers = Numbers::new(1);
    let mut times = Vec::with_capacity(BINDS);
    for number in 0..BINDS {
        let pod = GatePod::new(make(&format!("new-{number}")).build());
        gate.set_pod(pod.clone());
        let request = BindRequest {
            namespace: pod.pod.namespace().clone(),
            pod: pod.pod.name.clone(),
            uid: pod.pod.uid.clone(),
            node: node_name(numbers.below(NODES)),
            ..BindRequest::default()
        };
        let begun = cpu_time();
        let judged = gate.judge(&pod, &request, Duration::ZERO);
        times.push(cpu_time() - begun);
        assert!(judged.is_ok(), "there is capacity: {judged:?}");
        // The watch shows it.
        let bound = Pod {
            node: Some(request.node),
            ..(*pod.pod).clone()
        };
        gate.set_pod(GatePod::new(Arc::new(bound)));
    }
    times.sort();
    times
}

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
