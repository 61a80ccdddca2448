//! The vectors of Katalyst's own tests, the smallest sets by brute force, and what is lost to others.

use std::sync::Arc;

use super::*;
use crate::cluster::kinds::Update;
use crate::model::{NumaBinding, Topology};
use crate::scheduling::framework::ZoneScore;
use crate::testing::{Lab, NodeBuilder, Numbers, PodBuilder, ReportBuilder, node, pod, report};

const NUMERIC: &str = "NumericContainerLevel";
const SINGLE: &str = "SingleNUMANodeContainerLevel";
const ZONE: &str = "cannot align container: it needs 1 idle NUMA zone";

fn plugin(strategy: &str, aligned: &[&str]) -> NodeResourceTopology {
    let args = NodeResourceTopologyArgs {
        scoring_strategy: Some(ZoneScoringStrategy {
            kind: strategy.to_owned(),
            ..ZoneScoringStrategy::default()
        }),
        aligned_resources: aligned.iter().map(|&name| name.to_owned()).collect(),
        ..NodeResourceTopologyArgs::default()
    };
    NodeResourceTopology::with(args).ok().unwrap()
}

fn lab(strategy: &str) -> Lab {
    Lab::new(plugin(strategy, &[]))
}

/// A node of zones in sockets of two; the others are used by pods that the agent saw.
fn machine(lab: Lab, policy: &str, name: &str, zones: &[(&str, &str)]) -> Lab {
    let mut lab = lab.node(node(name).allocatable("cpu=64 memory=256Gi"));
    let mut found = report(name).policy(policy);
    for (id, (amounts, used)) in (0..).zip(zones) {
        found = found.zone(&(id / 2).to_string(), id, amounts);
        if !used.is_empty() {
            let uid = format!("{name}-{id}");
            found = found.allocation(id, &uid, used);
            let user = pod(&uid).dedicated(Some(false)).on(name).container(used);
            lab = lab.placed(user);
        }
    }
    lab.object(found)
}

/// The five machines of Katalyst's tests.
fn machines(lab: Lab, policy: &str) -> Lab {
    let (large, small) = ("cpu=4 memory=8Gi", "cpu=2 memory=4Gi");
    let free = |amounts| (amounts, "");
    let lab = machine(lab, policy, "a", &[free(large); 2]);
    let lab = machine(lab, policy, "b", &[free(small); 2]);
    let part = (large, "cpu=1 memory=2Gi");
    let lab = machine(lab, policy, "c", &[free(large), part]);
    let full = (small, small);
    let lab = machine(lab, policy, "d", &[free(small), full, full, free(small)]);
    machine(lab, policy, "e", &[free(small), free(small), full, full])
}

fn fits(found: &[String]) -> String {
    let verdicts = found.iter().zip("ABCDE".chars());
    let verdicts = verdicts.filter(|(verdict, _)| *verdict == "ok");
    verdicts.map(|(_, name)| name).collect()
}

#[test]
fn filters_as_katalyst_does() {
    // (policy, exclusive, requests, machines that fit)
    for (policy, exclusive, requests, want) in [
        (SINGLE, false, "cpu=4 memory=8Gi", "AC"),
        (NUMERIC, false, "cpu=4 memory=8Gi", "AC"),
        (NUMERIC, true, "cpu=4 memory=8Gi", "ABCE"),
        (SINGLE, true, "cpu=2 memory=4Gi", "ABCDE"),
        (NUMERIC, true, "cpu=2 memory=4Gi", "ABCDE"),
        // Katalyst lets these pass.
        ("None", true, "cpu=4 memory=8Gi", "ABCE"),
        ("BestEffortPodLevel", false, "cpu=4 memory=8Gi", "AC"),
        ("SingleNUMANodePodLevel", true, "cpu=4 memory=8Gi", "AC"),
        // A request of 0 never fails.
        (NUMERIC, true, "cpu=0", "ABCDE"),
        (SINGLE, true, "", "ABCDE"),
    ] {
        let lab = machines(lab("LeastAllocated"), policy);
        let found = lab.filter(&pod("p").dedicated(Some(exclusive)).container(requests));
        assert_eq!(fits(&found), want, "{policy} {exclusive} {requests}");
    }
}

