//! How much the node lends: reclaimed CPU and memory.
//!
//! The headroom is the smallest of three amounts: what is idle or already lent, less a reserve; what remains after an estimate of what
//! pods that are not lent will need; and what suppression and eviction would leave to lent pods. It decreases at once; increases are
//! smoothed and limited in their steps (see [`super::lender`]).

use std::time::Duration;

use super::settings::{AgentSettings, CpuUtilization, MemoryUtilization};
use super::suppress::{self, Demand};
use super::terms::{CpuMemory, Figure};
use super::usage::{ClassUse, by_group, use_of};
use super::{LocalNode, LocalPod, NodeSample};
use crate::model::QosClass;

/// The time over which use is averaged for headroom.
pub const AVERAGED: Duration = Duration::from_secs(10);

/// Katalyst's buffers on top of measured use.
const CPU_BUFFER: f64 = 1.25;
const MEMORY_BUFFER: f64 = 1.1;

/// CPUs that are idle or used by lent pods, in thousandths; a quota of lent pods bounds it.
pub fn supply(cpus: i64, node_use: i64, lent_use: i64, quota: Option<i64>) -> i64 {
    let supply = cpus
        .saturating_sub(node_use)
        .max(0)
        .saturating_add(lent_use);
    supply.min(quota.unwrap_or(i64::MAX))
}

/// Headroom that follows the use of what was lent: below the target more is lent, above the maximum less. All in cores.
pub fn by_utilization(
    settings: &CpuUtilization,
    supply: f64,
    utilization: f64,
    last: f64,
    most: f64,
) -> f64 {
    if supply == 0.0 {
        return 0.0;
    }
    let oversold = if utilization < settings.target {
        supply * (settings.target - utilization)
    } else if settings.max > 0.0 && utilization > settings.max {
        supply * (settings.max - utilization)
    } else {
        0.0
    };
    let headroom = (last + oversold).max(supply);
    let headroom = headroom.min(supply * settings.max_oversold_rate);
    if most > 0.0 {
        headroom.min(most)
    } else {
        headroom
    }
}

/// The CPU that a container will need, in cores: its use with a buffer or a load, whichever is larger; else its request, else the
/// fallback. `metrics` are its use and its loads of one and five minutes; zero where they are not measured.
pub fn container_cpu(metrics: [f64; 3], request: f64, is_measured: bool, fallback: f64) -> f64 {
    let [usage, load_1, load_5] = metrics;
    let measured = [usage * CPU_BUFFER, load_1, load_5];
    let need = match is_measured {
        true => measured.into_iter().fold(0.0, f64::max),
        false => 0.0,
    };
    or_else(or_else(need, request), fallback)
}

/// The memory that a container will need: its use with a buffer, else its request; else the fallback. `metrics` are its resident
/// memory, page cache and shared memory.
pub fn container_memory(
    metrics: [f64; 3],
    request: f64,
    is_measured: bool,
    is_system: bool,
    fallback: f64,
) -> f64 {
    let [resident, cache, shared] = metrics.map(|metric| metric.max(0.0));
    let need = match (is_measured, is_system) {
        (false, _) => request,
        (true, true) => resident,
        (true, false) => (resident + cache + shared) * MEMORY_BUFFER,
    };
    or_else(need, fallback)
}

/// The first positive one.
fn or_else(one: f64, other: f64) -> f64 {
    if one > 0.0 { one } else { other }
}

/// Memory figures of the node, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MemorySupply {
    pub total: f64,
    pub free: f64,
    /// Without page cache.
    pub used: f64,
    /// What can be allocated at all.
    pub upper_bound: f64,
    pub reserve: f64,
    /// What pods that are not lent will need.
    pub estimate: f64,
    /// What of that is in use already.
    pub used_by_online: f64,
    /// Page cache and shared memory of the system.
    pub system_cache: f64,
    pub cores_per_gib: f64,
}

/// Nodes with more or less memory do not lend page cache.
const CORES_PER_GIB: (f64, f64) = (1.0 / 6.0, 1.0 / 3.5);

/// Katalyst's canonical memory headroom.
pub fn memory(settings: &MemoryUtilization, supply: MemorySupply) -> f64 {
    let most = supply.upper_bound - supply.reserve;
    let mut headroom = (most - supply.estimate).max(0.0);
    if settings.enable {
        let watermark = supply.total * 2.0 * settings.watermark_scale_factor as f64 / 10_000.0;
        let growth = supply.estimate - supply.used_by_online + supply.system_cache;
        let free = supply.free * settings.free_based_ratio - watermark;
        let mut buffer = (free - growth).max(0.0);
        let (least, largest) = CORES_PER_GIB;
        let utilization = supply.used / supply.total;
        if settings.cache_based_ratio > 0.0
            && supply.cores_per_gib > least
            && supply.cores_per_gib < largest
            && utilization > 0.0
        {
            let cache = supply.total * (1.0 - utilization) - supply.free;
            buffer = buffer.max(cache * settings.cache_based_ratio);
        }
        headroom += buffer + settings.static_based_capacity as f64;
    }
    headroom.max(0.0).min(most)
}

