//! What the kinds that create pods from a template share.

use serde_json::Value;

use super::{pod, selector};
use crate::objects::fields::{JsonObject, at, items, open, text};
use crate::objects::status::FieldError;

mod cron_job;
mod daemon_set;
mod deployment;
mod job;
mod replica_set;
mod schedule;
mod stateful_set;

pub(super) use cron_job::CronJob;
pub(super) use daemon_set::DaemonSet;
pub(super) use deployment::{Deployment, check_amount};
pub(super) use job::Job;
pub(super) use replica_set::{ReplicaSet, ReplicationController};
pub(super) use stateful_set::StatefulSet;

fn default_template(spec: &mut JsonObject) {
    pod::default_template(open(spec, "template"));
}

/// Checks the template, and that the selector matches the pods made from it.
fn check_template(object: &Value, selected: bool, errors: &mut Vec<FieldError>) {
    let labels = at(object, "spec.template.metadata.labels");
    if !selected {
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            labels,
            detail,
        ));
    }
    errors.extend(pod::validate_template(
        at(object, "spec.template"),
        "spec.template",
    ));
}

/// The pods of a workload that keeps them running must restart always.
fn check_runs_forever(object: &Value, errors: &mut Vec<FieldError>) {
    let policy = at(object, "spec.template.spec.restartPolicy");
    let known = ["Always", "OnFailure", "Never"];
    if policy != "Always" && known.contains(&policy.as_str().unwrap_or_default()) {
        let field = "spec.template.spec.restartPolicy";
        errors.push(FieldError::not_supported(field, policy, &["Always"]));
    }
    if !at(object, "spec.template.spec.activeDeadlineSeconds").is_null() {
        let field = "spec.template.spec.activeDeadlineSeconds";
        let detail = "activeDeadlineSeconds in ReplicaSet is not Supported";
        errors.push(FieldError::forbidden(field, detail));
    }
}

/// The selector must exist, must not be empty and must match the template's labels.
fn check_selector(object: &Value, kind: &str, errors: &mut Vec<FieldError>) -> bool {
    let wanted = at(object, "spec.selector");
    if !wanted.is_object() {
        errors.push(FieldError::required("spec.selector", ""));
        return false;
    }
    if selector::is_unlimited(wanted) {
        let detail = format!("empty selector is invalid for {kind}");
        errors.push(FieldError::invalid("spec.selector", wanted, &detail));
        return true;
    }
    pod::check_label_selector(wanted, "spec.selector", errors);
    selector::matches(wanted, at(object, "spec.template.metadata.labels"))
}

fn check_immutable_selector(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let wanted = at(object, "spec.selector");
    if old.is_some_and(|old| at(old, "spec.selector") != wanted) {
        errors.push(FieldError::invalid(
            "spec.selector",
            wanted,
            "field is immutable",
        ));
    }
}

fn check_not_negative(object: &Value, fields: &[&str], errors: &mut Vec<FieldError>) {
    for field in fields {
        let value = at(object, field);
        if value.as_i64().is_some_and(|number| number < 0) {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(*field, value, detail));
        }
    }
}

/// Warnings about the template, on writes that count as a change of the workload.
fn template_warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let generation = |object| at(object, "metadata.generation");
    if old.is_some_and(|old| generation(old) == generation(object)) {
        return Vec::new();
    }
    pod::warnings(at(object, "spec.template.spec"), "spec.template.spec")
}

/// Names and images of the containers, as `-o wide` shows them.
fn container_cells(object: &Value) -> [Value; 2] {
    ["name", "image"].map(|field| {
        let containers = items(object, "spec.template.spec.containers");
        let texts: Vec<&str> = containers
            .iter()
            .map(|container| text(container, field))
            .collect();
        texts.join(",").into()
    })
}
