//! Expectations: whether a cache already shows the writes of the last plan.
//!
//! A plan made from a cache that does not show them yet would repeat them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cache::{Cache, Key, Object, revision};

/// The writes to one kind, by the key they were made for, that the cache does not show yet.
pub struct Expectations<K> {
    cache: Arc<Cache<K>>,
    pending: Mutex<HashMap<Key, Pending>>,
}

#[derive(Default)]
struct Pending {
    revision: u64,
    deleted: Vec<(Key, String)>,
}

impl<K: Object> Expectations<K> {
    pub fn new(cache: Arc<Cache<K>>) -> Self {
        Self {
            cache,
            pending: Mutex::default(),
        }
    }

    /// Expects a created or changed object of `key`; `written` is the server's response, none if the object is gone.
    pub fn wrote(&self, key: &Key, written: Option<&ObjectMeta>) {
        let revision = written.map_or(0, revision);
        self.cache.note_write(revision);
        let mut pending = self.pending.lock().expect("no panic while held");
        let entry = pending.entry(key.clone()).or_default();
        entry.revision = entry.revision.max(revision);
    }

    /// Expects the deletion of `target` for `key`. The response to a deletion has no usable revision.
    pub fn deleted(&self, key: &Key, target: Key, uid: &str) {
        let mut pending = self.pending.lock().expect("no panic while held");
        let entry = pending.entry(key.clone()).or_default();
        entry.deleted.push((target, uid.to_owned()));
    }

    /// Whether the cache shows everything that was written for `key`.
    pub fn satisfied(&self, key: &Key) -> bool {
        let mut pending = self.pending.lock().expect("no panic while held");
        let Some(entry) = pending.get_mut(key) else {
            return true;
        };
        entry.deleted.retain(|(target, uid)| {
            self.cache.get(target).is_some_and(|object| {
                let meta = object.meta();
                meta.uid.as_deref() == Some(uid) && meta.deletion_timestamp.is_none()
            })
        });
        let satisfied = entry.deleted.is_empty() && self.cache.has_seen(entry.revision);
        if satisfied {
            pending.remove(key);
        }
        satisfied
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::by_owner;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::watcher::Event;

    fn object(name: &str, revision: u64) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.into()),
                uid: Some(name.into()),
                resource_version: Some(revision.to_string()),
                ..Default::default()
            },
            ..Default::default()
        }
    }

    #[test]
    fn writes_and_deletions_are_expected() {
        let cache = Cache::new(by_owner::<ConfigMap>);
        let expectations = Expectations::new(cache.clone());
        let (owner, other) = (Key::cluster("owner"), Key::cluster("other"));
        assert!(expectations.satisfied(&owner));

        expectations.wrote(&owner, Some(&object("a", 5).metadata));
        cache.apply(Event::Apply(object("b", 4)));
        assert!(!expectations.satisfied(&owner));
        assert!(expectations.satisfied(&other), "another key does not wait");
        cache.apply(Event::Apply(object("a", 5)));
        assert!(expectations.satisfied(&owner));

        expectations.deleted(&owner, Key::cluster("a"), "a");
        assert!(!expectations.satisfied(&owner));
        cache.apply(Event::Delete(object("a", 6)));
        assert!(expectations.satisfied(&owner));
    }
}
