//! Backoff after failed attempts: how long it lasts, and the pods in it.

use std::time::Duration;

use super::heap::{Heap, Item};
use super::{Timing, by_turn};
use crate::model::Timestamp;
use crate::profile::Profiles;

/// When the backoff ends: whole seconds, so that pods are released together. In the past if there is none.
pub(super) fn expiry(since: Timestamp, failures: u32, timing: Timing) -> Timestamp {
    let Some(doublings) = failures.checked_sub(1) else {
        return Timestamp(i64::MIN);
    };
    let (initial, max) = (timing.initial_backoff, timing.max_backoff);
    if max.is_zero() {
        return Timestamp(i64::MIN);
    }
    let duration = initial
        .checked_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX))
        .unwrap_or(max)
        .min(max);
    since.plus(duration).whole_second()
}

/// Over only when a whole second has begun after the end.
pub(super) fn is_backing_off(expiry: Timestamp, now: Timestamp) -> bool {
    expiry >= now.whole_second()
}

/// When [`is_backing_off`] ends.
fn release(expiry: Timestamp) -> Timestamp {
    expiry.plus(Duration::from_secs(1))
}

/// Pods that a plugin rejected, and pods whose attempt ended in an error.
#[derive(Debug, Default)]
pub(super) struct Backoffs {
    blamed: Heap,
    broken: Heap,
}

impl Backoffs {
    pub(super) fn len(&self) -> usize {
        self.blamed.len() + self.broken.len()
    }

    pub(super) fn has_blamed(&self) -> bool {
        !self.blamed.is_empty()
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.blamed.contains(uid) || self.broken.contains(uid)
    }

    /// When the pod's penalty is over.
    pub(super) fn release_of(&self, uid: &str) -> Option<Timestamp> {
        let item = self.blamed.get(uid).or_else(|| self.broken.get(uid))?;
        Some(release(item.expiry))
    }

    pub(super) fn push(&mut self, item: Item, blamed: bool, profiles: &Profiles) {
        self.remove(&item.pod.uid.clone(), profiles);
        if blamed {
            self.blamed.push(item, by_expiry_and_turn(profiles));
        } else {
            self.broken.push(item, by_expiry);
        }
    }

    pub(super) fn remove(&mut self, uid: &str, profiles: &Profiles) -> Option<Item> {
        self.blamed
            .remove(uid, by_expiry_and_turn(profiles))
            .or_else(|| self.broken.remove(uid, by_expiry))
    }

    /// The first rejected pod, though its penalty may not be over.
    pub(super) fn pop_blamed(&mut self, profiles: &Profiles) -> Option<Item> {
        self.blamed.pop(by_expiry_and_turn(profiles))
    }

    pub(super) fn pop_finished(&mut self, now: Timestamp, profiles: &Profiles) -> Option<Item> {
        let finished = |heap: &Heap| {
            heap.first()
                .is_some_and(|item| !is_backing_off(item.expiry, now))
        };
        if finished(&self.blamed) {
            self.blamed.pop(by_expiry_and_turn(profiles))
        } else if finished(&self.broken) {
            self.broken.pop(by_expiry)
        } else {
            None
        }
    }

    pub(super) fn first_release(&self) -> Option<Timestamp> {
        [&self.blamed, &self.broken]
            .into_iter()
            .filter_map(|heap| heap.first())
            .map(|item| release(item.expiry))
            .min()
    }
}

fn by_expiry(a: &Item, b: &Item) -> bool {
    (a.expiry, a.sequence) < (b.expiry, b.sequence)
}

fn by_expiry_and_turn(profiles: &Profiles) -> impl Fn(&Item, &Item) -> bool {
    let by_turn = by_turn(profiles);
    move |a, b| a.expiry < b.expiry || (a.expiry == b.expiry && by_turn(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn penalties_double_up_to_the_longest() {
        let seconds = |failures| {
            let end = expiry(Timestamp::from_secs(100), failures, Timing::default());
            end.0 / Timestamp::SECOND - 100
        };
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 40, u32::MAX].map(seconds),
            [1, 2, 4, 8, 10, 10, 10, 10]
        );
    }

    #[test]
    fn release_is_at_the_whole_second_after_the_end() {
        for (since, failures, end, released) in [(100_300, 1, 101, 102), (100_800, 2, 102, 103)] {
            let found = expiry(Timestamp(since * 1_000_000), failures, Timing::default());
            assert_eq!(found, Timestamp::from_secs(end));
            assert!(is_backing_off(
                found,
                Timestamp(released * 1_000_000_000 - 1)
            ));
            assert!(!is_backing_off(found, Timestamp::from_secs(released)));
            assert_eq!(release(found), Timestamp::from_secs(released));
        }
    }

    #[test]
    fn no_failure_no_penalty() {
        let none = expiry(Timestamp::from_secs(100), 0, Timing::default());
        assert!(!is_backing_off(none, Timestamp::from_secs(-100)));
    }
}