#[test]
fn a_resource_that_is_not_aligned_may_come_from_several_zones() {
    let gpus = "cpu=4 memory=8Gi example.com/gpu=4";
    for (aligned, want) in [
        (&["cpu", "memory"][..], "ok"),
        (
            &["cpu", "memory", "example.com/gpu"][..],
            "U cannot align container: no NUMA zone has enough left",
        ),
    ] {
        let lab = Lab::new(plugin("LeastAllocated", aligned));
        let lab = machine(lab, NUMERIC, "a", &[(gpus, ""); 2]);
        let wants = |gpus: u32| {
            let requests = format!("cpu=4 memory=8Gi example.com/gpu={gpus}");
            pod("p").dedicated(Some(false)).container(&requests)
        };
        assert_eq!(lab.filter(&wants(6)), [want], "{aligned:?}");
        if aligned.len() == 2 {
            let text = "U cannot align container: the NUMA zones do not have enough of its other resources";
            assert_eq!(lab.filter(&wants(9)), [text]);
        }
    }
}

#[test]
fn devices_that_no_zone_reports_are_not_bound_to_zones() {
    let zone = "cpu=4 memory=8Gi";
    for policy in [NUMERIC, SINGLE] {
        for exclusive in [true, false] {
            let aligned = ["cpu", "memory", "example.com/gpu"];
            let lab = Lab::new(plugin("LeastAllocated", &aligned));
            let lab = machine(lab, policy, "a", &[(zone, ""), (zone, zone)]);
            let lab = machine(lab, policy, "b", &[(zone, zone); 2]);
            let wants = |requests: &str| pod("p").dedicated(Some(exclusive)).container(requests);
            let found = lab.filter(&wants("cpu=4 example.com/gpu=6"));
            assert_eq!(found[0], "ok", "{policy} {exclusive}");
            assert_ne!(found[1], "ok", "{policy} {exclusive}");
            let found = lab.filter(&wants("example.com/gpu=6"));
            assert_eq!(found, ["ok", "ok"], "{policy} {exclusive}");
        }
    }
}

#[test]
fn reasons_count_zones() {
    let large = ("cpu=4 memory=8Gi", "");
    let small = "cpu=2 memory=4Gi";
    let lab = machine(lab("LeastAllocated"), NUMERIC, "a", &[large; 2]);
    let full = (small, small);
    let lab = machine(lab, NUMERIC, "d", &[(small, ""), full, full, (small, "")]);
    let lab = lab.node(node("plain"));
    let wants = |cpu: &str| pod("p").dedicated(None).container(&format!("cpu={cpu}"));
    let none = "UU node(s) reported no NUMA zones";
    let large = "U cannot align container: it is larger than the NUMA zones of the node";
    for (cpu, want) in [
        ("2", ["ok", "ok", none]),
        (
            "3",
            [
                "ok",
                "U cannot align container: it needs 2 idle NUMA zones of one socket",
                none,
            ],
        ),
        (
            "6",
            [
                "ok",
                "U cannot align container: it needs 3 idle NUMA zones",
                none,
            ],
        ),
        ("100", [large, large, none]),
    ] {
        assert_eq!(lab.filter(&wants(cpu)), want, "{cpu}");
    }
    assert_eq!(lab.filter(&pod("plain").container("cpu=60")), ["ok"; 3]);
}

#[test]
fn scores_as_katalyst_does() {
    let half = |used: &str| ("cpu=4 memory=8Gi", used.to_owned());
    let scores = |strategy, exclusive, requests: &str, zones: &[(&str, String)], policy| {
        let zones: Vec<(&str, &str)> = zones.iter().map(|(all, used)| (*all, &used[..])).collect();
        let lab = machine(lab(strategy), policy, "n", &zones);
        let wants = pod("p").dedicated(Some(exclusive)).container(requests);
        lab.scores(&wants).unwrap()[0].0
    };
    let a = [half(""), half("")];
    let b = ["", ""].map(|used| ("cpu=2 memory=4Gi", used.to_owned()));
    let used = [half("cpu=1 memory=2Gi"), half("cpu=3 memory=6Gi")];
    let small = "cpu=2 memory=4Gi";
    for (case, strategy, exclusive, requests, zones, policy, want) in [
        (
            "half of a zone",
            "MostAllocated",
            false,
            small,
            &a,
            SINGLE,
            50,
        ),
        (
            "a whole zone",
            "MostAllocated",
            false,
            small,
            &b,
            SINGLE,
            100,
        ),
        (
            "what is left",
            "MostAllocated",
            false,
            small,
            &used,
            SINGLE,
            66,
        ),
        (
            "of one zone",
            "MostAllocated",
            true,
            "cpu=3 memory=6Gi",
            &a,
            NUMERIC,
            75,
        ),
        (
            "of two zones",
            "MostAllocated",
            true,
            "cpu=3 memory=6Gi",
            &b,
            NUMERIC,
            75,
        ),
        (
            "none idle",
            "MostAllocated",
            true,
            "cpu=3 memory=6Gi",
            &used,
            NUMERIC,
            0,
        ),
        (
            "least",
            "LeastAllocated",
            true,
            "cpu=1 memory=4Gi",
            &a,
            NUMERIC,
            62,
        ),
        (
            "cores are whole",
            "LeastAllocated",
            true,
            "cpu=1500m",
            &a,
            NUMERIC,
            50,
        ),
        (
            "balanced",
            "BalancedAllocation",
            true,
            "cpu=4 memory=4Gi",
            &a,
            NUMERIC,
            87,
        ),
        (
            "one resource",
            "BalancedAllocation",
            true,
            "cpu=1",
            &a,
            NUMERIC,
            100,
        ),
        (
            "nothing scored",
            "LeastAllocated",
            true,
            "example.com/x=1",
            &a,
            NUMERIC,
            0,
        ),
    ] {
        let found = scores(strategy, exclusive, requests, zones, policy);
        assert_eq!(found, want, "{case}");
    }
    assert_eq!(lab("MostAllocated").scores(&pod("plain")), Some(vec![]));
}

