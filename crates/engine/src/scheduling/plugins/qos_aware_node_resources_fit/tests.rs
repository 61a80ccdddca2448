use super::*;
use crate::cluster::Cluster;
use crate::cluster::kinds::{Kind, Update};
use crate::testing::{Lab, PodBuilder, node, pod, report};

const CPU: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
const MEMORY: &str = "resource.katalyst.kubewharf.io/reclaimed_memory";
const OLD_CPU: &str = "katalyst.kubewharf.io/reclaimed_millicpu";
const NO_CPU: &str = "U Insufficient resource.katalyst.kubewharf.io/reclaimed_millicpu";
const NO_MEMORY: &str = "U Insufficient resource.katalyst.kubewharf.io/reclaimed_memory";
const NO_REPORT: &str = "U node not found in the extended cache";

fn plugin(args: &str) -> Result<QoSAwareNodeResourcesFit, Vec<ArgsError>> {
    QoSAwareNodeResourcesFit::with(serde_json::from_str(args).unwrap())
}

fn lab(args: &str) -> Lab {
    Lab::new(plugin(args).unwrap_or_else(|errors| panic!("{errors:?}")))
}

fn wants(cpu: &str, memory: &str) -> PodBuilder {
    pod("p")
        .reclaimed()
        .container(&format!("{CPU}={cpu} {MEMORY}={memory}"))
}

fn borrows(name: &str, cpu: &str, memory: &str) -> PodBuilder {
    pod(name)
        .reclaimed()
        .container(&format!("{CPU}={cpu} {MEMORY}={memory}"))
        .on("n")
}

#[test]
fn what_is_lent_bounds_what_is_borrowed() {
    // (case, lent, borrowed, wanted, verdict)
    for (case, lent, borrowed, wanted, want) in [
        ("room", Some((4000, 4)), ("1k", "1"), ("1k", "1"), "ok"),
        ("exactly", Some((4000, 4)), ("1k", "1"), ("3k", "3"), "ok"),
        (
            "one too many",
            Some((4000, 4)),
            ("1k", "1"),
            ("3001", "3"),
            NO_CPU,
        ),
        (
            "memory too",
            Some((4000, 4)),
            ("1k", "1"),
            ("1k", "4"),
            NO_MEMORY,
        ),
        (
            "both, cpu first",
            Some((0, 0)),
            ("0", "0"),
            ("1", "1"),
            "U Insufficient resource.katalyst.kubewharf.io/reclaimed_millicpu, \
             Insufficient resource.katalyst.kubewharf.io/reclaimed_memory",
        ),
        ("no report", None, ("0", "0"), ("1", "0"), NO_REPORT),
        (
            "no report, nothing wanted",
            None,
            ("0", "0"),
            ("0", "0"),
            "ok",
        ),
        (
            "an unused one is empty",
            Some((4000, 0)),
            ("0", "0"),
            ("1k", "0"),
            "ok",
        ),
        (
            "an unused one is short",
            Some((4000, 0)),
            ("0", "1"),
            ("1k", "0"),
            NO_MEMORY,
        ),
        (
            "nothing wanted of what is short",
            Some((0, 0)),
            ("1", "1"),
            ("0", "0"),
            "ok",
        ),
    ] {
        let lab = lab("{}").node(node("n"));
        let lab = match lent {
            Some((cpu, memory)) => lab.object(report("n").lends(cpu, memory)),
            None => lab,
        };
        let lab = lab.placed(borrows("other", borrowed.0, borrowed.1));
        assert_eq!(lab.filter(&wants(wanted.0, wanted.1)), [want], "{case}");
    }
}

#[test]
fn names_count_not_levels() {
    let lab = lab("{}")
        .node(node("n").allocatable("cpu=1 memory=1Gi"))
        .object(report("n").lends(2000, 0))
        // It has no annotation, and takes what is lent all the same.
        .placed(pod("online").container(&format!("{OLD_CPU}=1500")).on("n"));
    let online = |amount: &str| pod("p").container(&format!("{OLD_CPU}={amount}"));
    assert_eq!(lab.filter(&online("500")), ["ok"]);
    assert_eq!(lab.filter(&online("501")), [NO_CPU]);
    assert_eq!(lab.filter(&wants("501", "0")), [NO_CPU]);
    assert_eq!(
        lab.filter(&pod("p").container("cpu=64")),
        ["ok"],
        "not ours"
    );
}

