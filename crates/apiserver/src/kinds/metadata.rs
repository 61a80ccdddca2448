//! Validation of `metadata`, for objects of every kind.

use serde_json::{Value, json};

use crate::kinds::kind::Rules;
use crate::objects::fields::{at, is_empty, items, text};
use crate::objects::names::{label_value, qualified_name};
use crate::objects::status::{FieldError, FieldReason};

/// All annotations of an object together.
const MAX_ANNOTATION_BYTES: usize = 256 << 10;
/// Finalizers of the system, which need no prefix.
const STANDARD_FINALIZERS: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

pub(crate) fn check(object: &Value, rules: &dyn Rules) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_names(object, rules, &mut errors);
    let generation = at(object, "metadata.generation");
    if generation.as_i64().is_some_and(|number| number < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(
            "metadata.generation",
            generation,
            detail,
        ));
    }
    check_labels(
        at(object, "metadata.labels"),
        "metadata.labels",
        &mut errors,
    );
    check_annotations(object, &mut errors);
    check_owners(object, &mut errors);
    check_finalizers(object, &mut errors);
    errors
}

fn check_names(object: &Value, rules: &dyn Rules, errors: &mut Vec<FieldError>) {
    let base = text(object, "metadata.generateName");
    // The random suffix follows the dash, so the name does not end with it.
    if !base.is_empty()
        && let Some(problem) = rules.check_name(base.trim_end_matches('-'))
    {
        errors.push(FieldError::invalid(
            "metadata.generateName",
            &json!(base),
            &problem,
        ));
    }
    let name = text(object, "metadata.name");
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else if let Some(problem) = rules.check_name(name) {
        errors.push(FieldError::invalid("metadata.name", &json!(name), &problem));
    }
}

/// Checks the keys and values of the labels at `field`.
pub(crate) fn check_labels(labels: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        for problem in qualified_name(key) {
            errors.push(FieldError::invalid(field, &json!(key), &problem));
        }
        if let Some(problem) = label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(field, value, &problem));
        }
    }
}

fn check_annotations(object: &Value, errors: &mut Vec<FieldError>) {
    let mut bytes = 0;
    let annotations = at(object, "metadata.annotations").as_object();
    for (key, value) in annotations.into_iter().flatten() {
        // Unlike labels, keys of annotations may have capital prefixes.
        for problem in qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid(
                "metadata.annotations",
                &json!(key),
                &problem,
            ));
        }
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > MAX_ANNOTATION_BYTES {
        let message = format!("Too long: may not be more than {MAX_ANNOTATION_BYTES} bytes");
        errors.push(FieldError::new(
            "metadata.annotations",
            FieldReason::TooLong,
            message,
        ));
    }
}

fn check_owners(object: &Value, errors: &mut Vec<FieldError>) {
    let field = "metadata.ownerReferences";
    let owners = items(object, field);
    let mut controller: Option<&Value> = None;
    for owner in owners {
        for (part, detail) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if is_empty(at(owner, part)) {
                errors.push(FieldError::invalid(
                    format!("{field}.{part}"),
                    &json!(""),
                    detail,
                ));
            }
        }
        if text(owner, "apiVersion") == "v1" && text(owner, "kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(field, owner, detail));
        }
        if at(owner, "controller") == &Value::Bool(true) {
            if let Some(first) = controller {
                let shown =
                    |owner: &Value| format!("{}/{}", text(owner, "kind"), text(owner, "name"));
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                    shown(first),
                    shown(owner)
                );
                errors.push(FieldError::invalid(field, at(object, field), &detail));
            }
            controller = Some(owner);
        }
    }
}

fn check_finalizers(object: &Value, errors: &mut Vec<FieldError>) {
    let field = "metadata.finalizers";
    let finalizers = items(object, field);
    for (i, finalizer) in finalizers.iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        for problem in qualified_name(name) {
            errors.push(FieldError::invalid(field, finalizer, &problem));
        }
        if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(
                format!("{field}[{i}]"),
                finalizer,
                detail,
            ));
        }
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(field, at(object, field), detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::builtin;

    #[test]
    fn invalid_metadata_is_refused() {
        let owner = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": true});
        let kinds = builtin();
        let map = kinds
            .iter()
            .find(|kind| kind.plural == "configmaps")
            .unwrap();
        for (case, metadata, want) in [
            ("nothing", json!({"name": "a.b"}), None),
            ("no name", json!({}), Some("metadata.name")),
            ("a capital", json!({"name": "A"}), Some("metadata.name")),
            (
                "a capital to begin with",
                json!({"name": "a", "generateName": "A-"}),
                Some("metadata.generateName"),
            ),
            (
                "a dash to begin with",
                json!({"name": "a", "generateName": "a-"}),
                None,
            ),
            (
                "a label key",
                json!({"name": "a", "labels": {"a b": "c"}}),
                Some("metadata.labels"),
            ),
            (
                "a label value",
                json!({"name": "a", "labels": {"a": "b c"}}),
                Some("metadata.labels"),
            ),
            (
                "an annotation key",
                json!({"name": "a", "annotations": {"a b": "c"}}),
                Some("metadata.annotations"),
            ),
            (
                "a capital annotation",
                json!({"name": "a", "annotations": {"A.B/c": "d"}}),
                None,
            ),
            (
                "long annotations",
                json!({"name": "a", "annotations": {"a": "x".repeat(MAX_ANNOTATION_BYTES)}}),
                Some("metadata.annotations"),
            ),
            (
                "a bare finalizer",
                json!({"name": "a", "finalizers": ["x"]}),
                Some("metadata.finalizers[0]"),
            ),
            (
                "two policies",
                json!({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}),
                Some("metadata.finalizers"),
            ),
            (
                "half an owner",
                json!({"name": "a", "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "u"}]}),
                Some("metadata.ownerReferences.apiVersion"),
            ),
            (
                "two controllers",
                json!({"name": "a", "ownerReferences": [owner("p"), owner("q")]}),
                Some("metadata.ownerReferences"),
            ),
        ] {
            let errors = check(&json!({"metadata": metadata}), &*map.rules);
            assert_eq!(errors.first().map(|e| e.field.as_str()), want, "{case}");
        }
    }

    #[test]
    fn kinds_have_different_name_rules() {
        let kinds = builtin();
        for (plural, takes, refuses) in [
            ("namespaces", "1a", "a.b"),
            ("services", "1a", "a.b"),
            ("statefulsets", "a", "a.b"),
            ("pods", "a.b", "a_b"),
            ("events", "A_b", "a/b"),
            ("poddisruptionbudgets", "A_b", ".."),
        ] {
            let kind = kinds.iter().find(|kind| kind.plural == plural).unwrap();
            assert_eq!(kind.rules.check_name(takes), None, "{plural} {takes}");
            assert!(
                kind.rules.check_name(refuses).is_some(),
                "{plural} {refuses}"
            );
        }
    }
}
