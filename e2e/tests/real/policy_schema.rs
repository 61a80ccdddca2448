//! The schema of ResourcePolicies on the real API server: every bound and every rule refuses once, in its words.

use e2e::{Api, ControlPlane};
use serde_json::{Value, json};

use crate::deployed;
use crate::policies::{POLICIES, policy, with_policies};
use crate::policy_costs::{control, manifests, policy_condition};

/// A value that the schema refuses, at this JSON pointer, with these words.
struct Violation {
    at: String,
    value: Value,
    words: String,
}

/// One violation of every bound of the schema, and of all that it contains. `good` is a valid value.
fn violations(schema: &Value, at: &str, field: &str, good: &Value, found: &mut Vec<Violation>) {
    let mut refuse = |value: Value, words: String| {
        let at = at.to_owned();
        found.push(Violation { at, value, words });
    };
    let count = |bound: &Value| bound.as_u64().unwrap() as usize;
    for (keyword, bound) in schema.as_object().unwrap() {
        match &keyword[..] {
            "type" => {
                let (value, other) = match bound == "string" {
                    true => (json!(7), "integer"),
                    false => (json!("text"), "string"),
                };
                let (name, other) = match schema["format"] == "date-time" {
                    true => ("date-time", "int64"),
                    false => (bound.as_str().unwrap(), other),
                };
                refuse(
                    value,
                    format!("{field} in body must be of type {name}: \"{other}\""),
                );
            }
            "minimum" => refuse(
                json!(bound.as_i64().unwrap() - 1),
                format!("{field} in body should be greater than or equal to {bound}"),
            ),
            "maximum" => refuse(
                json!(bound.as_i64().unwrap() + 1),
                format!("{field} in body should be less than or equal to {bound}"),
            ),
            "minLength" => refuse(
                json!(""),
                format!("{field} in body should be at least {bound} chars long"),
            ),
            "maxLength" => refuse(
                json!("a".repeat(count(bound) + 1)),
                format!("{field}: Too long: may not be more than {bound} bytes"),
            ),
            "pattern" => refuse(
                json!("not valid"),
                format!("{field} in body should match '{}'", bound.as_str().unwrap()),
            ),
            "enum" => refuse(json!("other"), {
                let names: Vec<String> = bound
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(Value::to_string)
                    .collect();
                let names = names.join(", ");
                format!("{field}: Unsupported value: \"other\": supported values: {names}")
            }),
            "format" if bound == "date-time" => refuse(
                json!("yesterday"),
                format!("{field} in body must be of type date-time: \"yesterday\""),
            ),
            "minItems" => refuse(
                json!([]),
                format!("{field} in body should have at least {bound} items"),
            ),
            "maxItems" => refuse(
                json!(vec![&good[0]; count(bound) + 1]),
                format!(
                    "{field}: Too many: {}: must have at most {bound} items",
                    count(bound) + 1
                ),
            ),
            "maxProperties" => {
                let pairs = (0..=count(bound)).map(|index| (format!("k{index}"), json!("v")));
                refuse(
                    pairs.collect::<serde_json::Map<_, _>>().into(),
                    format!(
                        "{field}: Too many: {}: must have at most {bound} items",
                        count(bound) + 1
                    ),
                );
            }
            "x-kubernetes-list-type" if bound == "atomic" => {}
            "x-kubernetes-list-type" => refuse(
                json!([good[0], good[0]]),
                format!("{field}[1]: Duplicate value"),
            ),
            "required" => {
                for name in bound.as_array().unwrap() {
                    let name = name.as_str().unwrap();
                    let mut without = good.clone();
                    without.as_object_mut().unwrap().remove(name);
                    refuse(without, format!("{field}.{name}: Required value"));
                }
            }
            // They say nothing about what is valid, or they have rows of their own.
            "description"
            | "default"
            | "format"
            | "x-kubernetes-list-map-keys"
            | "x-kubernetes-validations"
            | "properties"
            | "additionalProperties"
            | "items" => {}
            other => panic!("{field}: no case for {other}"),
        }
    }
    let mut inside = |schema: &Value, name: &str, index: &str| {
        let field = match name.is_empty() {
            true => format!("{field}[{index}]"),
            false => format!("{field}.{name}"),
        };
        let at = format!("{at}/{name}{index}");
        let good = match name.is_empty() {
            true => &good[0],
            false => &good[name],
        };
        assert!(!good.is_null(), "{field}: no valid value");
        violations(schema, &at, &field, good, found);
    };
    if let Some(properties) = schema["properties"].as_object() {
        for (name, schema) in properties {
            inside(schema, name, "");
        }
    }
    if schema["additionalProperties"].is_object() {
        inside(&schema["additionalProperties"], "app", "");
    }
    if schema["items"].is_object() {
        inside(&schema["items"], "", "0");
    }
}

