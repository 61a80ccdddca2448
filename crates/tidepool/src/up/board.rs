//! What there is to see of a cluster: its nodes, its pods, and what happened to them last.
//!
//! It is told what watches say and remembers little; nothing is drawn and nothing is asked for here.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    fmt,
};

use api::wire::core as wire;
use engine::model::{Amounts, Quantity, Resource};
use kube::{core::Object, runtime::watcher::Event};
use local::demo::CPU_USE;

use crate::foreign::one_line;

/// Only what is read here is decoded.
pub(super) type Pod = Object<wire::PodSpec, wire::PodStatus>;
pub(super) type Node = Object<Option<wire::NodeSpec>, wire::NodeStatus>;

/// News that can still be looked at.
const MOST_NEWS: usize = 200;
const ZONE: &str = "topology.kubernetes.io/zone";

#[derive(Default)]
pub(super) struct Board {
    nodes: BTreeMap<String, NodeRow>,
    /// By uid.
    pods: HashMap<String, PodRow>,
    /// What was seen of a list that is still arriving.
    listed_nodes: HashSet<String>,
    listed_pods: HashSet<String>,
    news: VecDeque<News>,
    placed: u64,
}

/// Cores in thousandths, memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Amount {
    pub(super) cpu: i64,
    pub(super) memory: i64,
}

#[derive(Default)]
struct NodeRow {
    zone: String,
    /// Why no pods come here, in a word; empty if they do.
    trouble: &'static str,
    allocatable: Amount,
}

struct PodRow {
    /// `namespace/name`.
    name: String,
    node: String,
    stage: Stage,
    asks: Amount,
    /// Cores in thousandths that it says it uses.
    uses: i64,
    preempted: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Stage {
    /// For a node. The reason is empty before the first attempt to place it.
    Waiting(String),
    Starting,
    Running,
    Leaving,
    /// Its phase.
    Ended(String),
}

/// Something that happened to a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct News {
    pub(super) time: String,
    pub(super) pod: String,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    Placed { node: String },
    Waits { why: String },
    Preempted { node: String },
    Ended { node: String, phase: String },
    Gone { node: String },
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, pod, what } = self;
        match what {
            What::Placed { node } => write!(f, "{time}  placed   {pod} on {node}"),
            What::Waits { why } => write!(f, "{time}  waiting  {pod}: {}", one_line(why)),
            What::Preempted { node } => {
                write!(
                    f,
                    "{time}  evicted  {pod} from {node}, for a more important pod"
                )
            }
            What::Ended { node, phase } => write!(f, "{time}  ended    {pod} on {node}: {phase}"),
            What::Gone { node } => write!(f, "{time}  gone     {pod} from {node}"),
        }
    }
}

/// One node, summed up.
pub(super) struct NodeView<'a> {
    pub(super) name: &'a str,
    pub(super) zone: &'a str,
    pub(super) trouble: &'a str,
    pub(super) pods: usize,
    pub(super) allocatable: Amount,
    pub(super) asked: Amount,
    pub(super) used: i64,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) waiting: usize,
    pub(super) starting: usize,
    pub(super) running: usize,
    pub(super) leaving: usize,
    pub(super) ended: usize,
}

