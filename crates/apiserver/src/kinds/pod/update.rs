//! Which fields of an existing pod may change.

use serde_json::{Value, json};

use crate::objects::fields::{JsonObject, at, inside, items, put, text};
use crate::objects::status::FieldError;

use super::spec::containers;
use super::validate;

const FORBIDDEN: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn check(pod: &Value, old: &Value) -> Vec<FieldError> {
    let (spec, old_spec) = (at(pod, "spec"), at(old, "spec"));
    if spec == old_spec {
        return Vec::new();
    }
    let mut errors = validate::validate_pod(pod);
    // Reported twice: the real server checks changed images once more.
    for (list, i, container) in containers(spec) {
        if list != "ephemeralContainers" && text(container, "image").is_empty() {
            errors.push(FieldError::required(format!("spec.{list}[{i}].image"), ""));
        }
    }
    check_gates(spec, old_spec, &mut errors);
    check_deadline(spec, old_spec, &mut errors);
    check_tolerations(spec, old_spec, &mut errors);
    let gated = !items(old_spec, "schedulingGates").is_empty();
    if gated {
        check_narrowing(spec, old_spec, &mut errors);
    }
    if without_allowed_changes(spec, old_spec, gated) != *old_spec {
        errors.push(FieldError::forbidden("spec", FORBIDDEN));
    }
    errors
}

pub(super) fn check_status(pod: &Value, old: &Value) -> Vec<FieldError> {
    let (class, before) = (at(pod, "status.qosClass"), at(old, "status.qosClass"));
    if class == before {
        return Vec::new();
    }
    vec![FieldError::invalid(
        "status.qosClass",
        class,
        "field is immutable",
    )]
}

fn check_gates(spec: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let before = items(old, "schedulingGates");
    for (i, gate) in items(spec, "schedulingGates").iter().enumerate() {
        if !before.contains(gate) {
            let detail = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                text(gate, "name")
            );
            errors.push(FieldError::forbidden(
                format!("spec.schedulingGates[{i}].name"),
                &detail,
            ));
        }
    }
}

/// The deadline may be set or shortened.
fn check_deadline(spec: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let field = "spec.activeDeadlineSeconds";
    let now = at(spec, "activeDeadlineSeconds");
    let Some(before) = at(old, "activeDeadlineSeconds").as_i64() else {
        return;
    };
    match now.as_i64() {
        None => {
            let detail = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(field, now, detail));
        }
        Some(seconds) if seconds > before => {
            let detail = "must be less than or equal to previous value";
            errors.push(FieldError::invalid(field, now, detail));
        }
        Some(_) => {}
    }
}

fn check_tolerations(spec: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let now = items(spec, "tolerations");
    let same = |a: &Value, b: &Value| {
        ["key", "operator", "value", "effect"]
            .iter()
            .all(|field| a.get(field) == b.get(field))
    };
    let kept = |before: &Value| now.iter().any(|toleration| same(toleration, before));
    if !items(old, "tolerations").iter().all(kept) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", detail));
    }
}

/// The node selection of a gated pod may get narrower, never wider.
fn check_narrowing(spec: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let now = at(spec, "nodeSelector");
    let kept = |(key, value): (&String, &Value)| now.get(key) == Some(value);
    if !at(old, "nodeSelector")
        .as_object()
        .into_iter()
        .flatten()
        .all(kept)
    {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(FieldError::invalid("spec.nodeSelector", now, detail));
    }
    let terms =
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let (now, before) = (at(spec, terms), items(old, terms));
    if before.is_empty() {
        return;
    }
    let field = format!("spec.{terms}");
    let listed = now.as_array().map_or(&[][..], Vec::as_slice);
    if listed.len() != before.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.push(FieldError::invalid(field, now, detail));
        return;
    }
    for (i, (term, before)) in listed.iter().zip(before).enumerate() {
        let grown = ["matchExpressions", "matchFields"].iter().all(|list| {
            let (now, before) = (items(term, list), items(before, list));
            now.len() >= before.len() && now[..before.len()] == *before
        });
        if !grown {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.push(FieldError::invalid(format!("{field}[{i}]"), term, detail));
        }
    }
}

