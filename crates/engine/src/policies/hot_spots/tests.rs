//! A small cluster, round by round.

use std::collections::BTreeMap;

use super::*;
use crate::cluster::kinds::Update;
use crate::policies::tiers::{PodUsage, PriorityBand};
use crate::scheduling::plugins;
use crate::scheduling::profile::Enabled;
use crate::testing::{NodeBuilder, PodBuilder, node, pod, report};

mod properties;

const GIB: i64 = 1 << 30;
const PLUGINS: [&str; 6] = [
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "QoSAwareNodeResourcesFit",
    "TierResourcesFit",
];

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_secs(seconds)
}

fn profile() -> Profile {
    let mut enabled = PLUGINS.map(|name| Enabled::new(plugins::find(name).unwrap(), 1).unwrap());
    // As a configuration with QoSAwareNodeResourcesFit sets it.
    let args = r#"{"ignoredResourceGroups": ["resource.katalyst.kubewharf.io"]}"#;
    let mut args = serde_json::Deserializer::from_str(args);
    let args = &mut <dyn erased_serde::Deserializer>::erase(&mut args);
    let fit = plugins::find("NodeResourcesFit").unwrap().build_with(args);
    enabled[3].plugin = fit.unwrap().into();
    Profile::new("default-scheduler", enabled.into())
}

/// A cluster, what its pods use, and a plan in each minute.
struct World {
    cluster: Cluster,
    metrics: BTreeMap<Name, NodeMetric>,
    profiles: Vec<Profile>,
    settings: HotSpotSettings,
    history: History,
    /// Rounds so far, one each minute.
    minute: i64,
}

impl World {
    /// Nodes of ten cores and 10 GiB, which lend as much to each tier. Hot nodes lend little.
    fn new(nodes: &[&str]) -> Self {
        let mut world = Self {
            cluster: Cluster::new(),
            metrics: BTreeMap::new(),
            profiles: vec![profile()],
            settings: HotSpotSettings::default(),
            history: History::new(&HotSpotSettings::default(), at(-3600)),
            minute: 0,
        };
        for name in nodes {
            world.add_node(node(name).with_reservation());
        }
        world
    }

    fn apply(&mut self, update: impl Into<Update>) {
        self.cluster.apply(update.into()).unwrap();
        self.cluster.check().unwrap();
    }

    fn add_node(&mut self, node: NodeBuilder) {
        let is_hot = node.clone().build().spec.name.starts_with("hot");
        self.add_lender(node, if is_hot { 1 } else { 10 });
    }

    /// A node that lends so many cores and GiB to each tier.
    fn add_lender(&mut self, node: NodeBuilder, lends: i64) {
        let tiers = ["mid", "batch"].map(|tier| {
            format!("kubernetes.io/{tier}-cpu={lends}000 kubernetes.io/{tier}-memory={lends}Gi")
        });
        let node = node.allocatable("cpu=10 memory=10Gi");
        let node = node.allocatable(&tiers.join(" ")).build();
        let name = node.spec.name.clone();
        self.apply(node);
        self.apply(report(&name).lends(lends * 1000, lends * GIB).build());
        self.metrics.insert(name.clone(), NodeMetric::default());
        self.uses(&name, 0, 0);
    }

    /// A pod on its node with this use, in milli-cores and GiB. It adds to the use of the node.
    fn add_pod(&mut self, pod: &PodBuilder, milli_cpu: i64, gib: i64) {
        let pod = pod.build();
        let metric = self.metrics.get_mut(pod.node.as_ref().unwrap()).unwrap();
        let usage = CpuMemory::new(milli_cpu, gib * GIB);
        metric.pods.push(PodUsage {
            namespace: pod.namespace().clone(),
            name: pod.name.clone(),
            band: PriorityBand::Prod,
            usage,
        });
        metric.node_usage = metric.node_usage.map(|it| it.plus(usage));
        self.apply(pod);
    }