#[test]
fn native_pods_fit_one_zone() {
    let args = NodeResourceTopologyArgs {
        resource_plugin_policy: "native".to_owned(),
        ..NodeResourceTopologyArgs::default()
    };
    let native = NodeResourceTopology::with(args).ok().unwrap();
    let mut lab = Lab::new(native);
    // Such a pod also fits a node without zones.
    let zones = report("n").zone("0", 0, "cpu=4");
    assert!(lab.helps_report(&pod("p"), Some(zones), None));
    let zones = [("cpu=4 memory=8Gi", ""); 2];
    for policy in [SINGLE, "SingleNUMANodePodLevel", NUMERIC] {
        lab = machine(lab, policy, policy, &zones);
    }
    lab = lab.node(node("plain"));
    let wants = |cpu: u32, pinned| {
        let pod = pod("p").container(&format!("cpu={cpu}"));
        pod.with(|pod| pod.pinned_cores = pinned)
    };
    assert_eq!(lab.filter(&wants(4, true)), ["ok"; 4]);
    assert_eq!(lab.filter(&wants(5, false)), ["ok"; 4]);
    assert_eq!(
        lab.filter(&pod("p").dedicated(None).container("cpu=5")),
        ["ok"; 4]
    );
    let container = "U cannot align container: no NUMA zone has enough left";
    let found = lab.filter(&wants(5, true));
    assert_eq!(found, [container, "U cannot align pod", "ok", "ok"]);
}

#[test]
fn wrong_arguments() {
    let faults = |change: &dyn Fn(&mut NodeResourceTopologyArgs)| {
        let mut args = NodeResourceTopologyArgs::default();
        NodeResourceTopology::complete(&mut args);
        change(&mut args);
        let errors = NodeResourceTopology::new(args).err().unwrap();
        errors
            .into_iter()
            .map(|error| error.to_string())
            .collect::<Vec<_>>()
    };
    let strategy = |kind: &str| {
        Some(ZoneScoringStrategy {
            kind: kind.to_owned(),
            ..ZoneScoringStrategy::default()
        })
    };
    assert_eq!(
        faults(&|args| args.scoring_strategy = strategy("LeastNUMANodes")),
        ["scoringStrategy.type: LeastNUMANodes not support yet"]
    );
    assert!(faults(&|args| args.scoring_strategy = strategy("Random"))[0].contains("\"Random\""));
    assert!(
        faults(&|args| args.resource_plugin_policy = "static".into())[0].contains("\"static\"")
    );
    assert!(faults(&|args| args.aligned_resources.push("gold".into()))[0].contains("\"gold\""));
}

fn exclusive(name: &str, cpu: u32) -> PodBuilder {
    pod(name)
        .dedicated(None)
        .container(&format!("cpu={cpu} memory=1Gi"))
}

/// A node with two zones of 4 cores and 8 GiB each.
fn two_zones() -> (NodeBuilder, ReportBuilder) {
    let zone = "cpu=4 memory=8Gi";
    let report = report("n").zone("0", 0, zone).zone("0", 1, zone);
    (node("n").allocatable("cpu=8 memory=16Gi"), report)
}

