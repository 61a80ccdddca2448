//! The formulas: how much of each tier a node has, and from which terms.

use std::collections::BTreeMap;

use super::{
    CalculatePolicy, ColocationStrategy, MidFormula, MidReclaimMode, NodeMetric, PodUsage,
    PriorityBand, TIER_RESOURCES, TierNode, TierPod, TierResource,
};
use crate::model::{NumaBinding, QosClass, Resource, ZoneSet};
use crate::node::{CpuMemory, Figure, Lend};

/// What the formulas give for a node with a current NodeMetric, before bound pods count; in the order of
/// [`TIER_RESOURCES`].
pub fn capacities(
    node: &TierNode<'_>,
    metric: &NodeMetric,
    strategy: &ColocationStrategy,
    no_overselling: bool,
) -> [Figure; 4] {
    let pods = PodSums::of(node, metric);
    TIER_RESOURCES.map(|resource| {
        let figure = Figure::new(resource.name(), resource.unit());
        let inputs = FormulaInputs {
            node,
            metric,
            pods: &pods,
            amount: resource.amount(),
            percents: Percents::of(strategy, resource),
        };
        match resource {
            TierResource::MidCpu | TierResource::MidMemory => {
                mid(figure, &inputs, strategy, no_overselling)
            }
            TierResource::BatchCpu | TierResource::BatchMemory => match strategy.lend {
                Lend::Reclaimed => figure,
                Lend::Batch => batch(figure, &inputs),
                Lend::Shared => from_pool(batch(figure, &inputs), &inputs),
            },
        }
    })
}

/// What the formulas read, for CPU or for memory.
struct FormulaInputs<'a> {
    node: &'a TierNode<'a>,
    metric: &'a NodeMetric,
    pods: &'a PodSums,
    amount: fn(CpuMemory) -> i64,
    percents: Percents,
}

/// The settings that CPU and memory have each.
struct Percents {
    mid_threshold: i64,
    mid_static: i64,
    mid_unallocated: i64,
    margin: i64,
    batch_threshold: Option<i64>,
    policy: CalculatePolicy,
}

impl Percents {
    fn of(strategy: &ColocationStrategy, resource: TierResource) -> Self {
        let margin = |threshold: i64| 100_i64.saturating_sub(threshold);
        match resource {
            TierResource::MidCpu | TierResource::BatchCpu => Self {
                mid_threshold: strategy.mid_cpu_threshold_percent,
                mid_static: strategy.mid_static_cpu_reserved_percent,
                mid_unallocated: strategy.mid_unallocated_percent,
                margin: margin(strategy.cpu_reclaim_threshold_percent),
                batch_threshold: strategy.batch_cpu_threshold_percent,
                policy: strategy.cpu_calculate_policy,
            },
            TierResource::MidMemory | TierResource::BatchMemory => Self {
                mid_threshold: strategy.mid_memory_threshold_percent,
                mid_static: strategy.mid_static_memory_reserved_percent,
                mid_unallocated: strategy.mid_unallocated_percent,
                margin: margin(strategy.memory_reclaim_threshold_percent),
                batch_threshold: strategy.batch_memory_threshold_percent,
                policy: strategy.memory_calculate_policy,
            },
        }
    }
}

/// A share in percent, towards zero. In binary fractions as Koordinator calculates it, so that both get the same integer.
fn share(amount: i64, percent: i64) -> i64 {
    (amount as f64 * (percent as f64 / 100.0)) as i64
}

impl FormulaInputs<'_> {
    fn capacity(&self) -> i64 {
        (self.amount)(self.node.capacity)
    }

    /// What the scheduler can give to services: the reservation is taken off.
    fn allocatable(&self) -> i64 {
        let rest = self.node.allocatable.minus(self.node.reservation);
        (self.amount)(rest.positive())
    }

    /// What the kubelet keeps or the annotation reserves, whichever is more.
    fn reserved(&self) -> i64 {
        let kubelet = self.node.capacity.minus(self.node.allocatable);
        (self.amount)(kubelet.max(self.node.reservation))
    }

    /// The use of processes outside of pods: of the system, and of applications of at least this band.
    fn system(&self, lowest: PriorityBand) -> i64 {
        let applications = self.metric.host_applications.iter();
        let counted = applications.filter(|(band, _)| *band >= lowest);
        let used: CpuMemory = counted.map(|(_, usage)| *usage).sum();
        let system = (self.amount)(self.metric.system_usage.plus(used));
        system.max(self.reserved())
    }
}

fn mid(
    mut figure: Figure,
    inputs: &FormulaInputs<'_>,
    strategy: &ColocationStrategy,
    no_overselling: bool,
) -> Figure {
    let percents = &inputs.percents;
    let reclaimable = (inputs.amount)(inputs.metric.prod_reclaimable);
    let of_capacity = share(inputs.capacity(), percents.mid_threshold);
    match (strategy.mid_formula, strategy.mid_reclaim_mode) {
        (MidFormula::Proposal, _) => {
            let allocatable = inputs.allocatable();
            let prod = (inputs.amount)(inputs.pods.prod_bound);
            let unallocated = allocatable.saturating_sub(prod).max(0);
            if no_overselling {
                let part = share(unallocated, percents.mid_threshold);
                figure.add("threshold of what services do not request", part);
            } else {
                figure.add("reclaimable from services", reclaimable.max(0));
                let threshold = share(allocatable, percents.mid_threshold);
                figure.limit("threshold of allocatable", threshold);
                figure.add("not requested by services", unallocated);
            }
        }
        (MidFormula::Koordinator, MidReclaimMode::Static) => {
            figure.add(
                "static share",
                share(inputs.capacity(), percents.mid_static),
            );
            figure.limit("threshold of capacity", of_capacity);
        }
        (MidFormula::Koordinator, MidReclaimMode::Predicted) => {
            let usage = inputs.metric.node_usage.map(inputs.amount);
            let unused = usage.map_or(0, |usage| inputs.capacity().saturating_sub(usage));
            let prod = (inputs.amount)(inputs.pods.prod_active);
            let system = inputs.system(PriorityBand::Prod);
            let unallocated = inputs.capacity().saturating_sub(system);
            let unallocated = unallocated.saturating_sub(prod).max(0);
            figure.add("reclaimable from services", reclaimable);
            figure.limit("unused", unused);
            figure.at_least("never below zero", 0);
            let part = share(unallocated, percents.mid_unallocated);
            figure.add("share of what services do not request", part);
            figure.limit("threshold of capacity", of_capacity);
        }
    }
    figure
}

