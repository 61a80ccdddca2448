//! NUMA zones on the path of a pod: the Binding, a failed bind, two pods at once, eviction, and edited annotations.

use super::*;
use crate::model::{AuthorClaims, ZoneSet};
use crate::testing::report;

fn scheduler() -> Bench {
    on_machine(&[(0, "cpu=4 memory=8Gi"), (0, "cpu=4 memory=8Gi")])
}

/// One node with these zones, by socket.
fn on_machine(zones: &[(u8, &str)]) -> Bench {
    let ours = [("QoSAwareNodeResourcesFit", 1), ("NodeResourceTopology", 1)];
    machine_with(&ours, zones)
}

/// One node with these zones, for a profile with these plugins beside the default ones.
fn machine_with(ours: &[(&'static str, i64)], zones: &[(u8, &str)]) -> Bench {
    let names = ours.iter().copied().chain(plugins::DEFAULT.iter().copied());
    let enabled = names.map(|(name, weight)| {
        let entry = plugins::find(name).unwrap();
        Enabled::new(entry, weight.max(1)).unwrap()
    });
    let profile = Profile::new("default-scheduler", enabled.collect());
    let mut bench = Bench::of(vec![profile], Settings::default());
    let machine = node("n").allocatable("cpu=16 memory=32Gi");
    bench.apply(Input::Object(Update::from(machine.build())));
    let zones = (0..).zip(zones);
    let zones = zones.fold(report("n"), |report, (id, (socket, amounts))| {
        report.zone(&socket.to_string(), id, amounts)
    });
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

/// Else an annotation of the author would look like a decision of the scheduler once the pod is bound.
#[test]
fn a_binding_replaces_what_the_author_wrote_into_the_annotations_of_schedulers() {
    let zone = "cpu=4 memory=8Gi";
    let zones = [(0, zone), (0, zone)];
    let forged = |name: &str, zones: Option<&str>, unit: bool| {
        wants(name, 1).with(|pod| {
            pod.claims = AuthorClaims {
                zones: zones.map(|zones| ZoneSet::parse(zones).unwrap()),
                unit,
            };
        })
    };
    let (zones_key, unit_key) = (
        "(\"tidepool.io/numa-zones\", ",
        "(\"tidepool.io/policy-unit\", ",
    );
    let none = "\"\")";
    for (case, ours, claimed, unit, want) in [
        (
            "nothing written, no plugin",
            &[][..],
            None,
            false,
            "[]".to_owned(),
        ),
        (
            "zones, no plugin",
            &[],
            Some("0,1"),
            false,
            format!("[{zones_key}{none}]"),
        ),
        (
            "a text that is no zones",
            &[],
            Some(""),
            false,
            format!("[{zones_key}{none}]"),
        ),
        ("a unit", &[], None, true, format!("[{unit_key}{none}]")),
        (
            "both",
            &[],
            Some("1"),
            true,
            format!("[{zones_key}{none}, {unit_key}{none}]"),
        ),
        (
            "zones, and the plugin",
            &[("NodeResourceTopology", 1)],
            Some("0,1"),
            false,
            format!("[{zones_key}\"0\")]"),
        ),
        (
            "a unit, and no policy",
            &[("NodeResourceTopology", 1), ("resourcepolicy", 1)],
            None,
            true,
            format!("[{zones_key}\"0\"), {unit_key}{none}]"),
        ),
    ] {
        let mut bench = machine_with(ours, &zones);
        bench.pod(&forged("p", claimed, unit));
        assert_eq!(next(&mut bench), format!("p {want}"), "{case}");
    }
}

/// A pod of 1m that claims all zones: others get those that it cannot need.
#[test]
fn zones_count_as_far_as_the_request_can_need_them() {
    let greedy = |cpu: &str| {
        pod("greedy")
            .dedicated(None)
            .container(cpu)
            .on("n")
            .zones("0,1")
    };
    for (case, cpu, want) in [
        ("one zone is enough", "cpu=1m", given("b", "1")),
        ("as much as a zone has", "cpu=4", given("b", "1")),
        (
            "both are needed",
            "cpu=5",
            "b 0/1 nodes are available".to_owned(),
        ),
    ] {
        let mut bench = scheduler();
        bench.pod(&greedy(cpu));
        bench.pod(&wants("b", 1));
        let found = next(&mut bench);
        assert!(found.starts_with(&want), "{case}: {found}");
    }
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

/// A pod that waits for its victims has its zones already: pods that come meanwhile get neither them nor what is left in them.
#[test]
fn a_nominated_pod_keeps_its_zones() {
    let mut bench = scheduler();
    bench.pod(&wants("low", 1).on("n").zones("0"));
    bench.pod(&pod("others").container("cpu=2").on("n"));
    bench.pod(&wants("high", 3).priority(50));
    let Some(Outcome::Preempt { victims, .. }) = bench.next() else {
        panic!("no preemption");
    };
    assert_eq!(victims.len(), 1);
    let uid = "high".into();
    bench.apply(Input::PreemptionDone { uid, failed: false });
    // The node has 8 cores; `high` requests 3 and takes 4.
    bench.pod(&pod("web").container("cpu=3"));
    let refused = next(&mut bench);
    assert!(refused.contains("Insufficient cpu"), "{refused}");
    bench.pod(&pod("small").container("cpu=2"));
    assert_eq!(split(&next(&mut bench)).0, "small");
    bench.gone("low");
    bench.wait(20);
    assert_eq!(next(&mut bench), given("high", "0"));
}

#[test]
fn a_pod_leaves_the_zone_that_a_nominated_pod_needs() {
    let zone = "cpu=4 memory=8Gi";
    let mut bench = on_machine(&[(0, zone), (0, zone), (1, zone), (1, zone)]);
    let low = wants("low", 1).on("n").zones("1");
    bench.pod(&low);
    bench.pod(&wants("keep", 1).priority(100).on("n").zones("3"));
    // Two zones of a socket: 0, which is idle, and 1.
    bench.pod(&wants("large", 6).priority(50));
    let Some(Outcome::Preempt { victims, .. }) = bench.next() else {
        panic!("no preemption");
    };
    assert_eq!(&*victims[0].name, "low");
    let uid = "large".into();
    bench.apply(Input::PreemptionDone { uid, failed: false });
    bench.pod(&low.terminating());
    bench.pod(&wants("small", 2));
    assert_eq!(next(&mut bench), given("small", "2"));
    bench.gone("low");
    bench.wait(20);
    assert_eq!(next(&mut bench), given("large", "0,1"));
}

#[test]
fn an_annotation_that_does_not_hold_is_told_once() {
    let mut bench = scheduler();
    let made = |name: &str, at: i64, zones: &str| {
        let pod = wants(name, 5).on("n").zones(zones);
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
fn every_pod_that_loses_a_zone_is_told() {
    let refused = |bench: &mut Bench| match bench.next() {
        Some(Outcome::Warn { pod, message }) => format!("{}: {message}", pod.name),
        other => panic!("no warning: {other:?}"),
    };
    let made = |name: &str, at: i64, zones: &str| {
        // More than a zone has, so that both zones of an annotation are needed.
        let pod = wants(name, 5).on("n").zones(zones);
        pod.with(|pod| pod.created = Timestamp::from_secs(at))
    };
    let text = "young: the pod does not get NUMA zone 1 of its annotation tidepool.io/numa-zones: an older pod has it";
    // The annotation of another pod is edited.
    let mut bench = scheduler();
    bench.pod(&made("old", 1, "0"));
    bench.pod(&made("young", 2, "1"));
    assert_eq!(bench.next(), None);
    bench.pod(&made("old", 1, "0,1"));
    let edited = refused(&mut bench);
    assert!(edited.starts_with("old: annotation"), "{edited}");
    assert_eq!(refused(&mut bench), text);
    assert_eq!(bench.next(), None);
    // The scheduler sees the report of the node after its pods.
    let mut bench = on_machine(&[]);
    bench.pod(&made("old", 1, "1"));
    bench.pod(&made("young", 2, "0,1"));
    while bench.next().is_some() {}
    let zones = report("n").zone("0", 0, "cpu=4").zone("0", 1, "cpu=4");
    for lends in [1, 2] {
        bench.apply(Input::Object(Update::from(zones.clone().lends(lends, 1))));
        if lends == 1 {
            assert_eq!(refused(&mut bench), text);
        }
        assert_eq!(bench.next(), None);
    }
}

#[test]
fn a_pod_without_zones_gets_an_empty_annotation() {
    let mut bench = scheduler();
    bench.pod(&wants("zero", 0));
    assert_eq!(next(&mut bench), given("zero", ""));
    bench.bound("zero", Ok(()));
    bench.pod(&wants("zero", 0).on("n").zones(""));
    bench.pod(&wants("large", 5));
    assert_eq!(next(&mut bench), given("large", "0,1"));
}

/// The message of the next outcome, which is a warning.
fn warning(bench: &mut Bench) -> String {
    match bench.next() {
        Some(Outcome::Warn { message, .. }) => message,
        other => panic!("no warning: {other:?}"),
    }
}

#[test]
fn an_annotation_that_a_user_edits_is_told_once() {
    let mut bench = scheduler();
    bench.pod(&wants("p", 1));
    assert_eq!(next(&mut bench), given("p", "0"));
    bench.bound("p", Ok(()));
    let seen = |zones: &str| wants("p", 1).on("n").zones(zones);
    bench.pod(&seen("0"));
    assert_eq!(bench.next(), None);
    for (zones, want) in [
        ("1", "changed from `0` to `1` after the bind"),
        ("7", "changed from `1` to `7` after the bind"),
    ] {
        bench.pod(&seen(zones));
        let found = warning(&mut bench);
        assert!(found.contains(want), "{found}");
        if zones == "7" {
            let found = warning(&mut bench);
            let want = "the node does not report NUMA zone 7 of the pod's annotation tidepool.io/numa-zones";
            assert_eq!(found, want);
        }
        bench.pod(&seen(zones));
        assert_eq!(bench.next(), None);
    }
    let removed = wants("p", 1).on("n");
    bench.pod(&removed);
    let found = warning(&mut bench);
    assert!(found.contains("changed from `7` to ``"), "{found}");
    bench.pod(&removed);
    assert_eq!(bench.next(), None);
}

#[test]
fn numa_binding_of_other_levels_is_told_once_and_has_no_effect() {
    use crate::model::QosLevel;

    for level in [QosLevel::Shared, QosLevel::Reclaimed, QosLevel::System] {
        let mut bench = scheduler();
        let text = "numa_binding has no effect";
        let odd = pod("odd").container("cpu=1").with(|pod| {
            pod.level = level;
            pod.enhancements.numa_binding = true;
            pod.warnings = vec![text.to_owned()];
        });
        bench.pod(&odd);
        bench.pod(&odd);
        assert_eq!(warning(&mut bench), text, "{level:?}");
        assert_eq!(next(&mut bench), "odd []", "{level:?}");
        bench.pod(&odd.on("n"));
        assert_eq!(bench.next(), None, "{level:?}");
        let zones = bench.scheduler.cluster().zones_of(0).unwrap();
        assert_eq!((zones.idle().len(), zones.holders()), (2, &[][..]));
    }
}

/// What an explanation says about the zones of a pod: the zones, and why fewer do not suffice.
fn explained(bench: &mut Bench, name: &str) -> (String, Option<String>) {
    let report = bench.scheduler.explain("default", name, bench.now).unwrap();
    let zones = report.zones.unwrap();
    assert_eq!((&*zones.node, zones.is_exclusive), ("n", true));
    (zones.zones, zones.why)
}

#[test]
fn an_explanation_names_the_zones_and_why_fewer_do_not_suffice() {
    // The zones as socket, cpu and memory; the pods that have zones; the request; the zones that it gets.
    type Machine<'a> = &'a [(u8, &'a str)];
    let small: Machine = &[(0, "cpu=4 memory=8Gi"), (0, "cpu=4 memory=8Gi")];
    let mixed: Machine = &[
        (0, "cpu=8 memory=8Gi"),
        (1, "cpu=4 memory=8Gi"),
        (1, "cpu=4 memory=8Gi"),
    ];
    let skewed: Machine = &[
        (0, "cpu=4 memory=2Gi"),
        (0, "cpu=4 memory=2Gi"),
        (0, "cpu=1 memory=8Gi"),
    ];
    let apart: Machine = &[
        (0, "cpu=6 memory=8Gi"),
        (0, "cpu=2 memory=8Gi"),
        (0, "cpu=2 memory=8Gi"),
        (1, "cpu=6 memory=8Gi"),
    ];
    for (zones, others, wants, got, why) in [
        (small, "", "cpu=4", "0", None),
        (
            small,
            "",
            "cpu=6",
            "0,1",
            Some("it requests 6 of cpu, and 1 zone has at most 4"),
        ),
        (
            small,
            "",
            "memory=10Gi",
            "0,1",
            Some("it requests 10Gi of memory, and 1 zone has at most 8Gi"),
        ),
        (
            mixed,
            "0",
            "cpu=8",
            "1,2",
            Some("zone 0 is enough, but in use by default/other"),
        ),
        (
            skewed,
            "",
            "cpu=3 memory=7Gi",
            "0,2",
            Some("no single zone has both 3 of cpu and 7Gi of memory"),
        ),
        (
            apart,
            "",
            "cpu=9",
            "0,1,2",
            Some("zones 0,3 are enough, but of different sockets"),
        ),
    ] {
        let mut bench = on_machine(zones);
        if !others.is_empty() {
            bench.pod(&wants_amounts("other", "cpu=1").on("n").zones(others));
        }
        bench.pod(&wants_amounts("pod", wants));
        // The zones that it would get, while it waits.
        let want = (got.to_owned(), why.map(str::to_owned));
        assert_eq!(explained(&mut bench, "pod"), want, "{zones:?} {wants}");
        assert_eq!(next(&mut bench), given("pod", got), "{zones:?} {wants}");
        assert_eq!(explained(&mut bench, "pod"), want, "{zones:?} {wants}");
    }
}

fn wants_amounts(name: &str, amounts: &str) -> PodBuilder {
    pod(name).dedicated(None).container(amounts)
}

#[test]
fn an_explanation_names_other_pods_that_need_the_zone() {
    let mut bench = on_machine(&[(0, "cpu=8"), (0, "cpu=3"), (0, "cpu=3")]);
    bench.pod(&pod("plain").container("cpu=8").on("n"));
    bench.pod(&wants_amounts("pod", "cpu=5"));
    let why = "zone 0 is enough, but then the other pods of the node do not fit";
    let want = ("1,2".to_owned(), Some(why.to_owned()));
    assert_eq!(explained(&mut bench, "pod"), want);
    assert_eq!(next(&mut bench), given("pod", "1,2"));
    assert_eq!(explained(&mut bench, "pod"), want);
}

#[test]
fn an_explanation_says_what_has_changed_since() {
    let mut bench = on_machine(&[(0, "cpu=8"), (1, "cpu=4"), (1, "cpu=4")]);
    bench.pod(&wants_amounts("pod", "cpu=8").on("n").zones("1,2"));
    let why = "zone 0 is enough now, but not when the pod got its zones";
    let want = ("1,2".to_owned(), Some(why.to_owned()));
    assert_eq!(explained(&mut bench, "pod"), want);
    // An older pod claims one of them.
    let older = wants_amounts("older", "cpu=1").on("n").zones("2");
    bench.pod(&older.with(|pod| pod.created = Timestamp::from_secs(-5)));
    let report = bench.scheduler.explain("default", "pod", bench.now);
    let zones = report.unwrap().zones.unwrap();
    assert_eq!(
        (&zones.zones[..], zones.refused.as_deref()),
        ("1", Some("2"))
    );
}

#[test]
fn an_explanation_counts_the_idle_zones_of_each_node() {
    let mut bench = scheduler();
    bench.pod(&wants("first", 1).on("n").zones("0"));
    bench.pod(&wants("large", 6));
    let report = bench.scheduler.explain("default", "large", bench.now);
    let report = report.unwrap();
    assert_eq!(report.zones, None);
    let texts = report.nodes.iter().map(|it| it.result.explanation.clone());
    let want = "cannot align container: it needs 2 idle NUMA zones of one socket; 1 of 2 are idle";
    assert_eq!(texts.collect::<Vec<_>>(), [Some(want.to_owned())]);
}
