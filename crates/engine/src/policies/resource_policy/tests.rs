use super::*;
use crate::testing::{PolicyBuilder, policy};

fn labels(text: &str) -> Labels {
    let pairs = text.split_whitespace();
    pairs.filter_map(|pair| pair.split_once('=')).collect()
}

/// Nodes r (reserved), s (spot), b (both) and x (in no unit).
fn nodes() -> BTreeMap<Name, Labels> {
    let node = |name: &str, text| (name.into(), labels(text));
    BTreeMap::from([
        node("b", "reserved=1 spot=1"),
        node("r", "reserved=1"),
        node("s", "spot=1"),
        node("x", ""),
    ])
}

/// A policy for all pods with app=web: 2 on reserved nodes, any number on spot nodes.
fn web() -> PolicyBuilder {
    let policy = policy("web").selects("app", "web");
    let policy = policy.unit("reserved", 5, Some(2), "reserved=1");
    policy.unit("spot", 1, None, "spot=1").prefers()
}

/// A pod of app web: its name and node; age in seconds since the first, and the two annotations if it has any.
fn pod(name: &str, node: &str, created: i64, cost: &str, mark: &str) -> PolicyPod {
    let given = |text: &str| (!text.is_empty()).then(|| Name::from(text));
    PolicyPod {
        name: name.into(),
        uid: name.into(),
        labels: labels("app=web"),
        node: given(node),
        created: Timestamp::from_secs(created),
        terminating: false,
        annotated: !cost.is_empty(),
        cost: given(cost),
        mark: given(mark),
    }
}

fn planned(policies: &[PolicyBuilder], pods: Vec<PolicyPod>) -> PolicyActions {
    let policies = policies.iter().cloned();
    let policies: Vec<_> = policies.map(|it| Arc::new(it.build())).collect();
    let pods: Vec<_> = pods.into_iter().map(Arc::new).collect();
    plan(&Observed {
        policies: &policies,
        pods: &pods,
        nodes: &nodes(),
    })
}

/// `pod: change` for each.
fn changes(actions: &PolicyActions) -> Vec<String> {
    let text = |(pod, change): &(Arc<PolicyPod>, CostChange)| match change {
        CostChange::Set(mark) => format!("{}: {mark}", pod.name),
        CostChange::Remove => format!("{}: none", pod.name),
        CostChange::RemoveMark => format!("{}: no mark", pod.name),
    };
    actions.costs.iter().map(text).collect()
}

#[test]
fn costs_by_unit_age_and_owner() {
    let waits = |node: &str, cost: &str, mark: &str| pod("p", node, 0, cost, mark);
    let terminating = PolicyPod {
        terminating: true,
        ..waits("s", "", "")
    };
    for (case, pod, want) in [
        ("on a spot node", waits("s", "", ""), Some("web/spot=2")),
        ("in both units", waits("b", "", ""), Some("web/reserved=6")),
        ("outside", waits("x", "", ""), Some("web/-=0")),
        ("the node is gone", waits("gone", "", ""), Some("web/-=0")),
        ("no node", waits("", "", ""), None),
        ("terminating", terminating, None),
        ("written already", waits("s", "2", "web/spot=2"), None),
        (
            "the unit is another",
            waits("s", "6", "web/reserved=6"),
            Some("web/spot=2"),
        ),
        (
            "the policy is another",
            waits("s", "2", "old/spot=2"),
            Some("web/spot=2"),
        ),
        ("the pod's own cost", waits("s", "100", ""), None),
        ("no number", waits("s", "cheap", ""), None),
        ("equal, but not ours", waits("s", "2", ""), None),
        ("changed by another", waits("s", "100", "web/spot=2"), None),
        ("removed by another", waits("s", "", "web/spot=2"), None),
        (
            "a mark that is none",
            waits("s", "", "x"),
            Some("web/spot=2"),
        ),
    ] {
        let want: Vec<String> = want.iter().map(|mark| format!("p: {mark}")).collect();
        assert_eq!(changes(&planned(&[web()], vec![pod])), want, "{case}");
    }
}

