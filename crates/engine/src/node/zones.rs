//! The report by NUMA node: the pool that each one lends, its capacity, and the pods that have it.

use std::collections::{BTreeMap, BTreeSet};

use super::numa::ZoneOwners;
use super::terms::CpuMemory;
use super::{CpuSet, Inputs, LocalPod, NodeSample, NumaUse};
use crate::model::Name;

/// No more allocations of a zone are reported: the definition of CustomNodeResource allows no more.
const MOST_ALLOCATIONS: usize = 512;

/// A NUMA zone of the node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ZoneReport {
    pub number: u32,
    pub socket: u32,
    /// Its CPUs that are online, and its allocatable memory.
    pub capacity: CpuMemory,
    /// Without reserved CPUs.
    pub allocatable: CpuMemory,
    pub reserved_cpus: CpuSet,
    /// To each zone, in the order of their numbers; empty if they are not known.
    pub distances: Vec<u32>,
    /// By namespace and name.
    pub allocations: Vec<ZoneAllocation>,
}

/// What a pod uses of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneAllocation {
    pub namespace: Name,
    pub name: Name,
    pub uid: Name,
    pub requests: CpuMemory,
}

/// All zones of the node, by their numbers.
pub(super) fn report(inputs: &Inputs<'_>, owners: &ZoneOwners) -> Vec<ZoneReport> {
    let Some(sample) = inputs.sample else {
        return Vec::new();
    };
    let online = &sample.machine.cpus.0;
    let reserved = inputs.node.map(|node| node.reserved_cpus.0.clone());
    let reserved = reserved.unwrap_or_default();
    let zone = |(number, node): (&u32, &NumaUse)| {
        let cpus: BTreeSet<u32> = &node.cpus.0 & online;
        let reserved_cpus: BTreeSet<u32> = &cpus & &reserved;
        let allocatable = allocatable(node, inputs);
        let distances = inputs.distances.and_then(|all| all.get(number));
        ZoneReport {
            number: *number,
            socket: socket(*number, sample, inputs),
            capacity: CpuMemory::new(milli(cpus.len()), allocatable.memory),
            allocatable,
            reserved_cpus: CpuSet(reserved_cpus),
            distances: distances.cloned().unwrap_or_default(),
            allocations: Vec::new(),
        }
    };
    let mut zones: Vec<ZoneReport> = sample.numa.iter().map(zone).collect();
    let pods = inputs.pods.unwrap_or_default().iter();
    for pod in pods.filter(|pod| pod.is_active()) {
        for (number, requests) in allocation(pod, owners, sample) {
            let zone = zones.iter_mut().find(|zone| zone.number == number);
            let allocations = zone.map(|zone| &mut zone.allocations);
            if let Some(all) = allocations.filter(|all| all.len() < MOST_ALLOCATIONS) {
                all.push(ZoneAllocation {
                    namespace: pod.namespace.clone(),
                    name: pod.name.clone(),
                    uid: pod.uid.clone(),
                    requests,
                });
            }
        }
    }
    for zone in &mut zones {
        zone.allocations
            .sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    }
    zones
}

/// What a zone offers to pods: its CPUs that are online and not reserved, and its memory.
pub(super) fn allocatable(node: &NumaUse, inputs: &Inputs<'_>) -> CpuMemory {
    let online = inputs.sample.map(|sample| &sample.machine.cpus.0);
    let reserved = inputs.node.map(|node| &node.reserved_cpus.0);
    let is_offered = |cpu: &&u32| {
        online.is_some_and(|online| online.contains(cpu))
            && !reserved.is_some_and(|reserved| reserved.contains(cpu))
    };
    let memory = node.memory_total.map_or(0, |it| it.0);
    CpuMemory {
        milli_cpu: milli(node.cpus.0.iter().filter(is_offered).count()),
        memory: i64::try_from(memory).unwrap_or(i64::MAX),
    }
}

fn milli(cpus: usize) -> i64 {
    1000 * i64::try_from(cpus).unwrap_or(0)
}

/// The socket of a zone. One without CPUs belongs to that of the nearest zone with CPUs.
fn socket(number: u32, sample: &NodeSample, inputs: &Inputs<'_>) -> u32 {
    let of = |number: u32| {
        let mut processors = inputs.processors.iter();
        processors.find(|it| it.numa == number).map(|it| it.socket)
    };
    let nearest = || {
        let distances = inputs.distances?.get(&number)?;
        let others = sample.numa.keys().zip(distances);
        let others = others.filter(|(other, _)| of(**other).is_some());
        let (nearest, _) = others.min_by_key(|(_, distance)| **distance)?;
        of(*nearest)
    };
    of(number).or_else(nearest).unwrap_or(0)
}

