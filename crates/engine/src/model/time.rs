//! Moments, as the caller's clock tells them, and spans of time.

use std::time::Duration;

/// Nanoseconds since the Unix epoch; the engine only compares and adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub const SECOND: i64 = 1_000_000_000;

    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(Self::SECOND))
    }

    /// Stays within what can be told.
    pub fn plus(self, duration: Duration) -> Self {
        let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// The whole second at or before.
    pub fn whole_second(self) -> Self {
        Self(self.0.div_euclid(Self::SECOND).saturating_mul(Self::SECOND))
    }
}

/// A span of time as Go writes it, in nanoseconds: `10s`, `1h30m`, `-1.5ms`, `0`.
pub fn parse_duration(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0_i64;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let number = &rest[..end];
        rest = &rest[end..];
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        let unit = &rest[..end];
        rest = &rest[end..];
        let scale = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "" => return Err(DurationError::MissingUnit(text.to_owned())),
            _ => {
                return Err(DurationError::UnknownUnit {
                    unit: unit.to_owned(),
                    text: text.to_owned(),
                });
            }
        };
        let part = scaled(whole, fraction, scale).ok_or_else(invalid)?;
        total = total.checked_add(part).ok_or_else(invalid)?;
    }
    Ok(if negative { -total } else { total })
}

/// `whole.fraction` times the scale; what is below a nanosecond is dropped. `None` if it is too long.
fn scaled(whole: &str, fraction: &str, scale: i64) -> Option<i64> {
    let whole: i64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    // No scale has more digits than this, so more of the fraction than these cannot matter.
    let fraction = &fraction[..fraction.len().min(15)];
    let digits: i64 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().ok()?
    };
    let part = i128::from(digits) * i128::from(scale) / 10_i128.pow(fraction.len() as u32);
    whole
        .checked_mul(scale)?
        .checked_add(i64::try_from(part).ok()?)
}

/// Text that is not a span of time, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("time: invalid duration \"{0}\"")]
    Invalid(String),
    #[error("time: missing unit in duration \"{0}\"")]
    MissingUnit(String),
    #[error("time: unknown unit \"{unit}\" in duration \"{text}\"")]
    UnknownUnit { unit: String, text: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        const S: i64 = 1_000_000_000;
        for (text, want) in [
            ("0", Ok(0)),
            ("10s", Ok(10 * S)),
            ("1h30m", Ok(5400 * S)),
            ("-1.5ms", Ok(-1_500_000)),
            ("+.5s", Ok(S / 2)),
            ("1.s", Ok(S)),
            ("1us2ns", Ok(1002)),
            ("0.1234567890123456789s", Ok(123_456_789)),
            ("5", Err("time: missing unit in duration \"5\"")),
            ("5x", Err("time: unknown unit \"x\" in duration \"5x\"")),
            ("", Err("time: invalid duration \"\"")),
            ("-", Err("time: invalid duration \"-\"")),
            ("s", Err("time: invalid duration \"s\"")),
            ("1.2.3s", Err("time: invalid duration \"1.2.3s\"")),
            ("9999999999h", Err("time: invalid duration \"9999999999h\"")),
        ] {
            let found = parse_duration(text).map_err(|error| error.to_string());
            assert_eq!(found, want.map_err(str::to_owned), "{text}");
        }
    }
}