    /// The use of a node beside its pods.
    fn uses(&mut self, node: &str, milli_cpu: i64, gib: i64) {
        let metric = self.metrics.get_mut(node).unwrap();
        let pods: CpuMemory = metric.pods.iter().map(|it| it.usage).sum();
        metric.node_usage = Some(pods.plus(CpuMemory::new(milli_cpu, gib * GIB)));
    }

    /// One round; all metrics are new.
    fn round(&mut self) -> HotSpotPlan {
        for metric in self.metrics.values_mut() {
            metric.updated = Some(at(self.minute));
        }
        self.round_with_old_metrics()
    }

    fn round_with_old_metrics(&mut self) -> HotSpotPlan {
        self.minute += 1;
        let observed = HotSpotInputs {
            cluster: &self.cluster,
            metrics: &self.metrics,
            profiles: &self.profiles,
        };
        let now = at(60 * self.minute);
        plan(&observed, &self.settings, &mut self.history, now)
    }

    /// Rounds in which nothing moves, then the moves as `pod -> node`.
    fn moves_after(&mut self, rounds: usize) -> Vec<String> {
        for round in 1..rounds {
            assert_eq!(self.round().moves, [], "round {round}");
        }
        shown(&self.round())
    }

    /// The pod is gone, and so is its use.
    fn remove(&mut self, uid: &str) {
        let pod = self.cluster.remove_pod(uid).unwrap();
        let metric = self.metrics.get_mut(pod.node.as_ref().unwrap()).unwrap();
        let at = metric.pods.iter().position(|it| it.name == pod.name);
        let usage = metric.pods.remove(at.unwrap()).usage;
        metric.node_usage = metric.node_usage.map(|it| it.minus(usage));
    }
}

fn shown(plan: &HotSpotPlan) -> Vec<String> {
    let moves = plan.moves.iter();
    moves
        .map(|it| format!("{} -> {}", it.name, it.to))
        .collect()
}

fn owned(name: &str, class: QosClass, requests: &str) -> PodBuilder {
    pod(name)
        .class(class)
        .container(requests)
        .owned_by("ReplicaSet", &format!("{name}-set"))
        .on("hot")
}

fn batch(name: &str) -> PodBuilder {
    let requests = "kubernetes.io/batch-cpu=500 kubernetes.io/batch-memory=500Mi";
    owned(name, QosClass::Lent, requests)
}

fn reclaimed(name: &str) -> PodBuilder {
    let requests = "resource.katalyst.kubewharf.io/reclaimed_millicpu=500 \
                    resource.katalyst.kubewharf.io/reclaimed_memory=500Mi";
    owned(name, QosClass::Lent, requests).reclaimed()
}

fn mid(name: &str, class: QosClass) -> PodBuilder {
    let requests = "kubernetes.io/mid-cpu=500 kubernetes.io/mid-memory=500Mi";
    owned(name, class, requests)
}

/// A hot node at 90% CPU, of which these pods use 1 core each, and a node that is idle.
fn hot_with(pods: &[PodBuilder]) -> World {
    let mut world = World::new(&["hot", "idle"]);
    for pod in pods {
        world.add_pod(pod, 1000, 0);
    }
    world.uses("hot", 9000 - 1000 * pods.len() as i64, 1);
    world
}

#[test]
fn a_node_that_is_hot_in_six_rounds_is_relieved() {
    let mut world = hot_with(&[batch("a"), batch("b"), batch("c")]);
    for round in 1..6 {
        let plan = world.round();
        assert_eq!(
            (plan.hot, plan.cool, plan.moves.len()),
            (1, 1, 0),
            "{round}"
        );
    }
    let plan = world.round();
    // 90% is above 75%, and so is 80%.
    assert_eq!(shown(&plan), ["a -> idle", "b -> idle"]);
    let first = &plan.moves[0];
    assert_eq!((first.rounds, first.usage.milli_cpu), (6, 1000));
    let percent = |cpu, memory| Marks { cpu, memory };
    assert_eq!(first.from_percent, percent(90, 10));
    assert_eq!(first.to_percent, percent(10, 0));
    assert_eq!(plan.moves[1].from_percent, percent(80, 10));
    assert_eq!(plan.moves[1].to_percent, percent(20, 0));
}

