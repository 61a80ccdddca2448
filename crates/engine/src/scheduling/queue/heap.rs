//! A binary heap whose order is given with each call, and from which anything can be taken.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::cluster::capacity::{shrink_list, shrink_map};
use crate::model::{Name, Pod, Timestamp};

/// A pod in a heap, with all that an order may look at.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) pod: Arc<Pod>,
    /// Since when it is queued.
    pub(super) since: Timestamp,
    /// When its backoff ends.
    pub(super) release: Timestamp,
    /// Settles ties: who came to the queue first.
    pub(super) sequence: u64,
}

#[derive(Debug, Default)]
pub(super) struct Heap {
    items: Vec<Item>,
    positions: HashMap<Name, usize>,
}

impl Heap {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn first(&self) -> Option<&Item> {
        self.items.first()
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.positions.contains_key(uid)
    }

    pub(super) fn get(&self, uid: &str) -> Option<&Item> {
        self.items.get(*self.positions.get(uid)?)
    }

    pub(super) fn push(&mut self, item: Item, before: impl Fn(&Item, &Item) -> bool) {
        self.remove(&item.pod.uid.clone(), &before);
        let position = self.items.len();
        self.positions.insert(item.pod.uid.clone(), position);
        self.items.push(item);
        self.up(position, &before);
    }

    pub(super) fn pop(&mut self, before: impl Fn(&Item, &Item) -> bool) -> Option<Item> {
        let uid = self.items.first()?.pod.uid.clone();
        self.remove(&uid, before)
    }

    pub(super) fn remove(
        &mut self,
        uid: &str,
        before: impl Fn(&Item, &Item) -> bool,
    ) -> Option<Item> {
        let position = self.positions.remove(uid)?;
        let item = self.items.swap_remove(position);
        shrink_list(&mut self.items);
        shrink_map(&mut self.positions);
        if let Some(moved) = self.items.get(position) {
            self.positions.insert(moved.pod.uid.clone(), position);
            self.down(position, &before);
            self.up(position, &before);
        }
        Some(item)
    }

    fn up(&mut self, mut position: usize, before: &impl Fn(&Item, &Item) -> bool) {
        while position > 0 {
            let parent = (position - 1) / 2;
            if !before(&self.items[position], &self.items[parent]) {
                return;
            }
            self.swap(position, parent);
            position = parent;
        }
    }

    fn down(&mut self, mut position: usize, before: &impl Fn(&Item, &Item) -> bool) {
        loop {
            let children = [2 * position + 1, 2 * position + 2];
            let best =
                children
                    .into_iter()
                    .fold(position, |best, child| match self.items.get(child) {
                        Some(item) if before(item, &self.items[best]) => child,
                        _ => best,
                    });
            if best == position {
                return;
            }
            self.swap(position, best);
            position = best;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.items.swap(a, b);
        for position in [a, b] {
            let uid = &self.items[position].pod.uid;
            if let Some(known) = self.positions.get_mut(uid) {
                *known = position;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::pod;

    fn before(a: &Item, b: &Item) -> bool {
        (a.since, a.sequence) < (b.since, b.sequence)
    }

    proptest! {
        /// Against a plain list: the first is the smallest, whatever was put in and taken out.
        #[test]
        fn the_first_is_the_smallest(steps in prop::collection::vec((0..3_u8, 0..12_usize, 0..6_i64), 1..80)) {
            let mut heap = Heap::default();
            let mut list: Vec<(i64, u64, String)> = Vec::new();
            for (sequence, (what, which, since)) in steps.into_iter().enumerate() {
                let name = format!("p{which}");
                match what {
                    0 => {
                        list.retain(|(_, _, known)| *known != name);
                        list.push((since, sequence as u64, name.clone()));
                        let item = Item {
                            pod: pod(&name).build(),
                            since: Timestamp(since),
                            release: Timestamp(0),
                            sequence: sequence as u64,
                        };
                        heap.push(item, before);
                    }
                    1 => {
                        let known = list.iter().any(|(_, _, known)| *known == name);
                        prop_assert_eq!(heap.remove(&name, before).is_some(), known);
                        list.retain(|(_, _, known)| *known != name);
                    }
                    _ => {
                        list.sort();
                        let want = (!list.is_empty()).then(|| list.remove(0).2);
                        prop_assert_eq!(heap.pop(before).map(|item| item.pod.name.to_string()), want);
                    }
                }
                prop_assert_eq!(heap.len(), list.len());
            }
        }
    }
}
