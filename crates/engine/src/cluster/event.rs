//! Events: what happened in the cluster that can help a pod that was rejected.

use std::sync::Arc;

pub use super::kinds::{Changed, Kind};

/// A set of ways in which an object changed. The bits are those of kube-scheduler, because matching compares them as numbers.
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

/// Events that a plugin registers for. Of a CustomNodeResource `NODE_ALLOCATABLE` means that the node lends more, and
/// `NODE_TAINT` that its QoS taints changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventPattern {
    pub kind: Kind,
    pub actions: Actions,
}

impl EventPattern {
    pub const fn new(kind: Kind, actions: Actions) -> Self {
        Self { kind, actions }
    }

    /// For plugins that name no events.
    pub fn anything() -> Vec<Self> {
        use Kind::*;
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
        .map(|kind| Self::new(kind, Actions::ALL))
        .to_vec()
    }

    /// Whether an incoming event is one of these. A plain update does not match a pattern for one sort of update.
    pub fn matches(&self, event: &Event) -> bool {
        event.changed.kind() == Some(self.kind)
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

    /// One event that the object was added, updated or deleted; none if it was not there and is not.
    pub(crate) fn events(self, changed: impl FnOnce(Self) -> Changed) -> Vec<Event> {
        let actions = match (&self.old, &self.new) {
            (None, None) => return Vec::new(),
            (None, Some(_)) => Actions::ADD,
            (Some(_), None) => Actions::DELETE,
            (Some(_), Some(_)) => Actions::UPDATE,
        };
        vec![Event {
            actions,
            changed: changed(self),
        }]
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
            Kind::Pod,
            Actions::ADD.and(Actions::POD_LABEL).and(Actions::DELETE),
        );
        assert!(narrow.matches(&pod(Actions::POD_LABEL)));
        assert!(!narrow.matches(&pod(Actions::UPDATE)), "a plain update");
        let wide = EventPattern::new(Kind::Pod, Actions::UPDATE);
        assert!(wide.matches(&pod(Actions::POD_LABEL)));
        let node = EventPattern::new(Kind::Node, Actions::ALL);
        assert!(!node.matches(&pod(Actions::ADD)));
    }
}
