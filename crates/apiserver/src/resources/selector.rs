//! Label and field selectors: parsing with the real server's messages, and matching.

use serde_json::Value;

use crate::objects::names::{label_value, qualified_name};
use crate::objects::status::Status;
use crate::resources::registry::ServedKind;
use crate::store::object::Object;

/// The selectors of a list or watch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq)]
enum Operator {
    Exists,
    NotExists,
    In(Vec<String>),
    /// Also true when the label is absent.
    NotIn(Vec<String>),
    GreaterThan(i64),
    LessThan(i64),
}

#[derive(Debug, Clone, PartialEq)]
struct FieldRequirement {
    path: String,
    equal: bool,
    value: String,
}

impl Selector {
    pub(crate) fn parse(labels: &str, fields: &str, served: &ServedKind) -> Result<Self, Status> {
        let selector = Self {
            labels: parse_labels(labels)?,
            fields: parse_fields(fields)?,
        };
        for requirement in &selector.fields {
            if !served.selects(&requirement.path) {
                let why = served.kind.rules.unknown_field(&requirement.path);
                return Err(Status::bad_request(why));
            }
        }
        Ok(selector)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, served: &ServedKind, object: &Object) -> bool {
        self.labels.iter().all(|r| r.matches(object))
            && self
                .fields
                .iter()
                .all(|r| (served.field(object, &r.path) == r.value) == r.equal)
    }
}

impl Requirement {
    fn matches(&self, object: &Object) -> bool {
        let value = object.index.label(&self.key);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::Exists => value.is_some(),
            Operator::NotExists => value.is_none(),
            Operator::In(allowed) => value.is_some_and(|v| allowed.iter().any(|a| a == v)),
            Operator::NotIn(refused) => !value.is_some_and(|v| refused.iter().any(|r| r == v)),
            Operator::GreaterThan(limit) => number().is_some_and(|n| n > *limit),
            Operator::LessThan(limit) => number().is_some_and(|n| n < *limit),
        }
    }
}

/// Whether labels match a `LabelSelector` object; none (`null`) matches nothing, an empty one all.
pub(crate) fn matches_label_selector(selector: &Value, labels: &Value) -> bool {
    if !selector.is_object() {
        return false;
    }
    let wanted = selector["matchLabels"].as_object();
    let mut wanted = wanted.into_iter().flatten();
    if !wanted.all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let expressions = selector["matchExpressions"].as_array();
    expressions.into_iter().flatten().all(|expression| {
        let value = labels.get(expression["key"].as_str().unwrap_or_default());
        let values = expression["values"].as_array();
        let listed = || values.is_some_and(|values| value.is_some_and(|v| values.contains(v)));
        match expression["operator"].as_str() {
            Some("In") => listed(),
            Some("NotIn") => !listed(),
            Some("Exists") => value.is_some(),
            Some("DoesNotExist") => value.is_none(),
            _ => false,
        }
    })
}

/// A `LabelSelector` object, a plain map of labels, or text, as the text that `Scale` shows.
pub(crate) fn label_selector_text(selector: &Value) -> String {
    let Some(fields) = selector.as_object() else {
        return selector.as_str().unwrap_or_default().to_owned();
    };
    let is_selector = fields.contains_key("matchLabels") || fields.contains_key("matchExpressions");
    let labels = if is_selector {
        selector["matchLabels"].as_object()
    } else {
        Some(fields)
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut terms: Vec<(String, String)> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), format!("{key}={}", text(value))))
        .collect();
    for expression in selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let key = text(&expression["key"]);
        let values = expression["values"].as_array().into_iter().flatten();
        let mut values: Vec<String> = values.map(text).collect();
        values.sort();
        let term = match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({})", values.join(",")),
            Some("NotIn") => format!("{key} notin ({})", values.join(",")),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.clone(),
        };
        terms.push((key, term));
    }
    terms.sort();
    let terms: Vec<String> = terms.into_iter().map(|(_, term)| term).collect();
    terms.join(",")
}

/// `a=b,c!=d`; values may be empty.
fn parse_fields(text: &str) -> Result<Vec<FieldRequirement>, Status> {
    let mut requirements = Vec::new();
    for term in split_unescaped(text, ',') {
        if term.is_empty() {
            continue;
        }
        let (path, equal, value) = if let Some((path, value)) = term.split_once("!=") {
            (path, false, value)
        } else if let Some((path, value)) = term.split_once("==") {
            (path, true, value)
        } else if let Some((path, value)) = term.split_once('=') {
            (path, true, value)
        } else {
            return Err(Status::bad_request(format!(
                "invalid selector: '{text}'; can't understand '{term}'"
            )));
        };
        // An operator in a value must be escaped.
        if split_unescaped(value, '=').len() > 1 {
            return Err(Status::bad_request(
                "invalid field selector: unescaped character in value: 61",
            ));
        }
        requirements.push(FieldRequirement {
            path: path.to_owned(),
            equal,
            value: value
                .replace("\\,", ",")
                .replace("\\=", "=")
                .replace("\\\\", "\\"),
        });
    }
    Ok(requirements)
}