/// What the pool is computed from.
#[derive(Debug, Clone, Copy)]
pub struct LendingInputs<'a> {
    pub node: &'a LocalNode,
    pub pods: &'a [LocalPod],
    pub sample: &'a NodeSample,
    /// The mean of the last seconds.
    pub used: &'a ClassUse,
    /// What is free in zones that pods have alone.
    pub withheld: CpuMemory,
    /// A quota of `besteffort`, in thousandths of cores.
    pub quota: Option<i64>,
    /// What was reported last.
    pub last: CpuMemory,
}

/// The largest amounts that the node may lend now, with their terms.
#[derive(Debug, Clone, PartialEq)]
pub struct Formula {
    pub cpu: Figure,
    pub memory: Figure,
}

impl Formula {
    pub fn value(&self) -> CpuMemory {
        CpuMemory::new(self.cpu.value, self.memory.value)
    }
}

/// What pods of the mid tier hold: the larger of request and use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct MidHold {
    /// Requests that the pods do not use, of both kinds.
    unused: CpuMemory,
    unused_ls: CpuMemory,
    best_effort: CpuMemory,
}

impl MidHold {
    fn of(inputs: &LendingInputs<'_>) -> Self {
        let mut hold = Self::default();
        for pod in inputs.pods.iter().filter(|pod| pod.is_active()) {
            let is_ls = pod.class == QosClass::MidLatencySensitive;
            if !is_ls && pod.class != QosClass::MidBestEffort {
                continue;
            }
            let used = inputs.sample.pods.get(&pod.group);
            let used = used.map_or(CpuMemory::ZERO, |used| use_of(&used.group));
            let request = pod.request();
            let unused = request.minus(used).positive();
            hold.unused = hold.unused.plus(unused);
            if is_ls {
                hold.unused_ls = hold.unused_ls.plus(unused);
            } else {
                hold.best_effort = hold.best_effort.plus(request.max(used));
            }
        }
        hold
    }
}

/// What pods that are not lent will need, by the buffers above.
fn estimate(inputs: &LendingInputs<'_>) -> CpuMemory {
    let pods = by_group(inputs.pods);
    let measured = inputs.sample.pods.iter().map(|(uid, used)| {
        let pod = pods.get(uid);
        if pod.is_some_and(|pod| pod.is_lent()) {
            return CpuMemory::ZERO;
        }
        let request = pod.map_or(CpuMemory::ZERO, |pod| pod.request());
        let cpu = used.group.cpu.map_or(0.0, |cpu| cpu.0 as f64 / 1e6);
        let memory = used
            .group
            .memory
            .as_ref()
            .map_or(0.0, |it| it.usage.0 as f64);
        let (has_cpu, has_memory) = (used.group.cpu.is_some(), used.group.memory.is_some());
        // A pod that was measured and uses nothing needs nothing, where Katalyst assumes its request or 4 cores.
        let (cpu_request, memory_request) = match (has_cpu, has_memory) {
            (true, true) => (0.0, 0.0),
            _ => (request.milli_cpu as f64, request.memory as f64),
        };
        let need = CpuMemory {
            milli_cpu: container_cpu([cpu, 0.0, 0.0], cpu_request, has_cpu, 0.0) as i64,
            memory: container_memory([memory, 0.0, 0.0], memory_request, has_memory, false, 0.0)
                as i64,
        };
        // Pods of the mid tier hold what they request.
        match pod.is_some_and(|pod| pod.is_own()) {
            true => need.max(request),
            false => need,
        }
    });
    let waiting = inputs.pods.iter().filter(|pod| {
        let is_waiting = pod.is_active() && !inputs.sample.pods.contains_key(&pod.group);
        is_waiting && !pod.is_lent()
    });
    measured.chain(waiting.map(LocalPod::request)).sum()
}

