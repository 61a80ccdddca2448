//! Events. Two API groups show the same stored events with different fields.
//!
//! The store keeps the form of the core group; the other one is converted on each request.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::kinds::kind::{Alias, Column, Name, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{JsonObject, at, fill, is_empty, number, text};
use crate::objects::status::FieldError;

/// kube-apiserver's default for `--event-ttl`.
const TIME_TO_LIVE: Duration = Duration::from_secs(60 * 60);

/// Objects of `events.k8s.io` are stored in the form of the core group.
pub(super) const ALIAS: Alias = Alias {
    group: "",
    plural: "events",
    to_stored: event_to_v1,
    from_stored: event_from_v1,
};

/// The names of a field in the core group and in `events.k8s.io`.
const WORDS: [(&str, &str); 8] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
    ("apiVersion", "apiVersion"),
];

/// The core form of an `events.k8s.io` event.
pub(crate) fn event_to_v1(event: Value) -> Value {
    let mut out = renamed(event, "v1", |key| {
        WORDS
            .iter()
            .find(|(_, new)| *new == key)
            .map(|(core, _)| *core)
    });
    default_core(&mut out);
    Value::Object(out)
}

/// The `events.k8s.io` form of a core event.
pub(crate) fn event_from_v1(event: &Value) -> Value {
    let mut out = renamed(event.clone(), "events.k8s.io/v1", |key| {
        WORDS
            .iter()
            .find(|(core, _)| *core == key)
            .map(|(_, new)| *new)
    });
    for optional in ["reportingController", "reportingInstance"] {
        if out.get(optional).is_some_and(is_empty) {
            out.shift_remove(optional);
        }
    }
    default_new(&mut out);
    Value::Object(out)
}

fn renamed(
    event: Value,
    api_version: &str,
    word: impl Fn(&str) -> Option<&'static str>,
) -> JsonObject {
    let Value::Object(fields) = event else {
        return Map::new();
    };
    fields
        .into_iter()
        .map(|(key, value)| match key.as_str() {
            "apiVersion" => (key, api_version.into()),
            other => (word(other).unwrap_or(other).to_owned(), value),
        })
        .collect()
}

/// Parts that are always written, though they may be empty.
fn default_core(event: &mut JsonObject) {
    fill(event, "involvedObject", json!({}));
    fill(event, "source", json!({}));
    for time in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        fill(event, time, Value::Null);
    }
    fill(event, "reportingComponent", "");
    fill(event, "reportingInstance", "");
}

fn default_new(event: &mut JsonObject) {
    fill(event, "regarding", json!({}));
    fill(event, "deprecatedSource", json!({}));
    for time in [
        "eventTime",
        "deprecatedFirstTimestamp",
        "deprecatedLastTimestamp",
    ] {
        fill(event, time, Value::Null);
    }
}

const COLUMNS: &str =
    "Last Seen, Type, Reason, Object, Subobject*, Source*, Message, First Seen*, Count*, Name*";

/// An event of the core group.
pub(super) struct CoreEvent;