/// A backslash keeps the next character from separating.
fn split_unescaped(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == separator {
            parts.push(&text[start..at]);
            start = at + c.len_utf8();
        }
    }
    parts.push(&text[start..]);
    parts
}

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

fn parse_labels(text: &str) -> Result<Vec<Requirement>, Status> {
    let mut tokens = SelectorTokens::new(text);
    let mut requirements = Vec::new();
    if tokens.peek().is_empty() {
        return Ok(requirements);
    }
    if tokens.peek() != "!" && !is_word(tokens.peek()) {
        return Err(found(tokens.peek(), "!, identifier, or 'end of string'"));
    }
    loop {
        requirements.push(parse_requirement(&mut tokens)?);
        match tokens.next() {
            "" => return Ok(requirements),
            "," => {
                let next = tokens.peek();
                if next != "!" && !is_word(next) {
                    return Err(found(next, "identifier after ','"));
                }
            }
            other => return Err(found(other, "',' or 'end of string'")),
        }
    }
}

fn parse_requirement(tokens: &mut SelectorTokens<'_>) -> Result<Requirement, Status> {
    let negated = tokens.peek() == "!";
    if negated {
        tokens.next();
    }
    let key = tokens.next();
    if !is_word(key) {
        return Err(unexpected(key, "identifier"));
    }
    check_key(key)?;
    let key = key.to_owned();
    if negated {
        return Ok(Requirement {
            key,
            operator: Operator::NotExists,
        });
    }
    if matches!(tokens.peek(), "" | ",") {
        return Ok(Requirement {
            key,
            operator: Operator::Exists,
        });
    }
    let operator = match tokens.next() {
        "=" | "==" => Operator::In(vec![parse_value(tokens, &key)?]),
        "!=" => Operator::NotIn(vec![parse_value(tokens, &key)?]),
        "in" => Operator::In(parse_values(tokens, &key)?),
        "notin" => Operator::NotIn(parse_values(tokens, &key)?),
        ">" => Operator::GreaterThan(parse_number(tokens)?),
        "<" => Operator::LessThan(parse_number(tokens)?),
        other => return Err(unexpected(other, OPERATORS)),
    };
    Ok(Requirement { key, operator })
}

/// The value after `=`: nothing, when the text or the requirement ends here.
fn parse_value(tokens: &mut SelectorTokens<'_>, key: &str) -> Result<String, Status> {
    match tokens.peek() {
        "" | "," => Ok(String::new()),
        word if is_word(word) => {
            check_value(key, 0, word)?;
            Ok(tokens.next().to_owned())
        }
        other => Err(unexpected(other, "identifier")),
    }
}

fn parse_values(tokens: &mut SelectorTokens<'_>, key: &str) -> Result<Vec<String>, Status> {
    match tokens.next() {
        "(" => {}
        // The real server writes this one without a comma.
        other => {
            return Err(Status::bad_request(format!(
                "unable to parse requirement: found '{other}' expected: '('"
            )));
        }
    }
    let mut values = Vec::new();
    loop {
        match tokens.peek() {
            ")" | "," => values.push(String::new()),
            word if is_word(word) => {
                check_value(key, values.len(), word)?;
                values.push(tokens.next().to_owned());
            }
            other => return Err(unexpected(other, "',', ')' or identifier")),
        }
        match tokens.next() {
            "," => {}
            ")" => return Ok(values),
            other => return Err(unexpected(other, "',' or ')'")),
        }
    }
}

fn parse_number(tokens: &mut SelectorTokens<'_>) -> Result<i64, Status> {
    let text = tokens.next();
    text.parse().map_err(|_| {
        let why = "for 'Gt', 'Lt' operators, the value must be an integer";
        Status::bad_request(format!(
            "unable to parse requirement: values[0]: Invalid value: {text:?}: {why}"
        ))
    })
}

fn unexpected(token: &str, expected: &str) -> Status {
    let Status { message, .. } = found(token, expected);
    Status::bad_request(format!("unable to parse requirement: {message}"))
}

fn found(token: &str, expected: &str) -> Status {
    Status::bad_request(format!("found '{token}', expected: {expected}"))
}