#[test]
fn rounds_must_follow_each_other() {
    let mut world = hot_with(&[batch("a")]);
    for _ in 0..5 {
        assert_eq!(world.round().moves, []);
    }
    // Exactly the mark is not above it.
    world.uses("hot", 6500, 1);
    assert_eq!(world.round().hot, 0);
    world.uses("hot", 8000, 1);
    assert_eq!(world.moves_after(6), ["a -> idle"]);

    // The agent stops: its last metric counts for three minutes.
    let mut world = hot_with(&[batch("a")]);
    assert_eq!(world.round().hot, 1);
    for (round, hot) in [(2, 1), (3, 1), (4, 0), (5, 0), (6, 0), (7, 0)] {
        let plan = world.round_with_old_metrics();
        assert_eq!((plan.hot, plan.moves.len()), (hot, 0), "round {round}");
    }
    assert_eq!(world.moves_after(6), ["a -> idle"]);
}

#[test]
fn memory_counts_as_well() {
    let mut world = World::new(&["hot", "idle"]);
    world.add_pod(&batch("cpu"), 3000, 1);
    world.add_pod(&batch("memory"), 100, 2);
    world.add_pod(&batch("none"), 4000, 0);
    world.uses("hot", 0, 6);
    assert_eq!(world.moves_after(6), ["memory -> idle"]);
}

#[test]
fn the_weakest_class_leaves_first_then_the_largest_use() {
    let free = owned("free", QosClass::Free, "");
    let (ls, be) = (QosClass::MidLatencySensitive, QosClass::MidBestEffort);
    let pods = [
        (mid("mid-be", be), 900),
        (mid("mid-ls", ls), 300),
        (mid("mid-ls-large", ls), 400),
        (reclaimed("reclaimed"), 200),
        (batch("batch-small"), 100),
        (batch("batch-large"), 300),
        (free, 50),
    ];
    let order = [
        "free",
        "batch-large",
        "reclaimed",
        "batch-small",
        "mid-ls-large",
        "mid-ls",
        "mid-be",
    ];
    let mut world = World::new(&["hot", "idle"]);
    for (pod, milli_cpu) in &pods {
        world.add_pod(pod, *milli_cpu, 0);
    }
    world.uses("hot", 7500, 1);
    let mut found = Vec::new();
    for _ in 0..20 {
        for moved in world.round().moves {
            world.remove(&moved.uid);
            found.push(moved.name.to_string());
        }
    }
    assert_eq!(found, order);
}

#[test]
fn no_more_leaves_than_needed_and_two_at_a_time() {
    let names = ["a", "b", "c", "d", "e"];
    let mut world = hot_with(&names.map(batch));
    world.uses("hot", 7000, 1);
    assert_eq!(world.moves_after(6), ["a -> idle", "b -> idle"]);
    // Both are still there.
    assert_eq!(shown(&world.round()), [""; 0]);
    world.remove("a");
    assert_eq!(shown(&world.round()), ["c -> idle"]);
    world.remove("b");
    world.remove("c");
    // The mark is reached with two more.
    assert_eq!(shown(&world.round()), ["d -> idle", "e -> idle"]);
    world.remove("d");
    world.uses("hot", 6500, 1);
    for _ in 0..60 {
        assert_eq!(world.round().moves, []);
    }
}

#[test]
fn a_pod_that_leaves_does_not_count_as_use() {
    let mut world = hot_with(&[batch("a"), batch("b")]);
    world.uses("hot", 6200, 1);
    assert_eq!(world.moves_after(6), ["a -> idle"]);
    // The metric is older than the end of the pod.
    let ending = batch("a").terminating().build();
    world.apply(ending);
    let plan = world.round();
    assert_eq!((plan.hot, plan.moves.len()), (0, 0));
}

