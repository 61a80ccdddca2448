//! The worked examples of topology spread, one row per case.

use super::*;
use crate::testing::{Lab, PodBuilder, node, pod, spread};

const SKEW: &str = "U node(s) didn't match pod topology spread constraints";
const LABEL: &str =
    "UU node(s) didn't match pod topology spread constraints (missing required label)";

fn plugin(args: &str) -> PodTopologySpread {
    let args = serde_json::from_str(args).unwrap();
    PodTopologySpread::with(args).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// Nodes `n0`, `n1`, .. with their own hostname and the zones given (none for ""), and so many pods `app=foo` on each.
fn lab(args: &str, zones_and_pods: &[(&str, usize)]) -> Lab {
    let mut lab = Lab::new(plugin(args));
    for (i, (zone, _)) in zones_and_pods.iter().enumerate() {
        let name = format!("n{i}");
        let host = node(&name).label(HOSTNAME, &name);
        lab = lab.node(if zone.is_empty() {
            host
        } else {
            host.label(ZONE, zone)
        });
    }
    for (i, (_, pods)) in zones_and_pods.iter().enumerate() {
        for k in 0..*pods {
            lab = lab.placed(foo(&format!("foo-{i}-{k}")).on(&format!("n{i}")));
        }
    }
    lab
}

fn hosts(pods: &[usize]) -> Lab {
    lab(
        "{}",
        &pods.iter().map(|pods| ("", *pods)).collect::<Vec<_>>(),
    )
}

fn foo(name: &str) -> PodBuilder {
    pod(name).label("app", "foo")
}

fn verdicts(lab: &Lab, pod: &PodBuilder) -> Vec<&'static str> {
    let short = |text: String| match &*text {
        "ok" => "ok",
        SKEW => "skew",
        LABEL => "label",
        other => panic!("{other}"),
    };
    lab.filter(pod).into_iter().map(short).collect()
}

#[test]
fn hard_constraints() {
    let host = |skew| spread(HOSTNAME, skew).hard().app("foo");
    let zone = |skew| spread(ZONE, skew).hard().app("foo");
    let zones = |pods: [usize; 4]| {
        lab(
            "{}",
            &[
                ("a", pods[0]),
                ("a", pods[1]),
                ("b", pods[2]),
                ("b", pods[3]),
            ],
        )
    };
    for (case, lab, pod, want) in [
        (
            "zones 3/3",
            zones([1, 2, 0, 3]),
            foo("p").spread(zone(1)),
            vec!["ok"; 4],
        ),
        (
            "zones 3/2",
            zones([1, 2, 0, 2]),
            foo("p").spread(zone(1)),
            vec!["skew", "skew", "ok", "ok"],
        ),
        (
            "hosts, skew 1",
            hosts(&[2, 1, 0, 3]),
            foo("p").spread(host(1)),
            vec!["skew", "skew", "ok", "skew"],
        ),
        (
            "hosts, skew 2",
            hosts(&[2, 1, 0, 3]),
            foo("p").spread(host(2)),
            vec!["skew", "ok", "ok", "skew"],
        ),
        (
            "not its own",
            hosts(&[2, 1, 0, 3]),
            pod("p").spread(host(1)),
            vec!["skew", "ok", "ok", "skew"],
        ),
        (
            "no zone",
            lab("{}", &[("a", 1), ("b", 2), ("", 5)]),
            foo("p").spread(zone(1)),
            vec!["ok", "skew", "label"],
        ),
        (
            "few domains",
            hosts(&[2, 2, 1]),
            foo("p").spread(host(2).min_domains(4)),
            vec!["skew", "skew", "ok"],
        ),
        (
            "enough domains",
            hosts(&[2, 2, 1]),
            foo("p").spread(host(2).min_domains(2)),
            vec!["ok"; 3],
        ),
        (
            "two keys",
            zones([1, 0, 2, 0]),
            foo("p").spread(zone(1)).spread(host(1)),
            vec!["skew", "ok", "skew", "skew"],
        ),
        (
            "nothing selected",
            hosts(&[2, 0]),
            foo("p").spread(spread(HOSTNAME, 1).hard()),
            vec!["ok"; 2],
        ),
        (
            "all selected",
            hosts(&[2, 0]),
            foo("p").spread(spread(HOSTNAME, 1).hard().everything()),
            vec!["ok"; 2],
        ),
    ] {
        assert_eq!(verdicts(&lab, &pod), want, "{case}");
    }
}

