//! The small objects that decisions look at: services, workloads that own pods, disruption budgets.

use super::{Labels, Name, Selector, Timestamp};

/// Who controls a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    pub api_version: Name,
    pub kind: Name,
    pub name: Name,
    pub uid: Name,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    pub namespace: Name,
    pub name: Name,
    /// `None` for services without a selector: they match no pod.
    pub selector: Option<Labels>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkloadKind {
    ReplicationController,
    ReplicaSet,
    StatefulSet,
}

impl WorkloadKind {
    /// Only these owners say by a selector which pods are alike.
    pub fn of(owner: &Owner) -> Option<Self> {
        match (&*owner.api_version, &*owner.kind) {
            ("v1", "ReplicationController") => Some(Self::ReplicationController),
            ("apps/v1", "ReplicaSet") => Some(Self::ReplicaSet),
            ("apps/v1", "StatefulSet") => Some(Self::StatefulSet),
            _ => None,
        }
    }
}

/// A controller that owns pods, as far as its selector goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    pub kind: WorkloadKind,
    pub namespace: Name,
    pub name: Name,
    pub selector: Selector,
}

/// A PodDisruptionBudget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    pub namespace: Name,
    pub name: Name,
    pub selector: Selector,
    pub disruptions_allowed: i32,
    /// Pods whose disruption is already counted, with the time it was.
    pub disrupted_pods: Vec<(Name, Timestamp)>,
}
