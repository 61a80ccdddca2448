//! The parts of a `Table` that kinds share: column definitions, ages and common cells.
//!
//! Each kind defines its own columns and cells.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::kind::Column;
use crate::objects::fields::{at, text};

/// Columns from a short notation: names separated by commas, `:type` or `:type:format` after a
/// name where it is not a plain text, `*` at the end where only `-o wide` shows it.
///
/// `"Name, Desired:integer, Selector*"`
pub(crate) fn columns(notation: &'static str) -> Vec<Column> {
    notation.split(", ").map(column).collect()
}

fn column(notation: &'static str) -> Column {
    let (notation, priority) = match notation.strip_suffix('*') {
        Some(rest) => (rest, 1),
        None => (notation, 0),
    };
    let mut parts = notation.split(':');
    let name = parts.next().unwrap_or_default();
    let kind = parts.next().unwrap_or("string");
    let format = parts
        .next()
        .unwrap_or(if name == "Name" { "name" } else { "" });
    Column {
        name: name.into(),
        kind: kind.into(),
        format: format.into(),
        description: Cow::Borrowed(""),
        priority,
    }
}

/// How long ago a time was, `<unknown>` for no time.
pub(crate) fn age(since: &Value, now: Timestamp) -> String {
    match since.as_str().and_then(|text| text.parse().ok()) {
        Some(since) => duration(now.as_second() - Timestamp::as_second(since)),
        None => "<unknown>".to_owned(),
    }
}

/// The age of an object.
pub(crate) fn created(object: &Value, now: Timestamp) -> Value {
    age(at(object, "metadata.creationTimestamp"), now).into()
}

pub(crate) fn name(object: &Value) -> Value {
    text(object, "metadata.name").into()
}

/// A text, or `<none>`.
pub(crate) fn or_none(text: &str) -> Value {
    if text.is_empty() { "<none>" } else { text }.into()
}

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// A duration as `kubectl get` shows it: two units while the smaller one matters.
pub(crate) fn duration(seconds: i64) -> String {
    // Clocks may differ by a second.
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let (unit, letter, rest, rest_letter) = match seconds.max(0) {
        s if s < 2 * MINUTE => return format!("{s}s"),
        s if s < 10 * MINUTE => (s / MINUTE, 'm', s % MINUTE, 's'),
        s if s < 3 * HOUR => (s / MINUTE, 'm', 0, 's'),
        s if s < 8 * HOUR => (s / HOUR, 'h', s % HOUR / MINUTE, 'm'),
        s if s < 2 * DAY => (s / HOUR, 'h', 0, 'm'),
        s if s < 8 * DAY => (s / DAY, 'd', s % DAY / HOUR, 'h'),
        s if s < 2 * YEAR => (s / DAY, 'd', 0, 'h'),
        s if s < 8 * YEAR => (s / YEAR, 'y', s % YEAR / DAY, 'd'),
        s => (s / YEAR, 'y', 0, 'd'),
    };
    if rest == 0 {
        format!("{unit}{letter}")
    } else {
        format!("{unit}{letter}{rest}{rest_letter}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_show_two_units_while_the_second_one_matters() {
        for (seconds, want) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (197, "3m17s"),
            (600, "10m"),
            (42 * MINUTE + 59, "42m"),
            (5 * HOUR + 3 * MINUTE, "5h3m"),
            (8 * HOUR, "8h"),
            (30 * HOUR + 59 * MINUTE, "30h"),
            (2 * DAY, "2d"),
            (3 * DAY + 4 * HOUR, "3d4h"),
            (318 * DAY + 5 * HOUR, "318d"),
            (3 * YEAR + 20 * DAY, "3y20d"),
            (9 * YEAR + 20 * DAY, "9y"),
        ] {
            assert_eq!(duration(seconds), want, "{seconds} s");
        }
    }

    #[test]
    fn an_age_needs_a_time() {
        let now: Timestamp = "2030-01-01T00:01:00Z".parse().unwrap();
        assert_eq!(age(&json!("2030-01-01T00:00:30Z"), now), "30s");
        assert_eq!(age(&Value::Null, now), "<unknown>");
        assert_eq!(age(&json!("yesterday"), now), "<unknown>");
    }

    #[test]
    fn the_notation_gives_type_format_and_priority() {
        let [name, desired, attacher, wide] =
            &columns("Name, Desired:integer, Attacher:string:name, Nominated Node*")[..]
        else {
            panic!("four columns")
        };
        assert_eq!(
            (&*name.kind, &*name.format, name.priority),
            ("string", "name", 0)
        );
        assert_eq!((&*desired.kind, &*desired.format), ("integer", ""));
        assert_eq!((&*attacher.kind, &*attacher.format), ("string", "name"));
        assert_eq!((&*wide.name, wide.priority), ("Nominated Node", 1));
    }
}