/// The new spec with all fields that may change reset to their old values.
fn without_allowed_changes(spec: &Value, old: &Value, gated: bool) -> Value {
    let mut spec = spec.clone();
    let Some(fields) = spec.as_object_mut() else {
        return spec;
    };
    for list in ["containers", "initContainers"] {
        let before = items(old, list);
        if let Some(containers) = fields.get_mut(list).and_then(Value::as_array_mut) {
            for (container, before) in containers.iter_mut().zip(before) {
                if let Some(container) = container.as_object_mut() {
                    put(container, "image", before.get("image"));
                }
            }
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        put(fields, field, old.get(field));
    }
    let before = at(old, "terminationGracePeriodSeconds");
    if before.as_i64().is_some_and(|seconds| seconds < 0)
        && fields.get("terminationGracePeriodSeconds") == Some(&json!(1))
    {
        put(fields, "terminationGracePeriodSeconds", Some(before));
    }
    if gated {
        put(fields, "nodeSelector", old.get("nodeSelector"));
        put_back_node_affinity(fields, old);
    }
    spec
}

fn put_back_node_affinity(spec: &mut JsonObject, old: &Value) {
    let before = at(old, "affinity").get("nodeAffinity");
    match inside(spec, "affinity") {
        Some(affinity) => {
            put(affinity, "nodeAffinity", before);
            // A gated pod without affinity may get its first one.
            if affinity.is_empty() && old.get("affinity").is_none() {
                spec.shift_remove("affinity");
            }
        }
        None => put(spec, "affinity", old.get("affinity")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(change: Value) -> Value {
        let mut spec = json!({
            "containers": [{"name": "c", "image": "i:1"}],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": -5,
            "activeDeadlineSeconds": 50, "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
        });
        for (key, value) in change.as_object().unwrap() {
            put(
                spec.as_object_mut().unwrap(),
                key,
                (!value.is_null()).then_some(value),
            );
        }
        json!({"spec": spec})
    }

    fn first_error(now: Value, before: Value) -> Option<String> {
        check(&now, &before)
            .first()
            .map(|error| error.field.clone())
    }

    #[test]
    fn only_some_fields_of_a_pod_may_change() {
        for (case, change, want) in [
            ("nothing", json!({}), None),
            (
                "an image",
                json!({"containers": [{"name": "c", "image": "i:2"}]}),
                None,
            ),
            (
                "no image",
                json!({"containers": [{"name": "c", "image": ""}]}),
                Some("spec.containers[0].image"),
            ),
            (
                "another container",
                json!({"containers": [{"name": "d", "image": "i:1"}]}),
                Some("spec"),
            ),
            (
                "an earlier deadline",
                json!({"activeDeadlineSeconds": 40}),
                None,
            ),
            (
                "a later deadline",
                json!({"activeDeadlineSeconds": 60}),
                Some("spec.activeDeadlineSeconds"),
            ),
            (
                "no deadline",
                json!({"activeDeadlineSeconds": null}),
                Some("spec.activeDeadlineSeconds"),
            ),
            (
                "one more toleration",
                json!({"tolerations": [{"key": "b"}, {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}]}),
                None,
            ),
            (
                "no tolerations",
                json!({"tolerations": null}),
                Some("spec.tolerations"),
            ),
            (
                "a new gate",
                json!({"schedulingGates": [{"name": "g"}]}),
                Some("spec.schedulingGates[0].name"),
            ),
            (
                "grace 1 after negative",
                json!({"terminationGracePeriodSeconds": 1}),
                None,
            ),
            (
                "grace 2",
                json!({"terminationGracePeriodSeconds": 2}),
                Some("spec"),
            ),
            ("its node", json!({"nodeName": "n"}), Some("spec")),
            (
                "its selector",
                json!({"nodeSelector": {"a": "b", "c": "d"}}),
                Some("spec"),
            ),
        ] {
            assert_eq!(
                first_error(pod(change), pod(json!({}))).as_deref(),
                want,
                "{case}"
            );
        }
    }

    #[test]
    fn a_gated_pod_can_be_narrowed() {
        let gates = json!([{"name": "g"}, {"name": "h"}]);
        let terms = |keys: &[&str]| {
            let expressions: Vec<_> = keys
                .iter()
                .map(|key| json!({"key": key, "operator": "Exists"}))
                .collect();
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}})
        };
        let free = pod(json!({"schedulingGates": gates}));
        let bound = pod(json!({"schedulingGates": gates, "affinity": terms(&["a"])}));
        let affinity = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
        let changed_term = format!("{affinity}[0]");
        for (case, before, change, want) in [
            (
                "fewer gates",
                &free,
                json!({"schedulingGates": [{"name": "h"}]}),
                None,
            ),
            (
                "a longer selector",
                &free,
                json!({"schedulingGates": gates, "nodeSelector": {"a": "b", "c": "d"}}),
                None,
            ),
            (
                "another selector",
                &free,
                json!({"schedulingGates": gates, "nodeSelector": {"a": "x"}}),
                Some("spec.nodeSelector"),
            ),
            (
                "a first affinity",
                &free,
                json!({"schedulingGates": gates, "affinity": terms(&["a"])}),
                None,
            ),
            (
                "a stricter term",
                &bound,
                json!({"schedulingGates": gates, "affinity": terms(&["a", "b"])}),
                None,
            ),
            (
                "another term",
                &bound,
                json!({"schedulingGates": gates, "affinity": terms(&["b"])}),
                Some(&*changed_term),
            ),
            (
                "no affinity",
                &bound,
                json!({"schedulingGates": gates}),
                Some(affinity),
            ),
            (
                "pod affinity",
                &free,
                json!({"schedulingGates": gates, "affinity": {"podAffinity": {}}}),
                Some("spec"),
            ),
        ] {
            assert_eq!(
                first_error(pod(change), before.clone()).as_deref(),
                want,
                "{case}"
            );
        }
    }
}
