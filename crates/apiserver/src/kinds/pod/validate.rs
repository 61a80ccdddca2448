//! Validation of pod specs, in pods and in the templates of workloads.

use serde_json::{Value, json};

use super::spec::containers;
use crate::kinds::metadata::check_labels;
use crate::objects::fields::{at, is_empty, items, text};
use crate::objects::names::{dns_label, dns_subdomain};
use crate::objects::status::{FieldError, FieldErrors};

mod container;
mod placement;
mod volume;

pub(in crate::kinds) use container::is_extended;
pub(in crate::kinds) use placement::check_label_selector;

/// A pod, new or changed.
pub(super) fn validate_pod(pod: &Value) -> FieldErrors {
    let spec = at(pod, "spec");
    let mut errors = Vec::new();
    check_spec(spec, "spec", &mut errors);
    volume::check_tokens(spec, &mut errors);
    let node = text(spec, "nodeName");
    if !node.is_empty()
        && let Some(problem) = dns_subdomain(node)
    {
        errors.push(FieldError::invalid("spec.nodeName", &json!(node), &problem));
    }
    if !items(spec, "schedulingGates").is_empty() && !node.is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden("spec.nodeName", detail));
    }
    errors
}

/// A pod that does not exist yet.
pub(super) fn validate_new_pod(pod: &Value) -> FieldErrors {
    let mut errors = validate_pod(pod);
    if !items(pod, "spec.ephemeralContainers").is_empty() {
        let detail = "cannot be set on create";
        errors.push(FieldError::forbidden("spec.ephemeralContainers", detail));
    }
    errors
}

/// The template of a workload, at `field`.
pub(in crate::kinds) fn validate_template(template: &Value, field: &str) -> FieldErrors {
    let mut errors = Vec::new();
    let labels = format!("{field}.labels");
    check_labels(at(template, "metadata.labels"), &labels, &mut errors);
    check_spec(at(template, "spec"), &format!("{field}.spec"), &mut errors);
    errors
}

fn check_spec(spec: &Value, field: &str, errors: &mut FieldErrors) {
    volume::check(spec, field, errors);
    if items(spec, "containers").is_empty() {
        errors.push(FieldError::required(format!("{field}.containers"), ""));
    }
    let mut names = Vec::new();
    // Upstream checks containers first: a name that an init container repeats is the latter's fault.
    let (main, others): (Vec<_>, Vec<_>) =
        containers(spec).partition(|(list, ..)| *list == "containers");
    for (list, i, found) in main.into_iter().chain(others) {
        let path = || format!("{field}.{list}[{i}]");
        container::check(found, spec, &path, errors);
        let name = text(found, "name");
        if !name.is_empty() && names.contains(&name) {
            errors.push(FieldError::duplicate(
                format!("{}.name", path()),
                &json!(name),
            ));
        }
        names.push(name);
        if list == "initContainers" && text(found, "restartPolicy") != "Always" {
            container::check_init(found, &path, errors);
        }
    }
    let here = || field.to_owned();
    choice(
        spec,
        "restartPolicy",
        &["Always", "OnFailure", "Never"],
        &here,
        errors,
    );
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    choice(spec, "dnsPolicy", &policies, &here, errors);
    let deadline = at(spec, "activeDeadlineSeconds");
    if deadline.as_i64().is_some_and(|seconds| seconds < 1) {
        let field = format!("{field}.activeDeadlineSeconds");
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(field, deadline, detail));
    }
    for name in ["hostname", "subdomain"] {
        let value = text(spec, name);
        if !value.is_empty()
            && let Some(problem) = dns_label(value)
        {
            errors.push(FieldError::invalid(
                format!("{field}.{name}"),
                &json!(value),
                &problem,
            ));
        }
    }
    placement::check(spec, field, errors);
}

/// A field that takes one of a few values.
fn choice(
    object: &Value,
    field: &str,
    words: &[&str],
    path: &dyn Fn() -> String,
    errors: &mut FieldErrors,
) {
    let value = at(object, field);
    if !is_empty(value) && !words.contains(&value.as_str().unwrap_or_default()) {
        errors.push(FieldError::not_supported(
            format!("{}.{field}", path()),
            value,
            words,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_pods_are_refused() {
        let containers = json!([{"name": "c", "image": "i"}]);
        for (case, spec, want) in [
            (
                "nothing",
                json!({}),
                Some("spec.containers: Required value"),
            ),
            ("a container", json!({"containers": containers}), None),
            (
                "a name twice",
                json!({"containers": containers, "initContainers": containers}),
                Some("spec.initContainers[0].name: Duplicate value: \"c\""),
            ),
            (
                "another policy",
                json!({"containers": containers, "restartPolicy": "Foo"}),
                Some(
                    "spec.restartPolicy: Unsupported value: \"Foo\": supported values: \"Always\", \"OnFailure\", \"Never\"",
                ),
            ),
            (
                "no time at all",
                json!({"containers": containers, "activeDeadlineSeconds": 0}),
                Some(
                    "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
                ),
            ),
            (
                "gated on a node",
                json!({"containers": containers, "schedulingGates": [{"name": "a/b"}], "nodeName": "n"}),
                Some(
                    "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
                ),
            ),
            (
                "debugging at once",
                json!({"containers": containers, "ephemeralContainers": [{"name": "e", "image": "i"}]}),
                Some("spec.ephemeralContainers: Forbidden: cannot be set on create"),
            ),
        ] {
            let errors = validate_new_pod(&json!({"spec": spec}));
            let found: Vec<_> = errors
                .iter()
                .map(|e| format!("{}: {}", e.field, e.message))
                .collect();
            assert_eq!(found.first().map(String::as_str), want, "{case}");
            assert!(found.len() <= 1, "{case}: {found:?}");
        }
    }

    #[test]
    fn a_template_is_named_in_full() {
        let errors = validate_template(
            &json!({"metadata": {"labels": {"a b": ""}}}),
            "spec.template",
        );
        let fields: Vec<_> = errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(
            fields,
            ["spec.template.labels", "spec.template.spec.containers"]
        );
    }
}
