//! Replaces what two equal servers may choose freely by what it means.
//!
//! uids, versions, times, generated names and ages become labels that keep what matters: which ones
//! are equal, and which version came first. Only values that a server chose are replaced. One that
//! the test sent itself stays as it is, so a server that keeps what it should ignore is seen; so
//! does a time that is not about now.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::LazyLock;

use base64::Engine as _;
use jiff::{Timestamp, ToSpan as _};
use regex::{Captures, Regex};
use serde_json::{Map, Value};

use crate::transcript::{Step, Transcript};

/// The transcript with labels for free values, and without its quiet steps. `now` is when it was
/// recorded.
pub fn normalise(transcript: &Transcript, now: Timestamp) -> Transcript {
    let labels = Labels::collect(transcript);
    let window = now - 1.hour()..=now + 1.hour();
    let compared = transcript.steps.iter().filter(|step| !step.quiet);
    let steps = compared.map(|step| {
        let rewrite = Rewrite {
            labels: &labels,
            window: window.clone(),
        };
        Step {
            quiet: false,
            request: rewrite.request(&step.request),
            sent: step.sent.clone(),
            answer: rewrite.value(&step.answer, ""),
        }
    });
    Transcript {
        steps: steps.collect(),
    }
}

/// A generated suffix has five of these, after at most 58 letters of the base.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const LONGEST_BASE: usize = 58;

static UUID: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"));
static HUMAN_TIME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"));
/// Hours and days are not replaced: no test runs that long, so such an age means something.
static AGE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(\d+s|\d+m(\d+s)?)$"));
static GAP: LazyLock<Regex> = LazyLock::new(|| pattern(r" {2,}"));
/// Not `300s`, which is a toleration, and not `100m`, which is a tenth of a core.
static PRINTED_AGE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(^| )(\d{1,2}s|1\d\ds|\d+m\d+s)\b"));
static PRINTED_VERSION: LazyLock<Regex> = LazyLock::new(|| pattern(r"(Resource Version: +)\d+"));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b\d+\b"));
/// An object quoted in a sentence, with its quotes escaped.
static QUOTED_OBJECT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"(Invalid value: )"\{(?:[^"\\]|\\.)*\}""#));
static QUERY_VERSION: LazyLock<Regex> = LazyLock::new(|| pattern(r"(resourceVersion=)(\d+)"));
static QUERY_CONTINUE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(continue=)([A-Za-z0-9_-]+)"));

#[expect(clippy::unwrap_used, reason = "the patterns are above")]
fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap()
}

/// The values that the server chose.
struct Labels {
    uids: BTreeMap<String, usize>,
    /// Versions of objects, oldest first.
    versions: Vec<u64>,
    /// Versions of anything, lists included.
    all_versions: BTreeSet<u64>,
    /// Generated name to the base that it was generated from.
    names: BTreeMap<String, String>,
    /// Addresses given to services.
    addresses: BTreeSet<String>,
}

impl Labels {
    /// Reads the steps in order: what a request holds before any answer did is the test's own.
    fn collect(transcript: &Transcript) -> Self {
        let mut labels = Self {
            uids: BTreeMap::new(),
            versions: Vec::new(),
            all_versions: BTreeSet::new(),
            names: BTreeMap::new(),
            addresses: BTreeSet::new(),
        };
        let mut sent = String::new();
        for step in &transcript.steps {
            sent.push_str(&step.request);
            sent.push_str(&step.sent.to_string());
            let answer = step.answer.to_string();
            for uid in UUID.find_iter(&answer) {
                let uid = uid.as_str();
                if !labels.uids.contains_key(uid) && !sent.contains(uid) {
                    labels.uids.insert(uid.to_owned(), labels.uids.len() + 1);
                }
            }
            labels.read(&step.answer, &sent);
        }
        labels.versions.sort_unstable();
        labels.versions.dedup();
        labels
    }

    fn read(&mut self, value: &Value, sent: &str) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.read(item, sent)),
            Value::Object(map) => {
                if let Some(Value::Object(metadata)) = map.get("metadata") {
                    self.read_metadata(metadata, sent);
                }
                if let Some(address) = map.get("clusterIP").and_then(Value::as_str)
                    && address.parse::<Ipv4Addr>().is_ok()
                    && !sent.contains(address)
                {
                    self.addresses.insert(address.to_owned());
                }
                map.values().for_each(|item| self.read(item, sent));
            }
            _ => (),
        }
    }

    fn read_metadata(&mut self, metadata: &Map<String, Value>, sent: &str) {
        let text = |key: &str| metadata.get(key).and_then(Value::as_str);
        if let Some(version) = text("resourceVersion").and_then(|version| version.parse().ok()) {
            self.all_versions.insert(version);
            if metadata.contains_key("uid") {
                self.versions.push(version);
            }
        }
        if let (Some(base), Some(name)) = (text("generateName"), text("name")) {
            let kept = &base[..base.len().min(LONGEST_BASE)];
            let suffix = name.strip_prefix(kept).unwrap_or_default();
            let generated =
                suffix.len() == 5 && suffix.bytes().all(|byte| SUFFIX_LETTERS.contains(&byte));
            if generated && !sent.contains(name) {
                self.names.insert(name.to_owned(), kept.to_owned());
            }
        }
    }
}

