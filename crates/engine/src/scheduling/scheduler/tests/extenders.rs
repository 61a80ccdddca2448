//! Calls of extenders.

use super::*;
use crate::scheduling::extender::{Answer, Response};

pub(super) fn extenders(extenders: Vec<Extender>) -> Bench {
    Bench::with(Settings {
        extenders,
        ..Settings::default()
    })
    .nodes(&["x", "y", "z"])
}

pub(super) fn answer(bench: &mut Bench, extender: usize, answer: Answer) {
    let uid = "a".into();
    bench.apply(Input::Extender {
        uid,
        extender,
        answer,
    });
}

pub(super) fn kept(nodes: &[&str], failed: &[(&str, &str)]) -> Answer {
    Ok(Response::Filter {
        nodes: nodes.iter().map(|node| (*node).into()).collect(),
        failed: failed
            .iter()
            .map(|(node, text)| ((*node).into(), (*text).into()))
            .collect(),
        unresolvable: Vec::new(),
    })
}

#[test]
fn no_other_decision_is_made_before_extenders_answer() {
    let filter = Extender {
        filters: true,
        weight: Some(2),
        ..Extender::default()
    };
    let scorer = Extender {
        weight: Some(1),
        ..Extender::default()
    };
    let mut bench = extenders(vec![filter, scorer]);
    bench.pod(&pod("a"));
    bench.pod(&pod("b"));
    assert_eq!(bench.step(), "ask a: filter x y z");
    assert_eq!(bench.step(), "idle");
    assert_eq!(bench.scheduler.idle_until(bench.now), None);
    answer(&mut bench, 0, kept(&["y", "z"], &[("x", "no")]));
    assert_eq!(bench.step(), "ask a: prioritize y z, prioritize y z");
    answer(&mut bench, 1, Err("down".into()));
    assert_eq!(bench.step(), "idle");
    answer(
        &mut bench,
        0,
        Ok(Response::Prioritize(vec![("z".into(), 7)])),
    );
    assert_eq!(bench.step(), "bind a z");
    assert_eq!(bench.step(), "ask b: filter x y z");
}

#[test]
fn rejections_by_extenders_are_in_the_message() {
    let filter = |ignorable| Extender {
        filters: true,
        ignorable,
        ..Extender::default()
    };
    let mut bench = extenders(vec![filter(false)]);
    bench.pod(&pod("a"));
    bench.step();
    answer(
        &mut bench,
        0,
        kept(&[], &[("x", "no"), ("y", "no"), ("z", "never")]),
    );
    assert_eq!(
        bench.step(),
        "park a Unschedulable: 0/3 nodes are available: 1 never, 2 no. preemption: 0/3 nodes are available: \
         3 No preemption victims found for incoming pod."
    );
    bench.node(node("w").allocatable("cpu=1"));
    assert_eq!(bench.step(), "ask a: filter x y z w", "any event may help");
    answer(&mut bench, 0, Err("connection refused".into()));
    assert_eq!(bench.step(), "park a SchedulerError: connection refused");
    let mut lenient = extenders(vec![filter(true)]);
    lenient.pod(&pod("a"));
    lenient.step();
    answer(&mut lenient, 0, Err("connection refused".into()));
    assert_eq!(lenient.step(), "bind a x");
}

#[test]
fn extenders_may_narrow_a_preemption_and_bind() {
    let extender = Extender {
        preempts: true,
        binds: true,
        ..Extender::default()
    };
    let mut bench = extenders(vec![extender]);
    for node in ["x", "y", "z"] {
        bench.pod(&cores(&format!("on-{node}"), "4").on(node));
    }
    bench.pod(&cores("a", "4").priority(9));
    assert_eq!(bench.step(), "ask a: preempt x y z");
    let said = vec![("y".into(), vec!["on-y".into()], 0)];
    answer(&mut bench, 0, Ok(Response::Preempt(said)));
    assert_eq!(bench.step(), "preempt a y: on-y / ");
    bench.wait(5);
    bench.gone("on-y");
    let Some(Outcome::Bind { by, node, .. }) = bench.next() else {
        panic!("not bound")
    };
    assert_eq!((by, &*node), (Binder::Extender(0), "y"));
}

