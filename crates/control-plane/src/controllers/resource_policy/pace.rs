//! Limits how often things happen.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Spaces requests evenly, so that no second has more than its share.
pub(super) struct Limiter {
    spacing: Duration,
    next: Mutex<Instant>,
}

impl Limiter {
    /// `per_second` is at least 1.
    pub(super) fn new(per_second: u32) -> Self {
        Self {
            spacing: Duration::from_secs(1) / per_second.max(1),
            next: Mutex::new(Instant::now()),
        }
    }

    /// Returns when it is the caller's turn.
    pub(super) async fn turn(&self) {
        tokio::time::sleep_until(self.reserve(Instant::now())).await;
    }

    fn reserve(&self, now: Instant) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = now.max(*next);
        *next = turn + self.spacing;
        turn
    }
}

/// Lets each key begin at most once in an interval.
pub(super) struct Intervals<K> {
    interval: Duration,
    begun: Mutex<HashMap<K, Instant>>,
}

impl<K: Clone + Eq + Hash> Intervals<K> {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            begun: Mutex::default(),
        }
    }

    /// Begins, or returns how long the key must wait.
    pub(super) fn begin(&self, key: &K) -> Result<(), Duration> {
        self.begin_at(key, Instant::now())
    }

    fn begin_at(&self, key: &K, now: Instant) -> Result<(), Duration> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = begun.get(key) {
            let wait = self.interval.saturating_sub(now - *last);
            if !wait.is_zero() {
                return Err(wait);
            }
        }
        // Only what is younger than the interval matters.
        begun.retain(|_, last| now - *last < self.interval);
        begun.insert(key.clone(), now);
        Ok(())
    }
}

/// Collects the changes of an interval into one turn for each key, and spaces turns that fail.
pub(super) struct Turns {
    interval: Duration,
    turns: Mutex<HashMap<String, Turn>>,
}

struct Turn {
    due: Instant,
    /// In a row.
    failures: u32,
}

/// A failed turn is repeated at the latest after this time.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

impl Turns {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            turns: Mutex::default(),
        }
    }

    /// Begins the turn of a key, or returns how long it must wait: an interval after its first change. The turn lasts until
    /// `end` or `retry`.
    pub(super) fn begin(&self, key: &str) -> Result<(), Duration> {
        self.begin_at(key, Instant::now())
    }

    fn begin_at(&self, key: &str, now: Instant) -> Result<(), Duration> {
        let mut turns = self.turns();
        let turn = turns.entry(key.to_owned()).or_insert_with(|| Turn {
            due: now + self.interval,
            failures: 0,
        });
        match turn.due.saturating_duration_since(now) {
            Duration::ZERO => Ok(()),
            wait => Err(wait),
        }
    }

    pub(super) fn end(&self, key: &str) {
        self.turns().remove(key);
    }

    /// The turn failed. Returns the number of failures in a row, and when it begins again.
    pub(super) fn retry(&self, key: &str) -> (u32, Duration) {
        self.retry_at(key, Instant::now())
    }

    fn retry_at(&self, key: &str, now: Instant) -> (u32, Duration) {
        let mut turns = self.turns();
        let failures = turns.get(key).map_or(0, |turn| turn.failures);
        let wait = (self.interval * 2_u32.pow(failures.min(10))).min(LONGEST_RETRY);
        let failures = failures.saturating_add(1);
        let due = now + wait;
        turns.insert(key.to_owned(), Turn { due, failures });
        (failures, wait)
    }

    fn turns(&self) -> MutexGuard<'_, HashMap<String, Turn>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_spaced() {
        let limiter = Limiter::new(50);
        let start = Instant::now();
        let turns: Vec<Instant> = (0..51).map(|_| limiter.reserve(start)).collect();
        assert_eq!(turns[50] - turns[0], Duration::from_secs(1));
        // Time without requests is not saved up.
        let later = start + Duration::from_secs(9);
        let turns = [limiter.reserve(later), limiter.reserve(later)];
        assert_eq!(turns, [later, later + Duration::from_millis(20)]);
    }

    #[test]
    fn a_key_begins_once_in_an_interval() {
        let (second, start) = (Duration::from_secs(1), Instant::now());
        let intervals = Intervals::new(second);
        assert_eq!(intervals.begin_at(&"a", start), Ok(()));
        assert_eq!(intervals.begin_at(&"b", start), Ok(()));
        let soon = start + second / 4;
        assert_eq!(intervals.begin_at(&"a", soon), Err(second * 3 / 4));
        assert_eq!(intervals.begin_at(&"a", start + second), Ok(()));
        assert_eq!(intervals.begun.lock().unwrap().len(), 1, "b is forgotten");
    }

    #[test]
    fn a_turn_takes_the_changes_of_an_interval() {
        let (second, start) = (Duration::from_secs(1), Instant::now());
        let turns = Turns::new(second);
        assert_eq!(turns.begin_at("a", start), Err(second));
        let soon = start + second / 4;
        assert_eq!(turns.begin_at("a", soon), Err(second * 3 / 4));
        let due = start + second;
        assert_eq!(turns.begin_at("a", due), Ok(()));
        assert_eq!(turns.begin_at("a", due), Ok(()), "the turn goes on");
        turns.end("a");
        assert_eq!(turns.begin_at("a", due), Err(second));
    }

    #[test]
    fn a_change_does_not_hasten_a_turn_that_failed() {
        let (second, start) = (Duration::from_secs(1), Instant::now());
        let turns = Turns::new(second);
        let waits: Vec<_> = (0..7).map(|_| turns.retry_at("a", start)).collect();
        let seconds: Vec<_> = waits.iter().map(|(_, wait)| wait.as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(waits[6].0, 7);
        assert_eq!(turns.begin_at("a", start + second), Err(29 * second));
        turns.end("a");
        assert_eq!(turns.retry_at("a", start).0, 1);
    }
}
