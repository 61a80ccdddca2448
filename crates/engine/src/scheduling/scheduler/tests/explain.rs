//! The report about a pod, in every state it can be in.

use super::extenders::{answer, extenders, kept};
use super::hooks::rosy;
use super::*;
use crate::scheduling::scheduler::{Decision, PodReport, PodState, PreemptionOutcome};

impl Bench {
    /// A report must change nothing, so the cluster is compared as text.
    fn explain(&mut self, name: &str) -> PodReport {
        let before = format!("{:?}", self.scheduler.cluster());
        let report = self.scheduler.explain("default", name, self.now);
        assert_eq!(format!("{:?}", self.scheduler.cluster()), before);
        report.unwrap()
    }
}

/// The nodes in short: `n* ok 50` for the pod's own node, `m Fit U Insufficient cpu`.
fn nodes(report: &PodReport) -> Vec<String> {
    let line = |node: &crate::scheduling::scheduler::NodeReport| {
        let verdict = &node.result.verdict;
        let mark = if node.is_its_node { "*" } else { "" };
        let by = verdict.plugin.map_or(String::new(), |by| format!(" {by}"));
        let scores: i64 = node.result.scores.iter().map(|score| score.weighted).sum();
        assert_eq!(scores, node.result.total);
        let total = match verdict.rejection {
            None => format!(" {scores}"),
            Some(_) => String::new(),
        };
        format!("{}{mark}{by} {verdict}{total}", verdict.node)
    };
    report.nodes.iter().map(line).collect()
}

fn scored() -> Bench {
    // A score of its own for every free core, so that the numbers can be followed.
    let mut bench = Bench::new();
    bench.node(node("n").allocatable("cpu=4 memory=4Gi"));
    bench.node(node("m").allocatable("cpu=2 memory=4Gi"));
    bench
}

#[test]
fn an_unknown_pod() {
    let mut bench = scored();
    assert_eq!(bench.scheduler.explain("default", "a", bench.now), None);
}

#[test]
fn before_the_first_attempt() {
    let mut bench = scored();
    bench.pod(&cores("a", "3"));
    let report = bench.explain("a");
    assert_eq!(report.state, PodState::Active);
    assert_eq!((report.attempts, report.last_attempt), (Some(0), None));
    assert_eq!(report.verdict, Decision::Node("n".into()));
}

#[test]
fn a_parked_pod() {
    let mut bench = scored();
    bench.pod(&cores("big", "3").on("n").priority(1));
    bench.pod(&cores("a", "3"));
    let failed_at = bench.now;
    assert!(bench.step().starts_with("park a"));
    let report = bench.explain("a");
    let PodState::Unschedulable { rejected_by, .. } = &report.state else {
        panic!("{:?}", report.state)
    };
    assert_eq!(rejected_by, &["NodeResourcesFit"]);
    let last = report.last_attempt.as_ref().unwrap();
    assert_eq!((last.at, last.reason), (failed_at, "Unschedulable"));
    assert_eq!(report.verdict, Decision::NoNode(last.message.clone()));
    assert!(
        last.message
            .starts_with("0/2 nodes are available: 2 Insufficient cpu. preemption: ")
    );
    assert_eq!(last.reasons, "0/2 nodes are available: 2 Insufficient cpu.");
    let [short] = &report.shortages[..] else {
        panic!("{:?}", report.shortages)
    };
    assert_eq!((&short.resource[..], &short.requested[..]), ("cpu", "3"));
    let figures = [&short.most_free, &short.largest].map(|it| (&*it.node, &it.amount[..]));
    assert_eq!(figures, [("m", "2"), ("n", "4")]);
    assert_eq!(
        nodes(&report),
        [
            "n NodeResourcesFit U Insufficient cpu",
            "m NodeResourcesFit UU Insufficient cpu",
        ]
    );
    let preemption = report.preemption.unwrap();
    assert_eq!(preemption.outcome, PreemptionOutcome::NoCandidate);
    assert_eq!((preemption.node, preemption.candidates.len()), (None, 0));
    assert!(preemption.message.contains("1 No preemption victims found"));
    assert_eq!(&*preemption.unhelpful[0].node, "n");
}

#[test]
fn a_pod_that_preempts() {
    let mut bench = scored();
    bench.pod(&cores("low", "3").on("n").priority(1));
    bench.pod(&cores("high", "3").priority(9));
    assert_eq!(bench.step(), "preempt high n: low / ");
    let report = bench.explain("high");
    assert_eq!(report.nominated_node.as_deref(), Some("n"));
    assert_eq!(report.last_attempt.unwrap().evicted, ["default/low"]);
    let preemption = report.preemption.unwrap();
    assert_eq!(preemption.outcome, PreemptionOutcome::Found);
    assert_eq!(preemption.node.as_deref(), Some("n"));
    assert_eq!(preemption.candidates[0].victims, ["default/low"]);
    let nominated: Vec<bool> = report.nodes.iter().map(|node| node.is_nominated).collect();
    assert_eq!(nominated, [true, false]);
    bench.wait(5);
    bench.gone("low");
    assert_eq!(bench.explain("high").verdict, Decision::Node("n".into()));
}

