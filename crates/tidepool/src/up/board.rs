//! The state that `up` shows: nodes, pods, and the latest changes of pods.
//!
//! It is updated from watch events. It sends no requests and draws nothing.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    fmt,
};

use api::wire::{core as wire, katalyst};
use engine::model::{Amounts, PodRequests, Quantity, Resource};
use kube::{core::Object, runtime::watcher::Event};
use local::demo::CPU_USE;
use serde::de::IgnoredAny;

use crate::foreign::one_line;

/// Decodes only the fields that are read here.
pub(super) type Pod = Object<wire::PodSpec, wire::PodStatus>;
pub(super) type Node = Object<Option<wire::NodeSpec>, wire::NodeStatus>;
/// A CustomNodeResource.
pub(super) type NodeReport = Object<Option<IgnoredAny>, katalyst::CustomNodeResourceStatus>;

/// Changes that are kept.
const MAX_CHANGES: usize = 200;
const ZONE: &str = "topology.kubernetes.io/zone";

#[derive(Default)]
pub(super) struct Board {
    /// The schedulers of this process; empty if unknown.
    schedulers: Vec<String>,
    nodes: BTreeMap<String, NodeRow>,
    /// By uid.
    pods: HashMap<String, PodRow>,
    /// The objects of a list that is still arriving.
    listed_nodes: HashSet<String>,
    /// What each node lends to reclaimed pods, in thousandths of cores.
    reclaimed: HashMap<String, i64>,
    listed_pods: HashSet<String>,
    changes: VecDeque<PodChange>,
    placed: u64,
    /// The part of their peak that services do not use now.
    ebb: f64,
}

/// The tiers whose resources are shown. The last one is in CustomNodeResources.
pub(super) const TIERS: [&str; 3] = ["mid", "batch", "reclaimed"];
/// The cpu of the others, in the status of nodes.
const IN_STATUS: [&str; 2] = ["kubernetes.io/mid-cpu", "kubernetes.io/batch-cpu"];

/// Cores in thousandths, memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Amount {
    pub(super) cpu: i64,
    pub(super) memory: i64,
}

#[derive(Default)]
struct NodeRow {
    zone: String,
    /// Why no pods are scheduled here, such as `cordoned`; empty if they are.
    trouble: &'static str,
    allocatable: Amount,
    /// What its status lends to the first of [`TIERS`], in thousandths of cores.
    lent: [i64; 2],
}

struct PodRow {
    /// `namespace/name`.
    name: String,
    node: String,
    stage: Stage,
    asks: Amount,
    /// What it requests of each of [`TIERS`], in thousandths of cores.
    borrows: [i64; 3],
    /// Cores in thousandths that it uses at most, by its annotation.
    uses: i64,
    preempted: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Stage {
    /// For a node. The reason is empty before the first scheduling attempt.
    Waiting(String),
    /// For this scheduler, which is none of this process and has not tried the pod.
    Foreign(String),
    Starting,
    Running,
    Leaving,
    /// Its phase.
    Ended(String),
}

/// A change of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodChange {
    pub(super) time: String,
    pub(super) pod: String,
    pub(super) change: Change,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    Placed { node: String },
    Waits { reason: String },
    Preempted { node: String },
    Ended { node: String, phase: String },
    Gone { node: String },
}

impl fmt::Display for PodChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, pod, change } = self;
        match change {
            Change::Placed { node } => write!(f, "{time}  placed   {pod} on {node}"),
            Change::Waits { reason } => write!(f, "{time}  waiting  {pod}: {}", one_line(reason)),
            Change::Preempted { node } => {
                write!(
                    f,
                    "{time}  evicted  {pod} from {node}, for a more important pod"
                )
            }
            Change::Ended { node, phase } => write!(f, "{time}  ended    {pod} on {node}: {phase}"),
            Change::Gone { node } => write!(f, "{time}  gone     {pod} from {node}"),
        }
    }
}

