//! An index of items that select labels, by label pairs that they need: a search by labels reads only what can match.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

use crate::model::{Labels, Name};

/// Items with a selector. An item is found by each of its pairs; one without pairs is always found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabelIndex<T> {
    /// By key and value.
    pairs: BTreeMap<Name, HashMap<Name, BTreeSet<T>>>,
    others: BTreeSet<T>,
}

impl<T> Default for LabelIndex<T> {
    fn default() -> Self {
        Self {
            pairs: BTreeMap::new(),
            others: BTreeSet::new(),
        }
    }
}

impl<T: Ord + Clone> LabelIndex<T> {
    /// `pairs` are those of which labels must have one to match the item; empty if that says nothing.
    pub(crate) fn insert(&mut self, pairs: &[(Name, Name)], item: &T) {
        if pairs.is_empty() {
            self.others.insert(item.clone());
        }
        for (key, value) in pairs {
            let values = self.pairs.entry(key.clone()).or_default();
            let items = values.entry(value.clone()).or_default();
            items.insert(item.clone());
        }
    }

    /// With the pairs that it was inserted with.
    pub(crate) fn remove(&mut self, pairs: &[(Name, Name)], item: &T) {
        if pairs.is_empty() {
            self.others.remove(item);
        }
        for (key, value) in pairs {
            let Some(values) = self.pairs.get_mut(key) else {
                continue;
            };
            if let Some(items) = values.get_mut(value) {
                items.remove(item);
                if items.is_empty() {
                    values.remove(value);
                }
            }
            if values.is_empty() {
                self.pairs.remove(key);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty() && self.others.is_empty()
    }

    /// Sets that contain every item that can match these labels. An item with pairs of several keys can be in several.
    pub(crate) fn that_can_match(&self, labels: &Labels) -> impl Iterator<Item = &BTreeSet<T>> {
        let by_pair = self.pairs.iter().filter_map(|(key, values)| {
            let value = labels.get(key)?;
            values.get(value)
        });
        std::iter::once(&self.others).chain(by_pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_by_their_pairs() {
        let pair = |key: &str, value: &str| (Name::from(key), Name::from(value));
        let mut index = LabelIndex::default();
        let two = [pair("app", "web"), pair("app", "db")];
        index.insert(&two, &1);
        index.insert(&[pair("zone", "a")], &2);
        index.insert(&[], &3);
        let found = |index: &LabelIndex<i32>, labels: &[(&str, &str)]| -> Vec<i32> {
            let labels: Labels = labels.iter().copied().collect();
            let found = index.that_can_match(&labels).flatten().copied();
            found.collect()
        };
        assert_eq!(found(&index, &[]), [3]);
        assert_eq!(found(&index, &[("app", "db")]), [3, 1]);
        assert_eq!(found(&index, &[("app", "web"), ("zone", "a")]), [3, 1, 2]);
        assert_eq!(found(&index, &[("app", "x"), ("zone", "b")]), [3]);
        index.remove(&two, &1);
        assert_eq!(found(&index, &[("app", "db")]), [3]);
        index.remove(&[pair("zone", "a")], &2);
        index.remove(&[], &3);
        assert!(index.is_empty());
    }
}