struct Rewrite<'a> {
    labels: &'a Labels,
    window: std::ops::RangeInclusive<Timestamp>,
}

impl Rewrite<'_> {
    fn request(&self, request: &str) -> String {
        let request =
            QUERY_VERSION.replace_all(request, |found: &Captures| match found[2].parse() {
                Ok(version) if self.labels.all_versions.contains(&version) => {
                    format!("{}<version>", &found[1])
                }
                _ => found[0].to_owned(),
            });
        let request = QUERY_CONTINUE.replace_all(&request, |found: &Captures| {
            format!("{}{}", &found[1], continue_token(&found[2]))
        });
        self.text(&request)
    }

    fn value(&self, value: &Value, key: &str) -> Value {
        match value {
            Value::String(text) => Value::String(self.string(text, key)),
            Value::Array(items) if key == "managedFields" => {
                let items = items.iter().map(|item| self.value(item, "")).collect();
                Value::Array(order_managers(items, value))
            }
            Value::Array(items) => {
                let mut items: Vec<Value> =
                    items.iter().map(|item| self.value(item, key)).collect();
                // How often the real server says the same depends on how often it happens to look.
                if key == "causes" {
                    let mut seen = Vec::new();
                    items.retain(|item| {
                        let new = !seen.contains(item);
                        seen.push(item.clone());
                        new
                    });
                }
                // Managers that object come in any order.
                if key == "causes"
                    && items
                        .iter()
                        .all(|item| item["reason"] == "FieldManagerConflict")
                {
                    items.sort_by_key(Value::to_string);
                }
                Value::Array(items)
            }
            Value::Object(map) => {
                let is_object = map.contains_key("uid");
                let rewritten = map.iter().map(|(key, value)| {
                    let value = match (key.as_str(), value) {
                        ("resourceVersion", Value::String(version)) => {
                            self.version(version, is_object)
                        }
                        (key, value) => self.value(value, key),
                    };
                    (self.text(key), value)
                });
                Value::Object(rewritten.collect())
            }
            other => other.clone(),
        }
    }

    /// An object's version is known by its place in the order of writes that were seen. A list's
    /// depends on what else the server wrote meanwhile: only that there is one can be compared.
    fn version(&self, text: &str, is_object: bool) -> Value {
        let label = match text.parse::<u64>() {
            Ok(version) if is_object => self.version_label(version),
            Ok(version) if version > 0 => Some("<version>".to_owned()),
            _ => None,
        };
        Value::String(label.unwrap_or_else(|| text.to_owned()))
    }

    fn version_label(&self, version: u64) -> Option<String> {
        let place = self.labels.versions.binary_search(&version).ok()?;
        Some(format!("<version {}>", place + 1))
    }

    fn string(&self, text: &str, key: &str) -> String {
        match key {
            "storageVersionHash" if !text.is_empty() => return "<hash>".to_owned(),
            "continue" if !text.is_empty() => return continue_token(text),
            "cells" if AGE.is_match(text) => return "<age>".to_owned(),
            "message" => return self.message(&self.text(text)),
            "stdout" | "stderr" => return self.text(&printed(text)),
            _ => (),
        }
        self.text(text)
    }

    /// uids, times and generated names, anywhere in a text.
    fn text(&self, text: &str) -> String {
        let text = UUID.replace_all(text, |found: &Captures| {
            match self.labels.uids.get(&found[0]) {
                Some(place) => format!("<uid {place}>"),
                None => found[0].to_owned(),
            }
        });
        let text = TIME.replace_all(&text, |found: &Captures| {
            match found[0].parse::<Timestamp>() {
                Ok(time) if self.window.contains(&time) => {
                    match found.get(1).map(|fraction| fraction.len()) {
                        None => "<time>".to_owned(),
                        Some(length) => format!("<time with {} decimals>", length - 1),
                    }
                }
                _ => found[0].to_owned(),
            }
        });
        let text =
            HUMAN_TIME.replace_all(&text, |found: &Captures| {
                match jiff::fmt::rfc2822::parse(&found[0]) {
                    Ok(time) if self.window.contains(&time.timestamp()) => "<time>".to_owned(),
                    _ => found[0].to_owned(),
                }
            });
        let mut text = text.into_owned();
        for address in &self.labels.addresses {
            if text.contains(address.as_str()) {
                text = text.replace(address.as_str(), "<cluster address>");
            }
        }
        for (name, base) in &self.labels.names {
            if text.contains(name.as_str()) {
                text = text.replace(name.as_str(), &format!("{base}<5 letters>"));
            }
        }
        text
    }

    /// Versions inside a sentence, and what only Go can say. uids are labels already.
    fn message(&self, message: &str) -> String {
        // The order of an object's keys is free, which a quotation cannot be.
        let message = QUOTED_OBJECT.replace_all(without_go(message), "${1}<object>");
        let message = message.as_ref();
        if !message
            .to_lowercase()
            .replace(' ', "")
            .contains("resourceversion")
        {
            return message.to_owned();
        }
        // The store's own version, which no answer showed.
        for (before, after) in [
            ("too old resource version: ", ")"),
            ("Too large resource version: ", ""),
        ] {
            if let Some(rest) = message.split_once(before)
                && let Some(end) = NUMBER.find_iter(rest.1).nth(1)
                && rest.1[end.end()..].starts_with(after)
            {
                let known = &rest.1[..end.start()];
                return format!("{}{before}{known}<version>{}", rest.0, &rest.1[end.end()..]);
            }
        }
        let replaced = NUMBER.replace_all(message, |found: &Captures| {
            let label = found[0]
                .parse()
                .ok()
                .and_then(|version| self.version_label(version));
            label.unwrap_or_else(|| found[0].to_owned())
        });
        replaced.into_owned()
    }
}