/// One node with the sums of its pods.
pub(super) struct NodeView<'a> {
    pub(super) name: &'a str,
    pub(super) zone: &'a str,
    pub(super) trouble: &'a str,
    pub(super) pods: usize,
    pub(super) allocatable: Amount,
    pub(super) asked: Amount,
    pub(super) used: i64,
    /// By [`TIERS`]: what the node lends, and what its pods request of it.
    pub(super) lent: [i64; 3],
    pub(super) borrowed: [i64; 3],
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) waiting: usize,
    /// Pods of schedulers that do not run here.
    pub(super) foreign: usize,
    pub(super) starting: usize,
    pub(super) running: usize,
    pub(super) leaving: usize,
    pub(super) ended: usize,
}

impl Board {
    /// An empty board. Pods of other schedulers than these are shown as such.
    pub(super) fn new(schedulers: Vec<String>) -> Self {
        Self {
            schedulers,
            ..Self::default()
        }
    }

    /// Sets the part of their peak that services use now.
    pub(super) fn set_tide(&mut self, tide: f64) {
        self.ebb = 1.0 - tide;
    }

    /// Applies an event of the watch of nodes.
    pub(super) fn node_event(&mut self, event: Event<Node>) {
        match event {
            Event::Init => self.listed_nodes.clear(),
            Event::InitApply(node) => {
                self.listed_nodes.insert(text(&node.metadata.name));
                self.set_node(node);
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed_nodes);
                self.nodes.retain(|name, _| listed.contains(name));
            }
            Event::Apply(node) => self.set_node(node),
            Event::Delete(node) => {
                self.nodes.remove(&text(&node.metadata.name));
            }
        }
    }

    /// Applies an event of the watch of CustomNodeResources.
    pub(super) fn report_event(&mut self, event: Event<NodeReport>) {
        match event {
            Event::Init => self.reclaimed.clear(),
            Event::InitApply(report) | Event::Apply(report) => {
                let wire = katalyst::CustomNodeResource {
                    status: report.status.unwrap_or_default(),
                    ..katalyst::CustomNodeResource::default()
                };
                // An invalid report lends nothing; the scheduler reports it.
                let (parsed, _) = api::parse::custom_node_resource(&wire);
                let node = text(&report.metadata.name);
                self.reclaimed.insert(node, parsed.allocatable.milli_cpu);
            }
            Event::InitDone => {}
            Event::Delete(report) => {
                self.reclaimed.remove(&text(&report.metadata.name));
            }
        }
    }

    fn set_node(&mut self, node: Node) {
        let zone = node.metadata.labels.and_then(|mut it| it.remove(ZONE));
        let wire = wire::Node {
            spec: node.spec.unwrap_or_default(),
            status: node.status.unwrap_or_default(),
            ..wire::Node::default()
        };
        // An invalid node offers nothing; the scheduler reports it.
        let parsed = api::parse::node(&wire).unwrap_or_default();
        let tainted = |key: &str| wire.spec.taints.iter().any(|taint| taint.key == key);
        let silent = [
            "node.kubernetes.io/unreachable",
            "node.kubernetes.io/not-ready",
        ];
        let trouble = if silent.into_iter().any(tainted) {
            "not ready"
        } else if wire.spec.unschedulable {
            "cordoned"
        } else {
            ""
        };
        let row = NodeRow {
            zone: zone.unwrap_or_default(),
            trouble,
            allocatable: Amount::of(&parsed.allocatable),
            lent: in_status(&parsed.allocatable),
        };
        self.nodes.insert(text(&node.metadata.name), row);
    }

    /// Applies an event of the watch of pods, and returns the changes.
    pub(super) fn pod_event(&mut self, event: Event<Pod>, time: &str) -> Vec<PodChange> {
        let mut changes = Vec::new();
        match event {
            Event::Init => self.listed_pods.clear(),
            Event::InitApply(pod) => {
                self.listed_pods.insert(text(&pod.metadata.uid));
                changes.extend(self.set_pod(pod));
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed_pods);
                self.pods.retain(|uid, row| {
                    let stays = listed.contains(uid);
                    if !stays {
                        changes.extend(row.gone());
                    }
                    stays
                });
                changes.sort_by(|a, b| a.0.cmp(&b.0));
            }
            Event::Apply(pod) => changes.extend(self.set_pod(pod)),
            Event::Delete(pod) => {
                let row = self.pods.remove(&text(&pod.metadata.uid));
                changes.extend(row.and_then(|row| row.gone()));
            }
        }
        let changes: Vec<PodChange> = changes
            .into_iter()
            .map(|(pod, change)| PodChange {
                time: time.to_owned(),
                pod,
                change,
            })
            .collect();
        for it in &changes {
            if self.changes.len() == MAX_CHANGES {
                self.changes.pop_front();
            }
            self.changes.push_back(it.clone());
        }
        changes
    }

    fn set_pod(&mut self, pod: Pod) -> Option<(String, Change)> {
        let row = PodRow::new(&pod, &self.schedulers);
        let uid = text(&pod.metadata.uid);
        let change = row.change_since(self.pods.get(&uid));
        if matches!(change, Some(Change::Placed { .. })) {
            self.placed += 1;
        }
        let change = change.map(|change| (row.name.clone(), change));
        self.pods.insert(uid, row);
        change
    }

    /// Pods that were scheduled since the start.
    pub(super) fn placed(&self) -> u64 {
        self.placed
    }

    /// The latest changes first.
    pub(super) fn changes(&self) -> impl Iterator<Item = &PodChange> {
        self.changes.iter().rev()
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        #[expect(clippy::iter_over_hash_type, reason = "a sum has no order")]
        for pod in self.pods.values() {
            let count = match pod.stage {
                Stage::Waiting(_) => &mut counts.waiting,
                Stage::Foreign(_) => &mut counts.foreign,
                Stage::Starting => &mut counts.starting,
                Stage::Running => &mut counts.running,
                Stage::Leaving => &mut counts.leaving,
                Stage::Ended(_) => &mut counts.ended,
            };
            *count += 1;
        }
        counts
    }

    /// Unschedulable pods and those of unknown schedulers, with their reasons, by name.
    pub(super) fn waiting(&self) -> Vec<(&str, Cow<'_, str>)> {
        let mut waiting: Vec<_> = self
            .pods
            .values()
            .filter_map(|pod| match &pod.stage {
                Stage::Waiting(why) if !why.is_empty() => Some((&pod.name[..], why.into())),
                Stage::Foreign(scheduler) => Some((&pod.name[..], no_scheduler(scheduler).into())),
                _ => None,
            })
            .collect();
        waiting.sort_unstable();
        waiting
    }

    pub(super) fn nodes(&self) -> Vec<NodeView<'_>> {
        let mut sums: HashMap<&str, (usize, Amount, i64, [i64; 3])> = HashMap::new();
        for pod in self.pods.values().filter(|pod| pod.takes_capacity()) {
            let (pods, asked, used, borrowed) = sums.entry(&pod.node).or_default();
            *pods += 1;
            let uses = match pod.borrows {
                [0, 0, 0] => (pod.uses as f64 * (1.0 - self.ebb)) as i64,
                _ => pod.uses,
            };
            // A pod may request any amount.
            let add = |sum: &mut i64, amount| *sum = sum.saturating_add(amount);
            add(&mut asked.cpu, pod.asks.cpu);
            add(&mut asked.memory, pod.asks.memory);
            add(used, uses);
            for (sum, amount) in borrowed.iter_mut().zip(pod.borrows) {
                add(sum, amount);
            }
        }
        let nodes = self.nodes.iter().map(|(name, row)| {
            let (pods, asked, used, borrowed) = sums.get(&name[..]).copied().unwrap_or_default();
            NodeView {
                name,
                zone: &row.zone,
                trouble: row.trouble,
                pods,
                allocatable: row.allocatable,
                asked,
                used,
                lent: [
                    row.lent[0],
                    row.lent[1],
                    self.reclaimed.get(name).copied().unwrap_or(0),
                ],
                borrowed,
            }
        });
        nodes.collect()
    }
}

