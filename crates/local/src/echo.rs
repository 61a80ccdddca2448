//! Waits for our own writes to come back through the watch.
//!
//! A plan made from a cache that has not seen the last plan's writes would do them twice.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cache::{Cache, Key, Kind, revision};

/// What was written to one kind on behalf of each key and is not in the cache yet.
pub(crate) struct Echoes<K> {
    cache: Arc<Cache<K>>,
    pending: Mutex<HashMap<Key, Pending>>,
}

#[derive(Default)]
struct Pending {
    revision: u64,
    deleted: Vec<(Key, String)>,
}

impl<K: Kind> Echoes<K> {
    pub(crate) fn new(cache: Arc<Cache<K>>) -> Self {
        Self {
            cache,
            pending: Mutex::default(),
        }
    }

    /// Notes that an object was created or changed for `key`; `written` is the server's answer, if it was still there.
    pub(crate) fn wrote(&self, key: &Key, written: Option<&ObjectMeta>) {
        let revision = written.map_or(0, revision);
        self.cache.note_write(revision);
        let mut pending = self.pending.lock().expect("no panic while held");
        let entry = pending.entry(key.clone()).or_default();
        entry.revision = entry.revision.max(revision);
    }

    /// Notes that an object was deleted for `key`. The answer to a deletion has no usable revision.
    pub(crate) fn deleted(&self, key: &Key, target: Key, uid: &str) {
        let mut pending = self.pending.lock().expect("no panic while held");
        let entry = pending.entry(key.clone()).or_default();
        entry.deleted.push((target, uid.to_owned()));
    }

    /// Whether the cache shows everything that was written for `key`.
    pub(crate) fn all_back(&self, key: &Key) -> bool {
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
        let all_back = entry.deleted.is_empty() && self.cache.has_seen(entry.revision);
        if all_back {
            pending.remove(key);
        }
        all_back
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
    fn writes_and_deletions_are_awaited() {
        let cache = Cache::new(by_owner::<ConfigMap>);
        let echoes = Echoes::new(cache.clone());
        let (owner, other) = (Key::cluster("owner"), Key::cluster("other"));
        assert!(echoes.all_back(&owner));

        echoes.wrote(&owner, Some(&object("a", 5).metadata));
        cache.apply(Event::Apply(object("b", 4)));
        assert!(!echoes.all_back(&owner));
        assert!(echoes.all_back(&other), "another key does not wait");
        cache.apply(Event::Apply(object("a", 5)));
        assert!(echoes.all_back(&owner));

        echoes.deleted(&owner, Key::cluster("a"), "a");
        assert!(!echoes.all_back(&owner));
        cache.apply(Event::Delete(object("a", 6)));
        assert!(echoes.all_back(&owner));
    }
}
