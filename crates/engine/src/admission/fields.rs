//! What a pod says about itself: its class, its containers, its annotations.

use serde_json::Value;

use super::keys::{KOORDINATOR_BAND, KOORDINATOR_CLASS, LEVEL};
use super::resources::ResourceField;
use crate::model::{QosLabels, TierAccount};

/// Both lists of containers with resources; a sidecar is an init container.
pub(super) const CONTAINER_LISTS: [&str; 2] = ["initContainers", "containers"];

/// A pod whose containers can be read. The API server checks everything else.
pub(super) fn check_shape(pod: &Value) -> Result<(), String> {
    let kind = &pod["kind"];
    if kind.as_str().is_some_and(|kind| kind != "Pod") {
        return Err(format!(
            "the object is a {}, not a Pod",
            kind.as_str().unwrap_or_default()
        ));
    }
    if !pod["spec"].is_object() || !pod["metadata"].is_object() {
        return Err("the pod has no spec or no metadata".to_owned());
    }
    for list in CONTAINER_LISTS {
        let containers = match &pod["spec"][list] {
            Value::Null if list != "containers" => continue,
            Value::Array(containers) => containers,
            other => {
                return Err(format!(
                    "spec.{list} is {}, not a list of containers",
                    kind_of(other)
                ));
            }
        };
        if list == "containers" && containers.is_empty() {
            return Err("spec.containers is empty: a pod has at least one container".to_owned());
        }
        for (i, container) in containers.iter().enumerate() {
            if container["name"].as_str().is_none_or(str::is_empty) {
                return Err(format!("spec.{list}[{i}] has no name"));
            }
            let resources = &container["resources"];
            for part in [resources, &resources["requests"], &resources["limits"]] {
                if !part.is_null() && !part.is_object() {
                    return Err(format!(
                        "resources of container {} is {}, not an object",
                        name(container),
                        kind_of(part)
                    ));
                }
            }
        }
    }
    for map in ["labels", "annotations"] {
        match &pod["metadata"][map] {
            Value::Null => {}
            Value::Object(pairs) if pairs.values().all(Value::is_string) => {}
            _ => return Err(format!("metadata.{map} is not a map of strings")),
        }
    }
    Ok(())
}

pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "missing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

pub(super) fn name(container: &Value) -> &str {
    container["name"].as_str().unwrap_or_default()
}

pub(super) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    CONTAINER_LISTS
        .into_iter()
        .filter_map(|list| pod["spec"][list].as_array())
        .flatten()
}

/// One of the lists. Indexing a mutable value would add what is missing.
pub(super) fn list_mut<'a>(pod: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = pod.get_mut("spec").and_then(|spec| spec.get_mut(list));
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

pub(super) fn label<'a>(pod: &'a Value, key: &str) -> Option<&'a str> {
    pod["metadata"]["labels"][key].as_str()
}

pub(super) fn annotation<'a>(pod: &'a Value, key: &str) -> Option<&'a str> {
    pod["metadata"]["annotations"][key].as_str()
}

/// Whether the author of a new pod wrote this annotation, and not a webhook. Before it calls webhooks, the API server records in
/// managedFields what the request has; the author can add to that, but remove nothing. Without a record it counts as the author's.
pub(super) fn is_of_author(pod: &Value, key: &str) -> bool {
    let records = pod["metadata"]["managedFields"].as_array();
    let Some(records) = records.filter(|records| !records.is_empty()) else {
        return true;
    };
    let field = format!("f:{key}");
    let mut records = records.iter();
    records.any(|it| !it["fieldsV1"]["f:metadata"]["f:annotations"][&field].is_null())
}

/// Takes the annotation off a pod, also in the record of what its author wrote.
pub(super) fn remove_of_author(pod: &mut Value, key: &str) {
    let remove = |map: Option<&mut Value>, key: &str| {
        map.and_then(Value::as_object_mut)
            .and_then(|map| map.shift_remove(key))
    };
    remove(pod.pointer_mut("/metadata/annotations"), key);
    let records = pod.pointer_mut("/metadata/managedFields");
    let records = records.and_then(Value::as_array_mut);
    for record in records.into_iter().flatten() {
        let fields = record.pointer_mut("/fieldsV1/f:metadata/f:annotations");
        remove(fields, &format!("f:{key}"));
    }
}

/// The accounts of the tier resources that the pod names.
pub(super) fn accounts(pod: &Value) -> Vec<TierAccount> {
    let mut accounts = Vec::new();
    for container in containers(pod) {
        for list in [ResourceField::Requests, ResourceField::Limits] {
            let names = container["resources"][list.field()].as_object();
            accounts.extend(
                names
                    .into_iter()
                    .flatten()
                    .filter_map(|(name, _)| TierAccount::of(name)),
            );
        }
    }
    accounts.sort_unstable();
    accounts.dedup();
    accounts
}

/// What names the class of a pod.
pub(super) fn qos_labels(pod: &Value) -> QosLabels<'_> {
    QosLabels {
        katalyst_level: annotation(pod, LEVEL),
        koordinator_class: label(pod, KOORDINATOR_CLASS),
        koordinator_band: label(pod, KOORDINATOR_BAND),
        priority_class: pod["spec"]["priorityClassName"].as_str(),
        account: accounts(pod).last().copied(),
    }
}

/// What names the class, for messages.
pub(super) fn describe(labels: &QosLabels<'_>) -> String {
    let mut found = Vec::new();
    let mut add = |place: &str, value: Option<&str>| {
        if let Some(value) = value {
            found.push(format!("{place} is `{value}`"));
        }
    };
    add(
        &format!("label {KOORDINATOR_CLASS}"),
        labels.koordinator_class,
    );
    add(
        &format!("label {KOORDINATOR_BAND}"),
        labels.koordinator_band,
    );
    let is_band = |name: &&str| {
        let only = QosLabels {
            priority_class: Some(name),
            ..QosLabels::default()
        };
        only.band_name().is_some()
    };
    add(
        "spec.priorityClassName",
        labels.priority_class.filter(is_band),
    );
    add(&format!("annotation {LEVEL}"), labels.katalyst_level);
    if let Some(account) = labels.account {
        found.push(format!(
            "containers name {} or {}",
            account.cpu(),
            account.memory()
        ));
    }
    found.join(", ")
}