/// A policy with every field.
fn full() -> Value {
    let selector = json!({
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "track", "operator": "In", "values": ["stable"]}],
    });
    let mut policy = policy(
        "full",
        json!({
            "podSelector": selector,
            "matchLabelKeys": ["pod-template-hash"],
            "matchPolicy": {"ignoreTerminatingPod": true},
            "strategy": "prefer",
            "units": [{"name": "u", "priority": 1, "maxCount": 1, "nodeSelector": selector}],
        }),
    );
    policy["status"] = json!({
        "observedGeneration": 1,
        "conditions": [{"type": "Accepted", "status": "True", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Valid", "message": "m"}],
        "matchedPods": 1,
        "outsidePods": 0,
        "units": [{"name": "u", "nodes": 1, "pods": 1, "overLimit": 0}],
        "summary": "u 1/1, outside 0",
    });
    policy
}

/// The rules in CEL, and what no single bound says.
fn rules() -> Vec<(&'static str, Value, &'static str)> {
    let with = |field: &str, value: Value| json!({"units": [{"nodeSelector": {}}], field: value});
    let nodes = |value: Value| json!({"units": [{"nodeSelector": value}]});
    let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "k", "operator": operator, "values": values}]});
    let values = "In and NotIn need values, Exists and DoesNotExist must have none";
    let unique = "unit names must be unique";
    let selected = "a key of matchLabelKeys must not be in podSelector";
    let keyed = |selector: Value| json!({"units": [{"nodeSelector": {}}], "matchLabelKeys": ["k"], "podSelector": selector});
    vec![
        ("no spec", Value::Null, "spec: Required value"),
        (
            "33 units",
            json!({"units": vec![json!({"nodeSelector": {}}); 33]}),
            "spec.units: Too many: 33: must have at most 32 items",
        ),
        (
            "an empty name",
            json!({"units": [{"name": "", "nodeSelector": {}}]}),
            "spec.units[0].name in body should match '^[a-z0-9]",
        ),
        (
            "two units of a name",
            json!({"units": [{"name": "a", "nodeSelector": {}}, {"name": "a", "nodeSelector": {}}]}),
            unique,
        ),
        (
            "In without values",
            with("podSelector", expression("In", json!([]))),
            values,
        ),
        (
            "NotIn without values",
            nodes(expression("NotIn", json!([]))),
            values,
        ),
        (
            "Exists with values",
            nodes(expression("Exists", json!(["v"]))),
            values,
        ),
        (
            "DoesNotExist with values",
            with("podSelector", expression("DoesNotExist", json!(["v"]))),
            values,
        ),
        (
            "a key that selects by label",
            keyed(json!({"matchLabels": {"k": "v"}})),
            selected,
        ),
        (
            "a key that selects by expression",
            keyed(expression("In", json!(["v"]))),
            selected,
        ),
    ]
}

/// The messages of all rules in CEL.
fn messages(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            for rule in fields
                .get("x-kubernetes-validations")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                found.push(rule["message"].as_str().unwrap().to_owned());
            }
            fields.values().for_each(|value| messages(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| messages(value, found)),
        _ => {}
    }
}

fn is_refused(case: &str, words: &str, answer: anyhow::Result<Value>) {
    let Err(refused) = answer else {
        panic!("{case}: accepted");
    };
    let refused = format!("{refused:#}");
    // The answer to an update names the field at another place.
    let is_said = words.split(" in body ").all(|part| refused.contains(part));
    assert!(is_said, "{case}: no `{words}` in {refused}");
}

