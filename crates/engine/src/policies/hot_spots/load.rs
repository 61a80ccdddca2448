//! What a node uses, by its NodeMetric and by the pods that come and go since.

use std::collections::{BTreeMap, HashMap};

use super::{History, HotSpotInputs};
use crate::cluster::NodeEntry;
use crate::model::{Name, Pod, Resource, Timestamp};
use crate::node::CpuMemory;
use crate::policies::tiers::{NodeMetric, TIER_RESOURCES, TierResource};

/// Percent of the allocatable resources of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    pub cpu: u32,
    pub memory: u32,
}

/// One node.
#[derive(Debug, Clone)]
pub struct NodeLoad {
    allocatable: CpuMemory,
    /// As measured, without pods that leave or are gone.
    measured: CpuMemory,
    /// The measured load and the requests of pods that are not measured yet: what a newcomer finds.
    expected: CpuMemory,
    /// Cordoned nodes take no pods.
    takes_pods: bool,
    pods: HashMap<(Name, Name), CpuMemory>,
}

/// All nodes whose NodeMetric is current.
pub(super) fn loads(
    observed: &HotSpotInputs<'_>,
    history: &mut History,
    now: Timestamp,
) -> BTreeMap<Name, NodeLoad> {
    let nodes = observed.cluster.nodes().slots().iter().enumerate();
    let nodes = nodes.filter_map(|(slot, entry)| Some((slot, entry.as_ref()?)));
    let mut loads = BTreeMap::new();
    for (slot, entry) in nodes {
        let name = &entry.node.spec.name;
        let metric = observed.metrics.get(name);
        let Some(metric) = metric.filter(|it| history.is_current(name, it, now)) else {
            continue;
        };
        if let Some(load) = NodeLoad::of(observed, slot, entry, metric) {
            loads.insert(name.clone(), load);
        }
    }
    loads
}

impl NodeLoad {
    /// None for a node that has no resources or whose use is unknown.
    fn of(
        observed: &HotSpotInputs<'_>,
        slot: usize,
        entry: &NodeEntry,
        metric: &NodeMetric,
    ) -> Option<Self> {
        let of = |resource| entry.node.allocatable.get(&resource);
        let allocatable = CpuMemory::new(of(Resource::Cpu), of(Resource::Memory));
        if allocatable.milli_cpu <= 0 || allocatable.memory <= 0 {
            return None;
        }
        let mut pods: HashMap<(Name, Name), CpuMemory> = metric
            .pods
            .iter()
            .map(|it| ((it.namespace.clone(), it.name.clone()), it.usage))
            .collect();
        let mut staying = HashMap::new();
        let mut unmeasured = CpuMemory::ZERO;
        for placed in observed.cluster.pods_on(slot) {
            let pod = &placed.pod;
            if pod.kind.terminating {
                continue;
            }
            let key = (pod.namespace().clone(), pod.name.clone());
            match pods.remove(&key) {
                Some(usage) => drop(staying.insert(key, usage)),
                None => unmeasured = unmeasured.plus(requested(pod)),
            }
        }
        // What is left is of pods that leave or are gone.
        let leaving: CpuMemory = pods.into_values().sum();
        let measured = metric.node_usage?.minus(leaving).positive();
        Some(Self {
            allocatable,
            measured,
            expected: measured.plus(unmeasured),
            takes_pods: !entry.node.spec.unschedulable,
            pods: staying,
        })
    }

    pub(super) fn is_hot(&self, high: Marks) -> bool {
        self.exceeds(self.measured, high).any()
    }

    pub(super) fn is_cool(&self, low: Marks) -> bool {
        self.takes_pods && !self.exceeds(self.expected, low).any()
    }

    /// A pod with this use does not bring the node above the mark.
    pub(super) fn stays_below(&self, usage: CpuMemory, high: Marks) -> bool {
        !self.exceeds(self.expected.plus(usage), high).any()
    }