#[test]
fn what_is_not_counted() {
    let host = || spread(HOSTNAME, 1).hard().app("foo");
    let elsewhere = hosts(&[0, 0]).placed(foo("x").namespace("other").on("n0"));
    assert_eq!(
        verdicts(&elsewhere, &foo("p").spread(host())),
        ["ok", "ok"],
        "another namespace"
    );
    let ending = hosts(&[1, 0]).placed(foo("x").terminating().on("n0"));
    assert_eq!(
        verdicts(&ending, &foo("p").spread(host())),
        ["skew", "ok"],
        "a terminating pod"
    );
}

#[test]
fn inclusion_policies() {
    let host = || spread(HOSTNAME, 1).hard().app("foo");
    let excluded = || {
        let nodes = ["n0", "n1", "n2", "n3"].map(|name| {
            let node = node(name).label(HOSTNAME, name);
            if name == "n3" {
                node.taint("k", "v", "NoSchedule")
            } else {
                node.label("in", "yes")
            }
        });
        let lab = nodes.into_iter().fold(Lab::new(plugin("{}")), Lab::node);
        ["n0", "n1", "n3"].iter().fold(lab, |lab, name| {
            lab.placed(foo(&format!("foo-{name}")).on(name))
        })
    };
    for (case, constraint, want) in [
        ("selector honoured", host(), ["skew", "skew", "ok", "ok"]),
        (
            "selector ignored",
            host().ignore_affinity(),
            ["skew", "skew", "ok", "skew"],
        ),
        (
            "taints honoured",
            host().ignore_affinity().honor_taints(),
            ["skew", "skew", "ok", "ok"],
        ),
    ] {
        assert_eq!(
            verdicts(
                &excluded(),
                &foo("p").node_selector("in", "yes").spread(constraint)
            ),
            want,
            "{case}"
        );
    }
}

#[test]
fn nominated_pods_count_by_the_rule_for_added_pods() {
    let constraint = || spread(HOSTNAME, 1).hard().app("foo");
    let lab = hosts(&[0, 0]).nominated(foo("x").priority(10), "n0");
    assert_eq!(
        verdicts(&lab, &foo("p").spread(constraint())),
        ["skew", "ok"]
    );
    let ending = hosts(&[0, 0]).nominated(foo("x").terminating(), "n0");
    assert_eq!(
        verdicts(&ending, &foo("p").spread(constraint())),
        ["skew", "ok"],
        "deletion is not looked at"
    );
    let lower = hosts(&[0, 0]).nominated(foo("x").priority(-1), "n0");
    assert_eq!(
        verdicts(&lower, &foo("p").spread(constraint())),
        ["ok", "ok"],
        "lower priority does not hold room"
    );
    let everything = spread(HOSTNAME, 1).hard().everything();
    let other = hosts(&[0, 0]).nominated(pod("x"), "n0");
    assert_eq!(
        verdicts(&other, &foo("p").spread(everything)),
        ["skew", "ok"],
        "an empty selector counts those added"
    );
}

#[test]
fn soft_constraints() {
    let host = |skew| spread(HOSTNAME, skew).soft().app("foo");
    let zone = |skew| spread(ZONE, skew).soft().app("foo");
    let pairs = |raw: &[i64], scores: &[i64]| {
        Some(
            raw.iter()
                .copied()
                .zip(scores.iter().copied())
                .collect::<Vec<_>>(),
        )
    };
    for (case, lab, pod, want) in [
        (
            "no pods",
            hosts(&[0, 0]),
            foo("p").spread(host(1)),
            pairs(&[0, 0], &[100, 100]),
        ),
        (
            "2/1/0/3",
            hosts(&[2, 1, 0, 3]),
            foo("p").spread(host(1)),
            pairs(&[4, 2, 0, 5], &[20, 60, 100, 0]),
        ),
        (
            "skew 2",
            hosts(&[2, 1, 0, 3]),
            foo("p").spread(host(2)),
            pairs(&[5, 3, 1, 6], &[33, 66, 100, 16]),
        ),
        (
            "4/3/2/1",
            hosts(&[4, 3, 2, 1]),
            foo("p").spread(host(3)),
            pairs(&[9, 7, 6, 4], &[44, 66, 77, 100]),
        ),
        (
            "4/2/1",
            hosts(&[4, 2, 1, 9]).without("n3"),
            foo("p").spread(host(1)),
            pairs(&[6, 3, 2], &[33, 83, 100]),
        ),
        (
            "a node without the key is ignored",
            lab("{}", &[("a", 4), ("", 2), ("b", 1)]),
            foo("p").spread(zone(1)),
            pairs(&[6, 0, 1], &[16, 0, 100]),
        ),
        (
            "zones, pods on a node that is no candidate",
            lab("{}", &[("a", 4), ("a", 2), ("b", 1), ("b", 3)]).without("n3"),
            foo("p").spread(zone(1)),
            pairs(&[8, 8, 6], &[75, 75, 100]),
        ),
        (
            "zone and host",
            lab("{}", &[("a", 2), ("a", 1), ("b", 2), ("b", 4)])
                .without("n1")
                .without("n3"),
            foo("p").spread(zone(1)).spread(host(1)),
            pairs(&[7, 11], &[100, 63]),
        ),
        (
            "nothing selected",
            hosts(&[3, 0]),
            foo("p").spread(spread(HOSTNAME, 1).soft()),
            pairs(&[0, 0], &[100, 100]),
        ),
        ("no constraints, no service", hosts(&[3, 0]), foo("p"), None),
        (
            "hard ones only",
            hosts(&[0, 0]),
            foo("p").spread(spread(HOSTNAME, 1).hard().app("foo")),
            None,
        ),
    ] {
        assert_eq!(lab.scores(&pod), want, "{case}");
    }
}

