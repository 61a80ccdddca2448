//! Why a bind is refused. Where a kubelet would refuse the pod, these are its words.

use std::fmt;

use crate::binding::kubelet::AdmissionFailure;
use crate::model::{Name, ReclaimedResource, ZoneSet};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindRefusal {
    NoNode,
    /// Another node has the name now.
    NodeReplaced {
        wanted: Name,
        found: Name,
    },
    NoPod,
    /// Another pod has the name now.
    PodReplaced {
        wanted: Name,
        found: Name,
    },
    /// The node's kubelet would fail the pod.
    Kubelet(AdmissionFailure),
    /// The node has no CustomNodeResource.
    NotLending,
    /// More than the node lends.
    Reclaimed(AdmissionFailure),
    /// Reclaimed and batch pods together exceed the idle pool of the node.
    Pool {
        resource: ReclaimedResource,
        requested: i64,
        used: i64,
        capacity: i64,
    },
    /// Pods with NUMA zones of their own leave less than the pod requests.
    Exclusive(AdmissionFailure),
    /// Another pod has the zones.
    Zones {
        zones: ZoneSet,
        holder: String,
    },
    /// Without the zones of this pod, the node has not enough for its other pods.
    OthersDoNotFit {
        zones: ZoneSet,
    },
    UnitFull {
        policy: String,
        unit: Name,
        max_count: u32,
    },
    /// Binds of the pod to many other nodes are not settled.
    TooManyBinds,
}

impl BindRefusal {
    /// A class of refusals, for metrics.
    pub fn class(&self) -> &'static str {
        match self {
            Self::NoNode | Self::NodeReplaced { .. } => "node",
            Self::NoPod | Self::PodReplaced { .. } => "pod",
            Self::Kubelet(_) => "kubelet",
            Self::NotLending | Self::Reclaimed(_) => "reclaimed",
            Self::Pool { .. } => "pool",
            Self::Exclusive(_) | Self::Zones { .. } | Self::OthersDoNotFit { .. } => "zones",
            Self::UnitFull { .. } => "resourcepolicy",
            Self::TooManyBinds => "holds",
        }
    }
}

impl fmt::Display for BindRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNode => f.write_str("there is no such node"),
            Self::NodeReplaced { wanted, found } => {
                write!(f, "the node has uid {found}, not {wanted}")
            }
            Self::NoPod => f.write_str("there is no such pod"),
            Self::PodReplaced { wanted, found } => {
                write!(f, "the pod has uid {found}, not {wanted}")
            }
            Self::Kubelet(failure) | Self::Reclaimed(failure) => {
                write!(f, "{}: {failure}", failure.reason())
            }
            Self::NotLending => f.write_str("the node has no CustomNodeResource"),
            Self::Pool {
                resource,
                requested,
                used,
                capacity,
            } => {
                let name = match resource {
                    ReclaimedResource::Cpu => "cpu",
                    ReclaimedResource::Memory => "memory",
                };
                write!(
                    f,
                    "Node didn't have enough idle {name} for reclaimed and batch pods together, requested: {requested}, used: {used}, capacity: {capacity}"
                )
            }
            Self::Exclusive(failure) => write!(
                f,
                "{}: {failure}; pods with NUMA zones of their own use whole zones",
                failure.reason()
            ),
            Self::Zones { zones, holder } => {
                let are = if zones.len() == 1 { "is" } else { "are" };
                write!(f, "NUMA {} {are} in use by pod {holder}", zones.named())
            }
            Self::OthersDoNotFit { zones } => write!(
                f,
                "without NUMA {}, the other pods of the node do not fit",
                zones.named()
            ),
            Self::UnitFull {
                policy,
                unit,
                max_count,
            } => write!(
                f,
                "ResourcePolicy {policy}: unit \"{unit}\" is full (maxCount {max_count})"
            ),
            Self::TooManyBinds => {
                f.write_str("binds of the pod to several other nodes are not settled yet")
            }
        }
    }
}
