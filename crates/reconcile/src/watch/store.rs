//! The names, uids and versions of all objects of a kind, to find what a new list adds, changes and deletes.

use std::collections::BTreeMap;

use engine::cluster::kinds::Key;
use engine::model::Name;

#[derive(Debug, Default)]
pub(super) struct Store {
    objects: BTreeMap<Key, Entry>,
    /// Counts lists.
    round: u32,
}

#[derive(Debug)]
struct Entry {
    uid: Name,
    /// 0 if it cannot be compared.
    version: u64,
    /// The last list that showed it, or that was the last one when it was seen.
    round: u32,
}

/// How an object differs from the one that was stored under its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Difference {
    New,
    Changed,
    /// Its version did not change.
    Same,
    /// Another object had the name; its uid.
    Replaced(Name),
}

impl Store {
    pub(super) fn apply(&mut self, key: Key, uid: &Name, version: &str) -> Difference {
        // Versions need not be numbers; those that are not are never the same.
        let version = version.parse().unwrap_or(0);
        let round = self.round;
        let Some(entry) = self.objects.get_mut(&key) else {
            let uid = uid.clone();
            self.objects.insert(
                key,
                Entry {
                    uid,
                    version,
                    round,
                },
            );
            return Difference::New;
        };
        entry.round = round;
        let same = entry.version == version && version != 0;
        entry.version = version;
        if entry.uid != *uid {
            return Difference::Replaced(std::mem::replace(&mut entry.uid, uid.clone()));
        }
        if same {
            Difference::Same
        } else {
            Difference::Changed
        }
    }

    /// The object exists, but could not be parsed.
    pub(super) fn keep(&mut self, key: &Key) {
        if let Some(entry) = self.objects.get_mut(key) {
            entry.round = self.round;
        }
    }

    /// The object is gone; its uid, if it was stored.
    pub(super) fn delete(&mut self, key: &Key) -> Option<Name> {
        Some(self.objects.remove(key)?.uid)
    }

    /// Starts a list.
    pub(super) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Ends a list, and returns the objects that were not in it.
    pub(super) fn deleted(&mut self) -> Vec<(Key, Name)> {
        let round = self.round;
        let is_gone = |_: &Key, entry: &mut Entry| entry.round != round;
        self.objects
            .extract_if(.., is_gone)
            .map(|(key, entry)| (key, entry.uid))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    #[test]
    fn what_a_list_shows() {
        let mut store = Store::default();
        let uid = |text: &str| Name::from(text);
        store.begin();
        for name in ["a", "b", "c", "d"] {
            assert_eq!(store.apply(key(name), &uid(name), "1"), Difference::New);
        }
        assert_eq!(store.deleted(), []);
        assert_eq!(store.delete(&key("d")), Some(uid("d")));
        assert_eq!(store.delete(&key("d")), None);
        store.begin();
        assert_eq!(store.apply(key("a"), &uid("a"), "1"), Difference::Same);
        assert_eq!(store.apply(key("b"), &uid("b"), "2"), Difference::Changed);
        assert_eq!(store.apply(key("e"), &uid("e"), "3"), Difference::New);
        assert_eq!(store.deleted(), [(key("c"), uid("c"))]);
        store.begin();
        store.keep(&key("a"));
        store.keep(&key("unstore"));
        assert_eq!(
            store.deleted(),
            [(key("b"), uid("b")), (key("e"), uid("e"))]
        );
        assert_eq!(
            store.apply(key("a"), &uid("a2"), "4"),
            Difference::Replaced(uid("a"))
        );
    }

    #[test]
    fn versions_that_are_no_numbers_are_never_the_same() {
        let mut store = Store::default();
        store.apply(key("a"), &"u".into(), "x");
        assert_eq!(store.apply(key("a"), &"u".into(), "x"), Difference::Changed);
    }
}
