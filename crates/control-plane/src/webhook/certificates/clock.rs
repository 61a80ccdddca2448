//! Whether the clock of this machine may date certificates. API servers check them by their own clock, which the `Date` header of
//! an answer shows.

use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};

/// Certificates begin an hour before they are made, so that so much is harmless.
const MOST: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the clock of this machine is {} minutes {} that of the API server, at most 5 are allowed: this replica writes no certificates",
    .0.as_mins().abs(),
    if .0.is_positive() { "ahead of" } else { "behind" }
)]
pub(super) struct WrongClock(SignedDuration);

/// What is known about the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClockCheck {
    Right,
    /// The answer has no `Date`, or one that is not a date. Every API server sends one, but a proxy before it may remove it, and an
    /// embedded cluster in the same process, with the same clock, sends none. So the replica writes: without certificates nothing
    /// would be judged, while the other replicas replace one that begins in the future.
    Unknown,
}

/// `now` is the time when the answer with this `Date` arrived.
pub(super) fn check(date: Option<&HeaderValue>, now: Timestamp) -> Result<ClockCheck, WrongClock> {
    let date = date.and_then(|date| date.to_str().ok());
    let date = date.and_then(|text| jiff::fmt::rfc2822::parse(text).ok());
    let Some(date) = date else {
        return Ok(ClockCheck::Unknown);
    };
    let ahead = now.duration_since(date.timestamp());
    match ahead.abs() > MOST {
        true => Err(WrongClock(ahead)),
        false => Ok(ClockCheck::Right),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_the_api_server_counts() {
        let now: Timestamp = "2026-11-18T12:00:00Z".parse().unwrap();
        for (case, date, want) in [
            (
                "equal",
                "Wed, 18 Nov 2026 12:00:00 GMT",
                Ok(ClockCheck::Right),
            ),
            (
                "a slow answer",
                "Wed, 18 Nov 2026 11:55:00 GMT",
                Ok(ClockCheck::Right),
            ),
            (
                "five minutes behind",
                "Wed, 18 Nov 2026 12:05:00 GMT",
                Ok(ClockCheck::Right),
            ),
            (
                "a minute too far ahead",
                "Wed, 18 Nov 2026 11:54:00 GMT",
                Err("is 6 minutes ahead of that of the API server"),
            ),
            (
                "a year behind",
                "Thu, 18 Nov 2027 12:00:00 GMT",
                Err("is 525600 minutes behind that of the API server"),
            ),
            (
                "two hours behind",
                "Wed, 18 Nov 2026 14:00:00 GMT",
                Err("is 120 minutes behind that of the API server"),
            ),
            ("no date", "soon", Ok(ClockCheck::Unknown)),
            ("nothing", "", Ok(ClockCheck::Unknown)),
        ] {
            let found = check(Some(&HeaderValue::from_static(date)), now);
            let matches = match (&found, want) {
                (Err(found), Err(want)) => found.to_string().contains(want),
                (Ok(found), Ok(want)) => *found == want,
                _ => false,
            };
            assert!(matches, "{case}: {found:?}");
        }
        assert_eq!(check(None, now), Ok(ClockCheck::Unknown), "no header");
    }
}