#[test]
fn a_zone_has_one_owner() {
    let (machine, zones) = two_zones();
    let lab = || {
        lab("LeastAllocated")
            .node(machine.clone())
            .object(zones.clone())
    };
    let wants = exclusive("p", 1);
    // It needs both zones; of a pod that needs one, only one counts.
    let owner = exclusive("owner", 5).on("n");
    assert_eq!(lab().filter(&wants), ["ok"]);
    let one = lab().placed(owner.clone().zones("0"));
    assert_eq!(one.filter(&wants), ["ok"]);
    let both = || lab().placed(owner.clone().zones("0,1"));
    let greedy = lab().placed(exclusive("owner", 1).on("n").zones("0,1"));
    assert_eq!(greedy.filter(&wants), ["ok"]);
    assert_eq!(both().filter(&wants), [format!("U {ZONE}")]);
    assert_eq!(both().filter_without(&wants, "n", &["owner"]), "ok");
    // A pod that shares does not go to the rest of a zone that another has alone.
    let shares = pod("s").dedicated(Some(false)).container("cpu=1");
    assert_eq!(
        both().filter(&shares),
        ["U cannot align container: no NUMA zone has enough left"]
    );
    // What the agent sees counts as well as what the scheduler said, but only of pods that are there.
    let seen = zones.clone().allocation(1, "owner", "cpu=4");
    let joined = lab().placed(owner.clone().zones("0")).object(seen.clone());
    assert_eq!(joined.filter(&wants), [format!("U {ZONE}")]);
    assert_eq!(lab().object(seen.clone()).filter(&wants), ["ok"]);
    // Nor do pods of other nodes count, or pods that ended.
    let elsewhere = lab().node(node("m")).object(seen);
    let elsewhere = elsewhere.placed(exclusive("owner", 1).on("m").zones("0,1"));
    let none = "UU node(s) reported no NUMA zones".to_owned();
    assert_eq!(elsewhere.filter(&wants), ["ok".to_owned(), none]);
    // The zones stay the pod's while the agent reports none.
    let silent = both().object(report("n"));
    assert_eq!(silent.filter(&wants), ["UU node(s) reported no NUMA zones"]);
    let back = silent.object(zones.clone());
    assert_eq!(back.filter(&wants), [format!("U {ZONE}")]);
    // So they do while one of them is missing, and while the report is.
    let first = report("n").zone("0", 0, "cpu=4 memory=8Gi");
    let half = both().object(first);
    assert_eq!(half.filter(&wants), [format!("U {ZONE}")]);
    let back = half.object(zones.clone());
    assert_eq!(back.filter(&wants), [format!("U {ZONE}")]);
    let name: crate::model::Name = "n".into();
    let gone = Update::Delete(crate::cluster::kinds::Kind::CustomNodeResource, name.into());
    let back = both().apply(gone).object(zones.clone());
    assert_eq!(back.filter(&wants), [format!("U {ZONE}")]);
}

#[test]
fn a_pod_whose_zones_are_not_there_counts_with_the_others() {
    let (machine, zones) = two_zones();
    let lost = |shares| {
        let lost = pod("lost").dedicated(shares).container("cpu=5 memory=1Gi");
        lab("LeastAllocated")
            .node(machine.clone())
            .object(zones.clone())
            .placed(lost.on("n").zones("7"))
    };
    let refused = "U cannot align container: the other pods of the node do not fit the NUMA zones that would remain";
    for shares in [None, Some(false)] {
        assert_eq!(lost(shares).filter(&exclusive("p", 1)), [refused]);
    }
}

#[test]
fn of_two_claims_the_older_holds() {
    let (machine, zones) = two_zones();
    let made = |name: &str, at: i64, zones: &str| {
        let pod = exclusive(name, 5).on("n").zones(zones);
        pod.with(|pod| pod.created = crate::model::Timestamp(at))
    };
    let lab = lab("LeastAllocated")
        .node(machine)
        .object(zones)
        .placed(made("young", 2, "0,1"))
        .placed(made("old", 1, "0"));
    let zones = lab.cluster.zones_of(0).unwrap();
    let found = zones.holders().iter();
    let found: Vec<String> = found
        .map(|it| format!("{} has {} not {}", it.name, it.zones, it.refused))
        .collect();
    assert_eq!(found, ["old has 0 not ", "young has 1 not 0"]);
}