/// Three nodes, each with a pod of four cores and one of none, and a pod that wants four.
fn full(extenders_: Vec<Extender>) -> Bench {
    let mut bench = extenders(extenders_);
    for node in ["x", "y", "z"] {
        bench.pod(&cores(&format!("on-{node}"), "4").on(node));
        bench.pod(&pod(&format!("small-{node}")).on(node));
    }
    bench.pod(&cores("a", "4").priority(9));
    assert_eq!(bench.step(), "ask a: preempt x y z");
    bench
}

fn preempts(ignorable: bool) -> Extender {
    Extender {
        url: "http://e".into(),
        preempts: true,
        ignorable,
        ..Extender::default()
    }
}

fn evict(node: &str, uids: &[&str]) -> Answer {
    let uids = uids.iter().map(|uid| (*uid).into()).collect();
    Ok(Response::Preempt(vec![(node.into(), uids, 0)]))
}

#[test]
fn extenders_may_choose_other_victims() {
    let mut bench = full(vec![preempts(false)]);
    answer(&mut bench, 0, evict("y", &["small-y", "on-y"]));
    assert_eq!(bench.step(), "preempt a y: small-y on-y / ");
}

#[test]
fn the_next_extender_gets_what_the_previous_one_left() {
    let mut bench = full(vec![preempts(false), preempts(true), preempts(true)]);
    answer(&mut bench, 0, evict("y", &["small-y", "on-y"]));
    assert_eq!(bench.step(), "ask a: preempt y");
    answer(&mut bench, 1, evict("nowhere", &["on-y"]));
    assert_eq!(bench.step(), "ask a: preempt y", "it may be ignored");
    // A victim that goes meanwhile need not be evicted.
    bench.gone("small-y");
    answer(&mut bench, 2, Err("down".into()));
    assert_eq!(bench.step(), "preempt a y: on-y / ");
}

#[test]
fn no_extender_lets_a_reclaimed_pod_evict_others() {
    for (victim, may) in [("lesser", true), ("equal", false), ("online", false)] {
        let mut bench = extenders(vec![preempts(false)]);
        bench.pod(&cores("lesser", "4").reclaimed().on("x"));
        bench.pod(&pod("equal").reclaimed().priority(9).on("x"));
        bench.pod(&pod("online").on("x"));
        for node in ["y", "z"] {
            bench.pod(&cores(&format!("on-{node}"), "4").on(node));
        }
        bench.pod(&cores("a", "4").reclaimed().priority(9));
        assert_eq!(bench.step(), "ask a: preempt x");
        answer(&mut bench, 0, evict("x", &[victim]));
        let step = bench.step();
        if may {
            assert_eq!(step, "preempt a x: lesser / ");
        } else {
            let want = format!(
                "preemption: extender: http://e claims to preempt pod default/{victim} on node: x, but a reclaimed pod \
                 may evict only reclaimed pods of lower priority"
            );
            assert!(
                step.starts_with("park a ") && step.ends_with(&want),
                "{step}"
            );
        }
    }
}

#[test]
fn wrong_victims_are_refused_by_name() {
    let nothing = "expected at least one victim pod on node \"y\"";
    for (node, uids, want) in [
        ("w", &["on-y"][..], "nodeinfo not found for node name \"w\""),
        (
            "y",
            &["on-x"],
            "extender: http://e claims to preempt pod (UID: &{on-x}) on node: y, but the pod is not found on that node",
        ),
        ("y", &[], nothing),
    ] {
        let mut bench = full(vec![preempts(false)]);
        answer(&mut bench, 0, evict(node, uids));
        assert_eq!(
            bench.step(),
            format!(
                "park a Unschedulable: 0/3 nodes are available: 3 Insufficient cpu. preemption: {want}"
            )
        );
    }
    let mut bench = full(vec![preempts(true)]);
    answer(&mut bench, 0, evict("y", &[]));
    assert!(
        bench
            .step()
            .ends_with("preemption: no candidate node for preemption")
    );
}

