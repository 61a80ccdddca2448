//! A backlog of pods that fit nowhere, while nodes change every ten milliseconds: new pods are bound at once, and writes
//! stay few.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use crate::support::{Fixture, object, options, pod, within};

const NODES: usize = 20;
const CHANGES_EVERY: Duration = Duration::from_millis(10);
const NEWCOMER_EVERY: Duration = Duration::from_millis(100);
const ZONE: &str = "topology.kubernetes.io/zone";
/// Creations at a time.
const AT_A_TIME: usize = 64;

/// The promise: so much longer a newcomer may wait than without a backlog and changes, on the same machine with the same load.
const LATER: Duration = Duration::from_secs(1);

/// Pods that fit nowhere, and newcomers for each kind of change.
fn sizes() -> (usize, usize) {
    match std::env::var_os("TIDEPOOL_FULL").is_some() {
        true => (20_000, 200),
        false => (2_000, 10),
    }
}

/// What changes about a node, by the number of the change.
type NodeChange = fn(usize) -> (Option<&'static str>, Value);

fn heartbeat(count: usize) -> (Option<&'static str>, Value) {
    let time = jiff::Timestamp::from_second(1_767_323_045 + count as i64).unwrap();
    let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": time.to_string()});
    (Some("status"), json!({"status": {"conditions": [ready]}}))
}

fn allocatable(count: usize) -> (Option<&'static str>, Value) {
    let cpu = format!("{}m", 4_000 + 100 * (count / NODES % 2));
    (
        Some("status"),
        json!({"status": {"allocatable": {"cpu": cpu}}}),
    )
}

fn zone(count: usize) -> (Option<&'static str>, Value) {
    let zone = ["a", "b"][count / NODES % 2];
    (None, json!({"metadata": {"labels": {ZONE: zone}}}))
}

#[tokio::test(flavor = "multi_thread")]
async fn newcomers_are_bound_at_once_and_writes_are_few() {
    let (backlog, newcomers) = sizes();
    let mut fixture = Fixture::new().await;
    for index in 0..NODES {
        // Full, but large enough for a pod of the backlog.
        fixture.add_node(&format!("node-{index}"), "4", 10).await;
        let mut full = pod(&format!("full-{index}"), "4");
        full["spec"]["nodeName"] = format!("node-{index}").into();
        fixture.create_pod(full).await;
    }
    fixture.add_node("free", "1000", 10_000).await;
    let taint = json!({"spec": {"taints": [
        {"key": "only", "value": "newcomers", "effect": "NoSchedule"},
    ]}});
    let merge = PatchParams::default();
    let free = fixture.nodes();
    free.patch("free", &merge, &Patch::Merge(taint))
        .await
        .unwrap();
    fixture.schedule_with_options(options());
    let usual = slowest(&come(&fixture, "alone", newcomers).await);
    create_backlog(&fixture, backlog).await;
    // Each pod gets a condition and an event, and their writes per second are limited.
    let limit = Duration::from_secs(120) + Duration::from_millis(20) * backlog as u32;
    within(limit, "the backlog has failed", || async {
        let counters = fixture.running().counters();
        let patched = counters.patches.load(Ordering::Relaxed) as usize;
        let events = counters.events_written.load(Ordering::Relaxed) as usize;
        // Each newcomer before had an event, too.
        match patched >= backlog && events >= backlog + newcomers {
            true => Ok(()),
            false => Err((patched, events)),
        }
    })
    .await;
    for (what, change) in [
        ("heartbeats", heartbeat as NodeChange),
        ("allocatable", allocatable),
        ("zones", zone),
    ] {
        churn(&fixture, what, change, (newcomers, usual + LATER)).await;
    }
    fixture.stop().await;
}

/// Half of the pods want more than is free, and half want to be near a pod that does not exist.
async fn create_backlog(fixture: &Fixture, count: usize) {
    let pods: Api<Pod> = fixture.pods();
    let create = |index: usize| {
        let mut backlog = pod(&format!("backlog-{index}"), "2");
        if index.is_multiple_of(2) {
            // Without requests, so that no other plugin rejects it first.
            backlog["spec"]["containers"][0]["resources"] = json!({});
            backlog["spec"]["affinity"] = json!({"podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{
                    "topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "nowhere"}},
                }],
            }});
        }
        let pods = &pods;
        async move {
            let (params, backlog) = (PostParams::default(), object(backlog));
            pods.create(&params, &backlog).await.unwrap();
        }
    };
    use futures::StreamExt;
    let all = futures::stream::iter(0..count).map(create);
    all.buffer_unordered(AT_A_TIME).collect::<Vec<()>>().await;
}

/// Nodes change until so many newcomers are bound.
async fn churn(
    fixture: &Fixture,
    what: &str,
    change: NodeChange,
    (newcomers, most): (usize, Duration),
) {
    let counters = fixture.running().counters();
    let writes = || {
        let patches = counters.patches.load(Ordering::Relaxed);
        patches + counters.events_written.load(Ordering::Relaxed)
    };
    let (begun, before) = (Instant::now(), writes());
    let nodes: Api<Node> = fixture.nodes();
    let changes = async {
        let mut tick = tokio::time::interval(CHANGES_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for count in 0.. {
            tick.tick().await;
            let name = format!("node-{}", count % NODES);
            let (part, body) = change(count);
            let (params, patch) = (PatchParams::default(), Patch::Strategic(body));
            match part {
                Some(_) => nodes.patch_status(&name, &params, &patch).await.unwrap(),
                None => nodes.patch(&name, &params, &patch).await.unwrap(),
            };
        }
    };
    let waits = tokio::select! {
        () = changes => Vec::new(),
        waits = come(fixture, what, newcomers) => waits,
    };
    let seconds = begun.elapsed().as_secs_f64();
    // Each newcomer has an event that says where it went.
    let repeated = (writes() - before).saturating_sub(newcomers as u64);
    let per_second = repeated as f64 / seconds;
    let slowest = slowest(&waits);
    assert!(slowest < most, "{what}: at most {most:?}: {waits:?}");
    assert!(per_second < 100.0, "{what}: {per_second} writes/s");
}

/// Creates newcomers one after the other, and returns how long each waits for its node.
async fn come(fixture: &Fixture, what: &str, count: usize) -> Vec<Duration> {
    let mut waits = Vec::new();
    for index in 0..count {
        tokio::time::sleep(NEWCOMER_EVERY).await;
        waits.push(newcomer(fixture, &format!("{what}-{index}")).await);
    }
    waits
}

/// How long the slowest hundredth waits at least.
fn slowest(waits: &[Duration]) -> Duration {
    let mut waits = waits.to_vec();
    waits.sort();
    waits[(waits.len() * 99).div_ceil(100) - 1]
}

/// Creates a pod that fits, and returns how long it waits for its node.
async fn newcomer(fixture: &Fixture, name: &str) -> Duration {
    let mut newcomer = pod(name, "100m");
    newcomer["spec"]["tolerations"] =
        json!([{"key": "only", "value": "newcomers", "effect": "NoSchedule"}]);
    let begun = Instant::now();
    fixture.create_pod(newcomer).await;
    loop {
        let found = fixture.pods().get(name).await.unwrap();
        if found.spec.is_some_and(|spec| spec.node_name.is_some()) {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{name} waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
