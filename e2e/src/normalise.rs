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
/// The volume of a pod with the token of its service account.
static TOKEN_VOLUME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"kube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}\b"));
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
                let items = items.iter().map(|item| self.value(item, key));
                Value::Array(match key {
                    "causes" => causes(items),
                    _ => items.collect(),
                })
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
        let text = TOKEN_VOLUME.replace_all(&text, "kube-api-access-<5 letters>");
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

/// How often the real server repeats a cause depends on how often it happens to look, and managers
/// that object come in any order.
fn causes(repeated: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut causes: Vec<Value> = Vec::new();
    for cause in repeated {
        if !causes.contains(&cause) {
            causes.push(cause);
        }
    }
    let conflict = |cause: &Value| cause["reason"] == "FieldManagerConflict";
    if causes.iter().all(conflict) {
        causes.sort_by_key(Value::to_string);
    }
    causes
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
mod tests;