/// What a pod uses of each zone: of those that it has, in proportion to their CPUs, and of those in which it is bound to CPUs.
fn allocation(pod: &LocalPod, owners: &ZoneOwners, sample: &NodeSample) -> Vec<(u32, CpuMemory)> {
    let zones = owners.zones_of(&pod.group);
    let weight = |(number, node): (&u32, &NumaUse)| {
        let has = u8::try_from(*number).is_ok_and(|id| zones.contains(id));
        let cpus = match has {
            true => node.cpus.0.len(),
            false => node.cpus.0.intersection(&pod.bound_cpus.0).count(),
        };
        (has || cpus > 0).then(|| (*number, i64::try_from(cpus).unwrap_or(0)))
    };
    let weights: Vec<(u32, i64)> = sample.numa.iter().filter_map(weight).collect();
    let request = pod.request();
    let cpus: Vec<i64> = weights.iter().map(|(_, weight)| *weight).collect();
    let amounts = shares(request.milli_cpu, cpus.clone()).into_iter();
    let amounts = amounts.zip(shares(request.memory, cpus));
    let numbers = weights.iter().map(|(number, _)| *number);
    numbers
        .zip(amounts.map(|(milli_cpu, memory)| CpuMemory { milli_cpu, memory }))
        .collect()
}

/// What is free in zones that pods have alone: no other pod can use it.
pub(super) fn withheld(sample: &NodeSample, owners: &ZoneOwners) -> CpuMemory {
    let zones = sample.numa.iter();
    let exclusive = zones.filter(|(number, _)| owners.is_exclusive(**number));
    exclusive.map(|(_, zone)| free(zone)).sum()
}

fn free(zone: &NumaUse) -> CpuMemory {
    let cpus = 1000 * i64::try_from(zone.cpus.0.len()).unwrap_or(0);
    let used = zone.cpu.map_or(0, |cpu| cpu.0 / 1_000_000);
    let used = i64::try_from(used).unwrap_or(i64::MAX);
    let memory = zone.memory_free.or(zone.memory_total).map_or(0, |it| it.0);
    CpuMemory {
        milli_cpu: cpus.saturating_sub(used).max(0),
        memory: i64::try_from(memory).unwrap_or(i64::MAX),
    }
}

/// Divides the pool by what is free on each NUMA node that other pods can use. The parts add up to the whole.
pub(super) fn divide(
    pool: CpuMemory,
    sample: &NodeSample,
    owners: &ZoneOwners,
) -> BTreeMap<u32, CpuMemory> {
    let free = sample
        .numa
        .iter()
        .map(|(number, zone)| match owners.is_exclusive(*number) {
            true => CpuMemory::ZERO,
            false => free(zone),
        });
    let free: Vec<CpuMemory> = free.collect();
    let cpu = shares(pool.milli_cpu, free.iter().map(|it| it.milli_cpu).collect());
    let memory = shares(pool.memory, free.iter().map(|it| it.memory).collect());
    let numbers = sample.numa.keys().copied();
    let parts = cpu.into_iter().zip(memory);
    numbers
        .zip(parts.map(|(milli_cpu, memory)| CpuMemory { milli_cpu, memory }))
        .collect()
}

/// Integer parts in proportion to the weights; the remainder goes to the first ones.
fn shares(whole: i64, weights: Vec<i64>) -> Vec<i64> {
    let sum: i128 = weights.iter().map(|weight| i128::from(*weight)).sum();
    let weights = match sum {
        0 => vec![1; weights.len()],
        _ => weights,
    };
    let sum: i128 = weights.iter().map(|weight| i128::from(*weight)).sum();
    let mut parts: Vec<i64> = weights
        .iter()
        .map(|weight| {
            let part = i128::from(whole) * i128::from(*weight) / sum.max(1);
            i64::try_from(part).unwrap_or(0)
        })
        .collect();
    let mut rest = whole - parts.iter().sum::<i64>();
    for part in &mut parts {
        let one = rest.signum();
        *part += one;
        rest -= one;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_whole() {
        for (whole, weights, want) in [
            (0, vec![1, 1], vec![0, 0]),
            (7, vec![1, 1], vec![4, 3]),
            (1000, vec![3000, 1000], vec![750, 250]),
            (5, vec![0, 0], vec![3, 2]),
            (i64::MAX, vec![i64::MAX, 0], vec![i64::MAX, 0]),
            (9, vec![0, 10], vec![0, 9]),
        ] {
            assert_eq!(shares(whole, weights.clone()), want, "{whole} {weights:?}");
        }
        assert!(shares(5, Vec::new()).is_empty());
    }
}
