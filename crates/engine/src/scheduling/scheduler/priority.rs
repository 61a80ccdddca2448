//! Pods without a priority get that of their PriorityClass. A pod whose class does not exist waits for it. A priority that
//! is set never changes.

use std::sync::Arc;

use super::{Failure, Scheduler, world};
use crate::cluster::UpdateError;
use crate::model::{Pod, Timestamp};

/// Stands in the list of rejecting plugins if the class of the pod does not exist.
const PRIORITY_CLASS: &str = "PriorityClass";

impl Scheduler {
    /// The pod with its priority: 0 while there is no class that gives it one.
    pub(super) fn with_priority(&mut self, pod: Arc<Pod>) -> Arc<Pod> {
        let Some(open) = &pod.open_priority else {
            return pod;
        };
        self.has_open_priorities = true;
        let class = self.cluster.catalog().priority_class(open.class.as_deref());
        let priority = class.map_or(0, |class| class.value);
        let policy = open.preemption_policy;
        let policy = policy.or(class.map(|class| class.preemption_policy));
        let policy = policy.unwrap_or_default();
        if (pod.priority, pod.preemption_policy) == (priority, policy) {
            return pod;
        }
        Arc::new(Pod {
            priority,
            preemption_policy: policy,
            ..(*pod).clone()
        })
    }

    /// The message for a pod whose class does not exist.
    pub(super) fn unknown_class(&self, pod: &Pod) -> Option<String> {
        let class = pod.open_priority.as_ref()?.class.as_deref()?;
        let known = self.cluster.catalog().priority_class(Some(class));
        known.is_none().then(|| {
            format!(
                "PriorityClass \"{class}\" was not found: create it, or recreate the pod with a priorityClassName that exists"
            )
        })
    }

    /// A class was added, changed or deleted.
    pub(super) fn priorities_changed(&mut self, now: Timestamp) -> Result<(), UpdateError> {
        if !self.has_open_priorities {
            return Ok(());
        }
        let waiting: Vec<_> = self
            .queue
            .tickets()
            .into_iter()
            .filter(|ticket| ticket.pod.open_priority.is_some())
            .map(|ticket| {
                let held = ticket.rejectors().plugins.contains(&PRIORITY_CLASS);
                (ticket.pod.clone(), ticket.profile, held)
            })
            .collect();
        let placed: Vec<_> = self
            .cluster
            .all_placed()
            .filter(|placed| placed.pod.open_priority.is_some() && !placed.assumed)
            .map(|placed| placed.pod.clone())
            .collect();
        for (old, profile, held) in waiting {
            let uid = old.uid.clone();
            let is_known = self.unknown_class(&old).is_none();
            let pod = self.with_priority(old.clone());
            // With a higher priority it can evict more pods.
            let rises =
                pod.priority > old.priority || pod.preemption_policy != old.preemption_policy;
            // An assumed pod keeps the priority that it was scheduled with.
            if !Arc::ptr_eq(&old, &pod) && self.cluster.placed(&uid).is_none() {
                if let Some(node) = &pod.nominated_node {
                    self.cluster.nominate(pod.clone(), node.clone())?;
                }
                let world = world(&self.profiles, &self.cluster, now);
                self.queue.set(pod, profile, world);
            }
            if held && is_known || rises {
                let world = world(&self.profiles, &self.cluster, now);
                self.queue.activate(&uid, world);
            }
        }
        for old in placed {
            let pod = self.with_priority(old.clone());
            if !Arc::ptr_eq(&old, &pod) {
                self.bound_pod_seen(pod, now)?;
            }
        }
        Ok(())
    }
}

impl Failure {
    pub(super) fn unknown_class(pod: Arc<Pod>, message: String) -> Self {
        Self {
            rejected_by: vec![PRIORITY_CLASS],
            ..Self::unschedulable(pod, message)
        }
    }
}