fn in_status(amounts: &Amounts) -> [i64; 2] {
    IN_STATUS.map(|name| amounts.get(&Resource::Scalar(name.into())))
}

fn by_tier(requests: &PodRequests) -> [i64; 3] {
    let [mid, batch] = in_status(&requests.placed);
    let reclaimed = requests.reclaimed.as_ref();
    [mid, batch, reclaimed.map_or(0, |it| it.placed.milli_cpu)]
}

fn no_scheduler(name: &str) -> String {
    format!("no scheduler will place it: none is named {name} here")
}

fn text(field: &Option<String>) -> String {
    field.clone().unwrap_or_default()
}

impl Amount {
    fn of(amounts: &Amounts) -> Self {
        Self {
            cpu: amounts.get(&Resource::Cpu),
            memory: amounts.get(&Resource::Memory),
        }
    }
}

impl PodRow {
    fn new(pod: &Pod, schedulers: &[String]) -> Self {
        let (meta, status) = (&pod.metadata, pod.status.clone().unwrap_or_default());
        let condition = |kind: &str| status.conditions.iter().find(|it| it.kind == kind);
        let name = text(&meta.name);
        let stage = match &status.phase[..] {
            phase @ ("Succeeded" | "Failed") => Stage::Ended(phase.to_owned()),
            _ if meta.deletion_timestamp.is_some() => Stage::Leaving,
            _ if pod.spec.node_name.is_empty() => {
                let refused = condition("PodScheduled").filter(|it| it.status == "False");
                let scheduler = &pod.spec.scheduler_name;
                let is_ours = schedulers.is_empty() || schedulers.contains(scheduler);
                match refused {
                    Some(refused) => Stage::Waiting(refused.message.clone()),
                    None if is_ours => Stage::Waiting(String::new()),
                    None => Stage::Foreign(scheduler.clone()),
                }
            }
            "Running" => Stage::Running,
            _ => Stage::Starting,
        };
        let use_ = meta.annotations.as_ref().and_then(|it| it.get(CPU_USE));
        let use_ = use_.and_then(|text| Quantity::parse(text).ok());
        let preempted = condition("DisruptionTarget")
            .is_some_and(|it| it.status == "True" && it.reason == "PreemptionByScheduler");
        let wire = wire::Pod {
            spec: pod.spec.clone(),
            status,
            ..wire::Pod::default()
        };
        // An invalid pod requests nothing here; the scheduler reports it.
        let parsed = api::parse::pod(&wire).ok();
        let requests = parsed.as_ref().map(|it| &it.requests);
        Self {
            name: format!("{}/{name}", text(&meta.namespace)),
            node: wire.spec.node_name,
            stage,
            asks: requests.map_or_else(Amount::default, |it| Amount::of(&it.placed)),
            borrows: requests.map_or([0; 3], by_tier),
            uses: use_.map_or(0, Quantity::milli),
            preempted,
        }
    }