/// The reader refuses it, too, for servers that evaluate less.
fn reader_refuses(case: &str, policy: &Value) {
    let read = serde_json::from_value(policy.clone());
    let read = read.map(|wire| api::parse::resource_policy(&wire).spec);
    assert!(
        !matches!(read, Ok(Ok(_))),
        "{case}: the reader accepts {policy}"
    );
}

#[test]
fn every_bound_and_rule_of_the_schema_refuses_once() {
    with_policies(refuses_once);
}

fn refuses_once(api: &Api, control_plane: &ControlPlane) {
    let definition = api::crds::all()
        .into_iter()
        .map(|(_, definition)| definition);
    let mut definition = definition.filter(|it| it["spec"]["names"]["kind"] == "ResourcePolicy");
    let definition = definition.next().unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];

    let (mut spec, full) = (Vec::new(), full());
    violations(&schema["spec"], "/spec", "spec", &full["spec"], &mut spec);
    for Violation { at, value, words } in &spec {
        let (case, mut bad) = (format!("{at} is {value}"), full.clone());
        *bad.pointer_mut(at).unwrap() = value.clone();
        is_refused(&case, words, api.post(POLICIES, &bad));
        reader_refuses(&case, &bad);
    }
    let rules = rules();
    for (case, spec, words) in &rules {
        let mut bad = policy("bad", spec.clone());
        if spec.is_null() {
            bad.as_object_mut().unwrap().remove("spec");
        }
        is_refused(case, words, api.post(POLICIES, &bad));
        reader_refuses(case, &bad);
    }
    let mut said = Vec::new();
    messages(&definition, &mut said);
    for message in &said {
        let is_tried = rules.iter().any(|(.., words)| words == message);
        assert!(is_tried, "no policy breaks the rule `{message}`");
    }

    api.post(POLICIES, &full).unwrap();
    let (path, mut status) = (format!("{POLICIES}/full/status"), Vec::new());
    violations(
        &schema["status"],
        "/status",
        "status",
        &full["status"],
        &mut status,
    );
    for Violation { at, value, words } in &status {
        let (case, mut bad) = (
            format!("{at} is {value}"),
            json!({"status": full["status"]}),
        );
        *bad.pointer_mut(at).unwrap() = value.clone();
        is_refused(&case, words, api.patch(&path, &bad));
    }
    api.patch(&path, &json!({"status": full["status"]}))
        .unwrap();
    let (spec, status) = (spec.len(), status.len());
    assert!(
        spec > 60 && status > 20 && said.len() == 4,
        "{spec} bounds of the spec, {status} of the status, {said:?}"
    );

    defaults(api);
    deployed::apply(control_plane, manifests());
    let _controllers = control(control_plane, &[]);
    what_no_schema_can_refuse(api);
}

fn defaults(api: &Api) {
    let made = policy(
        "good",
        json!({"matchPolicy": {}, "units": [{"nodeSelector": {}}]}),
    );
    let spec = api.post(POLICIES, &made).unwrap()["spec"].take();
    assert_eq!(spec["strategy"], "required");
    assert_eq!(spec["units"][0]["priority"], 0);
    assert_eq!(spec["matchPolicy"]["ignoreTerminatingPod"], false);
}

/// A structural schema has no bounds for the names of properties, and a rule for indices would cost too much.
fn what_no_schema_can_refuse(api: &Api) {
    for (name, spec, words) in [
        (
            "key",
            json!({"podSelector": {"matchLabels": {"not a key": "v"}}, "units": [{"nodeSelector": {}}]}),
            "spec.podSelector: key: Invalid value: \"not a key\"",
        ),
        (
            "index",
            json!({"units": [{"nodeSelector": {}}, {"name": "0", "nodeSelector": {}}]}),
            "spec.units[1].name is `0`: use a name that no other unit has; a unit without a name has its index as name",
        ),
    ] {
        api.post(POLICIES, &policy(name, spec)).unwrap();
        let message = policy_condition(api, name, "Accepted", "False");
        assert!(message.starts_with(words), "{name}: {message}");
        assert!(message.ends_with("; the policy has no effect"), "{message}");
    }
}