fn batch(mut figure: Figure, inputs: &FormulaInputs<'_>) -> Figure {
    let capacity = inputs.capacity();
    figure.add("capacity", capacity);
    let margin = share(capacity, inputs.percents.margin);
    figure.add("margin", margin.saturating_neg());
    let pods = inputs.pods;
    let (system, name, used) = match inputs.percents.policy {
        CalculatePolicy::Usage => (
            inputs.system(PriorityBand::Mid),
            "use of services",
            pods.usage,
        ),
        CalculatePolicy::Request => (inputs.reserved(), "requests of services", pods.requests),
        CalculatePolicy::MaxUsageRequest => (
            inputs.system(PriorityBand::Mid),
            "larger of use and request of services",
            pods.larger,
        ),
    };
    figure.add("system", -system);
    figure.add(name, -(inputs.amount)(used));
    figure.at_least("never below zero", 0);
    if let Some(percent) = inputs.percents.batch_threshold {
        figure.limit("threshold of capacity", share(capacity, percent));
    }
    figure
}

/// At most the idle pool of the agent, less what reclaimed pods request of it.
fn from_pool(mut figure: Figure, inputs: &FormulaInputs<'_>) -> Figure {
    if let Some(pool) = inputs.node.report.and_then(|it| it.pool) {
        let pool = CpuMemory::new(pool.milli_cpu, pool.memory);
        figure.limit("idle pool", (inputs.amount)(pool));
        figure.add(
            "requests of reclaimed pods",
            -(inputs.amount)(inputs.pods.reclaimed),
        );
        figure.at_least("never below zero", 0);
    }
    figure
}

/// What no other pod may use, however little of it the owner of the zones requests.
fn whole_zones(node: &TierNode<'_>, zones: ZoneSet) -> CpuMemory {
    let topology = node.report.and_then(|it| it.topology.as_ref());
    topology.map_or(CpuMemory::ZERO, |topology| {
        let of = |resource| topology.allocatable(zones, &resource);
        CpuMemory::new(of(Resource::Cpu), of(Resource::Memory))
    })
}

/// What the pods of a node request and use.
#[derive(Default)]
struct PodSums {
    /// Native requests of services that are bound, and of those that run or start.
    prod_bound: CpuMemory,
    prod_active: CpuMemory,
    reclaimed: CpuMemory,
    /// Requests and usage of pods with a higher priority than batch, mid pods among them.
    requests: CpuMemory,
    usage: CpuMemory,
    /// The sum over these pods of the larger one of requests and usage.
    larger: CpuMemory,
}

impl PodSums {
    fn of(node: &TierNode<'_>, metric: &NodeMetric) -> Self {
        let mut sums = Self::default();
        // Only one of two pods that claim a zone has it.
        let mut counted = ZoneSet::EMPTY;
        let mut metrics: BTreeMap<(&str, &str), &PodUsage> = BTreeMap::new();
        for pod in &metric.pods {
            metrics.insert((&pod.namespace, &pod.name), pod);
        }
        for pod in node.pods {
            let topology = node.report.and_then(|it| it.topology.as_ref());
            let zones = topology.map_or(ZoneSet::EMPTY, |topology| {
                topology.needed(pod.zones, NumaBinding::Exclusive, &pod.requests)
            });
            let zones = zones.without(counted);
            counted = counted.with(zones);
            let key = (&*pod.namespace, &*pod.name);
            let metric = pod.active.then(|| metrics.remove(&key)).flatten();
            let usage = metric.map(|it| it.usage.positive());
            sums.add(pod, usage, whole_zones(node, zones));
        }
        // These are metrics of pods that the watch does not show yet, or no more.
        let unknown = metrics.values().filter(|it| it.band > PriorityBand::Batch);
        for metric in unknown {
            let usage = metric.usage.positive();
            sums.usage = sums.usage.plus(usage);
            sums.larger = sums.larger.plus(usage);
        }
        sums
    }

    /// `zones` is all that the zones of the pod have.
    fn add(&mut self, pod: &TierPod, usage: Option<CpuMemory>, zones: CpuMemory) {
        self.reclaimed = self.reclaimed.plus(pod.reclaimed);
        let is_prod = pod.class < QosClass::MidLatencySensitive;
        let native = pod.native.max(zones);
        if is_prod {
            self.prod_bound = self.prod_bound.plus(native);
        }
        if !pod.active || pod.class >= QosClass::Lent {
            return;
        }
        if is_prod {
            self.prod_active = self.prod_active.plus(native);
        }
        let requests = match is_prod {
            true => native,
            false => native.plus(pod.mid),
        };
        // A new pod has no metric yet: it counts by its requests.
        let usage = usage.unwrap_or(requests).max(zones);
        let used = match pod.exclusive {
            true => CpuMemory::new(requests.milli_cpu, usage.memory),
            false => usage,
        };
        self.requests = self.requests.plus(requests);
        self.usage = self.usage.plus(used);
        self.larger = self.larger.plus(requests.max(usage));
    }
}