#[test]
fn nodes_that_were_not_in_the_question_are_rejected_by_name() {
    let filter = |ignorable| Extender {
        url: "http://e".into(),
        filters: true,
        ignorable,
        ..Extender::default()
    };
    let mut bench = extenders(vec![filter(false)]);
    bench.pod(&pod("a"));
    bench.step();
    answer(&mut bench, 0, kept(&["x", "w"], &[]));
    assert_eq!(
        bench.step(),
        "park a SchedulerError: extender \"http://e\" claims a filtered node \"w\" which is not found in the input \
         node list"
    );
    let mut lenient = extenders(vec![filter(true)]);
    lenient.pod(&pod("a"));
    lenient.step();
    answer(&mut lenient, 0, kept(&["w"], &[]));
    assert_eq!(lenient.step(), "bind a x");
}

#[test]
fn a_pod_that_goes_before_extenders_answer_ends_the_conversation() {
    let filter = Extender {
        filters: true,
        ..Extender::default()
    };
    let mut bench = extenders(vec![filter]);
    bench.pod(&pod("a"));
    bench.pod(&pod("b"));
    assert_eq!(bench.step(), "ask a: filter x y z");
    bench.gone("a");
    assert_eq!(bench.step(), "ask b: filter x y z");
    answer(&mut bench, 0, kept(&["x"], &[]));
    assert_eq!(bench.step(), "idle", "that answer was about another pod");
}

#[test]
fn messages_of_other_plugins_stay_if_extenders_leave_no_candidate() {
    // With the defaults of Kubernetes, whose message this is; an error of an extender stands alone there.
    let default = || {
        let enabled = plugins::DEFAULT
            .iter()
            .map(|(name, weight)| Enabled::new(plugins::find(name).unwrap(), *weight).unwrap());
        Profile::new("default-scheduler", enabled.collect())
    };
    for (said, want) in [
        (
            Ok(Response::Preempt(Vec::new())),
            "no new claims to deallocate, preemption: no candidate node for preemption",
        ),
        (
            evict("w", &["on-n"]),
            "preemption: nodeinfo not found for node name \"w\"",
        ),
    ] {
        let settings = Settings {
            extenders: vec![preempts(false)],
            ..Settings::default()
        };
        let mut bench = Bench {
            scheduler: Scheduler::new(vec![default()], settings).unwrap(),
            ..Bench::new()
        };
        bench.node(node("n").allocatable("cpu=4 pods=9"));
        bench.pod(&cores("on-n", "4").on("n"));
        bench.pod(&cores("a", "4").priority(9));
        assert_eq!(bench.step(), "ask a: preempt n");
        answer(&mut bench, 0, said);
        let why = "0/1 nodes are available: 1 Insufficient cpu.";
        assert_eq!(bench.step(), format!("park a Unschedulable: {why} {want}"));
    }
}

#[test]
fn scores_beyond_all_bounds_are_only_very_high() {
    let scorer = Extender {
        weight: Some(i64::from(i32::MAX)),
        ..Extender::default()
    };
    let mut bench = extenders(vec![scorer]);
    bench.pod(&pod("a"));
    assert_eq!(bench.step(), "ask a: prioritize x y z");
    let scores = [("x", i64::MIN), ("y", i64::MAX), ("nowhere", 5)];
    let scores = scores.map(|(node, score)| (node.into(), score));
    answer(&mut bench, 0, Ok(Response::Prioritize(scores.to_vec())));
    assert_eq!(bench.step(), "bind a y");
}
