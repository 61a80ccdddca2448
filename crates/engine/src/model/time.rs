//! Points in time, which the caller supplies, and durations.

use std::fmt;
use std::time::Duration;

/// Nanoseconds since the Unix epoch; the engine only compares and adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub const SECOND: i64 = 1_000_000_000;

    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(Self::SECOND))
    }

    /// Saturates.
    pub fn plus(self, duration: Duration) -> Self {
        let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// The whole second at or before.
    pub fn whole_second(self) -> Self {
        Self(self.0.div_euclid(Self::SECOND).saturating_mul(Self::SECOND))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339, in UTC: `2026-01-31T10:20:30Z`, with a fraction where there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (
            self.0.div_euclid(Self::SECOND),
            self.0.rem_euclid(Self::SECOND),
        );
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Years begin in March here, so that the day that only some of them have is their last; eras have 400.
        let day = days + 719_468;
        let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year + i64::from(month <= 2);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        if nanos > 0 {
            write!(f, ".{}", format!("{nanos:09}").trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
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

/// Writes nanoseconds as Go does: `10s`, `1h30m0s`, `-1.5ms`.
pub fn write_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let all = nanos.unsigned_abs();
    let decimal = |value: u64, scale: u64, unit: &str| {
        let (whole, rest) = (value / scale, value % scale);
        let digits = scale.ilog10() as usize;
        let fraction = format!("{rest:0digits$}");
        match fraction.trim_end_matches('0') {
            "" => format!("{whole}{unit}"),
            fraction => format!("{whole}.{fraction}{unit}"),
        }
    };
    let text = match all {
        0 => "0s".to_owned(),
        1..1_000 => format!("{all}ns"),
        1_000..1_000_000 => decimal(all, 1_000, "µs"),
        1_000_000..1_000_000_000 => decimal(all, 1_000_000, "ms"),
        _ => {
            let minutes = all / 60_000_000_000;
            let seconds = decimal(all % 60_000_000_000, 1_000_000_000, "s");
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, minutes) => format!("{minutes}m{seconds}"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    };
    format!("{sign}{text}")
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

/// Text that is not a duration, with Go's messages.
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
    fn moments_as_text() {
        for (nanos, want) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (951_826_500_000_000_000, "2000-02-29T12:15:00Z"),
            (1_735_689_599_500_000_000, "2024-12-31T23:59:59.5Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
        ] {
            assert_eq!(Timestamp(nanos).to_string(), want);
        }
    }

    #[test]
    fn durations_as_go_writes_them() {
        for text in [
            "0s",
            "1ns",
            "1.5µs",
            "500ms",
            "1.25s",
            "15s",
            "1m30s",
            "10m0s",
            "1h0m0s",
            "25h0m0.1s",
            "-1s",
            "-1.5ms",
        ] {
            let nanos = parse_duration(text).unwrap();
            assert_eq!(write_duration(nanos), text);
        }
        assert_eq!(write_duration(i64::MIN), "-2562047h47m16.854775808s");
    }

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
