//! Values of cgroups that the agent writes.

use super::{Bytes, CpuSet};
use crate::model::Name;

/// The cgroup that a setting is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The directory of all BestEffort pods. The agent writes no setting of the other QoS directories.
    BestEffort,
    Pod {
        uid: Name,
    },
    Container {
        pod: Name,
        id: Name,
    },
}

impl Group {
    /// The group of the pod that it belongs to.
    pub fn pod(&self) -> Option<&Name> {
        match self {
            Self::BestEffort => None,
            Self::Pod { uid } => Some(uid),
            Self::Container { pod, .. } => Some(pod),
        }
    }
}

/// One value of a cgroup, in the terms of cgroup v1; the agent converts it for v2.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingValue {
    /// Relative weight, from 2 to 262144.
    CpuShares(u64),
    /// Microseconds of CPU time in each period of 100 ms; none: no limit.
    CpuQuota(Option<u64>),
    Cpus(CpuSet),
    /// NUMA nodes whose memory the group may use.
    Mems(CpuSet),
    /// Whether pages follow when [`Self::Mems`] changes. cgroup v2 has no such file: there they always do.
    MigrateMemory(bool),
    /// What the file contained before the agent changed it. A file that the agent did not change stays as it is.
    Original(CpusetFile),
    /// None: no limit.
    MemoryLimit(Option<Bytes>),
    CpuIdle(bool),
}

/// A file of the cpuset controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpusetFile {
    Cpus,
    Mems,
    MigrateMemory,
}

/// What of the cpusets of a pod and its containers the agent has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangedCpuset {
    /// Only CPUs, as suppression does.
    Cpus,
    Mems,
}

/// A value that a cgroup should have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    pub group: Group,
    pub value: SettingValue,
}