impl Board {
    /// Takes what a watch of the nodes says.
    pub(super) fn node_event(&mut self, event: Event<Node>) {
        match event {
            Event::Init => self.listed_nodes.clear(),
            Event::InitApply(node) => {
                self.listed_nodes.insert(text(&node.metadata.name));
                self.see_node(node);
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed_nodes);
                self.nodes.retain(|name, _| listed.contains(name));
            }
            Event::Apply(node) => self.see_node(node),
            Event::Delete(node) => {
                self.nodes.remove(&text(&node.metadata.name));
            }
        }
    }

    fn see_node(&mut self, node: Node) {
        let zone = node.metadata.labels.and_then(|mut it| it.remove(ZONE));
        let wire = wire::Node {
            spec: node.spec.unwrap_or_default(),
            status: node.status.unwrap_or_default(),
            ..wire::Node::default()
        };
        // A node that cannot be read offers nothing, and the scheduler says so.
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
        };
        self.nodes.insert(text(&node.metadata.name), row);
    }

    /// Takes what a watch of the pods says, and returns what is new in it.
    pub(super) fn pod_event(&mut self, event: Event<Pod>, time: &str) -> Vec<News> {
        let mut news = Vec::new();
        match event {
            Event::Init => self.listed_pods.clear(),
            Event::InitApply(pod) => {
                self.listed_pods.insert(text(&pod.metadata.uid));
                news.extend(self.see_pod(pod));
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed_pods);
                self.pods.retain(|uid, row| {
                    let stays = listed.contains(uid);
                    if !stays {
                        news.extend(row.gone());
                    }
                    stays
                });
                news.sort_by(|a, b| a.0.cmp(&b.0));
            }
            Event::Apply(pod) => news.extend(self.see_pod(pod)),
            Event::Delete(pod) => {
                let row = self.pods.remove(&text(&pod.metadata.uid));
                news.extend(row.and_then(|row| row.gone()));
            }
        }
        let news: Vec<News> = news
            .into_iter()
            .map(|(pod, what)| News {
                time: time.to_owned(),
                pod,
                what,
            })
            .collect();
        for it in &news {
            if self.news.len() == MOST_NEWS {
                self.news.pop_front();
            }
            self.news.push_back(it.clone());
        }
        news
    }

    fn see_pod(&mut self, pod: Pod) -> Option<(String, What)> {
        let row = PodRow::new(&pod);
        let uid = text(&pod.metadata.uid);
        let what = row.new_since(self.pods.get(&uid));
        if matches!(what, Some(What::Placed { .. })) {
            self.placed += 1;
        }
        let news = what.map(|what| (row.name.clone(), what));
        self.pods.insert(uid, row);
        news
    }

    /// Pods that got a node since the start.
    pub(super) fn placed(&self) -> u64 {
        self.placed
    }

    /// The latest first.
    pub(super) fn news(&self) -> impl Iterator<Item = &News> {
        self.news.iter().rev()
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        #[expect(clippy::iter_over_hash_type, reason = "a sum has no order")]
        for pod in self.pods.values() {
            let count = match pod.stage {
                Stage::Waiting(_) => &mut counts.waiting,
                Stage::Starting => &mut counts.starting,
                Stage::Running => &mut counts.running,
                Stage::Leaving => &mut counts.leaving,
                Stage::Ended(_) => &mut counts.ended,
            };
            *count += 1;
        }
        counts
    }

    /// Pods that cannot be placed for now, and why, by name.
    pub(super) fn waiting(&self) -> Vec<(&str, &str)> {
        let mut waiting: Vec<_> = self
            .pods
            .values()
            .filter_map(|pod| match &pod.stage {
                Stage::Waiting(why) if !why.is_empty() => Some((&pod.name[..], &why[..])),
                _ => None,
            })
            .collect();
        waiting.sort_unstable();
        waiting
    }

    pub(super) fn nodes(&self) -> Vec<NodeView<'_>> {
        let mut sums: HashMap<&str, (usize, Amount, i64)> = HashMap::new();
        for pod in self.pods.values().filter(|pod| pod.takes_room()) {
            let (pods, asked, used) = sums.entry(&pod.node).or_default();
            *pods += 1;
            asked.cpu += pod.asks.cpu;
            asked.memory += pod.asks.memory;
            *used += pod.uses;
        }
        let nodes = self.nodes.iter().map(|(name, row)| {
            let (pods, asked, used) = sums.get(&name[..]).copied().unwrap_or_default();
            NodeView {
                name,
                zone: &row.zone,
                trouble: row.trouble,
                pods,
                allocatable: row.allocatable,
                asked,
                used,
            }
        });
        nodes.collect()
    }
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
    fn new(pod: &Pod) -> Self {
        let (meta, status) = (&pod.metadata, pod.status.clone().unwrap_or_default());
        let condition = |kind: &str| status.conditions.iter().find(|it| it.kind == kind);
        let name = text(&meta.name);
        let stage = match &status.phase[..] {
            phase @ ("Succeeded" | "Failed") => Stage::Ended(phase.to_owned()),
            _ if meta.deletion_timestamp.is_some() => Stage::Leaving,
            _ if pod.spec.node_name.is_empty() => {
                let refused = condition("PodScheduled").filter(|it| it.status == "False");
                Stage::Waiting(refused.map_or_else(String::new, |it| it.message.clone()))
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
        // What cannot be read asks for nothing here, and the scheduler says so.
        let parsed = api::parse::pod(&wire);
        Self {
            name: format!("{}/{name}", text(&meta.namespace)),
            node: wire.spec.node_name,
            stage,
            asks: parsed.map_or_else(|_| Amount::default(), |it| Amount::of(&it.requests.placed)),
            uses: use_.map_or(0, Quantity::milli),
            preempted,
        }
    }

    fn takes_room(&self) -> bool {
        !self.node.is_empty() && !matches!(self.stage, Stage::Ended(_))
    }

    fn new_since(&self, old: Option<&Self>) -> Option<What> {
        let node = || self.node.clone();
        match &self.stage {
            Stage::Ended(phase) if old.is_some_and(|old| old.stage != self.stage) => {
                let phase = phase.clone();
                Some(What::Ended {
                    node: node(),
                    phase,
                })
            }
            _ if self.preempted && old.is_some_and(|old| !old.preempted) => {
                Some(What::Preempted { node: node() })
            }
            Stage::Starting | Stage::Running if old.is_none_or(|old| old.node.is_empty()) => {
                Some(What::Placed { node: node() })
            }
            Stage::Waiting(why)
                if !why.is_empty() && old.is_none_or(|old| old.stage != self.stage) =>
            {
                Some(What::Waits { why: why.clone() })
            }
            _ => None,
        }
    }

    /// What is to be said when it is no more. An end was told before.
    fn gone(&self) -> Option<(String, What)> {
        let told = self.preempted || !self.takes_room();
        let node = self.node.clone();
        (!told).then(|| (self.name.clone(), What::Gone { node }))
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
        let news = board.pod_event(Event::Apply(pod), "12:00:00");
        news.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_others_say_stays_on_its_line() {
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
    fn the_life_of_a_pod_is_told_once_each() {
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
        let newest: Vec<&str> = board.news().map(|news| &news.pod[..]).collect();
        assert_eq!(newest[0], "demo/b");
        for gone in ["a", "b"] {
            let pod = pod(gone, spec("n1"), json!({"phase": "Running"}));
            let news = board.pod_event(Event::Delete(pod), "12:00:01");
            assert_eq!(news, [], "{gone} was told of before");
        }
    }

    #[test]
    fn what_is_missing_from_a_new_list_is_gone() {
        let mut board = Board::default();
        let running = |name| pod(name, spec("n1"), json!({"phase": "Running"}));
        tell(&mut board, running("a"));
        tell(&mut board, running("b"));
        board.node_event(Event::Apply(node("n1")));
        let mut news = Vec::new();
        for event in [Event::Init, Event::InitApply(running("b")), Event::InitDone] {
            news.extend(board.pod_event(event, "12:00:00"));
        }
        let news: Vec<String> = news.iter().map(ToString::to_string).collect();
        assert_eq!(news, ["12:00:00  gone     demo/a from n1"]);
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
            leaving: 0,
        };
        assert_eq!(board.counts(), counts);
        assert_eq!(board.waiting(), [("demo/d", "no room")]);
    }

    #[test]
    fn only_so_much_is_remembered() {
        let mut board = Board::default();
        for number in 0..2 * MOST_NEWS {
            let name = number.to_string();
            tell(
                &mut board,
                pod(&name, spec("n1"), json!({"phase": "Running"})),
            );
        }
        assert_eq!(board.news().count(), MOST_NEWS);
    }
}