#[test]
fn what_is_left_over_is_lost_to_others() {
    let fit = crate::scheduling::plugins::find("NodeResourcesFit").unwrap();
    let (machine, zones) = two_zones();
    let base = || Lab::of(fit).node(machine.clone()).object(zones.clone());
    let plain = |cpu: u32| pod("plain").container(&format!("cpu={cpu} memory=1Gi"));
    let owned = || base().placed(exclusive("owner", 1).on("n").zones("1"));
    assert_eq!(base().filter(&plain(7)), ["ok"]);
    assert_eq!(owned().filter(&plain(4)), ["ok"]);
    assert_eq!(owned().filter(&plain(5)), ["U Insufficient cpu"]);
    // Preemption of the owner frees the whole zone.
    assert_eq!(owned().filter_without(&plain(5), "n", &["owner"]), "ok");
    // A shared zone loses nothing.
    let shared = pod("s")
        .dedicated(Some(false))
        .container("cpu=1 memory=1Gi");
    let shared = base().placed(shared.on("n").zones("1"));
    assert_eq!(shared.filter(&plain(7)), ["ok"]);
    // What the node has beyond its zones is in none of them.
    let larger = machine.clone().allocatable("cpu=10 memory=16Gi");
    let larger = owned().node(larger);
    assert_eq!(larger.filter(&plain(4)), ["ok"]);
    assert_eq!(larger.filter(&plain(5)), ["U Insufficient cpu"]);
}

#[test]
fn what_a_node_lends_is_that_of_the_zones_that_remain() {
    let fit = crate::scheduling::plugins::find("QoSAwareNodeResourcesFit").unwrap();
    let (machine, zones) = two_zones();
    let zones = zones.lends(4_000, 8 << 30);
    let job = |cpu: u32| {
        let name = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
        pod("job").reclaimed().container(&format!("{name}={cpu}"))
    };
    let short = "U Insufficient resource.katalyst.kubewharf.io/reclaimed_millicpu";
    let by_zone = zones.clone().with_topology(|_, zones| {
        for (zone, lent) in zones.iter_mut().zip([1_000, 3_000]) {
            zone.reclaimed = Some(crate::model::Reclaimed::lent(lent, 4 << 30));
        }
    });
    for (case, zones, largest) in [("by share", zones, 2_000), ("by zone", by_zone, 1_000)] {
        let lab = Lab::of(fit).node(machine.clone()).object(zones);
        assert_eq!(lab.filter(&job(4_000)), ["ok"], "{case}");
        let lab = lab.placed(exclusive("owner", 1).on("n").zones("1"));
        assert_eq!(lab.filter(&job(largest)), ["ok"], "{case}");
        assert_eq!(lab.filter(&job(largest + 1)), [short], "{case}");
        let owner = exclusive("owner", 1).on("n");
        assert!(lab.helps_pod(&job(4_000), Some(owner), None), "{case}");
    }
}

#[test]
fn other_pods_keep_zones_that_they_fit() {
    let (machine, zones) = two_zones();
    let with = |plain: &str| {
        let plain = pod("plain").container(plain).on("n");
        lab("LeastAllocated")
            .node(machine.clone())
            .object(zones.clone())
            .placed(plain)
    };
    let refused = "U cannot align container: the other pods of the node do not fit the NUMA zones that would remain";
    let wants = exclusive("p", 1);
    assert_eq!(with("cpu=4").filter(&wants), ["ok"]);
    assert_eq!(with("cpu=5").filter(&wants), [refused]);
    assert_eq!(with("memory=9Gi").filter(&wants), [refused]);
    assert_eq!(with("cpu=5").filter_without(&wants, "n", &["plain"]), "ok");
    // A pod that is nominated to the node takes its zone first.
    let nominated = lab("LeastAllocated")
        .node(machine.clone())
        .object(zones.clone())
        .nominated(exclusive("first", 5).priority(9), "n");
    assert_eq!(nominated.filter(&wants), [format!("U {ZONE}")]);
}

