//! The workloads: the cluster, and the pods to schedule.

use std::sync::Arc;

use engine::cluster::Service;
use engine::cluster::Update;
use engine::model::{Labels, NodeTerm, Pod, PreferredNodeTerm};
use engine::scheduling::framework::{Entry, Point, Points};
use engine::scheduling::hooks::Hooks;
use engine::scheduling::plugins;
use engine::scheduling::profile::{Enabled, Profile};
use engine::scheduling::scheduler::{Input, Scheduler, Settings};
use engine::testing::{PodBuilder, node, pod, policy, report, requirement, spread, term};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const ZONES: usize = 3;
/// Pods that preemption may evict, on every node.
const LESSER: usize = 4;
const PRIORITY: i32 = 1_000;
const RECLAIMED_CPU: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
const RECLAIMED_MEMORY: &str = "resource.katalyst.kubewharf.io/reclaimed_memory";
/// Plugins that co-location replaces.
const REPLACED: [&str; 2] = ["NodeResourcesBalancedAllocation", "DefaultPreemption"];
const COLOCATION: [(&str, i64); 5] = [
    ("QoSAwareNodeResourcesFit", 4),
    ("QoSAwareNodeResourcesBalancedAllocation", 1),
    ("QoSAwareTaintToleration", 1),
    ("NodeResourceTopology", 1),
    ("QoSAwarePreemption", 0),
];
/// Preemption evicts only pods of lower priority than these.
const PLACED_PRIORITY: i32 = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Equal pods that request cpu and memory.
    Basic,
    /// A hundred different requests in turn.
    Mixed100,
    /// Requires a zone and prefers a kind of disk.
    NodeAffinity,
    /// Anti-affinity: at most one of them on a node.
    AntiAffinity,
    /// All of them in one zone.
    PodAffinity,
    SpreadHard,
    SpreadSoft,
    /// Spread only by the default constraints, because of their Service.
    SpreadDefault,
    /// Different requests, each for more cpu than any node has.
    Unschedulable,
    /// Equal requests for more cpu than any node has: all but the first are answered without an evaluation.
    UnschedulableEqual,
    /// Each pod needs a preemption.
    Preemption,
    /// The pods of `Basic` with a single scorer: the cost of that plugin.
    Scorer(&'static str),
    /// Every second pod is reclaimed, and the report of one node changes before every decision.
    Reclaimed,
    /// The pods of `Basic` under a ResourcePolicy: three units with a cap, one percent of the nodes in the first.
    Policy,
    /// The pods of `Basic`; the ResourcePolicy selects other pods: the cost of the plugin for pods without a policy.
    WithoutPolicy,
    /// Every pod gets a whole NUMA zone; nodes have four.
    Numa,
    /// The pods of `Basic` on such nodes, with the same profile.
    WithoutNuma,
    /// The pods of `Basic` on nodes whose reports have no zones, with the profile of `Numa` without the plugin for zones.
    Colocation,
    /// The time of an explanation of a waiting pod.
    Explain,
    /// The time of an explanation of a pod that has a node.
    ExplainPlaced,
    /// The time of a copy of all accounts.
    Dump,
}

const FIT: &str = "NodeResourcesFit";
const FIT_PLUS: &str = "NodeResourcesFitPlus";
const AVOIDANCE: &str = "ScarceResourceAvoidance";

/// The expected outcome.
pub(crate) enum Expected {
    Node,
    NoNode,
    Victims,
    /// No decision.
    Nothing,
}

