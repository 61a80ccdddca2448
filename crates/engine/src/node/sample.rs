//! One node as its agent measures it at every period. A value that could not be measured is `None`: it is never replaced by zero.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{Name, Timestamp};

/// Billionths of a core, as in the kubelet's summary API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct NanoCores(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Bytes(pub u64);

/// The measurements of one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeSample {
    /// On a clock that never goes back; it does not tell the time of day.
    pub at: Timestamp,
    pub machine: MachineUse,
    /// By the number of the NUMA node.
    pub numa: BTreeMap<u32, NumaUse>,
    /// All pods together.
    pub kubepods: GroupUse,
    /// The pods of class Burstable, and of class BestEffort. Guaranteed pods have no directory of their own.
    pub burstable: GroupUse,
    pub besteffort: GroupUse,
    /// By the uid in the name of the pod's cgroup. That of a static pod is the hash of its file, not the uid of its mirror pod.
    pub pods: BTreeMap<Name, PodUse>,
}

/// All processes of the machine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MachineUse {
    pub cpus: CpuSet,
    pub cpu: Option<NanoCores>,
    pub memory: Option<MachineMemory>,
    /// Load averages of one, five and fifteen minutes.
    pub load: Option<[f64; 3]>,
    pub pressure: Pressure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MachineMemory {
    pub total: Bytes,
    pub available: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NumaUse {
    /// Those that are online.
    pub cpus: CpuSet,
    pub cpu: Option<NanoCores>,
    /// Zero for a node without memory.
    pub memory_total: Option<Bytes>,
    pub memory_free: Option<Bytes>,
}

/// One pod's group and its containers, by id. The sandbox is one of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodUse {
    pub qos: PodQos,
    pub group: GroupUse,
    pub containers: BTreeMap<Name, GroupUse>,
}

/// The class that Kubernetes gives a pod; it decides the directory of the pod's cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum PodQos {
    #[default]
    Guaranteed,
    Burstable,
    BestEffort,
}

/// The use of one cgroup.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GroupUse {
    /// The average since the sample before.
    pub cpu: Option<NanoCores>,
    /// Between the last two readings of details, which may be several samples apart.
    pub throttling: Option<Throttling>,
    pub memory: Option<MemoryUse>,
    pub pressure: Pressure,
    /// Only read while a pod of the node has NUMA zones.
    pub allowed: Option<Arc<Allowed>>,
}

/// The CPUs and NUMA nodes that processes of a group may use, by the group and those above it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allowed {
    /// When it was read.
    pub at: Timestamp,
    pub cpus: CpuSet,
    pub mems: CpuSet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Throttling {
    pub periods: u64,
    pub throttled_periods: u64,
    pub throttled_time: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryUse {
    pub usage: Bytes,
    /// The usage without page cache that the kernel can drop at once.
    pub working_set: Bytes,
    /// By the number of the NUMA node: the working set on cgroup v2, the usage on v1.
    pub numa: BTreeMap<u32, Bytes>,
}

/// Pressure stall information. cgroup v1 has none per group.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pressure {
    pub cpu: Option<Stall>,
    pub memory: Option<Stall>,
    pub io: Option<Stall>,
}

/// The share of the last ten seconds, in percent, in which some tasks waited, and in which all did.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stall {
    pub some: f64,
    pub full: f64,
}

/// Numbers of CPUs, or of NUMA nodes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct CpuSet(pub BTreeSet<u32>);

impl CpuSet {
    /// The largest number that a set may contain; the kernel's own limit.
    pub const LARGEST: u32 = 8191;

    /// A list such as `0-3,8`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last > Self::LARGEST {
                return None;
            }
            cpus.extend(first..=last);
        }
        Some(Self(cpus))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|&next| next == last + 1) {
                last = next;
            }
            match last {
                _ if last == first => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read_and_written_as_the_kernel_does() {
        for (text, want) in [
            ("", Some("")),
            ("0\n", Some("0")),
            ("0-3,8", Some("0-3,8")),
            ("0,1,2", Some("0-2")),
            ("3,1", Some("1,3")),
            ("3-1", None),
            ("0-8192", None),
            ("0-4294967295", None),
            ("a", None),
            ("-1", None),
        ] {
            let set = CpuSet::parse(text).map(|it| it.to_string());
            assert_eq!(set.as_deref(), want, "{text}");
        }
    }
}