/// A line that kubectl printed: columns are as wide as the widest age, and ages are free.
fn printed(line: &str) -> String {
    let line = GAP.replace_all(line.trim_end(), "  ");
    let line = PRINTED_AGE.replace_all(&line, "${1}<age>");
    PRINTED_VERSION
        .replace_all(&line, "${1}<version>")
        .into_owned()
}

/// A token says where the next page starts and at which version; the version is free.
fn continue_token(token: &str) -> String {
    let decoded = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(token)
        .ok();
    let content: Option<Value> = decoded.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    match content {
        Some(Value::Object(mut map)) if map.get("rv").is_some_and(|rv| rv.as_i64() > Some(0)) => {
            map.insert("rv".to_owned(), Value::from("<version>"));
            format!("<continue {}>", Value::Object(map))
        }
        _ => token.to_owned(),
    }
}

/// Cuts the parts of a message that quote Go's decoders, its type names or a diff of its structs.
fn without_go(message: &str) -> &str {
    for mark in [
        "json parse error:",
        "error decoding patch:",
        "yaml: ",
        " in scheme \"",
    ] {
        if let Some(at) = message.find(mark) {
            return &message[..at + mark.len()];
        }
    }
    if message.contains("pod updates may not change fields other than")
        && let Some(at) = message.find('\n')
    {
        return &message[..at];
    }
    // What a field is called is ours to say, too; why a value is no `v1.Container` is Go's.
    if let Some((before, why)) = message.split_once(" cannot be handled as a ")
        && let Some((kind, why)) = why.split_once(": ")
        && !why.starts_with("strict decoding error")
        && !why.starts_with("no kind ")
    {
        return &message[..before.len() + " cannot be handled as a ".len() + kind.len() + 1];
    }
    message
}