#[test]
fn reports_come_and_go_and_pods_stay_accounted() {
    let gone = || Update::Delete(Kind::CustomNodeResource, "n".into());
    let lab = lab("{}")
        .object(report("n").lends(8000, 8))
        .placed(borrows("p1", "2k", "2"))
        .node(node("n"));
    let fits = |lab: &Lab, cpu: &str| lab.filter(&wants(cpu, "0")).remove(0);
    assert_eq!(
        (fits(&lab, "6k"), fits(&lab, "6001")),
        ("ok".into(), NO_CPU.into())
    );
    let lab = lab.placed(borrows("p1", "3k", "2"));
    assert_eq!(
        (fits(&lab, "5k"), fits(&lab, "5001")),
        ("ok".into(), NO_CPU.into())
    );
    let lab = lab.apply(gone()).apply(gone());
    assert_eq!(fits(&lab, "1"), NO_REPORT);
    let lab = lab.object(report("n").lends(4000, 8));
    assert_eq!(
        (fits(&lab, "1k"), fits(&lab, "1001")),
        ("ok".into(), NO_CPU.into())
    );
    // A report without amounts means none, not the last ones.
    let lab = lab.object(report("n"));
    assert_eq!(
        fits(&lab, "1"),
        "U Insufficient resource.katalyst.kubewharf.io/reclaimed_millicpu, \
         Insufficient resource.katalyst.kubewharf.io/reclaimed_memory"
    );
    let lab = lab
        .apply(Update::Delete(Kind::Node, "n".into()))
        .node(node("n"));
    let lab = lab
        .object(report("n").lends(4000, 8))
        .apply(Update::Delete(Kind::Pod, "p1".into()));
    assert_eq!(fits(&lab, "4k"), "ok");
}

#[test]
fn scores_of_reclaimed_pods() {
    const WEIGHTS: &str = r#""reclaimedResources":[
        {"name":"katalyst.kubewharf.io/reclaimed_millicpu","weight":30},
        {"name":"resource.katalyst.kubewharf.io/reclaimed_memory","weight":70}]"#;
    let strategy = |kind: &str, more: &str| {
        format!(r#"{{"scoringStrategy":{{"type":"{kind}",{WEIGHTS}{more}}}}}"#)
    };
    let shape = |points: &str| {
        format!(
            r#","requestedToCapacityRatio":{{"shape":[{{"utilization":0,"score":0}}]}},"reclaimedRequestedToCapacityRatio":{{"shape":[{points}]}}"#
        )
    };
    let line = shape(
        r#"{"utilization":10,"score":3},{"utilization":20,"score":4},{"utilization":50,"score":7}"#,
    );
    // (case, arguments, lent, borrowed, wanted, score)
    for (case, args, lent, borrowed, wanted, want) in [
        (
            "least",
            strategy("LeastAllocated", ""),
            (9000, 12),
            ("5k", "5"),
            ("3k", "3"),
            26,
        ),
        (
            "most",
            strategy("MostAllocated", ""),
            (9000, 12),
            ("5k", "5"),
            ("3k", "3"),
            72,
        ),
        (
            "ratio",
            strategy("RequestedToCapacityRatio", &line),
            (9000, 12),
            ("5k", "5"),
            ("3k", "3"),
            70,
        ),
        (
            "one is not lent",
            "{}".to_owned(),
            (4000, 0),
            ("0", "0"),
            ("1k", "0"),
            75,
        ),
        (
            "nothing is lent",
            "{}".to_owned(),
            (0, 0),
            ("0", "0"),
            ("0", "0"),
            0,
        ),
        (
            "overfull, least",
            "{}".to_owned(),
            (1000, 1),
            ("2k", "2"),
            ("0", "0"),
            0,
        ),
        (
            "overfull, most",
            strategy("MostAllocated", ""),
            (1000, 1),
            ("2k", "2"),
            ("0", "0"),
            100,
        ),
    ] {
        let lab = lab(&args)
            .node(node("n"))
            .object(report("n").lends(lent.0, lent.1))
            .placed(borrows("other", borrowed.0, borrowed.1));
        let scores = lab.scores(&wants(wanted.0, wanted.1));
        assert_eq!(scores, Some(vec![(want, want)]), "{case}");
    }
}

