//! The fields of pending pods that writes need and the engine does not.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use api::wire::core::PodCondition;
use api::wire::meta::{ObjectMeta, Time};
use engine::model::Name;

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct PendingPod {
    /// `metadata.resourceVersion`, for events.
    pub(crate) version: Name,
    pub(crate) generation: i64,
    pub(crate) terminating: bool,
    pub(crate) nominated: Option<Name>,
    pub(crate) scheduled: Option<ScheduledCondition>,
}

/// The condition PodScheduled, with a digest of its long reason and message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ScheduledCondition {
    pub(crate) is_false: bool,
    digest: u64,
    pub(crate) since: Option<Time>,
}

impl PendingPod {
    pub(crate) fn new(
        meta: &ObjectMeta,
        nominated: &str,
        scheduled: Option<&PodCondition>,
    ) -> Self {
        Self {
            version: meta.resource_version.as_str().into(),
            generation: meta.generation,
            terminating: meta.deletion_timestamp.is_some(),
            nominated: (!nominated.is_empty()).then(|| nominated.into()),
            scheduled: scheduled.map(|condition| ScheduledCondition {
                is_false: condition.status == "False",
                digest: digest(&condition.reason, &condition.message),
                since: condition.last_transition_time,
            }),
        }
    }

    /// Whether PodScheduled is false with this reason and message.
    pub(crate) fn has_condition(&self, reason: &str, message: &str) -> bool {
        self.scheduled
            .is_some_and(|known| known.is_false && known.digest == digest(reason, message))
    }

    /// Whether PodScheduled is false, for any reason.
    pub(crate) fn is_unschedulable(&self) -> bool {
        self.scheduled.is_some_and(|known| known.is_false)
    }

    /// PodScheduled becomes false with this reason and message.
    pub(crate) fn set_condition(&mut self, reason: &str, message: &str, since: Time) {
        self.scheduled = Some(ScheduledCondition {
            is_false: true,
            digest: digest(reason, message),
            since: Some(since),
        });
    }
}

fn digest(reason: &str, message: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (reason, message).hash(&mut hasher);
    hasher.finish()
}

/// A table of this size or less keeps it.
const SMALL: usize = 1_024;

/// By uid; only pending pods of this process's schedulers.
#[derive(Debug)]
pub(crate) struct PendingPods {
    schedulers: Vec<Name>,
    all: Mutex<HashMap<Name, PendingPod>>,
}

impl PendingPods {
    pub(crate) fn new(schedulers: Vec<Name>) -> Self {
        Self {
            schedulers,
            all: Mutex::default(),
        }
    }

    /// Whether this process schedules pods with this scheduler name.
    pub(crate) fn is_ours(&self, scheduler: &str) -> bool {
        self.schedulers.iter().any(|name| **name == *scheduler)
    }

    /// The scheduler name for events about objects that are not pods.
    pub(crate) fn first(&self) -> Name {
        self.schedulers.first().cloned().unwrap_or_default()
    }

    pub(crate) fn set(&self, uid: &Name, note: PendingPod) {
        self.lock().insert(uid.clone(), note);
    }

    /// Changes a pod that is still pending.
    pub(crate) fn update(&self, uid: &str, note: PendingPod) {
        if let Some(known) = self.lock().get_mut(uid) {
            *known = note;
        }
    }

    /// The write of the condition may have failed.
    pub(crate) fn forget_condition(&self, uid: &str) {
        if let Some(known) = self.lock().get_mut(uid) {
            known.scheduled = None;
        }
    }

    pub(crate) fn forget(&self, uid: &str) {
        let mut all = self.lock();
        all.remove(uid);
        // Thousands of pods come and go.
        if all.capacity() > SMALL && all.len() < all.capacity() / 4 {
            let length = all.len();
            all.shrink_to(2 * length);
        }
    }

    pub(crate) fn get(&self, uid: &str) -> PendingPod {
        self.lock().get(uid).cloned().unwrap_or_default()
    }

    /// Whether the pod is being deleted; `None` if it is unknown.
    pub(crate) fn is_terminating(&self, uid: &str) -> Option<bool> {
        self.lock().get(uid).map(|pod| pod.terminating)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Name, PendingPod>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_compared_by_reason_and_words() {
        let condition = |status: &str| PodCondition {
            status: status.into(),
            reason: "Unschedulable".into(),
            message: "0/1 nodes".into(),
            ..PodCondition::default()
        };
        for (case, scheduled, reason, message, want) in [
            ("none", None, "Unschedulable", "0/1 nodes", false),
            (
                "equal",
                Some(condition("False")),
                "Unschedulable",
                "0/1 nodes",
                true,
            ),
            (
                "true",
                Some(condition("True")),
                "Unschedulable",
                "0/1 nodes",
                false,
            ),
            (
                "other reason",
                Some(condition("False")),
                "SchedulerError",
                "0/1 nodes",
                false,
            ),
            (
                "other words",
                Some(condition("False")),
                "Unschedulable",
                "0/2 nodes",
                false,
            ),
        ] {
            let note = PendingPod::new(&ObjectMeta::default(), "", scheduled.as_ref());
            assert_eq!(note.has_condition(reason, message), want, "{case}");
        }
    }

    #[test]
    fn a_pod_is_terminating_once_it_has_a_deletion_timestamp() {
        let pods = PendingPods::new(Vec::new());
        let uid = Name::from("u");
        assert_eq!(pods.is_terminating(&uid), None);
        let mut meta = ObjectMeta::default();
        pods.set(&uid, PendingPod::new(&meta, "", None));
        assert_eq!(pods.is_terminating(&uid), Some(false));
        meta.deletion_timestamp = Some(Time::default());
        pods.set(&uid, PendingPod::new(&meta, "", None));
        assert_eq!(pods.is_terminating(&uid), Some(true));
        pods.forget(&uid);
        assert_eq!(pods.is_terminating(&uid), None);
    }
}