#[test]
fn defaults_follow_services_and_owners() {
    let system =
        |zones_and_pods: &[(&str, usize)]| lab("{}", zones_and_pods).service("s", "app", "foo");
    for (case, lab, raw, scores) in [
        (
            "zones a,a,b,b",
            system(&[("a", 1), ("a", 0), ("b", 2), ("b", 0)]),
            [9, 7, 12, 9],
            [83, 100, 58, 83],
        ),
        (
            "a node without zone",
            system(&[("a", 1), ("a", 0), ("b", 2), ("", 0)]),
            [9, 8, 13, 2],
            [46, 53, 15, 100],
        ),
        (
            "no zones at all",
            system(&[("", 4), ("", 3), ("", 2), ("", 1)]),
            [9, 7, 6, 4],
            [44, 66, 77, 100],
        ),
    ] {
        let want: Vec<(i64, i64)> = raw.into_iter().zip(scores).collect();
        assert_eq!(lab.scores(&foo("p")), Some(want), "{case}");
    }
    let owned =
        lab("{}", &[("a", 1), ("b", 0)]).workload(WorkloadKind::ReplicaSet, "rs", "app", "foo");
    assert!(
        owned
            .scores(&foo("p").owned_by("ReplicaSet", "rs"))
            .is_some()
    );
    assert_eq!(owned.scores(&foo("p").owned_by("Job", "rs")), None);
    assert_eq!(owned.scores(&foo("p")), None);
}

#[test]
fn a_replication_controller_overrules_services_where_a_replica_set_adds_to_them() {
    for (kind, name, even) in [
        (
            WorkloadKind::ReplicationController,
            "ReplicationController",
            false,
        ),
        (WorkloadKind::ReplicaSet, "ReplicaSet", true),
    ] {
        let lab = lab("{}", &[("", 1), ("", 0)])
            .service("s", "app", "bar")
            .workload(kind, "owner", "app", "foo");
        let bar = pod("p").label("app", "bar").owned_by(name, "owner");
        let scores = lab.scores(&bar).expect("scored by default");
        assert_eq!(scores[0] == scores[1], even, "{name}: {scores:?}");
    }
}

#[test]
fn listed_defaults_also_filter() {
    let args = format!(
        r#"{{"defaultingType":"List","defaultConstraints":[{{"maxSkew":1,"topologyKey":"{HOSTNAME}","whenUnsatisfiable":"DoNotSchedule"}}]}}"#
    );
    let lab = lab(&args, &[("", 1), ("", 0)]).service("s", "app", "foo");
    assert_eq!(verdicts(&lab, &foo("p")), ["skew", "ok"]);
    assert_eq!(
        verdicts(
            &lab,
            &foo("p").spread(spread(HOSTNAME, 9).hard().app("foo"))
        ),
        ["ok", "ok"],
        "its own go before"
    );
}

