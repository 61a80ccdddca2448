//! Backoff after failed attempts: how long it lasts, and the pods in it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::heap::{Heap, Item};
use super::{Timing, by_turn};
use crate::model::Timestamp;
use crate::scheduling::profile::Profiles;

/// After the first conflict a pod waits at most this part of the first backoff.
const CONFLICT_PART: u32 = 5;

/// When the backoff is over: a whole second has begun after its end, so that pods are released together. In the past if there is
/// none.
pub(super) fn release(since: Timestamp, failures: u32, timing: Timing) -> Timestamp {
    match doubled(timing.initial_backoff, failures, timing) {
        Some(duration) => {
            let end = since.plus(duration).whole_second();
            end.plus(Duration::from_secs(1))
        }
        None => Timestamp(i64::MIN),
    }
}

/// When the backoff of a pod is over for which another scheduler was faster. The pod fits somewhere, so it waits only until the
/// watches show what the other scheduler did. Each pod waits another time: schedulers that tried again together would
/// collide again.
pub(super) fn release_after_conflict(
    since: Timestamp,
    conflicts: u32,
    uid: &str,
    timing: Timing,
) -> Timestamp {
    let Some(longest) = doubled(timing.initial_backoff / CONFLICT_PART, conflicts, timing) else {
        return Timestamp(i64::MIN);
    };
    let mut hasher = DefaultHasher::new();
    (uid, conflicts).hash(&mut hasher);
    let share = f64::from((hasher.finish() >> 32) as u32) / f64::from(u32::MAX);
    since.plus(longest.mul_f64(0.5 + share / 2.0))
}

/// `None` without a failure, and if there is no backoff.
fn doubled(first: Duration, failures: u32, timing: Timing) -> Option<Duration> {
    let doublings = failures.checked_sub(1)?;
    let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
    let max = timing.max_backoff;
    let duration = first.checked_mul(factor).unwrap_or(max).min(max);
    (!max.is_zero()).then_some(duration)
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
        Some(item.release)
    }

    pub(super) fn push(&mut self, item: Item, blamed: bool, profiles: &Profiles) {
        self.remove(&item.pod.uid.clone(), profiles);
        if blamed {
            self.blamed.push(item, by_release_and_turn(profiles));
        } else {
            self.broken.push(item, by_release);
        }
    }

    pub(super) fn remove(&mut self, uid: &str, profiles: &Profiles) -> Option<Item> {
        self.blamed
            .remove(uid, by_release_and_turn(profiles))
            .or_else(|| self.broken.remove(uid, by_release))
    }

    /// The first rejected pod, though its penalty may not be over.
    pub(super) fn pop_blamed(&mut self, profiles: &Profiles) -> Option<Item> {
        self.blamed.pop(by_release_and_turn(profiles))
    }

    pub(super) fn pop_finished(&mut self, now: Timestamp, profiles: &Profiles) -> Option<Item> {
        let finished = |heap: &Heap| heap.first().is_some_and(|item| item.release <= now);
        if finished(&self.blamed) {
            self.blamed.pop(by_release_and_turn(profiles))
        } else if finished(&self.broken) {
            self.broken.pop(by_release)
        } else {
            None
        }
    }

    pub(super) fn first_release(&self) -> Option<Timestamp> {
        [&self.blamed, &self.broken]
            .into_iter()
            .filter_map(|heap| heap.first())
            .map(|item| item.release)
            .min()
    }
}

fn by_release(a: &Item, b: &Item) -> bool {
    (a.release, a.sequence) < (b.release, b.sequence)
}

fn by_release_and_turn(profiles: &Profiles) -> impl Fn(&Item, &Item) -> bool {
    let by_turn = by_turn(profiles);
    move |a, b| a.release < b.release || (a.release == b.release && by_turn(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn penalties_double_up_to_the_longest() {
        let seconds = |failures| {
            let end = release(Timestamp::from_secs(100), failures, Timing::default());
            end.0 / Timestamp::SECOND - 101
        };
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 40, u32::MAX].map(seconds),
            [1, 2, 4, 8, 10, 10, 10, 10]
        );
    }

    #[test]
    fn release_is_at_the_whole_second_after_the_end() {
        for (since, failures, released) in [(100_300, 1, 102), (100_800, 2, 103)] {
            let found = release(Timestamp(since * 1_000_000), failures, Timing::default());
            assert_eq!(found, Timestamp::from_secs(released));
        }
    }

    #[test]
    fn no_failure_no_penalty() {
        let none = release(Timestamp::from_secs(100), 0, Timing::default());
        assert!(none < Timestamp::from_secs(-100));
        let timing = Timing {
            max_backoff: Duration::ZERO,
            ..Timing::default()
        };
        for none in [
            release(Timestamp::from_secs(100), 1, timing),
            release_after_conflict(Timestamp::from_secs(100), 1, "a", timing),
        ] {
            assert!(none < Timestamp::from_secs(-100));
        }
    }

    #[test]
    fn conflicts_have_short_penalties_that_differ() {
        let millis = |conflicts, uid: &str| {
            let since = Timestamp::from_secs(100);
            let end = release_after_conflict(since, conflicts, uid, Timing::default());
            (end.0 - since.0) / 1_000_000
        };
        for (conflicts, longest) in [
            (1, 200),
            (2, 400),
            (4, 1600),
            (20, 10_000),
            (u32::MAX, 10_000),
        ] {
            let found = ["a", "b", "c", "d"].map(|uid| millis(conflicts, uid));
            let is_allowed = |it: &i64| (longest / 2..=longest).contains(it);
            assert!(found.iter().all(is_allowed), "{found:?}");
            let mut different = found.to_vec();
            different.sort_unstable();
            different.dedup();
            assert_eq!(different.len(), found.len(), "{found:?}");
        }
    }
}
