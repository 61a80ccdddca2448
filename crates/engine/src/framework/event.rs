//! What happened in the cluster, as far as it can help a pod that was rejected.

use std::sync::Arc;

use crate::model::{
    Claim, CsiDriver, CsiLimits, CustomNodeResource, Name, Node, PersistentVolume, Pod, Reclaimed,
    StorageCapacity, StorageClass, VolumeAttachment,
};

/// Kinds of change, a set. The bits are those of kube-scheduler, because matching compares them as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Actions(pub u16);

impl Actions {
    pub const ADD: Self = Self(1);
    pub const DELETE: Self = Self(1 << 1);
    pub const NODE_ALLOCATABLE: Self = Self(1 << 2);
    pub const NODE_LABEL: Self = Self(1 << 3);
    pub const NODE_TAINT: Self = Self(1 << 4);
    pub const NODE_CONDITION: Self = Self(1 << 5);
    pub const NODE_ANNOTATION: Self = Self(1 << 6);
    pub const NODE_DECLARED_FEATURE: Self = Self(1 << 7);
    pub const POD_LABEL: Self = Self(1 << 8);
    pub const POD_SCALE_DOWN: Self = Self(1 << 9);
    pub const POD_TOLERATION: Self = Self(1 << 10);
    pub const POD_GATES_ELIMINATED: Self = Self(1 << 11);
    pub const POD_GENERATED_CLAIM: Self = Self(1 << 12);
    pub const UPDATE: Self = Self(8188);
    pub const ALL: Self = Self(8191);

    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Watched {
    Pod,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    VolumeAttachment,
    /// What the agent of a node reports: `NODE_ALLOCATABLE` when it lends more, `NODE_TAINT` when its QoS taints change.
    CustomNodeResource,
}

/// Events a plugin wants to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventPattern {
    pub resource: Watched,
    pub actions: Actions,
}

impl EventPattern {
    pub const fn new(resource: Watched, actions: Actions) -> Self {
        Self { resource, actions }
    }

    /// For plugins that name no events.
    pub fn anything() -> Vec<Self> {
        use Watched::*;
        [
            Pod,
            Node,
            PersistentVolume,
            PersistentVolumeClaim,
            CsiNode,
            CsiDriver,
            CsiStorageCapacity,
            StorageClass,
        ]
        .map(|resource| Self::new(resource, Actions::ALL))
        .to_vec()
    }

    /// Whether an incoming event is one of these. A plain update does not match a wish for one kind of update.
    pub fn matches(&self, event: &Event) -> bool {
        event.changed.resource() == Some(self.resource)
            && self.actions.intersects(event.actions)
            && event.actions.0 <= self.actions.0
    }
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub actions: Actions,
    pub changed: Changed,
}

/// The object before and after.
#[derive(Debug, Clone, PartialEq)]
pub struct Change<T> {
    pub old: Option<Arc<T>>,
    pub new: Option<Arc<T>>,
}

impl<T> Change<T> {
    /// The object after the change, or before it if it is gone.
    pub fn latest(&self) -> Option<&Arc<T>> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Changed {
    Node(Change<Node>),
    /// A pod that is on a node, or holds room on one.
    AssignedPod(Change<Pod>),
    /// A pod that waits.
    WaitingPod(Change<Pod>),
    Volume(Change<PersistentVolume>),
    Claim(Change<Claim>),
    StorageClass(Change<StorageClass>),
    CsiNode(Change<CsiLimits>),
    CsiDriver(Change<CsiDriver>),
    StorageCapacity(Change<StorageCapacity>),
    VolumeAttachment(Change<VolumeAttachment>),
    /// Of a node that is known.
    Report {
        change: Change<CustomNodeResource>,
        /// What is left then of what the node lends; below zero if it lends less than is borrowed.
        left: Reclaimed,
        /// The lowest priority among those who borrow.
        lowest: Option<i32>,
    },
    /// Everything, or everything about one pod: time-outs and forced retries.
    Anything {
        pod: Option<Name>,
    },
}

impl Changed {
    /// A pod before and after, and whether it is on a node or has room held for it.
    pub fn pod(&self) -> Option<(&Change<Pod>, bool)> {
        match self {
            Self::AssignedPod(change) => Some((change, true)),
            Self::WaitingPod(change) => {
                let held = change
                    .latest()
                    .is_some_and(|pod| pod.node.is_some() || pod.nominated_node.is_some());
                Some((change, held))
            }
            _ => None,
        }
    }

    /// Whether this very pod changed.
    pub fn is_update_of(&self, pod: &Pod) -> bool {
        self.pod()
            .and_then(|(change, _)| change.new.as_ref())
            .is_some_and(|new| new.uid == pod.uid)
    }

    pub fn resource(&self) -> Option<Watched> {
        Some(match self {
            Self::Node(_) => Watched::Node,
            Self::AssignedPod(_) | Self::WaitingPod(_) => Watched::Pod,
            Self::Volume(_) => Watched::PersistentVolume,
            Self::Claim(_) => Watched::PersistentVolumeClaim,
            Self::StorageClass(_) => Watched::StorageClass,
            Self::CsiNode(_) => Watched::CsiNode,
            Self::CsiDriver(_) => Watched::CsiDriver,
            Self::StorageCapacity(_) => Watched::CsiStorageCapacity,
            Self::VolumeAttachment(_) => Watched::VolumeAttachment,
            Self::Report { .. } => Watched::CustomNodeResource,
            Self::Anything { .. } => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matching_compares_sets_as_numbers() {
        let pod = |actions| Event {
            actions,
            changed: Changed::AssignedPod(Change {
                old: None,
                new: None,
            }),
        };
        let narrow = EventPattern::new(
            Watched::Pod,
            Actions::ADD.and(Actions::POD_LABEL).and(Actions::DELETE),
        );
        assert!(narrow.matches(&pod(Actions::POD_LABEL)));
        assert!(!narrow.matches(&pod(Actions::UPDATE)), "a plain update");
        let wide = EventPattern::new(Watched::Pod, Actions::UPDATE);
        assert!(wide.matches(&pod(Actions::POD_LABEL)));
        let node = EventPattern::new(Watched::Node, Actions::ALL);
        assert!(!node.matches(&pod(Actions::ADD)));
    }
}
