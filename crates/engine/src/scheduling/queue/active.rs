//! Pods that are ready to be tried, in the order of QueueSort, and fair to newcomers.
//!
//! An event can wake thousands of pods that waited for longer than any newcomer. In the plain order all of them would go
//! first, again and again, so a newcomer goes after at most [`MOST_RETRIES`] of them in a row. This holds only among pods
//! that QueueSort orders by time alone: a higher priority always goes first.

use super::by_turn;
use super::heap::{Heap, Item};
use crate::model::Timestamp;
use crate::scheduling::profile::Profiles;

/// Pods that are tried again, in a row, while a pod waits that was never tried.
const MOST_RETRIES: u32 = 4;

#[derive(Debug, Default)]
pub(super) struct Active {
    /// Pods that were never tried.
    new: Heap,
    retried: Heap,
    /// Retries that went before a newcomer since the last newcomer.
    in_a_row: u32,
}

impl Active {
    pub(super) fn len(&self) -> usize {
        self.new.len() + self.retried.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.new.is_empty() && self.retried.is_empty()
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.new.contains(uid) || self.retried.contains(uid)
    }

    pub(super) fn push(&mut self, item: Item, is_new: bool, profiles: &Profiles) {
        let heap = match is_new {
            true => &mut self.new,
            false => &mut self.retried,
        };
        heap.push(item, by_turn(profiles));
    }

    pub(super) fn remove(&mut self, uid: &str, profiles: &Profiles) -> Option<Item> {
        let removed = self.new.remove(uid, by_turn(profiles));
        removed.or_else(|| self.retried.remove(uid, by_turn(profiles)))
    }

    pub(super) fn pop(&mut self, profiles: &Profiles) -> Option<Item> {
        let (Some(new), Some(retried)) = (self.new.first(), self.retried.first()) else {
            self.in_a_row = 0;
            let popped = self.new.pop(by_turn(profiles));
            return popped.or_else(|| self.retried.pop(by_turn(profiles)));
        };
        let new_first = by_turn(profiles)(new, retried)
            || self.in_a_row >= MOST_RETRIES && is_only_earlier(retried, new, profiles);
        if new_first {
            self.in_a_row = 0;
            return self.new.pop(by_turn(profiles));
        }
        self.in_a_row += 1;
        self.retried.pop(by_turn(profiles))
    }
}

/// Whether `first` goes before `second` only because of the time.
fn is_only_earlier(first: &Item, second: &Item, profiles: &Profiles) -> bool {
    let at_once = Timestamp::default();
    !profiles.goes_before((&first.pod, at_once), (&second.pod, at_once))
}