    fn takes_capacity(&self) -> bool {
        !self.node.is_empty() && !matches!(self.stage, Stage::Ended(_))
    }

    fn change_since(&self, old: Option<&Self>) -> Option<Change> {
        let node = || self.node.clone();
        match &self.stage {
            Stage::Ended(phase) if old.is_some_and(|old| old.stage != self.stage) => {
                let phase = phase.clone();
                Some(Change::Ended {
                    node: node(),
                    phase,
                })
            }
            _ if self.preempted && old.is_some_and(|old| !old.preempted) => {
                Some(Change::Preempted { node: node() })
            }
            Stage::Starting | Stage::Running if old.is_none_or(|old| old.node.is_empty()) => {
                Some(Change::Placed { node: node() })
            }
            Stage::Waiting(why)
                if !why.is_empty() && old.is_none_or(|old| old.stage != self.stage) =>
            {
                Some(Change::Waits {
                    reason: why.clone(),
                })
            }
            Stage::Foreign(scheduler) if old.is_none_or(|old| old.stage != self.stage) => {
                Some(Change::Waits {
                    reason: no_scheduler(scheduler),
                })
            }
            _ => None,
        }
    }

    /// The change when the pod is deleted; none if its end was reported before.
    fn gone(&self) -> Option<(String, Change)> {
        let reported = self.preempted || !self.takes_capacity();
        let node = self.node.clone();
        (!reported).then(|| (self.name.clone(), Change::Gone { node }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, spec: Value, status: Value) -> Pod {
        let meta = json!({"name": name, "namespace": "demo", "uid": name,
            "annotations": {CPU_USE: "250m"}});
        serde_json::from_value(json!({"metadata": meta, "spec": spec, "status": status})).unwrap()
    }

    fn spec(node: &str) -> Value {
        json!({"nodeName": node, "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1500m", "memory": "2Gi"}}},
        ]})
    }

    fn refused(why: &str) -> Value {
        json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why},
        ]})
    }

    fn node(name: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {ZONE: "zone-a"}},
            "status": {"allocatable": {"cpu": "15600m", "memory": "63Gi", "pods": "110"}},
        }))
        .unwrap()
    }

    fn tell(board: &mut Board, pod: Pod) -> Vec<String> {
        let changes = board.pod_event(Event::Apply(pod), "12:00:00");
        changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_message_stays_on_its_line() {
        let told = tell(
            &mut Board::default(),
            pod(
                "a",
                spec(""),
                refused("no\n12:00:00  placed   demo/b on evil\u{1b}[2J"),
            ),
        );
        let want = "12:00:00  waiting  demo/a: no\\n12:00:00  placed   demo/b on evil\\u{1b}[2J";
        assert_eq!(told, [want]);
    }

    #[test]
    fn each_change_of_a_pod_is_reported_once() {
        let mut board = Board::default();
        let running = json!({"phase": "Running"});
        let preempted = json!({"phase": "Running", "conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
        ]});
        for (case, pod, want) in [
            ("new", pod("a", spec(""), json!({"phase": "Pending"})), None),
            (
                "refused",
                pod(
                    "a",
                    spec(""),
                    refused("0/1 nodes are available: 1 Insufficient cpu."),
                ),
                Some("12:00:00  waiting  demo/a: 0/1 nodes are available: 1 Insufficient cpu."),
            ),
            (
                "refused again",
                pod(
                    "a",
                    spec(""),
                    refused("0/1 nodes are available: 1 Insufficient cpu."),
                ),
                None,
            ),
            (
                "bound",
                pod("a", spec("n1"), json!({"phase": "Pending"})),
                Some("12:00:00  placed   demo/a on n1"),
            ),
            ("running", pod("a", spec("n1"), running.clone()), None),
            (
                "preempted",
                pod("a", spec("n1"), preempted.clone()),
                Some("12:00:00  evicted  demo/a from n1, for a more important pod"),
            ),
            (
                "seen bound at once",
                pod("b", spec("n2"), running),
                Some("12:00:00  placed   demo/b on n2"),
            ),
            (
                "ended",
                pod("b", spec("n2"), json!({"phase": "Succeeded"})),
                Some("12:00:00  ended    demo/b on n2: Succeeded"),
            ),
        ] {
            assert_eq!(tell(&mut board, pod), Vec::from_iter(want), "{case}");
        }
        assert_eq!(board.placed(), 2);
        let newest: Vec<&str> = board.changes().map(|change| &change.pod[..]).collect();
        assert_eq!(newest[0], "demo/b");
        for gone in ["a", "b"] {
            let pod = pod(gone, spec("n1"), json!({"phase": "Running"}));
            let changes = board.pod_event(Event::Delete(pod), "12:00:01");
            assert_eq!(changes, [], "{gone} was reported before");
        }
    }

    #[test]
    fn pods_missing_from_a_new_list_are_gone() {
        let mut board = Board::default();
        let running = |name| pod(name, spec("n1"), json!({"phase": "Running"}));
        tell(&mut board, running("a"));
        tell(&mut board, running("b"));
        board.node_event(Event::Apply(node("n1")));
        let mut changes = Vec::new();
        for event in [Event::Init, Event::InitApply(running("b")), Event::InitDone] {
            changes.extend(board.pod_event(event, "12:00:00"));
        }
        let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
        assert_eq!(changes, ["12:00:00  gone     demo/a from n1"]);
        board.node_event(Event::Init);
        board.node_event(Event::InitDone);
        assert!(board.nodes().is_empty());
    }

    #[test]
    fn nodes_are_summed_up() {
        let mut board = Board::default();
        board.node_event(Event::Apply(node("n1")));
        tell(
            &mut board,
            pod("a", spec("n1"), json!({"phase": "Running"})),
        );
        tell(
            &mut board,
            pod("b", spec("n1"), json!({"phase": "Pending"})),
        );
        tell(&mut board, pod("c", spec("n1"), json!({"phase": "Failed"})));
        tell(&mut board, pod("d", spec(""), refused("no room")));
        let nodes = board.nodes();
        let [node] = &nodes[..] else {
            panic!("one node")
        };
        assert_eq!((node.name, node.zone, node.trouble), ("n1", "zone-a", ""));
        let asked = Amount {
            cpu: 3000,
            memory: 4 << 30,
        };
        assert_eq!((node.pods, node.asked, node.used), (2, asked, 500));
        assert_eq!(node.allocatable.cpu, 15_600);
        let counts = Counts {
            waiting: 1,
            starting: 1,
            running: 1,
            ended: 1,
            ..Counts::default()
        };
        assert_eq!(board.counts(), counts);
        assert_eq!(board.waiting(), [("demo/d", "no room".into())]);
    }

    #[test]
    fn pods_that_no_scheduler_will_place_are_counted_and_listed() {
        let mut board = Board::new(vec!["default-scheduler".into()]);
        let of = |name: &str, scheduler: &str, node: &str, status: Value| {
            let mut spec = spec(node);
            spec["schedulerName"] = scheduler.into();
            pod(name, spec, status)
        };
        let pending = || json!({"phase": "Pending"});
        assert_eq!(
            tell(&mut board, of("a", "default-scheduler", "", pending())),
            [""; 0]
        );
        let why = "no scheduler will place it: none is named packing here";
        let told = tell(&mut board, of("b", "packing", "", pending()));
        assert_eq!(told, [format!("12:00:00  waiting  demo/b: {why}")]);
        let again = tell(&mut board, of("b", "packing", "", pending()));
        assert_eq!(again, [""; 0], "it is reported once");
        tell(&mut board, of("c", "packing", "n1", pending()));
        let counts = Counts {
            waiting: 1,
            foreign: 1,
            starting: 1,
            ..Counts::default()
        };
        assert_eq!(board.counts(), counts);
        assert_eq!(board.waiting(), [("demo/b", why.into())]);
        // Another process has that scheduler.
        tell(&mut board, of("b", "packing", "", refused("no room")));
        assert_eq!(board.waiting(), [("demo/b", "no room".into())]);
    }

    #[test]
    fn the_number_of_changes_is_limited() {
        let mut board = Board::default();
        for number in 0..2 * MAX_CHANGES {
            let name = number.to_string();
            tell(
                &mut board,
                pod(&name, spec("n1"), json!({"phase": "Running"})),
            );
        }
        assert_eq!(board.changes().count(), MAX_CHANGES);
    }
}