#[test]
fn pods_go_only_where_the_scheduler_places_them_below_the_mark() {
    let one = || hot_with(&[batch("a")]);
    assert_eq!(one().moves_after(6), ["a -> idle"]);

    let stays = |case: &str, mut world: World, unplaceable: usize| {
        for round in 1..=8 {
            let plan = world.round();
            let tried = if round < 6 { 0 } else { unplaceable };
            assert_eq!((shown(&plan), plan.unplaceable), (vec![], tried), "{case}");
        }
    };
    let mut world = one();
    world.uses("idle", 4600, 0);
    stays("no node is cool", world, 0);

    let mut world = one();
    world.uses("idle", 0, 6);
    stays("memory of the only other node is not cool", world, 0);

    let mut world = one();
    world.apply(node("idle").unschedulable().build());
    stays("the cool node is cordoned", world, 0);

    let mut world = hot_with(&[batch("a").node_selector("disk", "ssd")]);
    stays("the cool node does not match", world, 1);
    world = hot_with(&[batch("a").node_selector("disk", "ssd")]);
    world.add_node(node("ssd").label("disk", "ssd"));
    world.uses("ssd", 6500, 0);
    assert_eq!(
        world.moves_after(6),
        ["a -> ssd"],
        "75% is not above the mark"
    );
    world = hot_with(&[batch("a").node_selector("disk", "ssd")]);
    world.add_node(node("ssd").label("disk", "ssd"));
    world.uses("ssd", 6501, 0);
    stays("the only node that matches would be hot", world, 1);

    let mut world = hot_with(&[batch("a").node_selector("disk", "ssd")]);
    world.add_node(node("ssd").label("disk", "ssd"));
    world.metrics.remove("ssd");
    stays("the use of that node is unknown", world, 1);

    // Two nodes are equal for the scheduler, and one of them would be hot.
    let mut world = one();
    world.add_node(node("warm").with_reservation());
    assert_eq!(world.moves_after(6), ["a -> idle"]);
    let mut world = one();
    world.add_node(node("warm").with_reservation());
    world.uses("warm", 7000, 0);
    stays("it could heat a node", world, 1);

    // Its pods are not measured yet.
    let mut world = hot_with(&[batch("a").node_selector("disk", "ssd")]);
    world.add_node(node("ssd").label("disk", "ssd"));
    world.uses("ssd", 6500, 0);
    world.apply(pod("new").container("cpu=1m").on("ssd").build());
    stays("a new pod has the room", world, 1);

    // Scores lead back to the hot node: there is less batch capacity on the other one.
    let mut world = World::new(&["hot"]);
    world.add_lender(node("hot"), 10);
    world.add_lender(node("idle"), 1);
    world.add_pod(&batch("a"), 1000, 0);
    world.uses("hot", 8000, 1);
    stays("the scheduler would place it here again", world, 1);
}

#[test]
fn services_and_pods_without_another_home_stay() {
    let requests = "cpu=100m memory=100Mi";
    for (case, pod) in [
        ("a service", owned("p", QosClass::Online, requests)),
        ("a dedicated pod", owned("p", QosClass::Dedicated, requests)),
        ("a system pod", owned("p", QosClass::System, requests)),
        (
            "a pod of a DaemonSet",
            batch("p").owned_by("DaemonSet", "d"),
        ),
        ("a static pod", batch("p").owned_by("Node", "hot")),
        ("a bare pod", batch("p").with(|pod| pod.owner = None)),
        ("a pod that ends", batch("p").terminating()),
    ] {
        let mut world = hot_with(&[]);
        world.add_pod(&pod, 1000, 0);
        for _ in 0..8 {
            assert_eq!(world.round().moves, [], "{case}");
        }
    }
}

#[test]
fn pods_of_one_workload_leave_one_by_one() {
    for (case, make, pause) in [
        ("batch", batch as fn(&str) -> PodBuilder, 5),
        ("Mid+BE", |name| mid(name, QosClass::MidBestEffort), 10),
    ] {
        let of_one = |name: &str| make(name).owned_by("ReplicaSet", "set");
        let mut world = hot_with(&["a", "b", "c"].map(of_one));
        assert_eq!(world.moves_after(6), ["a -> idle"], "{case}");
        world.remove("a");
        // Its successor came back to the node, against what was expected.
        let again = of_one("again").with(|pod| pod.created = at(1));
        world.add_pod(&again, 2000, 0);
        assert_eq!(world.moves_after(pause), ["b -> idle"], "{case}");
        world.remove("b");
        assert_eq!(world.moves_after(pause), ["c -> idle"], "{case}");
        world.remove("c");
        for _ in 0..50 {
            assert_eq!(world.round().moves, [], "{case}: it was moved already");
        }
    }
}

