//! A failure that goes on for long: when to log it, and since when it lasts.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// A failure that goes on is logged again after this time.
const AGAIN: Duration = Duration::from_secs(60);
/// Another reason is logged earlier: reasons that take turns must not fill the log.
const OTHER_REASON: Duration = Duration::from_secs(10);

/// After so long without a failure it worked meanwhile: a watch that was resumed is silent until something changes.
const FORGOTTEN: Duration = Duration::from_secs(120);

/// The failures of one thing that is tried again and again.
#[derive(Debug)]
pub struct Outage {
    /// A failure is logged again after this time.
    again: Duration,
    since: Option<(Instant, Timestamp)>,
    last: Option<Instant>,
    logged: Option<(Instant, String)>,
}

impl Default for Outage {
    fn default() -> Self {
        Self::logged_every(AGAIN)
    }
}

impl Outage {
    /// A failure that goes on is logged again after this time.
    pub fn logged_every(again: Duration) -> Self {
        Self {
            again,
            since: None,
            last: None,
            logged: None,
        }
    }

    /// It failed for this reason. Returns since when it fails if that should be logged now.
    pub fn fails(&mut self, why: &str, now: Instant) -> Option<Timestamp> {
        let is_new = |last: Instant| now.saturating_duration_since(last) >= FORGOTTEN;
        if self.last.is_some_and(is_new) {
            *self = Self::logged_every(self.again);
        }
        self.last = Some(now);
        let (_, since) = *self.since.get_or_insert_with(|| (now, Timestamp::now()));
        let is_due = match &self.logged {
            None => true,
            Some((at, known)) => {
                let pause = match known == why {
                    true => self.again,
                    false => OTHER_REASON.min(self.again),
                };
                now.saturating_duration_since(*at) >= pause
            }
        };
        if is_due {
            self.logged = Some((now, why.to_owned()));
        }
        is_due.then_some(since)
    }

    /// It succeeded. Returns for how long it failed, if it did.
    pub fn ends(&mut self, now: Instant) -> Option<Duration> {
        let over = std::mem::replace(self, Self::logged_every(self.again));
        let (since, _) = over.since?;
        Some(now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_logged_again_and_again_but_not_often() {
        let (mut outage, begun) = (Outage::default(), Instant::now());
        for (case, second, why, want) in [
            ("the first failure", 0, "a", true),
            ("the same a moment later", 1, "a", false),
            ("another reason at once", 2, "b", false),
            ("the same within a minute", 59, "a", false),
            ("the same after a minute", 60, "a", true),
            ("another reason later", 70, "b", true),
            ("and the first again", 71, "a", false),
        ] {
            let now = begun + Duration::from_secs(second);
            assert_eq!(outage.fails(why, now).is_some(), want, "{case}");
        }
        let later = begun + Duration::from_secs(80);
        assert_eq!(outage.ends(later), Some(Duration::from_secs(80)));
        assert_eq!(outage.ends(later), None, "it ended before");
        assert!(outage.fails("a", later).is_some(), "a new failure");
        let much_later = later + FORGOTTEN;
        assert!(outage.fails("a", much_later).is_some(), "another one");
        assert_eq!(outage.ends(much_later), Some(Duration::ZERO));
    }
}