fn check_key(key: &str) -> Result<(), Status> {
    let problems = qualified_name(key);
    if problems.is_empty() {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "unable to parse requirement: <nil>: Invalid value: {key:?}: {}",
        problems.join("; ")
    )))
}

fn check_value(key: &str, at: usize, value: &str) -> Result<(), Status> {
    let Some(problem) = label_value(value) else {
        return Ok(());
    };
    Err(Status::bad_request(format!(
        "unable to parse requirement: values[{at}][{key}]: Invalid value: {value:?}: {problem}"
    )))
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !token.starts_with(SPECIAL)
}

const SPECIAL: &[char] = &['=', '!', '(', ')', ',', '<', '>'];

/// Identifiers and symbols of a label selector; the end is an empty token.
struct SelectorTokens<'a> {
    rest: &'a str,
}

impl<'a> SelectorTokens<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    fn peek(&self) -> &'a str {
        let text = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let length = if text.starts_with("==") || text.starts_with("!=") {
            2
        } else if text.starts_with(SPECIAL) {
            1
        } else {
            let end = |c: char| SPECIAL.contains(&c) || " \t\r\n".contains(c);
            text.find(end).unwrap_or(text.len())
        };
        &text[..length]
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek();
        let text = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        self.rest = &text[token.len()..];
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::object::{Change, Draft, Index};
    use serde_json::json;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        let index = Index {
            labels: labels.collect(),
            fields: Box::default(),
        };
        let object = Draft::new(Change::Added, "", "a", &json!({"metadata": {}}), index).seal(1);
        let requirements = parse_labels(selector).unwrap();
        requirements.iter().all(|r| r.matches(&object))
    }

    #[test]
    fn label_selectors_match_as_written() {
        let labels = [("app", "web"), ("tier", "3"), ("example.com/x", "")];
        for (selector, want) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier=3", true),
            ("app!=web", false),
            ("nope!=web", true),
            ("app in (web, db)", true),
            ("app notin (db)", true),
            ("nope notin (db)", true),
            ("app", true),
            ("!app", false),
            ("!nope", true),
            ("tier>2,tier < 4", true),
            ("tier>3", false),
            ("app>2", false),
            ("example.com/x=", true),
            ("example.com/x in (,a)", true),
        ] {
            assert_eq!(matches(selector, &labels), want, "{selector}");
        }
    }

    #[test]
    fn selector_objects_match_and_read_like_their_text() {
        let selector = json!({
            "matchLabels": {"b": "1"},
            "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["y", "x"]},
                {"key": "c", "operator": "DoesNotExist"},
            ],
        });
        assert_eq!(label_selector_text(&selector), "a in (x,y),b=1,!c");
        assert_eq!(label_selector_text(&json!({"app": "web"})), "app=web");
        assert_eq!(label_selector_text(&json!("a=b")), "a=b");
        for (labels, want) in [
            (json!({"a": "x", "b": "1"}), true),
            (json!({"a": "z", "b": "1"}), false),
            (json!({"a": "x", "b": "1", "c": ""}), false),
            (Value::Null, false),
        ] {
            assert_eq!(matches_label_selector(&selector, &labels), want, "{labels}");
        }
        assert!(matches_label_selector(&json!({}), &Value::Null));
        assert!(!matches_label_selector(&Value::Null, &json!({"a": "x"})));
    }

    #[test]
    fn invalid_selectors_report_what_was_found_and_expected() {
        for (selector, want) in [
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            (
                "a in b",
                "unable to parse requirement: found 'b' expected: '('",
            ),
            (
                "a in (b",
                "unable to parse requirement: found '', expected: ',' or ')'",
            ),
            ("a,", "found '', expected: identifier after ','"),
            (
                "=a",
                "found '=', expected: !, identifier, or 'end of string'",
            ),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ] {
            let error = parse_labels(selector).unwrap_err();
            assert_eq!(error.message, want, "{selector}");
        }
        for selector in ["-a=b", "a=-b", "a/b/c", "/a", "a>x"] {
            assert_eq!(parse_labels(selector).unwrap_err().code, 400, "{selector}");
        }
    }

    #[test]
    fn field_selectors_take_three_operators_and_empty_values() {
        let parsed = parse_fields("spec.nodeName=,status.phase!=Failed,a==b\\,c").unwrap();
        let parsed: Vec<_> = parsed
            .iter()
            .map(|r| (r.path.as_str(), r.equal, r.value.as_str()))
            .collect();
        assert_eq!(
            parsed,
            [
                ("spec.nodeName", true, ""),
                ("status.phase", false, "Failed"),
                ("a", true, "b,c")
            ]
        );
        assert_eq!(
            parse_fields("foo").unwrap_err().message,
            "invalid selector: 'foo'; can't understand 'foo'"
        );
    }
}
