//! Times as the API writes them: RFC 3339 in UTC, whole seconds or exactly six decimals.

use jiff::Timestamp;
use jiff::civil::{DateTime, date};
use jiff::tz::Offset;
use serde_json::Value;

const SECONDS: &str = "%Y-%m-%dT%H:%M:%SZ";
const MICROS: &str = "%Y-%m-%dT%H:%M:%S.%6fZ";

/// Go's zero time, which is written as `null`.
const ZERO: DateTime = date(1, 1, 1).at(0, 0, 0, 0);

/// `2024-01-02T03:04:05Z`; `null` for the zero time.
pub(crate) fn seconds(timestamp: Timestamp) -> Value {
    write(Offset::UTC.to_datetime(timestamp), SECONDS)
}

/// `2024-01-02T03:04:05.123456Z`; `null` for the zero time.
pub(crate) fn micros(timestamp: Timestamp) -> Value {
    write(Offset::UTC.to_datetime(timestamp), MICROS)
}

fn write(utc: DateTime, format: &str) -> Value {
    if utc == ZERO {
        return Value::Null;
    }
    Value::String(utc.strftime(format).to_string())
}

/// Reads a `Time` and writes it in its one form.
pub(crate) fn normalize_seconds(text: &str) -> Result<Value, String> {
    const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
    let utc = parse(text, LAYOUT, |decimals| {
        decimals.is_empty() || decimals.len() > 1 && decimals.starts_with(['.', ','])
    })?;
    Ok(write(utc, SECONDS))
}

/// Reads a `MicroTime` and writes it in its one form.
pub(crate) fn normalize_micros(text: &str) -> Result<Value, String> {
    const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
    let utc = parse(text, LAYOUT, |decimals| {
        decimals.len() == 7 && decimals.starts_with('.')
    })?;
    Ok(write(utc, MICROS))
}

/// Go accepts only capital letters and two digits everywhere, so jiff's own, laxer parser will not do.
fn parse(text: &str, layout: &str, decimals: fn(&str) -> bool) -> Result<DateTime, String> {
    let unreadable = || format!("parsing time {text:?} as {layout:?}: cannot parse {text:?}");
    if !text.is_ascii() || text.len() < 20 {
        return Err(unreadable());
    }
    let (date_time, rest) = text.split_at(19);
    let shape = b"0000-00-00T00:00:00";
    let matches = date_time.bytes().zip(shape).all(|(byte, want)| {
        if *want == b'0' {
            byte.is_ascii_digit()
        } else {
            byte == *want
        }
    });
    let zone = rest.find(['Z', '+', '-']).ok_or_else(unreadable)?;
    let (fraction, zone) = rest.split_at(zone);
    let digits = fraction.bytes().skip(1).all(|byte| byte.is_ascii_digit());
    if !matches || !decimals(fraction) || !digits {
        return Err(unreadable());
    }
    let number = |from: usize, to: usize| date_time[from..to].parse::<i16>().unwrap_or(-1);
    let small = |from: usize, to: usize| i8::try_from(number(from, to)).unwrap_or(-1);
    // Nine digits are all that a nanosecond has; the rest is cut off.
    let nanos: String = fraction
        .chars()
        .skip(1)
        .chain("000000000".chars())
        .take(9)
        .collect();
    let date_time = DateTime::new(
        number(0, 4),
        small(5, 7),
        small(8, 10),
        small(11, 13),
        small(14, 16),
        small(17, 19),
        nanos.parse().unwrap_or(0),
    );
    let offset = offset_seconds(zone).ok_or_else(unreadable)?;
    date_time
        .and_then(|local| local.checked_sub(jiff::SignedDuration::from_secs(offset)))
        .map_err(|_| format!("parsing time {text:?}: out of range"))
}

/// `Z`, `+02:00` or `-05:30`, in seconds east of Greenwich.
fn offset_seconds(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let (sign, rest) = zone.split_at_checked(1)?;
    let (hours, minutes) = rest.split_once(':')?;
    let two_digits = |text: &str| {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<i64>().ok()).flatten()
    };
    let seconds = two_digits(hours).filter(|h| *h <= 24)? * 3600
        + two_digits(minutes).filter(|m| *m <= 60)? * 60;
    match sign {
        "+" => Some(seconds),
        "-" => Some(-seconds),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_written_in_utc_with_whole_seconds() {
        for (text, want) in [
            ("2024-01-02T03:04:05Z", json!("2024-01-02T03:04:05Z")),
            ("2024-01-02T03:04:05+02:00", json!("2024-01-02T01:04:05Z")),
            (
                "2024-01-02T03:04:05.987654321Z",
                json!("2024-01-02T03:04:05Z"),
            ),
            ("2024-01-02T03:04:05,5Z", json!("2024-01-02T03:04:05Z")),
            ("9999-12-31T23:59:59Z", json!("9999-12-31T23:59:59Z")),
            ("0001-01-01T00:00:00Z", json!(null)),
        ] {
            assert_eq!(normalize_seconds(text), Ok(want), "{text}");
        }
        for text in [
            "",
            "nope",
            "2024-01-02",
            "2024-01-02t03:04:05z",
            "2024-13-02T03:04:05Z",
            "2024-02-30T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-02T03:04:05.Z",
            "2024-01-02T03:04:05+2:00",
            "2024-01-02T03:04:05Z5",
            "９024-01-02T03:04:05Z",
        ] {
            assert!(normalize_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn micro_times_have_six_decimals() {
        for (text, want) in [
            (
                "2024-01-02T03:04:05.123456Z",
                Some("2024-01-02T03:04:05.123456Z"),
            ),
            (
                "2024-01-02T03:04:05.000000+01:00",
                Some("2024-01-02T02:04:05.000000Z"),
            ),
            ("2024-01-02T03:04:05Z", None),
            ("2024-01-02T03:04:05.123456789Z", None),
        ] {
            assert_eq!(
                normalize_micros(text).ok(),
                want.map(|text| json!(text)),
                "{text}"
            );
        }
    }
}
