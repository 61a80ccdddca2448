//! NUMA zones on the path of a pod: the Binding, a failed bind, two pods at once, eviction, and edited annotations.

use super::*;
use crate::testing::report;

fn scheduler() -> Bench {
    let ours = [("QoSAwareNodeResourcesFit", 1), ("NodeResourceTopology", 1)];
    let names = ours.into_iter().chain(plugins::DEFAULT.iter().copied());
    let enabled = names.map(|(name, weight)| {
        let entry = plugins::find(name).unwrap();
        Enabled::new(entry, weight.max(1)).unwrap()
    });
    let profile = Profile::new("default-scheduler", enabled.collect());
    let mut bench = Bench::of(vec![profile], Settings::default());
    let machine = node("n").allocatable("cpu=8 memory=16Gi");
    bench.apply(Input::Object(Update::from(machine.build())));
    let zone = "cpu=4 memory=8Gi";
    let zones = report("n").zone("0", 0, zone).zone("0", 1, zone);
    bench.apply(Input::Object(Update::from(zones)));
    bench
}

fn wants(name: &str, cpu: u32) -> PodBuilder {
    pod(name).dedicated(None).container(&format!("cpu={cpu}"))
}

/// The node and the zones of the next decision, or its message.
fn next(bench: &mut Bench) -> String {
    match bench.next() {
        Some(Outcome::Bind {
            pod, annotations, ..
        }) => format!("{} {annotations:?}", pod.name),
        Some(Outcome::Park(failure)) => format!("{} {}", failure.pod.name, failure.message),
        other => format!("{other:?}"),
    }
}

fn given(name: &str, zones: &str) -> String {
    format!("{name} [(\"tidepool.io/numa-zones\", \"{zones}\")]")
}

#[test]
fn the_binding_carries_the_zones() {
    let mut bench = scheduler();
    for name in ["a", "b", "c"] {
        bench.pod(&wants(name, 1));
    }
    assert_eq!(next(&mut bench), given("a", "0"));
    assert_eq!(next(&mut bench), given("b", "1"));
    let waits = next(&mut bench);
    let reason = "0/1 nodes are available: 1 cannot align container: it needs 1 idle NUMA zone.";
    assert!(waits.starts_with(&format!("c {reason}")), "{waits}");
    // A binding that fails gives its zone to the next pod.
    bench.bound("a", Err("conflict"));
    assert!(next(&mut bench).ends_with("conflict"));
    bench.wait(20);
    let (first, zones) = split(&next(&mut bench));
    assert_eq!(zones, split(&given("a", "0")).1);
    let other = if first == "a" { "c" } else { "a" };
    let waits = next(&mut bench);
    assert!(waits.starts_with(&format!("{other} {reason}")), "{waits}");
    bench.gone("b");
    bench.wait(20);
    assert_eq!(next(&mut bench), given(other, "1"));
}

fn split(text: &str) -> (String, String) {
    let (pod, rest) = text.split_once(' ').unwrap();
    (pod.to_owned(), rest.to_owned())
}

#[test]
fn a_pod_is_evicted_only_if_its_zone_is_needed() {
    let mut bench = scheduler();
    bench.pod(&wants("low", 1).on("n").zones("0"));
    bench.pod(&wants("high", 1).priority(100).on("n").zones("1"));
    bench.pod(&wants("large", 5).priority(50));
    let found = next(&mut bench);
    assert!(
        found.starts_with("large 0/1 nodes are available"),
        "{found}"
    );
    bench.pod(&wants("small", 2).priority(50));
    let Some(Outcome::Preempt { victims, .. }) = bench.next() else {
        panic!("no preemption");
    };
    let victims: Vec<&str> = victims.iter().map(|pod| &*pod.name).collect();
    assert_eq!(victims, ["low"]);
}

#[test]
fn an_annotation_that_does_not_hold_is_told_once() {
    let mut bench = scheduler();
    let made = |name: &str, at: i64, zones: &str| {
        let pod = wants(name, 1).on("n").zones(zones);
        pod.with(|pod| pod.created = Timestamp::from_secs(at))
    };
    bench.pod(&made("old", 1, "0"));
    bench.pod(&made("young", 2, "0"));
    bench.pod(&made("young", 2, "0"));
    let Some(Outcome::Warn { pod, message }) = bench.next() else {
        panic!("no warning");
    };
    assert_eq!(&*pod.name, "young");
    assert_eq!(
        message,
        "the pod does not get NUMA zone 0 of its annotation tidepool.io/numa-zones: an older pod has it"
    );
    assert_eq!(bench.next(), None);
}

#[test]
fn an_explanation_names_the_zones() {
    let mut bench = scheduler();
    bench.pod(&wants("large", 6));
    assert_eq!(next(&mut bench), given("large", "0,1"));
    let report = bench
        .scheduler
        .explain("default", "large", bench.now)
        .unwrap();
    let zones = report.zones.unwrap();
    assert_eq!(zones.zones, "0,1");
    let why = "it requests 6 of cpu, and 1 zone has at most 4";
    assert_eq!(zones.why.as_deref(), Some(why));
}