const CORE_SELECTORS: [&str; 11] = [
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

impl Rules for CoreEvent {
    fn default(&self, object: &mut Value) {
        if let Some(fields) = object.as_object_mut() {
            default_core(fields);
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>, _write: Write<'_>) -> Vec<FieldError> {
        let mut errors: Vec<FieldError> = check_namespace(object, "involvedObject")
            .into_iter()
            .collect();
        if old.is_none() && !is_empty(at(object, "eventTime")) {
            check_report(object, "reportingComponent", &mut errors);
        }
        errors
    }

    fn selectable_fields(&self) -> Vec<Name> {
        super::names(&CORE_SELECTORS)
    }

    fn check_name(&self, name: &str) -> Option<String> {
        crate::objects::names::path_segment(name)
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        match path {
            "source" => Some(component(object).to_owned()),
            _ => super::select(object, &CORE_SELECTORS, path),
        }
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("involvedObject", json!({})),
            ("source", json!({})),
            ("firstTimestamp", Value::Null),
            ("lastTimestamp", Value::Null),
            ("eventTime", Value::Null),
            ("reportingComponent", json!("")),
            ("reportingInstance", json!("")),
        ]
    }

    fn time_to_live(&self) -> Option<Duration> {
        Some(TIME_TO_LIVE)
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns(COLUMNS)
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        core_cells(object, now)
    }
}

/// An event of `events.k8s.io`.
pub(super) struct EventV1;

const SELECTORS: [&str; 10] = [
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

impl Rules for EventV1 {
    fn default(&self, object: &mut Value) {
        if let Some(fields) = object.as_object_mut() {
            default_new(fields);
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>, _write: Write<'_>) -> Vec<FieldError> {
        let mut errors: Vec<FieldError> =
            check_namespace(object, "regarding").into_iter().collect();
        // Events written through the core group need not have what this group asks for.
        if old.is_some_and(|old| is_empty(at(old, "eventTime"))) {
            return errors;
        }
        if is_empty(at(object, "eventTime")) {
            errors.push(FieldError::required("eventTime", ""));
        }
        let kind = text(object, "type");
        if !["Normal", "Warning"].contains(&kind) {
            let detail = format!("has invalid value: {kind}");
            errors.push(FieldError::invalid("type", &json!(""), &detail));
        }
        if !is_empty(at(object, "eventTime")) {
            check_report(object, "reportingController", &mut errors);
        }
        errors
    }

    fn selectable_fields(&self) -> Vec<Name> {
        super::names(&SELECTORS)
    }

    fn check_name(&self, name: &str) -> Option<String> {
        crate::objects::names::path_segment(name)
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        super::select(object, &SELECTORS, path)
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("eventTime", Value::Null),
            ("regarding", json!({})),
            ("deprecatedSource", json!({})),
            ("deprecatedFirstTimestamp", Value::Null),
            ("deprecatedLastTimestamp", Value::Null),
        ]
    }

    fn time_to_live(&self) -> Option<Duration> {
        Some(TIME_TO_LIVE)
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns(COLUMNS)
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        core_cells(&event_to_v1(object.clone()), now)
    }
}

/// An event with `eventTime` names its reporting controller, action and reason; `controller` is the field for the first.
fn check_report(event: &Value, controller: &str, errors: &mut Vec<FieldError>) {
    let reporter = at(event, controller);
    if is_empty(reporter) {
        errors.push(FieldError::required(controller, ""));
    }
    let name = reporter.as_str().unwrap_or_default();
    for problem in crate::objects::names::qualified_name(name) {
        errors.push(FieldError::invalid(controller, &json!(name), &problem));
    }
    for field in ["reportingInstance", "action", "reason"] {
        if text(event, field).is_empty() {
            errors.push(FieldError::required(field, ""));
        }
    }
}

/// An event is in the namespace of its object; events about cluster-scoped objects are in `default`.
fn check_namespace(event: &Value, about: &str) -> Option<FieldError> {
    let namespace = text(event, &format!("{about}.namespace"));
    let expected = if namespace.is_empty() {
        "default"
    } else {
        namespace
    };
    let here = text(event, "metadata.namespace");
    let system = namespace.is_empty() && here == "kube-system";
    (expected != here && !system).then(|| {
        let field = "involvedObject.namespace";
        FieldError::invalid(field, &json!(namespace), "does not match event.namespace")
    })
}

fn component(event: &Value) -> &str {
    match text(event, "source.component") {
        "" => text(event, "reportingComponent"),
        component => component,
    }
}

fn core_cells(event: &Value, now: Timestamp) -> Vec<Value> {
    let first = match at(event, "firstTimestamp") {
        Value::Null => at(event, "eventTime"),
        first => first,
    };
    let mut last = match at(event, "lastTimestamp") {
        Value::Null => first,
        last => last,
    };
    let mut count = number(event, "count");
    if at(event, "series").is_object() {
        last = at(event, "series.lastObservedTime");
        count = number(event, "series.count");
    } else if count == 0 {
        count = 1;
    }
    let kind = text(event, "involvedObject.kind").to_lowercase();
    let name = text(event, "involvedObject.name");
    let object = if kind.is_empty() {
        name.to_owned()
    } else {
        format!("{kind}/{name}")
    };
    let (component, place) = match text(event, "source.component") {
        "" => (
            text(event, "reportingComponent"),
            text(event, "reportingInstance"),
        ),
        component => (component, text(event, "source.host")),
    };
    let source = match place {
        "" => component.to_owned(),
        place => format!("{component}, {place}"),
    };
    vec![
        printer::age(last, now).into(),
        text(event, "type").into(),
        text(event, "reason").into(),
        object.into(),
        text(event, "involvedObject.fieldPath").into(),
        source.into(),
        text(event, "message").trim().into(),
        printer::age(first, now).into(),
        json!(count),
        printer::name(event),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_convert_into_each_other() {
        let core = json!({
            "kind": "Event", "apiVersion": "v1", "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "name": "p"}, "reason": "Started", "message": "hello",
            "source": {"component": "kubelet"}, "firstTimestamp": "2030-01-01T00:00:00Z",
            "lastTimestamp": "2030-01-01T00:00:00Z", "count": 2, "type": "Normal", "eventTime": null,
            "reportingComponent": "", "reportingInstance": "",
        });
        let new = event_from_v1(&core);
        assert_eq!(
            new,
            json!({
                "kind": "Event", "apiVersion": "events.k8s.io/v1", "metadata": {"name": "e"},
                "regarding": {"kind": "Pod", "name": "p"}, "reason": "Started", "note": "hello",
                "deprecatedSource": {"component": "kubelet"},
                "deprecatedFirstTimestamp": "2030-01-01T00:00:00Z",
                "deprecatedLastTimestamp": "2030-01-01T00:00:00Z", "deprecatedCount": 2,
                "type": "Normal", "eventTime": null,
            })
        );
        assert_eq!(event_to_v1(new), core);
    }

    #[test]
    fn the_new_group_requires_more_fields() {
        let full = json!({
            "metadata": {"namespace": "default"}, "regarding": {"namespace": "default"},
            "eventTime": "2030-01-01T00:00:00.000000Z", "type": "Normal", "reason": "R", "action": "A",
            "reportingController": "x.io/c", "reportingInstance": "i",
        });
        assert_eq!(EventV1.validate(&full, None, Write::Create), []);
        for (missing, want) in [
            ("eventTime", "eventTime"),
            ("type", "type"),
            ("action", "action"),
            ("reportingController", "reportingController"),
            ("metadata", "involvedObject.namespace"),
        ] {
            let mut event = full.clone();
            event.as_object_mut().unwrap().remove(missing);
            let errors = EventV1.validate(&event, None, Write::Create);
            assert_eq!(
                errors.first().map(|e| e.field.as_str()),
                Some(want),
                "without {missing}"
            );
        }
    }

    #[test]
    fn a_row_shows_times_and_count() {
        let now: Timestamp = "2030-01-01T00:10:00Z".parse().unwrap();
        let single = json!({"metadata": {"name": "e"}, "eventTime": "2030-01-01T00:09:30.000000Z", "involvedObject": {"kind": "Pod", "name": "p"}, "message": "hello\n"});
        let series = json!({"series": {"count": 7, "lastObservedTime": "2030-01-01T00:09:59Z"}, "firstTimestamp": "2030-01-01T00:00:00Z", "source": {"component": "k", "host": "n"}});
        for (case, event, last, source, first, count) in [
            ("one event", single, "30s", "", "30s", 1),
            ("a series", series, "1s", "k, n", "10m", 7),
        ] {
            let cells = core_cells(&event, now);
            assert_eq!(
                (&cells[0], &cells[5], &cells[7], &cells[8]),
                (&json!(last), &json!(source), &json!(first), &json!(count)),
                "{case}"
            );
        }
    }
}
