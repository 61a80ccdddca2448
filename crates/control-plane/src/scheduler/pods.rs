//! What the API shows of pods that wait, as far as writing to them needs it and the engine does not.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use api::wire::core::PodCondition;
use api::wire::meta::{ObjectMeta, Time};
use engine::model::Name;

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Note {
    /// `metadata.resourceVersion`, for events.
    pub(crate) version: Name,
    pub(crate) generation: i64,
    /// It is being deleted.
    pub(crate) leaves: bool,
    pub(crate) nominated: Option<Name>,
    pub(crate) scheduled: Option<Scheduled>,
}

/// The condition PodScheduled. Its words are long and often the same, so a digest of them is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scheduled {
    pub(crate) is_false: bool,
    digest: u64,
    pub(crate) since: Option<Time>,
}

impl Note {
    pub(crate) fn new(
        meta: &ObjectMeta,
        nominated: &str,
        scheduled: Option<&PodCondition>,
    ) -> Self {
        Self {
            version: meta.resource_version.as_str().into(),
            generation: meta.generation,
            leaves: meta.deletion_timestamp.is_some(),
            nominated: (!nominated.is_empty()).then(|| nominated.into()),
            scheduled: scheduled.map(|condition| Scheduled {
                is_false: condition.status == "False",
                digest: digest(&condition.reason, &condition.message),
                since: condition.last_transition_time,
            }),
        }
    }

    /// Whether the pod already says that it is not scheduled, for this reason, in these words.
    pub(crate) fn says(&self, reason: &str, message: &str) -> bool {
        self.scheduled
            .is_some_and(|known| known.is_false && known.digest == digest(reason, message))
    }

    /// It will say so, since then.
    pub(crate) fn say(&mut self, reason: &str, message: &str, since: Time) {
        self.scheduled = Some(Scheduled {
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

/// By uid; only of pods that wait for one of our schedulers.
#[derive(Debug)]
pub(crate) struct Notes {
    schedulers: Vec<Name>,
    all: Mutex<HashMap<Name, Note>>,
}

impl Notes {
    pub(crate) fn new(schedulers: Vec<Name>) -> Self {
        Self {
            schedulers,
            all: Mutex::default(),
        }
    }

    /// Whether pods with this scheduler name are ours.
    pub(crate) fn is_ours(&self, scheduler: &str) -> bool {
        self.schedulers.iter().any(|name| **name == *scheduler)
    }

    /// The name under which we speak of what is no pod.
    pub(crate) fn first(&self) -> Name {
        self.schedulers.first().cloned().unwrap_or_default()
    }

    pub(crate) fn set(&self, uid: &Name, note: Note) {
        self.lock().insert(uid.clone(), note);
    }

    /// Changes a note that is still there; a pod that stopped waiting gets none.
    pub(crate) fn update(&self, uid: &str, note: Note) {
        if let Some(known) = self.lock().get_mut(uid) {
            *known = note;
        }
    }

    /// What was to be written may not have been.
    pub(crate) fn doubt(&self, uid: &str) {
        if let Some(known) = self.lock().get_mut(uid) {
            known.scheduled = None;
        }
    }

    pub(crate) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    pub(crate) fn get(&self, uid: &str) -> Note {
        self.lock().get(uid).cloned().unwrap_or_default()
    }

    /// Whether the pod waits to stay; `None` if nothing is known of it.
    pub(crate) fn stays(&self, uid: &str) -> Option<bool> {
        self.lock().get(uid).map(|note| !note.leaves)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Name, Note>> {
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
            let note = Note::new(&ObjectMeta::default(), "", scheduled.as_ref());
            assert_eq!(note.says(reason, message), want, "{case}");
        }
    }

    #[test]
    fn a_pod_stays_until_it_is_deleted_or_forgotten() {
        let notes = Notes::new(Vec::new());
        let uid = Name::from("u");
        assert_eq!(notes.stays(&uid), None);
        let mut meta = ObjectMeta::default();
        notes.set(&uid, Note::new(&meta, "", None));
        assert_eq!(notes.stays(&uid), Some(true));
        meta.deletion_timestamp = Some(Time::default());
        notes.set(&uid, Note::new(&meta, "", None));
        assert_eq!(notes.stays(&uid), Some(false));
        notes.forget(&uid);
        assert_eq!(notes.stays(&uid), None);
    }
}