/// A mark that its author wrote moves nothing of other pods: neither their costs nor the counts of units.
#[test]
fn a_forged_mark_changes_only_its_own_pod() {
    let honest = |forged: PolicyPod| {
        let old = |name: &str, created| pod(name, "r", created, "6", "web/reserved=6");
        vec![old("a", 0), forged, old("z", 2)]
    };
    let of_others = |actions: &PolicyActions| -> Vec<String> {
        let mut changes = changes(actions);
        changes.retain(|change| !change.starts_with("p:"));
        changes
    };
    let want = planned(&[web()], honest(pod("p", "r", 1, "", "")));
    // The third pod of a unit for two.
    assert_eq!(of_others(&want), ["z: web/reserved=-996"]);
    for (cost, mark) in [
        ("6", "web/reserved=6"),
        ("2", "web/spot=2"),
        ("-996", "web/reserved=-996"),
        ("0", "web/-=0"),
        ("9", "other/reserved=9"),
        ("2147483647", "web/reserved=2147483647"),
        ("1", "x"),
    ] {
        let found = planned(&[web()], honest(pod("p", "r", 1, cost, mark)));
        assert_eq!(of_others(&found), of_others(&want), "{mark}");
        let units = |actions: &PolicyActions| actions.statuses[0].units.clone();
        assert_eq!(units(&found), units(&want), "{mark}");
    }
}

#[test]
fn without_a_policy_both_annotations_go() {
    let db = |it: PolicyPod| PolicyPod {
        labels: labels("app=db"),
        ..it
    };
    for (case, policies, pod, want) in [
        (
            "the policy is gone",
            vec![],
            pod("p", "s", 0, "2", "web/spot=2"),
            Some("p: none"),
        ),
        (
            "the pod does not match any more",
            vec![web()],
            db(pod("p", "s", 0, "2", "web/spot=2")),
            Some("p: none"),
        ),
        (
            "the cost of another stays",
            vec![],
            pod("p", "s", 0, "7", "web/spot=2"),
            Some("p: no mark"),
        ),
        (
            "a mark alone",
            vec![],
            pod("p", "s", 0, "", "web/spot=2"),
            Some("p: no mark"),
        ),
        ("a cost alone", vec![], pod("p", "s", 0, "2", ""), None),
    ] {
        let found = changes(&planned(&policies, vec![pod]));
        assert_eq!(found, Vec::from_iter(want), "{case}");
    }
}

#[test]
fn the_youngest_above_a_cap_go_first() {
    let pods = || {
        vec![
            pod("a", "r", 9, "", ""),
            pod("b", "r", 1, "", ""),
            pod("c", "b", 5, "", ""),
            pod("d", "r", 7, "", ""),
            pod("e", "s", 8, "", ""),
        ]
    };
    let actions = planned(&[web()], pods());
    let want = [
        "a: web/reserved=-996",
        "b: web/reserved=6",
        "c: web/reserved=6",
        "d: web/reserved=-996",
        "e: web/spot=2",
    ];
    assert_eq!(changes(&actions), want);
    let status = &actions.statuses[0];
    assert_eq!(status.summary, "reserved 4/2, spot 2, outside 0");
    let units = status.units.iter();
    let units: Vec<_> = units
        .map(|it| (&*it.name, it.nodes, it.pods, it.over_limit))
        .collect();
    assert_eq!(units, [("reserved", 2, 4, 2), ("spot", 2, 2, 0)]);
    assert_eq!((status.matched_pods, status.outside_pods), (5, 0));

    // A cap counts each group on its own, and no terminating pod if they are ignored.
    let mut pods = pods();
    pods[0].labels = labels("app=web pod-template-hash=2");
    pods[1].terminating = true;
    let policy = web().key("pod-template-hash").ignores_terminating();
    let actions = planned(&[policy], pods);
    assert_eq!(
        changes(&actions)[..2],
        ["a: web/reserved=6", "c: web/reserved=6"]
    );
    assert_eq!(
        actions.statuses[0].summary,
        "reserved 3/2, spot 2, outside 0"
    );
}

