//! The worked examples of fitting and of the three strategies, one row per case.

use super::*;
use crate::testing::{Lab, PodBuilder, node, pod, report};

fn fit(args: &str) -> NodeResourcesFit {
    let args = serde_json::from_str(args).unwrap();
    NodeResourcesFit::with(args).unwrap_or_else(|errors| panic!("{errors:?}"))
}

#[test]
fn what_fits() {
    let bbb = || pod("p").container("example.com/bbb=1");
    #[rustfmt::skip]
    let rows: [(&str, PodBuilder, &str, &str, &str); 20] = [
        ("nothing wanted", pod("p"), "cpu=10m memory=20", "{}", "ok"),
        ("both short", pod("p").container("cpu=1m memory=1"), "cpu=10m memory=20", "{}", "U Insufficient cpu, Insufficient memory"),
        ("init", pod("p").container("cpu=1m memory=1").init("cpu=3m memory=1"), "cpu=8m memory=19", "{}", "U Insufficient cpu"),
        ("equality fits", pod("p").container("cpu=5m memory=1"), "cpu=5m memory=19", "{}", "ok"),
        ("more than there is", pod("p").container("example.com/aaa=10"), "", "{}", "UU Insufficient example.com/aaa"),
        ("taken", pod("p").container("example.com/aaa=1"), "example.com/aaa=5", "{}", "U Insufficient example.com/aaa"),
        ("sum", pod("p").container("example.com/aaa=3").container("example.com/aaa=3"), "example.com/aaa=2", "{}", "UU Insufficient example.com/aaa"),
        ("max of init", pod("p").init("example.com/aaa=3").init("example.com/aaa=3"), "example.com/aaa=2", "{}", "ok"),
        ("unknown", bbb(), "", "{}", "UU Insufficient example.com/bbb"),
        ("ignored", bbb(), "", r#"{"ignoredResources":["example.com/bbb"]}"#, "ok"),
        ("group", bbb().container("kubernetes.io/something=1"), "", r#"{"ignoredResourceGroups":["example.com"]}"#, "UU Insufficient kubernetes.io/something"),
        ("group of lent resources", bbb(), "", r#"{"ignoredResourceGroups":["katalyst.kubewharf.io"]}"#, "UU Insufficient example.com/bbb"),
        ("overhead", pod("p").container("cpu=1m memory=1").overhead("cpu=1m memory=15"), "cpu=5m memory=5", "{}", "U Insufficient memory"),
        ("pod level", pod("p").container("cpu=1m").pod_level("cpu=7m"), "cpu=5m", "{}", "U Insufficient cpu"),
        ("storage", pod("p").container("ephemeral-storage=25"), "", "{}", "UU Insufficient ephemeral-storage"),
        ("huge pages", pod("p").container("hugepages-2Mi=6"), "", "{}", "UU Insufficient hugepages-2Mi"),
        ("zero is not checked", pod("p").container("cpu=0"), "cpu=11m", "{}", "ok"),
        ("sidecar", pod("p").container("cpu=1m").sidecar("cpu=10m"), "", "{}", "UU Insufficient cpu"),
        ("negative", pod("p").container("cpu=-5 memory=-1"), "cpu=11m", "{}", "ok"),
        ("far too much", pod("p").container("memory=8Ei cpu=10E"), "", "{}", "UU Insufficient cpu, Insufficient memory"),
    ];
    for (case, pod, used, args, want) in rows {
        let node = node("n").allocatable(
            "cpu=10m memory=20 pods=32 example.com/aaa=5 ephemeral-storage=20 hugepages-2Mi=5",
        );
        let lab = Lab::new(fit(args))
            .node(node)
            .placed(crate::testing::pod("used").container(used).on("n"));
        assert_eq!(lab.filter(&pod), [want], "{case}");
    }
}

#[test]
fn too_many_pods_comes_first_and_can_be_resolved() {
    let lab = Lab::new(fit("{}"))
        .node(node("n").allocatable("cpu=10m pods=1"))
        .placed(pod("a").on("n"));
    assert_eq!(lab.filter(&pod("p")), ["U Too many pods"]);
    assert_eq!(
        lab.filter(&pod("p").container("cpu=11m")),
        ["UU Too many pods, Insufficient cpu"]
    );
}

/// A node with so much of cpu and memory, and so much used after the pod.
fn score(strategy: &str, allocatable: &str, used: &str, wanted: &str) -> i64 {
    let lab = Lab::new(fit(&format!("{{\"scoringStrategy\":{strategy}}}")))
        .node(node("n").allocatable(&format!("{allocatable} pods=9")))
        .placed(pod("used").container(used).on("n"));
    lab.scores(&pod("p").container(wanted)).unwrap()[0].1
}

const LEAST: &str = r#"{"type":"LeastAllocated"}"#;
const MOST: &str = r#"{"type":"MostAllocated"}"#;

#[test]
fn scores() {
    let ratio = |shape: &str, resources: &str| {
        format!(
            r#"{{"type":"RequestedToCapacityRatio","requestedToCapacityRatio":{{"shape":[{shape}]}},"resources":[{resources}]}}"#
        )
    };
    let falling = r#"{"utilization":0,"score":10},{"utilization":100,"score":0}"#;
    let rising = r#"{"utilization":0,"score":0},{"utilization":100,"score":10}"#;
    let slow = r#"{"utilization":0,"score":0},{"utilization":100,"score":1}"#;
    let ext = r#"{"name":"example.com/foo","weight":3},{"name":"example.com/bar","weight":5}"#;
    let heavy = |kind: &str| {
        format!(
            r#"{{"type":"{kind}","resources":[{{"name":"memory","weight":2}},{{"name":"cpu","weight":1}}]}}"#
        )
    };
    let extended = r#"{"type":"LeastAllocated","resources":[{"name":"cpu"},{"name":"memory"},{"name":"example.com/x"}]}"#;
    // (strategy, allocatable, used before, wanted, score)
    for (strategy, allocatable, used, wanted, want) in [
        (
            LEAST,
            "cpu=4 memory=10000",
            "cpu=0 memory=0",
            "cpu=3 memory=5000",
            37,
        ),
        (
            LEAST,
            "cpu=6 memory=10000",
            "cpu=0 memory=0",
            "cpu=3 memory=5000",
            50,
        ),
        (
            LEAST,
            "cpu=10 memory=50000",
            "cpu=3 memory=5000",
            "cpu=3 memory=5000",
            60,
        ),
        (
            LEAST,
            "cpu=4 memory=10000",
            "cpu=3 memory=0",
            "cpu=3 memory=0",
            50,
        ),
        (
            &heavy("LeastAllocated"),
            "cpu=4 memory=10000",
            "cpu=0 memory=0",
            "cpu=3 memory=5000",
            41,
        ),
        (
            extended,
            "cpu=4 memory=10000 example.com/x=10",
            "cpu=0 memory=0",
            "cpu=2 memory=5000 example.com/x=2",
            60,
        ),
        (
            extended,
            "cpu=4 memory=10000 example.com/x=10",
            "cpu=0 memory=0",
            "cpu=2 memory=5000",
            50,
        ),
        (LEAST, "", "cpu=0 memory=0", "cpu=3 memory=5000", 0),
        (LEAST, "cpu=4 memory=16Gi", "cpu=0 memory=0", "", 97),
        (
            LEAST,
            "cpu=4 memory=16Gi",
            "cpu=0 memory=0",
            "cpu=2 memory=4Gi",
            62,
        ),
        (
            MOST,
            "cpu=4 memory=16Gi",
            "cpu=0 memory=0",
            "cpu=2 memory=4Gi",
            37,
        ),
        (
            MOST,
            "cpu=4 memory=10000",
            "cpu=0 memory=0",
            "cpu=3 memory=5000",
            62,
        ),
        (
            &heavy("MostAllocated"),
            "cpu=4 memory=10000",
            "cpu=0 memory=0",
            "cpu=3 memory=5000",
            58,
        ),
        (
            MOST,
            "cpu=250m memory=1000Mi",
            "cpu=200m memory=400Mi",
            "",
            80,
        ),
        (MOST, "cpu=250m memory=1000Mi", "cpu=0 memory=0", "", 30),
        (
            &ratio(falling, ""),
            "cpu=4 memory=10000",
            "cpu=0 memory=0",
            "cpu=3 memory=5000",
            38,
        ),
        (
            &ratio(falling, ""),
            "cpu=4 memory=10000",
            "cpu=3 memory=5000",
            "cpu=2 memory=4000",
            10,
        ),
        (
            &ratio(falling, ""),
            "cpu=6 memory=10000",
            "cpu=2 memory=3000",
            "cpu=2 memory=4000",
            32,
        ),
        (
            &ratio(rising, ""),
            "cpu=4 memory=10000",
            "cpu=3 memory=5000",
            "cpu=2 memory=4000",
            95,
        ),
        (
            &ratio(slow, ext),
            "example.com/foo=8 example.com/bar=4",
            "",
            "example.com/foo=2 example.com/bar=2",
            4,
        ),
        (
            &ratio(slow, ext),
            "example.com/foo=4 example.com/bar=8",
            "",
            "example.com/foo=2 example.com/bar=2",
            3,
        ),
        (
            &ratio(slow, r#"{"name":"example.com/foo"}"#),
            "example.com/foo=8",
            "",
            "example.com/foo=2",
            2,
        ),
        (
            &ratio(slow, r#"{"name":"example.com/foo"}"#),
            "example.com/foo=4",
            "example.com/foo=2",
            "example.com/foo=2",
            10,
        ),
    ] {
        assert_eq!(
            score(strategy, allocatable, used, wanted),
            want,
            "{strategy} {allocatable} | {used} | {wanted}"
        );
    }
}

#[test]
fn scorers_do_not_see_pod_level_requests() {
    let lab = Lab::new(fit("{}")).node(node("n").allocatable("cpu=4 memory=10000 pods=9"));
    let with = pod("p").container("cpu=1 memory=1000").pod_level("cpu=4");
    assert_eq!(
        lab.scores(&with),
        lab.scores(&pod("p").container("cpu=1 memory=1000"))
    );
}

#[test]
fn bad_args_are_all_reported() {
    let args = r#"{"ignoredResources":["a b"],"ignoredResourceGroups":["x/y"],
        "scoringStrategy":{"type":"","resources":[{"name":"cpu","weight":101}],"requestedToCapacityRatio":{}}}"#;
    let errors = NodeResourcesFit::with(serde_json::from_str(args).unwrap())
        .err()
        .unwrap();
    let fields: Vec<&str> = errors.iter().map(|error| &*error.field).collect();
    let ratio = "scoringStrategy.requestedToCapacityRatio";
    let weight = "scoringStrategy.resources[0].weight";
    assert_eq!(
        fields,
        [
            "ignoredResources[0]",
            "ignoredResourceGroups[0]",
            "scoringStrategy.type",
            weight,
            ratio
        ]
    );
    let shape = r#"{"scoringStrategy":{"type":"RequestedToCapacityRatio","requestedToCapacityRatio":
        {"shape":[{"utilization":50,"score":11},{"utilization":50,"score":0}]}}}"#;
    assert_eq!(
        NodeResourcesFit::with(serde_json::from_str(shape).unwrap())
            .err()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn hints() {
    let small = || node("n").allocatable("cpu=1 pods=1");
    let big = || node("n").allocatable("cpu=4 pods=1");
    let wants = pod("p").container("cpu=2");
    let lab = Lab::new(fit("{}"));
    for (case, old, new, want) in [
        ("too small", None, Some(small()), false),
        ("large enough", None, Some(big()), true),
        ("it grew", Some(small()), Some(big()), true),
        (
            "something else grew",
            Some(big()),
            Some(node("n").allocatable("cpu=4 memory=5 pods=1")),
            false,
        ),
    ] {
        assert_eq!(lab.helps_node(&wants, old, new), want, "{case}");
    }
    let both = pod("p").container("cpu=2 memory=1Gi");
    assert!(
        !lab.helps_node(&both, None, Some(big())),
        "it has one resource of two"
    );
    let on = |cpu: &str| pod("other").container(cpu).on("n");
    for (case, old, new, want) in [
        ("a pod went", Some(on("cpu=1")), None, true),
        (
            "a waiting pod went",
            Some(pod("other").container("cpu=1")),
            None,
            false,
        ),
        ("a pod shrank", Some(on("cpu=2")), Some(on("cpu=1")), true),
        (
            "its memory shrank",
            Some(on("memory=2")),
            Some(on("memory=1")),
            false,
        ),
        (
            "the pod itself shrank",
            Some(pod("p").container("cpu=3")),
            Some(pod("p").container("cpu=2")),
            true,
        ),
    ] {
        assert_eq!(lab.helps_pod(&wants, old, new), want, "{case}");
    }
    let zones = || report("n").zone("0", 0, "cpu=4").zone("0", 1, "cpu=4");
    let used = || zones().allocation(1, "other", "cpu=1");
    for (case, old, new, want) in [
        ("a zone is free again", Some(used()), Some(zones()), true),
        ("a zone is in use", Some(zones()), Some(used()), false),
        ("no zones any more", Some(used()), Some(report("n")), true),
        ("no report any more", Some(used()), None, true),
        ("the first zones", Some(report("n")), Some(zones()), false),
        (
            "the node lends more",
            Some(zones()),
            Some(zones().lends(1, 1)),
            false,
        ),
    ] {
        assert_eq!(lab.helps_report(&wants, old, new), want, "{case}");
    }
}

#[test]
fn an_explanation_has_the_amounts() {
    let fit = || Lab::of(crate::scheduling::plugins::find("NodeResourcesFit").unwrap());
    let lab = || {
        fit()
            .node(node("a").allocatable("cpu=4 memory=8Gi"))
            .node(node("b").allocatable("cpu=6 memory=1Gi pods=1"))
            .placed(pod("x").container("cpu=3").on("a"))
            .placed(pod("y").container("cpu=500m").on("b"))
    };
    for (case, requests, want) in [
        (
            "enough everywhere else",
            "cpu=100m",
            vec!["pods 1 on 1 nodes: 0 free on b, 110 on a"],
        ),
        (
            "too much for what is free",
            "cpu=6",
            vec![
                "pods 1 on 1 nodes: 0 free on b, 110 on a",
                "cpu 6 on 2 nodes: 5500m free on b, 6 on b",
            ],
        ),
        (
            "too much for every node",
            "cpu=7 memory=2Gi",
            vec![
                "pods 1 on 1 nodes: 0 free on b, 110 on a",
                "cpu 7 on 2 nodes: 5500m free on b, 6 on b, never",
                "memory 2Gi on 1 nodes: 1Gi free on b, 8Gi on a",
            ],
        ),
        (
            "a resource that no node has",
            "example.com/gpu=1",
            vec![
                "pods 1 on 1 nodes: 0 free on b, 110 on a",
                "example.com/gpu 1 on 2 nodes: 0 free on a, 0 on a, never",
            ],
        ),
    ] {
        assert_eq!(
            lab().shortages(&pod("p").container(requests)),
            want,
            "{case}"
        );
    }
    let lab = fit().node(node("a").allocatable("cpu=4"));
    let wants = pod("p").container("cpu=3");
    assert_eq!(lab.shortages(&wants), [""; 0]);
    let lab = lab.nominated(pod("first").container("cpu=2").priority(9), "a");
    assert_eq!(lab.filter(&wants), ["U Insufficient cpu"]);
    assert_eq!(lab.shortages(&wants), [""; 0], "its amounts are free");
    let want = "Insufficient cpu with the nominated pod default/first";
    assert_eq!(lab.explain(&wants), [want]);
}
