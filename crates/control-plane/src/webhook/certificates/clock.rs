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

/// `now` is the time when the answer with this `Date` arrived. An embedded cluster in the same process has the same clock and sends
/// none.
pub(super) fn check(date: Option<&HeaderValue>, now: Timestamp) -> Result<(), WrongClock> {
    let date = date.and_then(|date| date.to_str().ok());
    let date = date.and_then(|text| jiff::fmt::rfc2822::parse(text).ok());
    let ahead = date.map_or(SignedDuration::ZERO, |date| {
        now.duration_since(date.timestamp())
    });
    match ahead.abs() > MOST {
        true => Err(WrongClock(ahead)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_the_api_server_counts() {
        let now: Timestamp = "2026-11-18T12:00:00Z".parse().unwrap();
        for (case, date, want) in [
            ("equal", "Wed, 18 Nov 2026 12:00:00 GMT", None),
            ("a slow answer", "Wed, 18 Nov 2026 11:55:00 GMT", None),
            (
                "a minute too far ahead",
                "Wed, 18 Nov 2026 11:54:00 GMT",
                Some("is 6 minutes ahead of that of the API server"),
            ),
            (
                "a year behind",
                "Thu, 18 Nov 2027 12:00:00 GMT",
                Some("is 525600 minutes behind that of the API server"),
            ),
            ("no date", "soon", None),
        ] {
            let found = check(Some(&HeaderValue::from_static(date)), now);
            let found = found.err().map(|error| error.to_string());
            let matches = match (&found, want) {
                (Some(found), Some(want)) => found.contains(want),
                (found, want) => found.is_none() && want.is_none(),
            };
            assert!(matches, "{case}: {found:?}");
        }
        assert_eq!(check(None, now), Ok(()), "no header");
    }
}