#[test]
fn of_zones_that_suffice_a_pod_gets_those_that_others_do_not_need() {
    let chosen = |policy: &str, zones: &[&str], plain: &str, wants: &str| {
        let found = (0..).zip(zones).fold(report("n"), |found, (id, amounts)| {
            found.zone("0", id, amounts)
        });
        let topology = found.policy(policy).build().topology.unwrap();
        let plain = pod("plain").container(plain).on("n").build();
        let zones = NodeZones::of(&topology, std::iter::once(&plain));
        let wants = pod("p").dedicated(None).container(wants).build();
        let demand = plugin("LeastAllocated", &[]).demand(&wants).unwrap();
        let found = demand.choose(&zones);
        let by_row = demand.check_row(&ZoneRow::of(Some(&zones)));
        assert!(
            by_row.is_none_or(|it| it == found.map(|_| ())),
            "{by_row:?}"
        );
        found.map(|zones| zones.to_string())
    };
    let idle = |needed| Shortfall::Idle {
        needed,
        one_socket: true,
    };
    for (case, policy, zones, plain, wants, want) in [
        (
            "one",
            SINGLE,
            &["cpu=8", "cpu=4"][..],
            "cpu=5",
            "cpu=2",
            Ok("1"),
        ),
        (
            "one",
            NUMERIC,
            &["cpu=8", "cpu=4"],
            "cpu=5",
            "cpu=2",
            Ok("1"),
        ),
        (
            "two that are smaller",
            NUMERIC,
            &["cpu=8", "cpu=3", "cpu=3"],
            "cpu=8",
            "cpu=5",
            Ok("1,2"),
        ),
        (
            "the others need all",
            NUMERIC,
            &["cpu=4", "cpu=4"],
            "cpu=5",
            "cpu=2",
            Err(Shortfall::OtherPods),
        ),
        (
            "the others need all, and one is allowed",
            SINGLE,
            &["cpu=4", "cpu=4"],
            "cpu=5",
            "cpu=2",
            Err(Shortfall::OtherPods),
        ),
        (
            "no cpu, no memory",
            SINGLE,
            &["cpu=4"],
            "",
            "ephemeral-storage=1Gi",
            Ok(""),
        ),
        (
            "no cpu, no memory",
            NUMERIC,
            &["cpu=4"],
            "",
            "ephemeral-storage=1Gi",
            Ok(""),
        ),
        (
            "more devices than one zone has",
            SINGLE,
            &["cpu=4 example.com/gpu=4", "cpu=4 example.com/gpu=4"],
            "",
            "cpu=1 example.com/gpu=6",
            Err(Shortfall::TooLarge),
        ),
        (
            "larger than a zone",
            SINGLE,
            &["cpu=4", "cpu=4"],
            "",
            "cpu=5",
            Err(Shortfall::TooLarge),
        ),
        (
            "two zones",
            NUMERIC,
            &["cpu=4", "cpu=4"],
            "",
            "cpu=5",
            Ok("0,1"),
        ),
    ] {
        let found = chosen(policy, zones, plain, wants);
        assert_eq!(found, want.map(str::to_owned), "{case}, {policy}");
    }
    let taken = report("n").zone("0", 0, "cpu=4").zone("0", 1, "cpu=4");
    let owner = exclusive("owner", 1).on("n").zones("0").build();
    let zones = NodeZones::of(&taken.build().topology.unwrap(), std::iter::once(&owner));
    let wants = pod("p").dedicated(None).container("cpu=5").build();
    let demand = plugin("LeastAllocated", &[]).demand(&wants).unwrap();
    assert_eq!(demand.choose(&zones), Err(idle(2)));
}

#[test]
fn wakes_when_zones_may_be_free() {
    let (_, zones) = two_zones();
    let lab = lab("LeastAllocated");
    let wants = exclusive("p", 1);
    let other = || pod("other").on("n");
    assert!(lab.helps_pod(&wants, Some(other()), None));
    assert!(!lab.helps_pod(&wants, Some(pod("waits")), None));
    assert!(lab.helps_report(&wants, None, Some(zones.clone())));
    assert!(lab.helps_report(&wants, Some(report("n")), Some(zones.clone())));
    let taken = zones.clone().allocation(0, "x", "cpu=1");
    assert!(!lab.helps_report(&wants, Some(zones.clone()), Some(taken.clone())));
    assert!(lab.helps_report(&wants, Some(taken), Some(zones.clone())));
    assert!(!lab.helps_report(&wants, Some(zones.clone()), Some(zones.lends(1, 1))));
    assert!(!lab.helps_report(&wants, None, Some(report("n"))));
    assert!(!lab.helps_report(&wants, Some(report("n").zone("0", 0, "cpu=4")), None));
    assert!(lab.helps_node(&wants, None, Some(node("n"))));
    let holds = |zones: &str| Some(exclusive("other", 1).on("n").zones(zones));
    assert!(lab.helps_pod(&wants, holds("0,1"), holds("0")));
    assert!(!lab.helps_pod(&wants, holds("0"), holds("0,1")));
}