#[test]
fn containers_that_do_not_say_count_with_defaults() {
    let lab = lab("{}")
        .node(node("n"))
        .object(report("n").lends(4000, 4 << 30));
    // Cpu 75 of a hundred is left, and 3,896 MiB of 4,096.
    let only_cpu = pod("p").reclaimed().container(&format!("{CPU}=1k"));
    assert_eq!(lab.scores(&only_cpu), Some(vec![(85, 85)]));
}

#[test]
fn a_node_without_report_scores_nothing_instead_of_failing() {
    let lab = lab("{}")
        .node(node("n"))
        .node(node("silent"))
        .object(report("n").lends(4000, 4 << 30));
    let modest = pod("p").reclaimed().container(&format!("{CPU}=0"));
    assert_eq!(lab.filter(&modest), ["ok", "ok"]);
    let scores = lab.scores(&modest).unwrap_or_default();
    assert_eq!(scores[1], (0, 0));
    assert!(scores[0].0 > 0);
}

#[test]
fn other_pods_are_scored_by_what_nodes_have() {
    let args =
        r#"{"scoringStrategy":{"type":"MostAllocated","resources":[{"name":"cpu","weight":1}]}}"#;
    let lab = lab(args)
        .node(node("n").allocatable("cpu=4 memory=4Gi"))
        .object(report("n").lends(1, 1));
    assert_eq!(
        lab.scores(&pod("p").container("cpu=1")),
        Some(vec![(25, 25)])
    );
}

#[test]
fn absurd_amounts_do_no_harm() {
    let lab = lab("{}")
        .node(node("n"))
        .object(report("n").lends(i64::MAX, i64::MIN))
        .placed(borrows("a", "9223372036854775807", "0"))
        .placed(borrows("b", "9223372036854775807", "0"));
    assert_eq!(lab.filter(&wants("1", "0")), [NO_CPU]);
    assert_eq!(lab.filter(&wants("9223372036854775807", "0")), [NO_CPU]);
    assert_eq!(lab.scores(&wants("1", "0")), Some(vec![(0, 0)]));
    let empty = lab.apply(Update::Delete(Kind::Pod, "a".into()));
    let empty = empty.apply(Update::Delete(Kind::Pod, "b".into()));
    assert_eq!(empty.filter(&wants("9223372036854775807", "0")), [NO_CPU]);
    assert_eq!(empty.filter(&wants("1000000", "0")), ["ok"]);
}

#[test]
fn victims_give_back_what_they_borrow() {
    let lab = lab("{}")
        .node(node("n"))
        .object(report("n").lends(2000, 0))
        .placed(borrows("a", "1k", "0"))
        .placed(pod("online").container("cpu=1").on("n"));
    assert_eq!(lab.filter_without(&wants("2k", "0"), "n", &["a"]), "ok");
    assert_eq!(
        lab.filter_without(&wants("2k", "0"), "n", &["online"]),
        NO_CPU
    );
}

#[test]
fn hints() {
    let lab = lab("{}");
    let small = wants("1k", "1");
    let lends = |cpu, memory| Some(report("n").lends(cpu, memory));
    for (case, old, new, want) in [
        ("it begins to lend", None, lends(1000, 1), true),
        ("not enough", None, lends(999, 1), false),
        ("it lends more", lends(500, 1), lends(1000, 1), true),
        (
            "more, and still not enough",
            lends(500, 1),
            lends(999, 1),
            false,
        ),
        ("less", lends(3000, 3), lends(2000, 2), false),
        ("as much as before", lends(3000, 3), lends(3000, 3), false),
        ("it stops", lends(3000, 3), None, false),
    ] {
        assert_eq!(lab.helps_report(&small, old, new), want, "{case}");
    }
    let gone = |pod: PodBuilder| lab.helps_pod(&small, Some(pod), None);
    assert!(gone(borrows("other", "1", "0")));
    assert!(!gone(pod("online").container("cpu=1").on("n")));
    // The node lends from its zones again.
    assert!(gone(pod("dedicated").dedicated(None).on("n").zones("0")));
    assert!(!gone(
        pod("shared").dedicated(Some(false)).on("n").zones("0")
    ));
    assert!(lab.helps_node(&small, None, Some(node("n"))));
}