/// The largest amounts that the node may lend now.
pub fn formula(inputs: &LendingInputs<'_>, settings: &AgentSettings) -> Formula {
    let used = inputs.used;
    let hold = MidHold::of(inputs);
    let estimate = estimate(inputs);
    let memory_total = inputs
        .sample
        .machine
        .memory
        .map_or(0, |memory| memory.total.0);
    let memory_total = i64::try_from(memory_total).unwrap_or(i64::MAX);
    let cpus = 1000 * i64::try_from(inputs.sample.machine.cpus.0.len()).unwrap_or(0);
    let capacity = CpuMemory::new(cpus, memory_total);
    let reserve = settings.reclaim.reserve(capacity);

    let mut cpu = Figure::new("reclaimed cpu", "milli-cores");
    let not_lent = used
        .node
        .milli_cpu
        .saturating_sub(used.lent.milli_cpu)
        .max(0);
    cpu.add("CPUs of the node", cpus);
    cpu.add("use of other pods and of the system", -not_lent.min(cpus));
    let withheld = inputs.withheld;
    if withheld.milli_cpu > 0 {
        cpu.add(
            "idle CPUs in zones that pods have alone",
            -withheld.milli_cpu,
        );
    }
    if let Some(quota) = inputs.quota {
        cpu.limit("quota of besteffort", quota);
    }
    let utilization = &settings.reclaim.cpu;
    if utilization.enable && cpu.value > 0 {
        let supply = cpu.value as f64 / 1000.0;
        let share = used.lent.milli_cpu as f64 / 1000.0 / supply;
        let last = inputs.last.milli_cpu as f64 / 1000.0;
        let most = utilization.max_capacity_rate * cpus as f64 / 1000.0;
        let headroom = by_utilization(utilization, supply, share, last, most);
        let more = (headroom * 1000.0) as i64 - cpu.value;
        cpu.add("lent CPUs that stay idle, lent again", more);
    }
    cpu.add(
        "requests of mid pods that they do not use",
        -hold.unused.milli_cpu,
    );
    cpu.add("reserve for other pods", -reserve.milli_cpu);
    let oversold = match utilization.enable {
        // Lent pods leave a share of what they were lent idle: the bounds below are about use.
        true if utilization.max_oversold_rate > 1.0 => utilization.max_oversold_rate,
        _ => 1.0,
    };
    let scaled = |amount: i64| (amount.max(0) as f64 * oversold) as i64;
    let remaining = capacity
        .milli_cpu
        .saturating_sub(estimate.milli_cpu)
        .saturating_sub(used.system.milli_cpu)
        .saturating_sub(withheld.milli_cpu)
        .saturating_sub(reserve.milli_cpu);
    cpu.limit(
        "CPUs less the estimated need of other pods",
        scaled(remaining),
    );
    let left = suppress::amount(
        Demand::of(inputs.node, used),
        settings.thresholds.cpu_suppress,
        settings.thresholds.cpu_suppress_min,
    );
    let left = left
        .saturating_sub(hold.best_effort.max(used.mid_be).milli_cpu)
        .saturating_sub(hold.unused_ls.milli_cpu);
    cpu.limit("what suppression leaves to lent pods", scaled(left));
    cpu.at_least("not below zero", 0);

    let mut memory = Figure::new("reclaimed memory", "bytes");
    let lent = used.lent.memory;
    let in_use = used.node.memory.saturating_sub(lent).max(0);
    let free = memory_total.saturating_sub(used.node.memory).max(0);
    let system = used.system.memory;
    let need = estimate.memory.saturating_add(system);
    let canonical = self::memory(
        &settings.reclaim.memory,
        MemorySupply {
            total: memory_total as f64,
            free: free as f64,
            used: used.node.memory as f64,
            upper_bound: memory_total as f64,
            reserve: reserve.memory as f64,
            estimate: need as f64,
            used_by_online: in_use as f64,
            system_cache: 0.0,
            cores_per_gib: cpus as f64 / 1000.0 / (memory_total as f64 / 1024.0 / 1024.0 / 1024.0),
        },
    );
    memory.add("memory of the node", memory_total);
    memory.add("estimated need of other pods", -estimate.memory);
    memory.add("use of the system", -system);
    memory.add("reserve for other pods", -reserve.memory);
    if settings.reclaim.memory.enable {
        let more = (canonical as i64).saturating_sub(memory.value);
        memory.add("free memory and static capacity, lent again", more);
    }
    if withheld.memory > 0 {
        memory.add(
            "free memory in zones that pods have alone",
            -withheld.memory,
        );
    }
    let threshold = settings.thresholds.memory_evict;
    let left = (memory_total / 100).saturating_mul(threshold);
    let left = left
        .saturating_sub(in_use)
        .saturating_sub(hold.unused.memory);
    memory.limit("what memory eviction leaves to lent pods", left.max(0));
    memory.at_least("not below zero", 0);
    Formula { cpu, memory }
}