/// A machine of up to six unequal zones, some of them taken.
fn random_machine(numbers: &mut Numbers) -> (Arc<Topology>, Vec<Arc<Pod>>) {
    let count = 1 + numbers.below(6) as u8;
    let sockets = 1 + numbers.below(3);
    let mut found = report("n");
    let mut pods = Vec::new();
    for position in 0..count {
        // Ids are sparse.
        let id = position * 3 + numbers.below(3) as u8;
        let socket = numbers.below(sockets).to_string();
        let amounts = format!("cpu={} memory={}Gi", numbers.below(5), numbers.below(5));
        found = found.zone(&socket, id, &amounts);
        if numbers.below(3) == 0 {
            let shares = numbers.below(2) == 0;
            let owner = pod(&format!("owner-{id}")).dedicated(Some(!shares));
            pods.push(owner.on("n").zones(&id.to_string()).build());
        }
    }
    if numbers.below(3) == 0 {
        let amounts = format!("cpu={} memory={}Gi", numbers.below(8), numbers.below(8));
        pods.push(pod("plain").container(&amounts).on("n").build());
    }
    let distances: Vec<Vec<u32>> = (0..count)
        .map(|_| (0..count).map(|_| 10 + numbers.below(3) as u32).collect())
        .collect();
    let found = found.with_topology(|_, zones| {
        for (zone, distances) in zones.iter_mut().zip(distances) {
            zone.distances = distances;
        }
    });
    (found.build().topology.unwrap(), pods)
}

/// All sets of idle zones that suffice and leave enough to a plain pod: in one socket, if any socket is large enough.
fn allowed(zones: &NodeZones, demand: &ZoneDemand, plain: Option<&Arc<Pod>>) -> Vec<ZoneSet> {
    let topology = zones.topology();
    let leaves_enough = |set: ZoneSet| {
        let rest = topology.all().without(set).without(zones.exclusive());
        [Resource::Cpu, Resource::Memory].iter().all(|resource| {
            let wanted = plain.map_or(0, |pod| pod.requests.placed.get(resource));
            wanted == 0 || wanted <= topology.allocatable(rest, resource)
        })
    };
    let ids: Vec<u8> = topology.all().iter().collect();
    let subsets = (0_u32..1 << ids.len()).map(|bits| {
        let chosen = ids.iter().enumerate();
        let chosen = chosen.filter(|(position, _)| bits & (1 << position) != 0);
        chosen.fold(ZoneSet::EMPTY, |set, (_, id)| {
            set.with(ZoneSet::of(*id).unwrap())
        })
    });
    let suffices = |set: ZoneSet| {
        let mut wanted = demand.aligned().iter();
        wanted.all(|(resource, amount)| {
            let sum: i64 = set
                .iter()
                .map(|id| topology.zone(id).unwrap().allocatable.get(resource))
                .sum();
            sum >= *amount
        })
    };
    let in_one_socket = topology.sockets().iter().any(|socket| suffices(*socket));
    subsets
        .filter(|set| set.without(zones.idle()).is_empty() && suffices(*set))
        .filter(|set| leaves_enough(*set))
        .filter(|set| {
            let mut sockets = topology.sockets().iter();
            !in_one_socket || sockets.any(|socket| set.without(*socket).is_empty())
        })
        .collect()
}

#[test]
fn the_chosen_set_is_a_smallest_one() {
    let mut numbers = Numbers::new(0x5eed_2100);
    let (mut chosen, mut refused) = (0, 0);
    for case in 0..100_000 {
        let (topology, pods) = random_machine(&mut numbers);
        let zones = NodeZones::of(&topology, pods.iter());
        let requests = format!(
            "cpu={} memory={}Gi",
            1 + numbers.below(12),
            numbers.below(8)
        );
        let wants = pod("p").dedicated(None).container(&requests).build();
        let aligned = [Resource::Cpu, Resource::Memory];
        let demand = ZoneDemand::new(&wants, NumaBinding::Exclusive, &aligned);
        let plain = pods.iter().find(|pod| &*pod.name == "plain");
        let all = allowed(&zones, &demand, plain);
        let found = demand.choose(&zones);
        assert_eq!(
            demand.check(Some(&zones)),
            found.map(|_| ()),
            "case {case}: {topology:?}"
        );
        let Ok(found) = found else {
            assert_eq!(all, [], "case {case}: {topology:?}");
            refused += 1;
            continue;
        };
        assert!(all.contains(&found), "case {case}: {found} of {topology:?}");
        let best = all.iter().map(|set| (set.len(), topology.distance(*set)));
        let best = best.min().unwrap();
        let found = (found.len(), topology.distance(found));
        assert_eq!(found, best, "case {case}: {topology:?}");
        chosen += 1;
    }
    assert!(chosen > 20_000 && refused > 20_000, "{chosen} {refused}");
}

