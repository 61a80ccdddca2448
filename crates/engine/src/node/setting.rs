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

/// One value of a cgroup, in the terms of cgroup v1; the agent converts it for v2.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingValue {
    /// Relative weight, from 2 to 262144.
    CpuShares(u64),
    /// Microseconds of CPU time in each period of 100 ms; none: no limit.
    CpuQuota(Option<u64>),
    Cpus(CpuSet),
    /// None: no limit.
    MemoryLimit(Option<Bytes>),
    CpuIdle(bool),
}

/// A value that a cgroup should have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    pub group: Group,
    pub value: SettingValue,
}
