//! How often pods came into each part of the queue, and why, under kube-scheduler's names.

use std::fmt;

use hashbrown::HashMap;

use crate::scheduling::framework::{Actions, Changed, Event, Kind};

/// Where pods wait, as metrics tell them apart. Gated pods are unschedulable ones there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SubQueue {
    Active,
    Backoff,
    Unschedulable,
}

impl SubQueue {
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Backoff => "backoff",
            Self::Unschedulable => "unschedulable",
        }
    }
}

/// What moved a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// Something of this kind changed so.
    Event(&'static str, Actions),
    /// An attempt to schedule it failed.
    Failure,
    /// Its backoff ended.
    BackoffComplete,
    /// It waited for too long.
    Timeout,
    Forced,
}

impl Cause {
    /// It is new.
    pub(super) const NEW: Self = Self::Event(WAITING_POD, Actions::ADD);
}

const WAITING_POD: &str = "UnschedulablePod";

impl From<&Event> for Cause {
    fn from(event: &Event) -> Self {
        let resource = match &event.changed {
            Changed::AssignedPod(_) => Some("AssignedPod"),
            Changed::WaitingPod(_) => Some(WAITING_POD),
            other => other.kind().map(Kind::name),
        };
        resource.map_or(Self::Forced, |name| Self::Event(name, event.actions))
    }
}

impl fmt::Display for Cause {
    /// `NodeAdd`, `AssignedPodDelete`, `ScheduleAttemptFailure`, ...
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(resource, actions) => write!(f, "{resource}{}", action(*actions)),
            Self::Failure => f.write_str("ScheduleAttemptFailure"),
            Self::BackoffComplete => f.write_str("BackoffComplete"),
            Self::Timeout => f.write_str("UnschedulableTimeout"),
            Self::Forced => f.write_str("ForceActivate"),
        }
    }
}

fn action(actions: Actions) -> &'static str {
    match actions {
        Actions::ADD => "Add",
        Actions::DELETE => "Delete",
        Actions::NODE_ALLOCATABLE => "UpdateNodeAllocatable",
        Actions::NODE_LABEL => "UpdateNodeLabel",
        Actions::NODE_TAINT => "UpdateNodeTaint",
        Actions::NODE_CONDITION => "UpdateNodeCondition",
        Actions::NODE_ANNOTATION => "UpdateNodeAnnotation",
        Actions::NODE_DECLARED_FEATURE => "UpdateNodeDeclaredFeature",
        Actions::POD_LABEL => "UpdatePodLabel",
        Actions::POD_SCALE_DOWN => "UpdatePodScaleDown",
        Actions::POD_TOLERATION => "UpdatePodToleration",
        Actions::POD_GATES_ELIMINATED => "UpdatePodSchedulingGatesEliminated",
        Actions::POD_GENERATED_CLAIM => "UpdatePodGeneratedResourceClaim",
        Actions::ALL => "All",
        _ => "Update",
    }
}

/// Counted since they were last taken.
#[derive(Debug, Default)]
pub(super) struct Arrivals(HashMap<(SubQueue, Cause), u64>);

impl Arrivals {
    pub(super) fn count(&mut self, part: SubQueue, cause: Cause) {
        *self.0.entry((part, cause)).or_default() += 1;
    }

    pub(super) fn take(&mut self) -> Vec<(SubQueue, Cause, u64)> {
        let mut all: Vec<_> = self
            .0
            .drain()
            .map(|((part, cause), count)| (part, cause, count))
            .collect();
        // The order of a hash map must not show.
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduling::framework::Change;

    #[test]
    fn causes_have_kube_schedulers_names() {
        let change = Change {
            old: None,
            new: None,
        };
        let node = Event {
            actions: Actions::NODE_TAINT,
            changed: Changed::Node(change),
        };
        for (cause, want) in [
            (Cause::NEW, "UnschedulablePodAdd"),
            (Cause::from(&node), "NodeUpdateNodeTaint"),
            (
                Cause::Event("AssignedPod", Actions::DELETE),
                "AssignedPodDelete",
            ),
            (Cause::Event("Node", Actions::UPDATE), "NodeUpdate"),
            (Cause::Failure, "ScheduleAttemptFailure"),
        ] {
            assert_eq!(cause.to_string(), want);
        }
    }
}