/// Up to nine zones, some with devices, under any policy, with pods of all kinds on the node.
fn busy_machine(numbers: &mut Numbers) -> NodeZones {
    let policies = [SINGLE, NUMERIC, NUMERIC, "None"];
    let mut found = report("n").policy(policies[numbers.below(4) as usize]);
    let mut pods = Vec::new();
    let (sockets, has_devices) = (1 + numbers.below(4), numbers.below(4) == 0);
    let amounts = |numbers: &mut Numbers| {
        let (cpu, memory) = (numbers.below(5) * 500, numbers.below(5));
        format!("cpu={cpu}m memory={memory}Gi")
    };
    for id in 0..1 + numbers.below(9) as u8 {
        let socket = numbers.below(sockets).to_string();
        let devices = if has_devices {
            " example.com/gpu=2"
        } else {
            ""
        };
        found = found.zone(&socket, id * 2, &(amounts(numbers) + devices));
        let shares = match numbers.below(6) {
            0 => None,
            1 => Some(false),
            2 => Some(true),
            _ => continue,
        };
        let owner = pod(&format!("owner-{id}")).dedicated(shares);
        let owner = owner.container(&amounts(numbers)).on("n");
        pods.push(owner.zones(&(id * 2).to_string()).build());
        if numbers.below(4) == 0 {
            found = found.allocation(id * 2, &format!("owner-{id}"), &amounts(numbers));
        }
    }
    if numbers.below(2) == 0 {
        pods.push(pod("plain").container(&amounts(numbers)).on("n").build());
    }
    NodeZones::of(&found.build().topology.unwrap(), pods.iter())
}

#[test]
fn the_numbers_of_zones_give_the_verdicts_and_scores_of_the_zones() {
    let mut numbers = Numbers::new(0x5eed_2101);
    let mut answered = [0; 2];
    const CASES: u32 = 100_000;
    for case in 0..CASES {
        let zones = busy_machine(&mut numbers);
        let row = ZoneRow::of(Some(&zones));
        let strategies = ["LeastAllocated", "MostAllocated", "BalancedAllocation"];
        let aligned: &[&str] = match numbers.below(8) {
            0 => &["cpu"],
            1 => &["memory", "example.com/gpu"],
            _ => &["cpu", "memory"],
        };
        let plugin = plugin(strategies[numbers.below(3) as usize], aligned);
        let (cpu, memory) = (numbers.below(12) * 500, numbers.below(10));
        let mut requests = format!("cpu={cpu}m memory={memory}Gi");
        match numbers.below(10) {
            0 => requests += " example.com/gpu=1",
            1 => requests += " ephemeral-storage=1Gi",
            _ => {}
        }
        let shares = [None, Some(false), Some(true)][numbers.below(3) as usize];
        let wants = pod("p").dedicated(shares).container(&requests).build();
        let demand = plugin.demand(&wants).unwrap();
        if let Some(found) = demand.check_row(&row) {
            let want = demand.check(Some(&zones));
            assert_eq!(found, want, "case {case}: {requests} {aligned:?} {zones:?}");
            answered[0] += 1;
        }
        let scored = Scored::new(&plugin.strategy, &wants, Some(&plugin.aligned), demand);
        if let Some(found) = scored.score_row(&row) {
            let want = scored.score(Some(&zones));
            assert_eq!(found, want, "case {case}: {requests} {aligned:?} {zones:?}");
            answered[1] += 1;
        }
    }
    // Not those with nine zones, nor those with other resources.
    assert!(answered.iter().all(|it| *it > CASES / 2), "{answered:?}");
    let plugin = plugin("LeastAllocated", &[]);
    let demand = plugin.demand(&exclusive("p", 1).build()).unwrap();
    assert_eq!(
        demand.check_row(&ZoneRow::of(None)),
        Some(demand.check(None))
    );
}

#[test]
fn sixty_four_zones_need_no_endless_search() {
    let mut numbers = Numbers::new(7);
    let mut found = report("n");
    for id in 0..64 {
        let amounts = format!(
            "cpu={}m memory={}Mi",
            numbers.below(4000),
            numbers.below(4000)
        );
        found = found.zone("0", id, &amounts);
    }
    let zones = NodeZones::of(&found.build().topology.unwrap(), std::iter::empty());
    let wants = pod("p").dedicated(None).container("cpu=80 memory=80000Mi");
    let aligned = [Resource::Cpu, Resource::Memory];
    let demand = ZoneDemand::new(&wants.build(), NumaBinding::Exclusive, &aligned);
    let chosen = demand.choose(&zones).unwrap();
    assert!((21..64).contains(&chosen.len()), "{chosen}");
}