impl Workload {
    pub(crate) const ALL: [Self; 23] = [
        Self::Basic,
        Self::Mixed100,
        Self::NodeAffinity,
        Self::AntiAffinity,
        Self::PodAffinity,
        Self::SpreadHard,
        Self::SpreadSoft,
        Self::SpreadDefault,
        Self::Unschedulable,
        Self::UnschedulableEqual,
        Self::Preemption,
        Self::Scorer(FIT),
        Self::Scorer(FIT_PLUS),
        Self::Scorer(AVOIDANCE),
        Self::Reclaimed,
        Self::Policy,
        Self::WithoutPolicy,
        Self::Numa,
        Self::WithoutNuma,
        Self::Colocation,
        Self::Explain,
        Self::ExplainPlaced,
        Self::Dump,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Mixed100 => "mixed-100",
            Self::NodeAffinity => "node-affinity",
            Self::AntiAffinity => "anti-affinity",
            Self::PodAffinity => "pod-affinity",
            Self::SpreadHard => "spread-hard",
            Self::SpreadSoft => "spread-soft",
            Self::SpreadDefault => "spread-default",
            Self::Unschedulable => "unschedulable",
            Self::UnschedulableEqual => "unschedulable-equal",
            Self::Preemption => "preemption",
            Self::Scorer(FIT_PLUS) => "score-fit-plus",
            Self::Scorer(AVOIDANCE) => "score-scarce",
            Self::Scorer(_) => "score-fit",
            Self::Reclaimed => "reclaimed",
            Self::Policy => "policy",
            Self::WithoutPolicy => "without-policy",
            Self::Numa => "numa",
            Self::WithoutNuma => "without-numa",
            Self::Colocation => "colocation",
            Self::Explain => "explain",
            Self::ExplainPlaced => "explain-placed",
            Self::Dump => "dump",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|known| known.name() == text);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name);
            format!("use one of {}", names.join(", "))
        })
    }

    pub(crate) fn expected(self) -> Expected {
        match self {
            Self::Unschedulable | Self::UnschedulableEqual => Expected::NoNode,
            Self::Preemption => Expected::Victims,
            Self::Explain | Self::ExplainPlaced | Self::Dump => Expected::Nothing,
            _ => Expected::Node,
        }
    }

    /// About a second. Anti-affinity fills at most a third of the nodes.
    pub(crate) fn decisions(self, nodes: usize) -> usize {
        match self {
            Self::Preemption | Self::Explain | Self::ExplainPlaced => {
                (500_000 / nodes).clamp(10, 100)
            }
            Self::AntiAffinity => (5_000_000 / nodes).min(nodes / 3),
            // A node has three zones for them.
            Self::Numa => (5_000_000 / nodes).clamp(10, 2_000).min(2 * nodes),
            _ => (5_000_000 / nodes).clamp(10, 2_000),
        }
    }

    /// Nodes, pods on them, and other objects.
    pub(crate) fn cluster(self, nodes: usize, placed: usize, seed: u64) -> Vec<Input> {
        let mut random = Random(seed);
        let mut inputs = Vec::new();
        for at in 0..nodes {
            let name = node_name(at);
            let disk = if at % 4 == 0 { "ssd" } else { "hdd" };
            let node = node(&name)
                .allocatable("cpu=32 memory=128Gi ephemeral-storage=100Gi")
                .label(HOSTNAME, &name)
                .label(ZONE, &format!("zone-{}", at % ZONES))
                .label("disk", disk);
            let node = match self {
                Self::Policy | Self::WithoutPolicy => node.label("unit", unit(at)),
                _ => node,
            };
            inputs.push(Input::Object(Update::from(node.build())));
        }
        for at in 0..nodes {
            for index in 0..placed {
                let cpu = 100 + 50 * random.below(10);
                let pod = pod(&format!("placed-{at}-{index}"))
                    .label("app", &format!("placed-{}", random.below(50)))
                    .container(&format!("cpu={cpu}m memory=512Mi"))
                    .priority(PLACED_PRIORITY);
                inputs.push(Input::Pod(pod.on(&node_name(at)).build()));
            }
            if self == Self::Preemption {
                inputs.extend((0..LESSER).map(|index| lesser(at, index, &mut random)));
            }
        }
        if self == Self::Reclaimed {
            inputs.extend((0..nodes).map(|at| lends(at, &mut random)));
        }
        if matches!(self, Self::Numa | Self::WithoutNuma) {
            inputs.extend((0..nodes).map(four_zones));
        }
        if self == Self::Colocation {
            // A report makes the node's object anew, elsewhere in memory: that is not a cost of zones.
            let reports = (0..nodes).map(|at| report(&node_name(at)));
            inputs.extend(reports.map(|it| Input::Object(it.into())));
        }
        match self {
            // The first pod needs a pod to be near to.
            Self::PodAffinity => {
                let first = near(pod("first")).on(&node_name(0)).build();
                inputs.push(Input::Pod(first));
            }
            Self::SpreadDefault => inputs.push(Input::Object(Update::from(Service {
                namespace: "default".into(),
                name: "web".into(),
                selector: Some([("app", "web")].into_iter().collect::<Labels>()),
            }))),
            Self::Policy => inputs.push(units("web")),
            Self::WithoutPolicy => inputs.push(units("another")),
            _ => {}
        }
        inputs
    }

    /// Updates before each decision.
    pub(crate) fn updates(self, count: usize, nodes: usize, seed: u64) -> Vec<Input> {
        let mut random = Random(seed ^ 0xbeef);
        match self {
            Self::Reclaimed => (0..count)
                .map(|_| lends(random.below(nodes as u64) as usize, &mut random))
                .collect(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn pods(self, count: usize, seed: u64) -> Vec<Arc<Pod>> {
        let mut random = Random(seed ^ 0x5eed);
        let shapes: Vec<String> = (0..100)
            .map(|_| {
                let (cpu, memory) = (50 + 10 * random.below(40), 64 + 32 * random.below(30));
                format!("cpu={cpu}m memory={memory}Mi")
            })
            .collect();
        let one = |at: usize| {
            let plain = pod(&format!("pod-{at}")).label("app", "web");
            let small = || plain.clone().container("cpu=100m memory=128Mi");
            match self {
                Self::Basic
                | Self::SpreadDefault
                | Self::Scorer(_)
                | Self::Policy
                | Self::WithoutPolicy
                | Self::WithoutNuma
                | Self::Colocation
                | Self::Explain
                | Self::ExplainPlaced
                | Self::Dump => small(),
                Self::Mixed100 => plain.container(&shapes[at % shapes.len()]),
                Self::NodeAffinity => small()
                    .node_selector(ZONE, "zone-1")
                    .with(|pod| pod.preferred_nodes = Some(vec![prefers("disk In ssd")])),
                Self::AntiAffinity => small().apart(term(HOSTNAME, &["app In web"])),
                Self::PodAffinity => near(small()),
                Self::SpreadHard => small().spread(spread(ZONE, 1).app("web")),
                Self::SpreadSoft => small()
                    .spread(spread(ZONE, 1).app("web").soft())
                    .spread(spread(HOSTNAME, 1).app("web").soft()),
                Self::Unschedulable => plain.container(&format!("cpu={}m", 64_000 + at)),
                Self::UnschedulableEqual => plain.container("cpu=64 memory=128Mi"),
                Self::Preemption => plain.container("cpu=8 memory=8Gi").priority(PRIORITY),
                Self::Numa => plain.dedicated(None).container("cpu=6 memory=8Gi"),
                Self::Reclaimed if at.is_multiple_of(2) => small(),
                Self::Reclaimed => plain
                    .reclaimed()
                    .container(&format!("{RECLAIMED_CPU}=100 {RECLAIMED_MEMORY}=128Mi")),
            }
        };
        (0..count).map(|at| one(at).build()).collect()
    }
}

/// A scheduler with the plugins of the workload.
pub(crate) fn scheduler(workload: Workload, hooks: Hooks) -> Scheduler {
    let profile = match workload {
        Workload::Scorer(name) => one_scorer(name),
        Workload::Reclaimed | Workload::Numa | Workload::WithoutNuma => colocation_profile(&[]),
        Workload::Colocation => colocation_profile(&["NodeResourceTopology"]),
        Workload::Policy | Workload::WithoutPolicy => {
            let mut names = plugins::DEFAULT.to_vec();
            names.push(("resourcepolicy", 1));
            default_profile(&names)
        }
        _ => default_profile(plugins::DEFAULT),
    };
    let settings = Settings {
        hooks,
        ..Settings::default()
    };
    Scheduler::new(vec![profile], settings).unwrap_or_else(|error| panic!("{error}"))
}

fn one_scorer(name: &'static str) -> Profile {
    let args = match name {
        FIT_PLUS => {
            r#"{"resources":{"cpu":{"type":"LeastAllocated","weight":1},"memory":{"type":"LeastAllocated","weight":1}}}"#
        }
        AVOIDANCE => r#"{"resources":["nvidia.com/gpu"]}"#,
        _ => "{}",
    };
    let enabled = ["PrioritySort", "DefaultBinder", name].map(|plugin| {
        let entry = plugins::find(plugin).unwrap_or_else(|| panic!("no plugin {plugin}"));
        let args = if plugin == name { args } else { "{}" };
        let mut args = serde_json::Deserializer::from_str(args);
        let built = entry.build_with(&mut <dyn erased_serde::Deserializer>::erase(&mut args));
        Enabled {
            name: entry.name,
            points: entry.points,
            plugin: built
                .unwrap_or_else(|error| panic!("{plugin}: {error}"))
                .into(),
            weight: 1,
        }
    });
    Profile::new("default-scheduler", enabled.into())
        .with_order(Point::PreFilter, Vec::new())
        .with_order(Point::Filter, Vec::new())
}

/// The profile of co-location that spreads pods, without some plugins.
fn colocation_profile(without: &[&str]) -> Profile {
    let mut names = plugins::DEFAULT.to_vec();
    names.retain(|(name, _)| !REPLACED.contains(name));
    names.extend(COLOCATION);
    names.retain(|(name, _)| !without.contains(name));
    default_profile(&names)
}

/// The plugins that Kubernetes enables by default, or a similar list.
fn default_profile(names: &[(&'static str, i64)]) -> Profile {
    let colocation = names.contains(&COLOCATION[0]);
    let enabled = names.iter().map(|(name, weight)| {
        let entry = plugins::find(name).unwrap_or_else(|| panic!("no plugin {name}"));
        let weight = (*weight).max(1);
        if colocation && *name == FIT {
            return filtering_fit(entry);
        }
        Enabled::new(entry, weight).unwrap_or_else(|error| panic!("{name}: {error}"))
    });
    Profile::new("default-scheduler", enabled.collect())
}

/// NodeResourcesFit as co-location configures it: without scores, ignoring reclaimed resources.
fn filtering_fit(entry: &Entry) -> Enabled {
    let args = r#"{"ignoredResourceGroups":["katalyst.kubewharf.io"]}"#;
    let mut args = serde_json::Deserializer::from_str(args);
    let plugin = entry.build_with(&mut <dyn erased_serde::Deserializer<'_>>::erase(&mut args));
    Enabled {
        name: entry.name,
        points: Points::of(&[Point::PreFilter, Point::Filter]),
        plugin: plugin.unwrap_or_else(|error| panic!("{error}")).into(),
        weight: 1,
    }
}

/// One percent of the nodes is reserved, and nearly half are spot nodes.
fn unit(node: usize) -> &'static str {
    match node {
        node if node.is_multiple_of(100) => "reserved",
        node if node.is_multiple_of(2) => "spot",
        _ => "rest",
    }
}

/// A policy for the pods of an app, with caps that are never reached.
fn units(app: &str) -> Input {
    let policy = policy("units")
        .selects("app", app)
        .unit("reserved", 10, Some(100_000), "unit=reserved")
        .unit("spot", 5, Some(100_000), "unit=spot")
        .unit("rest", 1, Some(100_000), "unit=rest");
    Input::Object(policy.into())
}

fn node_name(at: usize) -> String {
    format!("node-{at}")
}

/// Four of these leave less than a pod of the workload requests.
fn lesser(node: usize, index: usize, random: &mut Random) -> Input {
    let pod = pod(&format!("lesser-{node}-{index}"))
        .label("app", "lesser")
        .container("cpu=6500m memory=4Gi")
        .priority(random.below(10) as i32)
        .on(&node_name(node));
    Input::Pod(pod.build())
}

/// A report of a node's agent: more or less than before, and always enough.
fn lends(node: usize, random: &mut Random) -> Input {
    let cores = 8 + random.below(8) as i64;
    let report = report(&node_name(node)).lends(1_000 * cores, cores << 32);
    Input::Object(report.into())
}

/// A quarter of the node in each of two sockets' two zones.
fn four_zones(node: usize) -> Input {
    let zones = (0..4).fold(report(&node_name(node)), |found, id| {
        found.zone(&(id / 2).to_string(), id, "cpu=8 memory=32Gi")
    });
    Input::Object(zones.into())
}

fn near(pod: PodBuilder) -> PodBuilder {
    pod.label("app", "web").near(term(ZONE, &["app In web"]))
}

fn prefers(text: &str) -> PreferredNodeTerm {
    PreferredNodeTerm {
        weight: 10,
        term: NodeTerm::new(vec![requirement(text)], Vec::new()),
    }
}

/// SplitMix64: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}
