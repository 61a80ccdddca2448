//! Decisions: ties, narrowing, nominations, messages.

use std::sync::Arc;

use super::*;
use crate::cluster::{Cluster, Update};
use crate::model::{Name, NodeSpec, Pod, PodKind, Timestamp};
use crate::scheduling::framework::{
    Catalog, Count, CountId, NodeFilter, NodeRule, NodeView, Place, PlaceFilter, PlaceScore,
    PlaceTier, Plan, Plugin, PodRule, PodSet, Point, Points, Reason, Rejection, RowScore, Status,
    Verdict,
};
use crate::scheduling::framework::{Fact, FactId, Row};
use crate::scheduling::hooks::Hooks;
use crate::scheduling::plugins;
use crate::scheduling::preemption::SearchScope;
use crate::scheduling::profile::{Enabled, Profile};
use crate::scheduling::scheduler::{Cycle, CycleResult};
use crate::testing::{NodeBuilder, PodBuilder, node, pod};

type Prepare = fn(&Pod, &mut Plan);

/// A plugin made of its `prepare` alone.
struct Scripted(Prepare);

impl Plugin for Scripted {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        (self.0)(pod, plan);
    }
}

fn scripted(name: &'static str, prepare: Prepare) -> Enabled {
    let points = Points::of(&[
        Point::PreFilter,
        Point::Filter,
        Point::PreScore,
        Point::Score,
    ]);
    Enabled {
        name,
        points,
        plugin: Arc::new(Scripted(prepare)),
        weight: 1,
    }
}

fn native(weights: &[(&str, i64)]) -> Vec<Enabled> {
    let enabled =
        |(name, weight): &(&str, i64)| Enabled::new(plugins::find(name).unwrap(), *weight).unwrap();
    weights.iter().map(enabled).collect()
}

fn profile(plugins: Vec<Enabled>) -> Profile {
    Profile::new("default-scheduler", plugins)
}

fn cluster(nodes: impl IntoIterator<Item = NodeBuilder>) -> Cluster {
    let mut cluster = Cluster::new();
    for node in nodes {
        cluster.apply(Update::from(node.build())).unwrap();
    }
    cluster
}

fn three() -> Cluster {
    cluster(["a", "b", "c"].map(|name| node(name).allocatable("cpu=4 memory=16Gi")))
}

/// How a cycle ended, with the name of the chosen node.
#[derive(Debug, Clone, PartialEq)]
enum Decided {
    Node {
        slot: usize,
        node: Name,
        total: Option<i64>,
        feasible: usize,
    },
    NoNode(Diagnosis),
    Failed(String),
}

fn decide(cluster: &Cluster, profile: &Profile, pod: &PodBuilder, cursor: Cursor) -> Decided {
    let (pod, hooks) = (pod.build(), Hooks::default());
    let mut cycle = Cycle::new(cluster, profile, &pod, &hooks, Timestamp(0));
    match cycle.run(cursor, SearchScope::Best) {
        Ok(CycleResult::Node { slot, nodes, total }) => Decided::Node {
            slot,
            node: cluster.nodes().get(slot).unwrap().node.spec.name.clone(),
            total,
            feasible: nodes.len(),
        },
        Ok(CycleResult::NoNode { diagnosis, .. }) => Decided::NoNode(diagnosis),
        Ok(CycleResult::Ask(questions)) => panic!("{questions:?}"),
        Err(text) => Decided::Failed(text),
    }
}

fn chosen(decided: Decided) -> (String, Option<i64>, usize) {
    match decided {
        Decided::Node {
            node,
            total,
            feasible,
            ..
        } => (node.to_string(), total, feasible),
        other => panic!("{other:?}"),
    }
}