/// Entries of one second are ordered by name and others by time, so the order of a pair depends on
/// how fast the test ran. An order that the rule allows is replaced by one without time.
fn order_managers(rewritten: Vec<Value>, original: &Value) -> Vec<Value> {
    let rank = |item: &Value, with_time: bool| {
        let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
        let time = if with_time {
            text("time")
        } else {
            String::new()
        };
        (
            text("operation"),
            time,
            text("manager"),
            text("apiVersion"),
            text("subresource"),
        )
    };
    let legal = original
        .as_array()
        .is_some_and(|items| items.is_sorted_by(|a, b| rank(a, true) <= rank(b, true)));
    let mut rewritten = rewritten;
    if legal {
        rewritten.sort_by_key(|item| rank(item, false));
    }
    rewritten
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::transcript::differences;

    const ONE: &str = "8f9a7c53-96e2-4f7c-8f6a-000000000001";
    const TWO: &str = "8f9a7c53-96e2-4f7c-8f6a-000000000002";
    const THREE: &str = "8f9a7c53-96e2-4f7c-8f6a-000000000003";

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    fn step(sent: Value, answer: Value) -> Step {
        Step {
            request: "POST /x".to_owned(),
            sent,
            answer,
            quiet: false,
        }
    }

    fn normal(steps: Vec<Step>) -> Transcript {
        normalise(&Transcript { steps }, now())
    }

    /// Whether two servers with these answers count as equal.
    fn equal(left: &[Value], right: &[Value]) -> bool {
        let steps = |answers: &[Value]| {
            answers
                .iter()
                .map(|answer| step(Value::Null, answer.clone()))
                .collect()
        };
        differences(&normal(steps(left)), &normal(steps(right))).is_empty()
    }

    fn object(uid: &str, version: &str) -> Value {
        json!({"metadata": {"name": "a", "uid": uid, "resourceVersion": version}})
    }

    #[test]
    fn values_that_a_server_chooses_are_free() {
        // (case, one server's answers, the other's)
        for (case, left, right) in [
            ("uid", vec![object(ONE, "5")], vec![object(TWO, "5")]),
            ("version", vec![object(ONE, "5")], vec![object(ONE, "7001")]),
            (
                "versions in the same order",
                vec![object(ONE, "5"), object(ONE, "6"), object(ONE, "5")],
                vec![object(ONE, "80"), object(ONE, "99"), object(ONE, "80")],
            ),
            (
                "a list's version",
                vec![
                    json!({"kind": "PodList", "metadata": {"resourceVersion": "5"}}),
                    object(ONE, "5"),
                ],
                vec![
                    json!({"kind": "PodList", "metadata": {"resourceVersion": "8"}}),
                    object(ONE, "7"),
                ],
            ),
            (
                "time",
                vec![json!({"at": "2026-01-02T03:04:05Z", "and": "2026-01-02T03:00:00.123456Z"})],
                vec![json!({"at": "2026-01-02T03:05:06Z", "and": "2026-01-02T03:04:00.654321Z"})],
            ),
            (
                "generated name",
                vec![
                    json!({"metadata": {"generateName": "a-", "name": "a-bcdfg"}, "message": "pods a-bcdfg"}),
                ],
                vec![
                    json!({"metadata": {"generateName": "a-", "name": "a-x2456"}, "message": "pods a-x2456"}),
                ],
            ),
            (
                "versions in a message",
                vec![
                    object(ONE, "5"),
                    json!({"message": "the ResourceVersion in the precondition (1) is not 5"}),
                ],
                vec![
                    object(ONE, "9"),
                    json!({"message": "the ResourceVersion in the precondition (1) is not 9"}),
                ],
            ),
            (
                "the oldest version",
                vec![json!({"message": "too old resource version: 1 (764)"})],
                vec![json!({"message": "too old resource version: 1 (2)"})],
            ),
            (
                "the newest version",
                vec![json!({"message": "Timeout: Too large resource version: 999, current: 12"})],
                vec![json!({"message": "Timeout: Too large resource version: 999, current: 7"})],
            ),
            (
                "young ages",
                vec![json!({"cells": ["p", "5s"]})],
                vec![json!({"cells": ["p", "2m3s"]})],
            ),
            (
                "an allocated address",
                vec![json!({"spec": {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"]}})],
                vec![json!({"spec": {"clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"]}})],
            ),
            (
                "managers of one second or of two",
                vec![json!({"managedFields": [
                    {"manager": "a", "operation": "Update", "time": "2026-01-02T03:04:05Z"},
                    {"manager": "b", "operation": "Update", "time": "2026-01-02T03:04:05Z"}]})],
                vec![json!({"managedFields": [
                    {"manager": "b", "operation": "Update", "time": "2026-01-02T03:04:05Z"},
                    {"manager": "a", "operation": "Update", "time": "2026-01-02T03:04:06Z"}]})],
            ),
            (
                "a quoted object",
                vec![
                    json!({"message": "patch: Invalid value: \"{\\\"a\\\":1,\\\"b\\\":2}\": unknown"}),
                ],
                vec![
                    json!({"message": "patch: Invalid value: \"{\\\"b\\\":2,\\\"a\\\":1}\": unknown"}),
                ],
            ),
            (
                "conflicting managers",
                vec![
                    json!({"causes": [{"reason": "FieldManagerConflict", "field": "a"}, {"reason": "FieldManagerConflict", "field": "b"}]}),
                ],
                vec![
                    json!({"causes": [{"reason": "FieldManagerConflict", "field": "b"}, {"reason": "FieldManagerConflict", "field": "a"}]}),
                ],
            ),
            (
                "a cause that is repeated",
                vec![json!({"causes": [{"field": "a"}, {"field": "b"}, {"field": "a"}]})],
                vec![json!({"causes": [{"field": "a"}, {"field": "b"}]})],
            ),
            (
                "what Go's decoder says",
                vec![
                    json!({"message": "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal x"}),
                ],
                vec![
                    json!({"message": "Pod in version \"v1\" cannot be handled as a Pod: json: invalid type"}),
                ],
            ),
            (
                "columns as wide as their ages",
                vec![json!({"stdout": ["p    5s    x"]})],
                vec![json!({"stdout": ["p    15s   x"]})],
            ),
        ] {
            assert!(equal(&left, &right), "{case}");
        }
    }

    #[test]
    fn everything_else_still_differs() {
        for (case, left, right) in [
            (
                "one uid, two uids",
                vec![object(ONE, "5"), object(ONE, "6")],
                vec![object(ONE, "5"), object(TWO, "6")],
            ),
            (
                "uids that change places",
                vec![json!([ONE, TWO, ONE])],
                vec![json!([ONE, TWO, TWO])],
            ),
            (
                "a write or none",
                vec![object(ONE, "5"), object(ONE, "5")],
                vec![object(ONE, "5"), object(ONE, "6")],
            ),
            (
                "versions that fall",
                vec![object(ONE, "5"), object(ONE, "6")],
                vec![object(ONE, "6"), object(ONE, "5")],
            ),
            ("no version", vec![object(ONE, "5")], vec![object(ONE, "")]),
            (
                "a list without a version",
                vec![json!({"metadata": {"resourceVersion": "5"}})],
                vec![json!({"metadata": {"resourceVersion": ""}})],
            ),
            (
                "a time long ago",
                vec![json!("2026-01-02T03:04:05Z")],
                vec![json!("2001-01-02T03:04:05Z")],
            ),
            (
                "decimals",
                vec![json!("2026-01-02T03:04:05Z")],
                vec![json!("2026-01-02T03:04:05.000001Z")],
            ),
            (
                "no time",
                vec![json!("2026-01-02T03:04:05Z")],
                vec![Value::Null],
            ),
            (
                "a suffix of other letters",
                vec![json!({"metadata": {"generateName": "a-", "name": "a-bcdfg"}})],
                vec![json!({"metadata": {"generateName": "a-", "name": "a-aaaaa"}})],
            ),
            (
                "a longer suffix",
                vec![json!({"metadata": {"generateName": "a-", "name": "a-bcdfg"}})],
                vec![json!({"metadata": {"generateName": "a-", "name": "a-bcdfgh"}})],
            ),
            (
                "numbers that are no versions",
                vec![object(ONE, "10"), json!({"message": "must be at most 10"})],
                vec![object(ONE, "11"), json!({"message": "must be at most 11"})],
            ),
            (
                "old ages",
                vec![json!({"cells": ["5d"]})],
                vec![json!({"cells": ["6d"]})],
            ),
            (
                "an age or none",
                vec![json!({"cells": ["5s"]})],
                vec![json!({"cells": ["<unknown>"]})],
            ),
            (
                "an address that was asked for",
                vec![json!({"clusterIP": "None"})],
                vec![json!({"clusterIP": "10.0.0.1"})],
            ),
            (
                "managers in a forbidden order",
                vec![
                    json!({"managedFields": [{"manager": "a", "operation": "Apply"}, {"manager": "b", "operation": "Update"}]}),
                ],
                vec![
                    json!({"managedFields": [{"manager": "b", "operation": "Update"}, {"manager": "a", "operation": "Apply"}]}),
                ],
            ),
            (
                "strict decoding",
                vec![
                    json!({"message": "Pod cannot be handled as a Pod: strict decoding error: unknown field \"a\""}),
                ],
                vec![
                    json!({"message": "Pod cannot be handled as a Pod: strict decoding error: unknown field \"b\""}),
                ],
            ),
            (
                "what follows a quoted object",
                vec![json!({"message": "patch: Invalid value: \"{}\": unknown field \"a\""})],
                vec![json!({"message": "patch: Invalid value: \"{}\": unknown field \"b\""})],
            ),
            (
                "the order of other causes",
                vec![json!({"causes": [{"field": "a"}, {"field": "b"}]})],
                vec![json!({"causes": [{"field": "b"}, {"field": "a"}]})],
            ),
            (
                "printed quantities",
                vec![json!({"stdout": ["cpu  100m"]})],
                vec![json!({"stdout": ["cpu  200m"]})],
            ),
            (
                "printed seconds",
                vec![json!({"stdout": ["for 300s"]})],
                vec![json!({"stdout": ["for 200s"]})],
            ),
        ] {
            assert!(!equal(&left, &right), "{case}");
        }
    }

    #[test]
    fn a_value_that_the_test_sent_stays() {
        let kept = normal(vec![step(
            json!({"metadata": {"uid": ONE}}),
            object(ONE, "5"),
        )]);
        assert_eq!(kept.steps[0].answer["metadata"]["uid"], json!(ONE));
        // One that an answer showed before is the server's.
        let known = normal(vec![
            step(Value::Null, object(TWO, "5")),
            step(json!({"uid": TWO}), object(TWO, "5")),
        ]);
        assert_eq!(known.steps[1].answer["metadata"]["uid"], json!("<uid 1>"));
    }

    #[test]
    fn quiet_steps_teach_labels_and_are_left_out() {
        let mut quiet = step(Value::Null, object(THREE, "5"));
        quiet.quiet = true;
        let normal = normal(vec![quiet, step(json!({"uid": THREE}), object(THREE, "5"))]);
        assert_eq!(normal.steps.len(), 1);
        assert_eq!(normal.steps[0].answer["metadata"]["uid"], json!("<uid 1>"));
    }

    #[test]
    fn requests_name_versions_and_tokens_by_what_they_mean() {
        let mut listed = step(Value::Null, json!({"metadata": {"resourceVersion": "42"}}));
        listed.request = "GET /x?resourceVersion=42".to_owned();
        let mut own = step(Value::Null, Value::Null);
        own.request = "GET /x?resourceVersion=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJhIn0".to_owned();
        let normal = normal(vec![listed, own]);
        assert_eq!(normal.steps[0].request, "GET /x?resourceVersion=<version>");
        assert_eq!(
            normal.steps[1].request,
            r#"GET /x?resourceVersion=1&continue=<continue {"v":"meta.k8s.io/v1","rv":"<version>","start":"a"}>"#
        );
    }
}