#[test]
fn bad_args_are_all_reported() {
    for (args, want) in [
        (r#"{"defaultingType":"Sytem"}"#, vec!["defaultingType"]),
        (
            r#"{"defaultConstraints":[{"maxSkew":1,"topologyKey":"a","whenUnsatisfiable":"ScheduleAnyway"}]}"#,
            vec!["defaultingType"],
        ),
        (
            r#"{"defaultingType":"List","defaultConstraints":[{"maxSkew":0,"topologyKey":"a b","whenUnsatisfiable":"x","labelSelector":{}}]}"#,
            vec![
                "defaultConstraints[0].maxSkew",
                "defaultConstraints[0].topologyKey",
                "defaultConstraints[0].whenUnsatisfiable",
                "defaultConstraints[0].labelSelector",
            ],
        ),
        (
            r#"{"defaultingType":"List","defaultConstraints":[{"maxSkew":1,"topologyKey":"a","whenUnsatisfiable":"ScheduleAnyway"},
                {"maxSkew":2,"topologyKey":"a","whenUnsatisfiable":"ScheduleAnyway"}]}"#,
            vec!["defaultConstraints[1]"],
        ),
    ] {
        let errors = PodTopologySpread::with(serde_json::from_str(args).unwrap())
            .err()
            .unwrap();
        assert_eq!(
            errors.iter().map(|error| &*error.field).collect::<Vec<_>>(),
            want,
            "{args}"
        );
    }
}

#[test]
fn hints() {
    let pod = foo("p").spread(spread(ZONE, 1).hard().app("foo"));
    let lab = Lab::new(plugin("{}"));
    let other = |app: &str| crate::testing::pod("x").label("app", app);
    for (case, old, new, want) in [
        ("one like it came", None, Some(other("foo").on("n")), true),
        ("another came", None, Some(other("bar").on("n")), false),
        (
            "in another namespace",
            None,
            Some(other("foo").namespace("far").on("n")),
            false,
        ),
        ("one like it waits", None, Some(other("foo")), false),
        ("one like it went", Some(other("foo").on("n")), None, true),
        (
            "its labels changed",
            Some(other("bar").on("n")),
            Some(other("foo").on("n")),
            true,
        ),
        (
            "other labels changed",
            Some(other("bar").on("n")),
            Some(other("baz").on("n")),
            false,
        ),
    ] {
        assert_eq!(lab.helps_pod(&pod, old, new), want, "{case}");
    }
    for (case, old, new, want) in [
        (
            "a node with the key",
            None,
            Some(node("n").label(ZONE, "a")),
            true,
        ),
        ("a node without it", None, Some(node("n")), false),
        (
            "it moved",
            Some(node("n").label(ZONE, "a")),
            Some(node("n").label(ZONE, "b")),
            true,
        ),
        (
            "it got the key",
            Some(node("n")),
            Some(node("n").label(ZONE, "b")),
            true,
        ),
        ("it went", Some(node("n").label(ZONE, "a")), None, true),
        (
            "another label",
            Some(node("n").label(ZONE, "a")),
            Some(node("n").label(ZONE, "a").label("x", "y")),
            false,
        ),
    ] {
        assert_eq!(lab.helps_node(&pod, old, new), want, "{case}");
    }
}

#[test]
fn selectors_that_do_not_parse_abort_the_cycle() {
    let lab = Lab::new(plugin("{}")).node(node("n"));
    let wrong = |kind| pod("p").with(|pod| pod.spread_errors.push((kind, "why".into())));
    assert_eq!(
        lab.failure(&wrong(Unsatisfiable::DoNotSchedule)).as_deref(),
        Some(
            "running PreFilter plugin \"PodTopologySpread\": get constraints from pod: \
             obtaining pod's hard topology spread constraints: why"
        )
    );
    assert_eq!(
        lab.failure(&wrong(Unsatisfiable::ScheduleAnyway))
            .as_deref(),
        Some(
            "running PreScore plugin \"PodTopologySpread\": calculating preScoreState: \
             obtaining pod's soft topology spread constraints: why"
        )
    );
}

#[test]
fn the_first_version_replaces_the_defaults_of_the_system_by_those_that_are_given() {
    let list = Some(ArgOverride::Text("defaultingType", "List".to_owned()));
    for (case, version, given, want) in [
        (
            "given",
            ConfigVersion::V1beta1,
            &["other", "defaultConstraints"][..],
            list,
        ),
        ("not given", ConfigVersion::V1beta1, &["other"], None),
        (
            "with a type",
            ConfigVersion::V1beta1,
            &["defaultConstraints", "defaultingType"],
            None,
        ),
        (
            "a later version",
            ConfigVersion::V1,
            &["defaultConstraints"],
            None,
        ),
    ] {
        let given: Vec<String> = given.iter().map(|&it| it.to_owned()).collect();
        let found = PodTopologySpread::args_in(version, &given).unwrap();
        assert_eq!(found, want, "{case}");
    }
}