fn message(decided: Decided) -> String {
    match decided {
        Decided::NoNode(diagnosis) => diagnosis.message(""),
        Decided::Failed(text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn equals_are_taken_in_turn_and_questions_do_not_move_the_cursor() {
    let (mut cluster, profile) = (
        three(),
        profile(native(&[("TaintToleration", 3), ("NodeResourcesFit", 1)])),
    );
    let mut cursor = Cursor::default();
    let mut order = Vec::new();
    for i in 0..4 {
        let pod = pod(&format!("p{i}"));
        let first = decide(&cluster, &profile, &pod, cursor);
        assert_eq!(
            first,
            decide(&cluster, &profile, &pod, cursor),
            "asking twice gives one answer"
        );
        let Decided::Node {
            slot,
            node,
            total,
            feasible,
        } = first
        else {
            panic!("{first:?}")
        };
        assert_eq!((total.is_some(), feasible), (true, 3));
        cluster.assume(pod.build(), node.clone()).unwrap();
        cluster.check().unwrap();
        cursor.commit(slot);
        order.push(node);
    }
    assert_eq!(order, ["a", "b", "c", "a"].map(Name::from));
}

#[test]
fn totals_are_weighted_sums() {
    let mut cluster = cluster(["a", "b"].map(|name| node(name).allocatable("cpu=4 memory=16Gi")));
    cluster
        .apply(Update::from(
            pod("x").container("cpu=2 memory=4Gi").on("b").build(),
        ))
        .unwrap();
    let profile = profile(native(&[
        ("TaintToleration", 3),
        ("NodeResourcesFit", 1),
        ("PodTopologySpread", 2),
    ]));
    let wants = pod("p").container("cpu=500m memory=1Gi");
    assert_eq!(
        chosen(decide(&cluster, &profile, &wants, Cursor::default())),
        ("a".into(), Some(390), 2)
    );
    let wants = wants.build();
    let hooks = Hooks::default();
    let mut cycle = Cycle::new(&cluster, &profile, &wants, &hooks, Timestamp(0));
    let nodes = cycle.explain().unwrap();
    let totals: Vec<i64> = nodes.iter().map(|node| node.total).collect();
    assert_eq!(totals, [390, 352]);
    assert_eq!(nodes[1].scores.len(), 2, "spread skips");
}

#[test]
fn a_lone_node_is_taken_unscored() {
    let cluster = cluster([node("a"), node("b").taint("k", "v", "NoSchedule")]);
    let profile = profile(native(&[("TaintToleration", 3)]));
    assert_eq!(
        chosen(decide(&cluster, &profile, &pod("p"), Cursor::default())),
        ("a".into(), None, 1)
    );
}

#[test]
fn a_feasible_nominated_node_wins_unscored() {
    let (cluster, profile) = (three(), profile(native(&[("NodeResourcesFit", 1)])));
    let nominated = |node: &str, cpu: &str| {
        let node: Name = node.into();
        pod("p")
            .container(cpu)
            .with(|pod| pod.nominated_node = Some(node))
    };
    let decide = |pod: PodBuilder| decide(&cluster, &profile, &pod, Cursor::default());
    assert_eq!(
        chosen(decide(nominated("c", "cpu=1"))),
        ("c".into(), None, 1)
    );
    assert_eq!(chosen(decide(nominated("gone", "cpu=1"))).0, "a");
    assert_eq!(
        message(decide(nominated("c", "cpu=5"))),
        "0/3 nodes are available: 3 Insufficient cpu."
    );
}

#[test]
fn nominated_pods_hold_their_room_against_equals_and_lower_ones() {
    let profile = profile(native(&[("NodeResourcesFit", 1)]));
    let mut cluster = cluster([node("a").allocatable("cpu=4")]);
    let waiting = pod("waiting").priority(5).container("cpu=3");
    cluster.nominate(waiting.build(), "a".into()).unwrap();
    for (case, priority, fits) in [
        ("lower", 4, false),
        ("equal", 5, false),
        ("higher", 6, true),
    ] {
        let outcome = decide(
            &cluster,
            &profile,
            &pod("p").priority(priority).container("cpu=2"),
            Cursor::default(),
        );
        assert_eq!(matches!(outcome, Decided::Node { .. }), fits, "{case}");
    }
    let outcome = decide(&cluster, &profile, &waiting, Cursor::default());
    assert!(
        matches!(outcome, Decided::Node { .. }),
        "its own nomination does not stand in its way"
    );
    cluster.remove_nomination("waiting").unwrap();
    assert!(matches!(
        decide(
            &cluster,
            &profile,
            &pod("p").container("cpu=2"),
            Cursor::default()
        ),
        Decided::Node { .. }
    ));
}

#[test]
fn messages_count_nodes_by_reason_and_sort_as_text() {
    let tainted = (0..10).map(|i| node(&format!("t{i}")).taint("k", "v", "NoSchedule"));
    let small = (0..2).map(|i| node(&format!("s{i}")).allocatable("cpu=1 memory=1"));
    let cluster = cluster(tainted.chain(small));
    let profile = profile(native(&[("TaintToleration", 3), ("NodeResourcesFit", 1)]));
    let outcome = decide(
        &cluster,
        &profile,
        &pod("p").container("cpu=2 memory=2"),
        Cursor::default(),
    );
    let Decided::NoNode(diagnosis) = outcome else {
        panic!("{outcome:?}")
    };
    let want = "0/12 nodes are available: 10 node(s) had untolerated taint(s), 2 Insufficient cpu, 2 Insufficient memory.";
    assert_eq!(diagnosis.message(""), want);
    assert_eq!(
        diagnosis.message("no new claims to deallocate"),
        format!("{want} no new claims to deallocate")
    );
    assert_eq!(diagnosis.plugins, ["TaintToleration", "NodeResourcesFit"]);
    assert!(
        diagnosis
            .statuses
            .iter()
            .all(|status| status.status == Status::Unresolvable)
    );
}

#[test]
fn no_nodes_at_all() {
    let profile = profile(native(&[("TaintToleration", 3)]));
    let outcome = decide(&Cluster::new(), &profile, &pod("p"), Cursor::default());
    assert_eq!(message(outcome), "no nodes available to schedule pods");
}

#[test]
fn pre_filter_narrows_rejects_and_fails() {
    let only_a: Prepare = |_, plan| plan.only(vec!["a".into(), "unknown".into()]);
    let only_b: Prepare = |_, plan| plan.only(vec!["b".into()]);
    let nowhere: Prepare = |_, plan| plan.only(vec![]);
    let unresolvable: Prepare = |_, plan| plan.reject(Rejection::unresolvable("never"));
    let unschedulable: Prepare = |_, plan| plan.reject(Rejection::unschedulable("not now"));
    let broken: Prepare = |_, plan| plan.reject(Rejection::error("broken"));
    let fits =
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [One].";
    for (case, plugins, want) in [
        ("one left", vec![("One", only_a)], fits),
        (
            "none listed",
            vec![("One", nowhere)],
            "0/3 nodes are available: node(s) didn't satisfy plugin One.",
        ),
        (
            "two that exclude each other",
            vec![("Two", only_b), ("One", only_a)],
            "0/3 nodes are available: node(s) didn't satisfy plugin(s) [One Two] simultaneously.",
        ),
        (
            "for good",
            vec![("One", unschedulable), ("Two", unresolvable)],
            "0/3 nodes are available: never.",
        ),
        (
            "for now",
            vec![("One", unschedulable)],
            "0/3 nodes are available: not now.",
        ),
        (
            "an error",
            vec![("One", broken)],
            "running PreFilter plugin \"One\": broken",
        ),
    ] {
        let mut all: Vec<Enabled> = plugins
            .into_iter()
            .map(|(name, prepare)| scripted(name, prepare))
            .collect();
        all.extend(native(&[("NodeResourcesFit", 1)]));
        let profile = profile(all);
        let outcome = decide(
            &three(),
            &profile,
            &pod("p").container("cpu=9"),
            Cursor::default(),
        );
        assert_eq!(message(outcome), want, "{case}");
    }
}

#[derive(PartialEq)]
struct Constant(i64);
impl RowScore for Constant {
    fn score(&self, _: Row) -> i64 {
        self.0
    }
}

#[test]
fn scores_out_of_range_abort_the_cycle() {
    let profile = profile(vec![scripted("Wild", |_, plan| {
        plan.score_rows(Constant(101))
    })]);
    let text = message(decide(&three(), &profile, &pod("p"), Cursor::default()));
    assert!(
        text.contains("plugin \"Wild\" returns an invalid score 101"),
        "{text}"
    );
}

struct ByDomain(FactId);
impl PlaceTier for ByDomain {
    fn tier(&self, at: Place) -> u32 {
        u32::from(at.fact(self.0) == 0)
    }
    fn name(&self, _: Place) -> Name {
        "pool".into()
    }
}

#[test]
fn tiers_go_before_scores() {
    let cluster = cluster([
        node("full").label("pool", "x").allocatable("cpu=4"),
        node("a").allocatable("cpu=64"),
    ]);
    let tier: Prepare = |_, plan| {
        let pool = plan.fact(Fact::domain("pool"));
        plan.tier(ByDomain(pool));
    };
    let plugins = || native(&[("NodeResourcesFit", 1)]);
    let wants = pod("p").container("cpu=2");
    let plain = profile(plugins());
    assert_eq!(
        chosen(decide(&cluster, &plain, &wants, Cursor::default())).0,
        "a"
    );
    let tiered = profile(
        plugins()
            .into_iter()
            .chain([scripted("Tier", tier)])
            .collect(),
    );
    assert_eq!(
        chosen(decide(&cluster, &tiered, &wants, Cursor::default())).0,
        "full"
    );
    // A random choice stays in the best tier.
    let among = std::num::NonZero::new(2).unwrap();
    let random = |profile: &Profile, seed| {
        let cursor = Cursor::random(among, seed);
        chosen(decide(&cluster, profile, &wants, cursor)).0
    };
    assert!((0..20).all(|seed| random(&tiered, seed) == "full"));
    assert!((0..20).any(|seed| random(&plain, seed) == "full"));
    // A tier belongs to the scores: Filter alone does not make it.
    let unscored = tiered.with_order(Point::Score, vec![0]);
    assert_eq!(
        chosen(decide(&cluster, &unscored, &wants, Cursor::default())).0,
        "a"
    );
}

struct OnePodPerNode;
impl NodeFilter for OnePodPerNode {
    fn filter(&self, node: NodeView) -> Result<(), Rejection> {
        match (&*node.spec.name, node.pods.len()) {
            ("broken", _) => Err(Rejection::error("cannot look")),
            (_, 0) => Ok(()),
            _ => Err(Rejection::unschedulable("taken")),
        }
    }
}

#[test]
fn opaque_checks_see_the_pods_of_the_world_in_question() {
    let opaque: Prepare = |_, plan| plan.filter_nodes(OnePodPerNode);
    let profile = profile(vec![scripted("Opaque", opaque)]);
    let mut cluster = cluster([node("a"), node("b")]);
    let there = pod("there").on("a").build();
    cluster.apply(Update::from(there.clone())).unwrap();
    cluster.nominate(pod("coming").build(), "b".into()).unwrap();
    let asks = pod("p").build();
    assert_eq!(
        message(decide(&cluster, &profile, &pod("p"), Cursor::default())),
        "0/2 nodes are available: 2 taken."
    );
    let scan = Scan::new(&cluster, &profile, &asks);
    assert!(
        scan.fits_if(
            0,
            NodeChange {
                added: &[],
                removed: &[&there]
            }
        )
        .is_ok()
    );
    cluster.apply(Update::from(node("broken").build())).unwrap();
    let text = message(decide(&cluster, &profile, &pod("p"), Cursor::default()));
    assert_eq!(text, "running \"Opaque\" filter plugin: cannot look");
}

/// Breaks on the node of this name.
struct BreaksOn(&'static str);
impl NodeFilter for BreaksOn {
    fn filter(&self, node: NodeView) -> Result<(), Rejection> {
        match *node.spec.name == *self.0 {
            true => Err(Rejection::error(format!("{} is odd", self.0))),
            false => Ok(()),
        }
    }
}

#[test]
fn of_several_nodes_that_break_a_decision_the_first_is_named() {
    let on_b: Prepare = |_, plan| plan.filter_nodes(BreaksOn("b"));
    let on_a: Prepare = |_, plan| plan.filter_nodes(BreaksOn("a"));
    let profile = profile(vec![scripted("First", on_b), scripted("Second", on_a)]);
    let mut cluster = cluster([node("a"), node("b")]);
    let said = |cluster: &Cluster| {
        let outcome = decide(cluster, &profile, &pod("p"), Cursor::default());
        message(outcome)
    };
    let want = "running \"Second\" filter plugin: a is odd";
    assert_eq!(said(&cluster), want);
    // A node that somebody is nominated to is judged before the others.
    let pod = pod("coming").build();
    let node = "b".into();
    cluster.nominate(pod, node).unwrap();
    assert_eq!(said(&cluster), want);
}

#[test]
fn a_world_with_pods_taken_away() {
    let profile = profile(native(&[("NodeResourcesFit", 1), ("PodTopologySpread", 2)]));
    let mut cluster =
        cluster(["a", "b"].map(|name| node(name).label("host", name).allocatable("cpu=4")));
    let foo = |name: &str| pod(name).label("app", "foo").container("cpu=2");
    let victims = [foo("x").on("a").build(), foo("y").on("a").build()];
    for victim in &victims {
        cluster.apply(Update::from(victim.clone())).unwrap();
    }
    let asks = foo("p")
        .spread(crate::testing::spread("host", 1).app("foo"))
        .build();
    let scan = Scan::new(&cluster, &profile, &asks);
    let without = |gone: &[&Arc<Pod>]| {
        scan.fits_if(
            0,
            NodeChange {
                added: &[],
                removed: gone,
            },
        )
        .map_err(|(plugin, _)| plugin)
    };
    assert_eq!(without(&[]), Err("NodeResourcesFit"));
    assert_eq!(
        without(&[&victims[0]]),
        Err("PodTopologySpread"),
        "one is left, and none on the other node"
    );
    assert_eq!(without(&[&victims[0], &victims[1]]), Ok(()));
    assert_eq!(
        without(&[]),
        Err("NodeResourcesFit"),
        "questions leave no trace"
    );
}

/// A fact that remembers whether somebody asked for it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Asks(&'static str);

thread_local! {
    static ASKED: std::cell::RefCell<Vec<&'static str>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl NodeRule for Asks {
    fn of(&self, _: &NodeSpec) -> u32 {
        ASKED.with_borrow_mut(|asked| {
            if !asked.contains(&self.0) {
                asked.push(self.0);
            }
        });
        0
    }
}

/// Nodes are asked at the point that wants to know, so that each point takes its own time.
#[test]
fn nodes_are_asked_for_each_point_in_its_turn() {
    struct Reads(FactId);
    impl PlaceScore for Reads {
        fn score(&self, at: Place) -> i64 {
            i64::from(at.fact(self.0))
        }
    }
    struct Nobody(CountId);
    impl PlaceFilter for Nobody {
        fn filter(&self, at: Place) -> Verdict {
            assert_eq!(at.count(self.0), 0);
            Verdict::FITS
        }
        fn reason(&self, _: u8) -> Reason {
            "somebody is there".into()
        }
    }
    #[derive(Debug, PartialEq, Eq, Hash)]
    struct All;
    impl PodRule for All {
        fn counts(&self, _: &PodKind) -> i64 {
            1
        }
    }
    let plugin = scripted("P", |_, plan| {
        // In an order that helps nobody.
        let shared = plan.fact(Fact::new(Asks("score and filter")));
        plan.score_places(Reads(shared));
        let include = vec![Fact::new(Asks("count"))];
        let count = Count::in_domain(PodSet::new(All), Fact::everywhere(), include);
        let count = plan.count(count);
        plan.filter_places(Nobody(count));
        plan.gate(Fact::new(Asks("gate")), "no");
        let late = plan.fact(Fact::new(Asks("score")));
        plan.score_places(Reads(late));
    });
    let (cluster, profile, pod) = (three(), profile(vec![plugin]), pod("p").build());
    let asked = || ASKED.take();
    let mut scan = Scan::begin(&cluster, &profile, &pod);
    assert_eq!(asked(), ["count"]);
    assert_eq!(scan.filter_nominated(), None);
    let nodes = scan.filter().unwrap();
    assert_eq!(nodes.len(), 3);
    assert_eq!(asked(), ["score and filter", "gate"]);
    scan.pre_score().unwrap();
    assert_eq!(asked(), ["score"]);
    scan.score(&nodes, &[], Cursor::default()).unwrap();
    assert_eq!(asked(), [""; 0]);
}