/// Another process may have moved pods of the workload just before.
#[test]
fn a_new_leader_waits_for_the_pause_of_workloads() {
    let pods = [batch("a"), mid("b", QosClass::MidBestEffort)];
    let mut world = hot_with(&pods);
    world.history = History::new(&world.settings, at(120));
    assert_eq!(world.moves_after(7), ["a -> idle"]);
    world.remove("a");
    world.uses("hot", 8000, 1);
    assert_eq!(world.moves_after(5), ["b -> idle"]);
}

#[test]
fn ten_pods_leave_in_a_minute() {
    let hot: Vec<String> = (0..8).map(|index| format!("hot{index}")).collect();
    let names: Vec<&str> = hot.iter().map(String::as_str).chain(["idle"]).collect();
    let mut world = World::new(&names);
    for node in &hot {
        for pod in ["a", "b", "c"] {
            let name = format!("{node}-{pod}");
            world.add_pod(&batch(&name).on(node), 100, 0);
        }
        world.uses(node, 9000, 0);
    }
    assert_eq!(world.moves_after(6).len(), 10);
    // In the same minute there is no room for the others.
    let now = at(60 * world.minute + 59);
    assert!(!world.history.has_room(now));
    let plan = world.round();
    let from = plan.moves.iter().map(|it| &*it.from);
    let from: Vec<&str> = from.collect();
    assert_eq!(from, ["hot5", "hot5", "hot6", "hot6", "hot7", "hot7"]);
}

#[test]
fn a_pod_that_stays_does_not_count() {
    let mut world = hot_with(&["a", "b", "c", "d"].map(batch));
    let plan = (0..6).map(|_| world.round()).last().unwrap();
    assert_eq!(shown(&plan), ["a -> idle", "b -> idle"]);
    plan.moves.iter().for_each(|it| world.history.stayed(it));
    // Others of the node are tried, those again after the pause.
    assert_eq!(shown(&world.round()), ["c -> idle", "d -> idle"]);
    let plan = world.round();
    assert_eq!(plan.moves, []);
    ["c", "d"].iter().for_each(|uid| world.remove(uid));
    world.uses("hot", 7000, 1);
    assert_eq!(world.moves_after(3), ["a -> idle", "b -> idle"]);
}

#[test]
fn odd_metrics_move_nothing() {
    let dead = || PodUsage {
        namespace: "default".into(),
        name: "dead".into(),
        band: PriorityBand::Batch,
        usage: CpuMemory::new(5000, 0),
    };
    type Change = fn(&mut World);
    let cases: [(&str, Change, usize); 6] = [
        ("as it is", |_| {}, 1),
        (
            "without nodeMetric",
            |world| world.metrics.get_mut("hot").unwrap().node_usage = None,
            0,
        ),
        (
            "a node without resources",
            |world| world.apply(node("hot").build()),
            0,
        ),
        (
            "more than the node has",
            |world| {
                let most = CpuMemory::new(1 << 50, 1 << 50);
                world.metrics.get_mut("hot").unwrap().node_usage = Some(most);
            },
            1,
        ),
        (
            "no pods in the metric",
            |world| world.metrics.get_mut("hot").unwrap().pods.clear(),
            0,
        ),
        ("no node", |world| world.cluster.remove_node("hot"), 0),
    ];
    for (case, change, want) in cases {
        let mut world = hot_with(&[batch("a")]);
        change(&mut world);
        assert_eq!(world.moves_after(6).len(), want, "{case}");
    }
    // The use of a dead pod is part of what the node used.
    let mut world = hot_with(&[batch("a")]);
    world.metrics.get_mut("hot").unwrap().pods.push(dead());
    assert_eq!(world.round().hot, 0);
}