/// A pod that can preempt is also helped by changes of its possible victims.
#[test]
fn a_report_that_makes_eviction_worth_while_wakes() {
    let lab = lab("{}");
    let mut cluster = Cluster::new();
    cluster.set_node(node("n").build());
    let borrower = borrows("victim", "2k", "0").priority(1).build();
    for update in [Update::from(borrower), report("n").lends(2000, 0).into()] {
        cluster.apply(update).unwrap();
    }
    let events = cluster.apply(report("n").lends(4000, 0).into()).unwrap();
    let helps = |pod: PodBuilder| events.iter().any(|event| lab.helps(&pod.build(), event));
    for (case, pod, want) in [
        ("enough is left", wants("2k", "0"), true),
        ("not enough is left", wants("4k", "0"), false),
        (
            "enough with the victim's",
            wants("4k", "0").priority(2),
            true,
        ),
        ("its like stays", wants("4k", "0").priority(1), false),
        (
            "more than all that is lent",
            wants("4001", "0").priority(2),
            false,
        ),
        (
            "it never evicts",
            wants("4k", "0")
                .priority(2)
                .with(|pod| pod.preemption_policy = PreemptionPolicy::Never),
            false,
        ),
    ] {
        assert_eq!(helps(pod), want, "{case}");
    }
}

#[test]
fn arguments() {
    let faults = |args: &str| -> Vec<String> {
        let errors = plugin(args).err().unwrap_or_default();
        errors.into_iter().map(|error| error.to_string()).collect()
    };
    assert_eq!(faults("{}"), Vec::<String>::new());
    assert_eq!(
        faults(
            r#"{"scoringStrategy":{"resources":[{"name":"cpu","weight":101}],"reclaimedResources":[{"name":"cpu"},{"name":"katalyst.kubewharf.io/reclaimed_memory","weight":-1}]}}"#
        ),
        [
            "scoringStrategy.type: Unsupported value: \"\": supported values: \"LeastAllocated\", \"MostAllocated\", \
             \"RequestedToCapacityRatio\"",
            "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]",
            "scoringStrategy.reclaimedResources[0].name: Unsupported value: \"cpu\": supported values: \
             \"resource.katalyst.kubewharf.io/reclaimed_millicpu\", \
             \"resource.katalyst.kubewharf.io/reclaimed_memory\"",
            "scoringStrategy.reclaimedResources[1].weight: Invalid value: -1: resource weight of \
             katalyst.kubewharf.io/reclaimed_memory not in valid range (0, 100]",
        ]
    );
    assert_eq!(
        faults(
            r#"{"scoringStrategy":{"type":"RequestedToCapacityRatio","requestedToCapacityRatio":{"shape":[{"utilization":0,"score":0}]},"reclaimedRequestedToCapacityRatio":{"shape":[{"utilization":0,"score":11}]}}}"#
        ),
        [
            "scoringStrategy.reclaimedRequestedToCapacityRatio.shape[0].score: Invalid value: 11: not in valid range [0, 10]"
        ]
    );
    assert_eq!(
        faults(
            r#"{"scoringStrategy":{"type":"RequestedToCapacityRatio","requestedToCapacityRatio":{"shape":[{"utilization":0,"score":0}]}}}"#
        ),
        [
            "scoringStrategy.reclaimedRequestedToCapacityRatio.shape: Required value: at least one point must be specified"
        ]
    );
}

#[test]
fn an_explanation_has_the_amounts_or_names_the_missing_report() {
    let lab = lab("{}")
        .node(node("silent"))
        .node(node("n"))
        .object(report("n").lends(4_000, 8 << 30))
        .placed(borrows("x", "3k", "1Gi").on("n"));
    let wants = wants("2k", "1Gi");
    let no_report = "no CustomNodeResource for the node";
    assert_eq!(lab.explain(&wants), [no_report, ""]);
    let short = format!("{CPU} 2k on 1 nodes: 1k free on n, 4k on n");
    assert_eq!(lab.shortages(&wants), [short]);
}
