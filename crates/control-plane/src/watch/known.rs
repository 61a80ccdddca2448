//! Which objects of a kind are known, so that a new list shows what came, changed and vanished.

use std::collections::BTreeMap;

use engine::model::Name;

/// Namespace and name; no namespace is empty.
pub(crate) type Key = (Name, Name);

#[derive(Debug, Default)]
pub(crate) struct Known {
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

/// What an object is to those who know the earlier ones.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    New,
    Changed,
    /// Nothing happened since.
    Same,
    /// Another object had the name; its uid.
    Replaced(Name),
}

impl Known {
    pub(crate) fn see(&mut self, key: Key, uid: &Name, version: &str) -> Sight {
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
            return Sight::New;
        };
        entry.round = round;
        let same = entry.version == version && version != 0;
        entry.version = version;
        if entry.uid != *uid {
            return Sight::Replaced(std::mem::replace(&mut entry.uid, uid.clone()));
        }
        if same { Sight::Same } else { Sight::Changed }
    }

    /// The object is there, but nothing else can be said about it.
    pub(crate) fn keep(&mut self, key: &Key) {
        if let Some(entry) = self.objects.get_mut(key) {
            entry.round = self.round;
        }
    }

    /// The object is gone; its uid, if it was known.
    pub(crate) fn forget(&mut self, key: &Key) -> Option<Name> {
        Some(self.objects.remove(key)?.uid)
    }

    /// A list begins.
    pub(crate) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// The list is complete: what it did not show is gone.
    pub(crate) fn vanished(&mut self) -> Vec<(Key, Name)> {
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
        ("ns".into(), name.into())
    }

    #[test]
    fn what_a_list_shows() {
        let mut known = Known::default();
        let uid = |text: &str| Name::from(text);
        known.begin();
        for name in ["a", "b", "c", "d"] {
            assert_eq!(known.see(key(name), &uid(name), "1"), Sight::New);
        }
        assert_eq!(known.vanished(), []);
        assert_eq!(known.forget(&key("d")), Some(uid("d")));
        assert_eq!(known.forget(&key("d")), None);
        known.begin();
        assert_eq!(known.see(key("a"), &uid("a"), "1"), Sight::Same);
        assert_eq!(known.see(key("b"), &uid("b"), "2"), Sight::Changed);
        assert_eq!(known.see(key("e"), &uid("e"), "3"), Sight::New);
        assert_eq!(known.vanished(), [(key("c"), uid("c"))]);
        known.begin();
        known.keep(&key("a"));
        known.keep(&key("unknown"));
        assert_eq!(
            known.vanished(),
            [(key("b"), uid("b")), (key("e"), uid("e"))]
        );
        assert_eq!(
            known.see(key("a"), &uid("a2"), "4"),
            Sight::Replaced(uid("a"))
        );
    }

    #[test]
    fn versions_that_are_no_numbers_are_never_the_same() {
        let mut known = Known::default();
        known.see(key("a"), &"u".into(), "x");
        assert_eq!(known.see(key("a"), &"u".into(), "x"), Sight::Changed);
    }
}