    /// How much of a use is of resources that are short here, in millionths of the node.
    pub(super) fn short(&self, usage: CpuMemory, high: Marks) -> i64 {
        let Short { cpu, memory } = self.exceeds(self.measured, high);
        let share = |is_short: bool, used: i64, of: i64| match is_short {
            true => part(used, of, 1_000_000),
            false => 0,
        };
        share(cpu, usage.milli_cpu, self.allocatable.milli_cpu).saturating_add(share(
            memory,
            usage.memory,
            self.allocatable.memory,
        ))
    }

    pub(super) fn heat(&self, high: Marks) -> i64 {
        self.heat_of(self.measured, high)
    }

    /// For a target: with pods that are not measured yet.
    pub(super) fn expected_heat(&self, high: Marks) -> i64 {
        self.heat_of(self.expected, high)
    }

    /// The use of the hotter resource, in millionths of its mark.
    fn heat_of(&self, used: CpuMemory, high: Marks) -> i64 {
        let over = |used, of, mark: u32| part(used, of, 100_000_000) / i64::from(mark.max(1));
        let cpu = over(used.milli_cpu, self.allocatable.milli_cpu, high.cpu);
        cpu.max(over(used.memory, self.allocatable.memory, high.memory))
    }

    pub(super) fn percent(&self) -> Marks {
        self.percent_of(self.measured)
    }

    /// For a target: with pods that are not measured yet.
    pub(super) fn expected_percent(&self) -> Marks {
        self.percent_of(self.expected)
    }

    pub(super) fn usage_of(&self, pod: &Pod) -> Option<CpuMemory> {
        let key = (pod.namespace().clone(), pod.name.clone());
        self.pods.get(&key).copied()
    }

    pub(super) fn leave(&mut self, usage: CpuMemory) {
        self.measured = self.measured.minus(usage).positive();
        self.expected = self.expected.minus(usage).positive();
    }

    pub(super) fn arrive(&mut self, usage: CpuMemory) {
        self.expected = self.expected.plus(usage);
    }

    fn percent_of(&self, used: CpuMemory) -> Marks {
        let percent = |used, of| u32::try_from(part(used, of, 100)).unwrap_or(u32::MAX);
        Marks {
            cpu: percent(used.milli_cpu, self.allocatable.milli_cpu),
            memory: percent(used.memory, self.allocatable.memory),
        }
    }

    fn exceeds(&self, used: CpuMemory, marks: Marks) -> Short {
        let is_above = |used: i64, of: i64, mark: u32| {
            i128::from(used) * 100 > i128::from(of) * i128::from(mark)
        };
        Short {
            cpu: is_above(used.milli_cpu, self.allocatable.milli_cpu, marks.cpu),
            memory: is_above(used.memory, self.allocatable.memory, marks.memory),
        }
    }
}

/// Which resources are above their mark.
struct Short {
    cpu: bool,
    memory: bool,
}

impl Short {
    fn any(&self) -> bool {
        self.cpu || self.memory
    }
}

/// `used / of` in these units.
fn part(used: i64, of: i64, units: i128) -> i64 {
    let parts = i128::from(used) * units / i128::from(of.max(1));
    i64::try_from(parts).unwrap_or(i64::MAX)
}

/// What a pod requests in all accounts.
fn requested(pod: &Pod) -> CpuMemory {
    let placed = &pod.requests.placed;
    let of = |resource: Resource| placed.get(&resource).max(0);
    let native = CpuMemory::new(of(Resource::Cpu), of(Resource::Memory));
    let tiers = TIER_RESOURCES.iter().map(|tier| {
        let amount = of(Resource::Scalar(tier.name().into()));
        match tier {
            TierResource::MidCpu | TierResource::BatchCpu => CpuMemory::new(amount, 0),
            TierResource::MidMemory | TierResource::BatchMemory => CpuMemory::new(0, amount),
        }
    });
    let reclaimed = pod.requests.reclaimed.as_ref().map(|it| {
        let it = &it.placed;
        CpuMemory::new(it.milli_cpu.max(0), it.memory.max(0))
    });
    tiers.chain(reclaimed).fold(native, CpuMemory::plus)
}
