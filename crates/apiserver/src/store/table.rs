//! The objects of one resource and the recent changes to them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::object::{Change, Object};
use super::{Limits, TooOld};

/// One change, as watchers and lists of the past need it.
#[derive(Clone)]
pub(crate) struct WatchEvent {
    /// The new state; for a deletion the last state under the deletion's revision.
    pub(crate) object: Arc<Object>,
    pub(crate) previous: Option<Arc<Object>>,
    pub(crate) change: Change,
    at: Instant,
}

/// Objects of this table expire.
struct Expiry {
    after: Duration,
    /// Versions in the order of their last write; one is stale when the object moved on.
    queue: VecDeque<(Instant, Arc<Object>)>,
}

pub(super) struct Table {
    objects: BTreeMap<Arc<str>, Arc<Object>>,
    history: VecDeque<WatchEvent>,
    history_bytes: usize,
    /// Changes up to this revision are forgotten.
    forgotten: u64,
    expiry: Option<Expiry>,
    changed: watch::Sender<u64>,
}

impl Table {
    pub(super) fn new(time_to_live: Option<Duration>) -> Self {
        Self {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            history_bytes: 0,
            forgotten: 0,
            expiry: time_to_live.map(|after| Expiry {
                after,
                queue: VecDeque::new(),
            }),
            changed: watch::Sender::new(0),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    pub(super) fn expires(&self) -> bool {
        self.expiry.is_some()
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn apply(
        &mut self,
        object: Arc<Object>,
        change: Change,
        now: Instant,
        limits: &Limits,
    ) {
        let previous = match change {
            Change::Deleted => self.objects.remove(&object.key),
            Change::Added | Change::Modified => {
                let key = Arc::clone(&object.key);
                if let Some(expiry) = &mut self.expiry {
                    expiry.queue.push_back((now, Arc::clone(&object)));
                }
                self.objects.insert(key, Arc::clone(&object))
            }
        };
        let revision = object.revision;
        self.history_bytes += object.size();
        self.history.push_back(WatchEvent {
            object,
            previous,
            change,
            at: now,
        });
        self.trim(now, limits);
        self.changed.send_replace(revision);
    }

    fn trim(&mut self, now: Instant, limits: &Limits) {
        while let Some(oldest) = self.history.front() {
            let old = now.saturating_duration_since(oldest.at) > limits.history_age;
            if !old
                && self.history.len() <= limits.history_events
                && self.history_bytes <= limits.history_bytes
            {
                return;
            }
            self.history_bytes -= oldest.object.size();
            self.forgotten = oldest.object.revision;
            self.history.pop_front();
        }
    }

    /// Forgets all changes up to `revision`, which is the store's newest.
    pub(super) fn compact(&mut self, revision: u64) {
        self.history.clear();
        self.history_bytes = 0;
        self.forgotten = revision;
    }

    /// The next object to remove because of its age or the number of objects; call until it returns `None`.
    pub(super) fn next_expired(&mut self, now: Instant, limits: &Limits) -> Option<Arc<Object>> {
        let expiry = self.expiry.as_mut()?;
        loop {
            let (written, object) = expiry.queue.front()?;
            let current = self.objects.get(&object.key);
            let is_current = current.is_some_and(|current| Arc::ptr_eq(current, object));
            let due = now.saturating_duration_since(*written) >= expiry.after
                || self.objects.len() > limits.expiring_objects;
            if is_current && !due {
                return None;
            }
            let (_, object) = expiry.queue.pop_front()?;
            if is_current {
                return Some(object);
            }
        }
    }

    pub(super) fn events_after(
        &self,
        revision: u64,
        at_most: usize,
    ) -> Result<Vec<WatchEvent>, TooOld> {
        self.check_known(revision)?;
        let first = self
            .history
            .partition_point(|event| event.object.revision <= revision);
        Ok(self.history.range(first..).take(at_most).cloned().collect())
    }

    fn check_known(&self, revision: u64) -> Result<(), TooOld> {
        if revision < self.forgotten {
            return Err(TooOld {
                oldest: self.forgotten,
            });
        }
        Ok(())
    }

    /// Objects whose key has the prefix and is not below `start`, in key order.
    pub(super) fn scan(&self, prefix: &str, start: &str) -> Vec<Arc<Object>> {
        let start = start.max(prefix);
        self.objects
            .range::<str, _>((Bound::Included(start), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// The objects of [`Self::scan`] as they were at a past revision: later changes are undone, newest first.
    pub(super) fn scan_at(
        &self,
        prefix: &str,
        start: &str,
        revision: u64,
    ) -> Result<Vec<Arc<Object>>, TooOld> {
        self.check_known(revision)?;
        let later = self
            .history
            .iter()
            .rev()
            .take_while(|event| event.object.revision > revision);
        let mut undone: BTreeMap<&str, Option<&Arc<Object>>> = BTreeMap::new();
        for event in later {
            undone.insert(&event.object.key, event.previous.as_ref());
        }
        let now = self.scan(prefix, start);
        if undone.is_empty() {
            return Ok(now);
        }
        let mut then: BTreeMap<&str, &Arc<Object>> =
            now.iter().map(|object| (&*object.key, object)).collect();
        for (key, previous) in undone {
            match previous {
                Some(object) if key.starts_with(prefix) && key >= start => {
                    then.insert(key, object);
                }
                _ => {
                    then.remove(key);
                }
            }
        }
        Ok(then.into_values().cloned().collect())
    }
}