#[test]
fn conditions_name_an_example() {
    let other = || policy("other").unit("all", 0, None, "");
    let invalid = || {
        let mut policy = policy("invalid").build();
        policy.spec = Err("spec.units is empty: use 1 to 32 units".into());
        Arc::new(policy)
    };
    let foreign = vec![
        pod("p", "s", 0, "7", ""),
        pod("q", "x", 0, "8", "web/-=0"),
        pod("r", "x", 0, "0", "web/-=0"),
    ];
    let actions = planned(&[web()], foreign.clone());
    let conditions = |status: &PolicyStatus| -> Vec<(&str, bool, String)> {
        let all = status.conditions.iter();
        all.map(|it| (it.kind, it.holds, it.message.clone()))
            .collect()
    };
    let text = str::to_owned;
    let want = [
        (
            "Accepted",
            true,
            text("the policy applies to the pods that podSelector matches"),
        ),
        ("Conflicting", false, text("no pod matches another policy")),
        (
            "UnitsOverlap",
            true,
            text(
                "1 node is in several units, for example node b in reserved, spot; a pod there counts in each of them",
            ),
        ),
        (
            "DeletionCostConflict",
            true,
            text(
                "2 pods have a deletion cost that another component or a user set, for example pod p; the controller does not change it",
            ),
        ),
    ];
    assert_eq!(conditions(&actions.statuses[0]), want);

    // Several policies on a pod: nothing of it changes, and each policy names the others.
    let marked = vec![pod("p", "s", 0, "2", "web/spot=2"), pod("q", "", 0, "", "")];
    let actions = planned(&[other(), web()], marked);
    assert_eq!(actions.costs, []);
    let want = |name| {
        let text = "the scheduler rejects such pods, and the controller does not change their deletion costs";
        format!("2 pods also match ResourcePolicy {name}, for example pod p; {text}")
    };
    for (status, rival) in actions.statuses.iter().zip(["web", "other"]) {
        let found = &conditions(status)[1];
        assert_eq!(*found, ("Conflicting", true, want(rival)));
    }
    let found = &conditions(&actions.statuses[0])[0].2;
    let want = "podSelector is empty: the policy applies to every pod of namespace default";
    assert_eq!(found, want);

    // An invalid policy has no effect.
    let actions = plan(&Observed {
        policies: &[invalid()],
        pods: &[Arc::new(pod("p", "s", 0, "1", "invalid/0=1"))],
        nodes: &nodes(),
    });
    assert_eq!(changes(&actions), ["p: none"]);
    let want = text("spec.units is empty: use 1 to 32 units; the policy has no effect");
    assert_eq!(
        conditions(&actions.statuses[0]),
        [("Accepted", false, want)]
    );
}

#[test]
fn what_a_plan_wrote_is_not_written_again() {
    let pods = vec![
        pod("a", "r", 1, "", ""),
        pod("b", "x", 1, "", ""),
        pod("c", "s", 1, "5", ""),
        pod("d", "s", 1, "2", "old/spot=2"),
    ];
    let actions = planned(&[web()], pods.clone());
    let mut written = pods;
    for (changed, change) in &actions.costs {
        let pod = written.iter_mut().find(|pod| pod.uid == changed.uid);
        pod.unwrap().apply(change);
    }
    let again = planned(&[web()], written.clone());
    assert_eq!(again.costs, []);
    let cleaned = planned(&[], written);
    assert_eq!(changes(&cleaned), ["a: none", "b: none", "d: none"]);
}
