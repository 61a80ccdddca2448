//! `LabelSelector` objects: matching, and their form in tables.

use serde_json::Value;

use crate::objects::fields::{at, is_empty, items, text};

/// Whether a `LabelSelector` matches an object with these labels. An empty one matches everything.
pub(super) fn matches(selector: &Value, labels: &Value) -> bool {
    let equal = |(key, value): (&String, &Value)| labels.get(key) == Some(value);
    at(selector, "matchLabels")
        .as_object()
        .into_iter()
        .flatten()
        .all(equal)
        && items(selector, "matchExpressions")
            .iter()
            .all(|expression| {
                let found = labels.get(text(expression, "key"));
                let listed = found.is_some_and(|value| items(expression, "values").contains(value));
                match text(expression, "operator") {
                    "In" => listed,
                    "NotIn" => !listed,
                    "Exists" => found.is_some(),
                    "DoesNotExist" => found.is_none(),
                    _ => false,
                }
            })
}

/// `a=b,c in (d,e),!f`, or `<none>`.
pub(super) fn cell(selector: &Value) -> String {
    let mut parts: Vec<(&str, String)> = pairs(at(selector, "matchLabels"));
    for expression in items(selector, "matchExpressions") {
        let key = text(expression, "key");
        let mut values: Vec<&str> = items(expression, "values")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        values.sort_unstable();
        let values = values.join(",");
        let written = match text(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        parts.push((key, written));
    }
    joined(parts)
}

/// A plain map of labels, written the same way.
pub(super) fn map_cell(labels: &Value) -> String {
    joined(pairs(labels))
}

fn pairs(labels: &Value) -> Vec<(&str, String)> {
    let labels = labels.as_object().into_iter().flatten();
    labels
        .map(|(key, value)| {
            (
                key.as_str(),
                format!("{key}={}", value.as_str().unwrap_or_default()),
            )
        })
        .collect()
}

fn joined(mut parts: Vec<(&str, String)>) -> String {
    if parts.is_empty() {
        return "<none>".to_owned();
    }
    parts.sort_by_key(|(key, _)| *key);
    let texts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    texts.join(",")
}

/// Whether the selector has no requirement and so would match everything.
pub(super) fn is_unlimited(selector: &Value) -> bool {
    is_empty(at(selector, "matchLabels")) && is_empty(at(selector, "matchExpressions"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_selector_matches_if_all_its_parts_match() {
        let labels = json!({"a": "b", "c": "d"});
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, want) in [
            (json!({}), true),
            (json!({"matchLabels": {"a": "b"}}), true),
            (json!({"matchLabels": {"a": "x"}}), false),
            (expression("a", "In", &["b", "z"]), true),
            (expression("a", "NotIn", &["b"]), false),
            (expression("x", "NotIn", &["b"]), true),
            (expression("a", "Exists", &[]), true),
            (expression("x", "DoesNotExist", &[]), true),
            (expression("a", "Nearly", &[]), false),
        ] {
            assert_eq!(matches(&selector, &labels), want, "{selector}");
        }
    }

    #[test]
    fn a_selector_is_written_in_key_order() {
        let selector = json!({
            "matchLabels": {"b": "1", "a": "b"},
            "matchExpressions": [{"key": "z", "operator": "DoesNotExist"}, {"key": "a", "operator": "In", "values": ["c", "b"]}],
        });
        assert_eq!(cell(&selector), "a=b,a in (b,c),b=1,!z");
        assert_eq!(cell(&json!({})), "<none>");
    }
}