#[test]
fn a_pod_that_may_not_preempt() {
    let mut bench = scored();
    bench.pod(&cores("low", "3").on("n").priority(1));
    let never = |pod: &mut Pod| pod.preemption_policy = PreemptionPolicy::Never;
    bench.pod(&cores("high", "3").priority(9).with(never));
    assert!(bench.step().starts_with("park high"));
    let preemption = bench.explain("high").preemption.unwrap();
    assert_eq!(preemption.outcome, PreemptionOutcome::PolicyNever);
}

#[test]
fn a_pod_with_a_node_is_evaluated_as_if_it_had_none() {
    let mut bench = scored();
    bench.pod(&cores("a", "3").label("hold", "A").label("prepare", "A"));
    assert_eq!(bench.step(), "wait a n A");
    let ask = |bench: &mut Bench| {
        let report = bench.explain("a");
        assert_eq!(report.verdict, Decision::Node("n".into()));
        let fitting = nodes(&report);
        assert!(fitting[0].starts_with("n* ok "), "{fitting:?}");
        assert_eq!(fitting[1], "m NodeResourcesFit UU Insufficient cpu");
        report
    };
    let report = ask(&mut bench);
    let PodState::Waiting { node, held_by } = report.state else {
        panic!("{:?}", report.state)
    };
    assert_eq!((&*node, held_by[0].plugin), ("n", "A"));
    assert_eq!(held_by[0].until, bench.now.plus(Duration::from_secs(30)));
    bench.apply(Input::Permit {
        uid: "a".into(),
        plugin: "A".into(),
        verdict: PermitVerdict::Allow,
    });
    assert_eq!(bench.step(), "prepare a n A");
    let node = || "n".into();
    assert_eq!(ask(&mut bench).state, PodState::Preparing { node: node() });
    bench.apply(Input::Prepared {
        uid: "a".into(),
        result: Ok(()),
    });
    assert_eq!(bench.step(), "bind a n");
    assert_eq!(ask(&mut bench).state, PodState::Binding { node: node() });
    bench.pod(&cores("a", "3").on("n"));
    assert_eq!(ask(&mut bench).state, PodState::Placed { node: node() });
}

#[test]
fn a_foreign_pod_on_a_node() {
    let mut bench = scored();
    let foreign = cores("b", "1").on("n");
    bench.pod(&foreign.with(|pod| pod.scheduler_name = "somebody".into()));
    let report = bench.explain("b");
    assert_eq!(report.state, PodState::Placed { node: "n".into() });
    let want = "scheduler `somebody` decides about this pod; the scheduler that answers places pods of default-scheduler, other";
    assert_eq!(report.verdict, Decision::Foreign(want.into()));
}

#[test]
fn answers_of_extenders_are_kept_for_the_latest_pods() {
    let filter = Extender {
        url: "http://e".into(),
        filters: true,
        ..Extender::default()
    };
    let mut bench = extenders(vec![filter]);
    bench.pod(&pod("a"));
    bench.step();
    assert_eq!(bench.explain("a").state, PodState::AskingExtenders);
    answer(&mut bench, 0, kept(&["y"], &[("x", "no"), ("z", "no")]));
    assert_eq!(bench.step(), "bind a y");
    bench.pod(&pod("a").on("y"));
    let heard = bench.explain("a").extenders;
    assert_eq!((heard.len(), &*heard[0].extender), (1, "http://e"));
    assert_eq!(
        heard[0].response,
        kept(&["y"], &[("x", "no"), ("z", "no")]).ok()
    );
    for number in 0..64 {
        let name = format!("b{number}");
        bench.pod(&pod(&name));
        bench.step();
        bench.apply(Input::Extender {
            uid: name.as_str().into(),
            extender: 0,
            answer: Err("down".into()),
        });
        assert!(bench.step().starts_with("park"));
    }
    assert_eq!(bench.explain("a").extenders, []);
    assert_eq!(
        bench.explain("b63").extenders[0].error.as_deref(),
        Some("down")
    );
}

#[test]
fn rewrites_apply_as_in_a_decision() {
    let mut bench = rosy(vec![Point::PreFilter, Point::Filter]);
    bench.pod(&cores("a", "16").label("rosy", "yes"));
    assert_eq!(bench.explain("a").verdict, Decision::Node("n".into()));
}

#[test]
fn a_report_reads_well() {
    let mut bench = scored();
    bench.pod(&cores("a", "5"));
    bench.step();
    let report = serde_json::to_value(bench.explain("a")).unwrap();
    assert_eq!(report["state"], "unschedulable");
    assert_eq!(report["rejectedBy"][0], "NodeResourcesFit");
    assert_eq!(report["lastAttempt"]["at"], "1970-01-01T00:16:40Z");
    assert_eq!(report["nodes"][0]["node"], "n");
    assert_eq!(report["nodes"][0]["plugin"], "NodeResourcesFit");
    assert_eq!(
        report["nodes"][0]["rejection"],
        serde_json::json!({"status": "UnschedulableAndUnresolvable", "reasons": ["Insufficient cpu"]})
    );
}
