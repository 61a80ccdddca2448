//! Pods: defaults, allowed updates, validation and warnings.
//!
//! Binding and eviction are separate requests (`handlers/`).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::spec_status;
use crate::kinds::kind::{Column, Lookup, Name, Rules, Write};
use crate::kinds::{limit_range, printer};
use crate::objects::fields::{JsonObject, at, each, fill, inside, is_empty, items, open, text};
use crate::objects::status::{FieldError, Status};

mod account;
mod admission;
mod cells;
mod qos;
mod resize;
mod selectors;
mod spec;
mod update;
mod validate;
mod warnings;

pub(crate) use admission::TOPOLOGY_LABELS;
pub(super) use spec::default_template;
pub(super) use validate::{check_label_selector, is_extended, validate_template};
pub(super) use warnings::warnings;

pub(super) struct Pod;

const SELECTORS: [&str; 9] = [
    "spec.nodeName",
    "spec.schedulerName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];

impl Rules for Pod {
    fn default(&self, object: &mut Value) {
        let Some(pod) = object.as_object_mut() else {
            return;
        };
        spec::default_pod(open(pod, "spec"));
        default_status(open(pod, "status"));
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        // Fields that admission adds have no field manager, so they are not defaults.
        if let (Write::Update, Some(pod)) = (write, object.as_object_mut()) {
            spec::tolerate_brief_outages(open(pod, "spec"));
        }
        match (write, old) {
            (Write::Subresource("resize"), Some(old)) => {
                resize::keep_all_but_resources(object, old)
            }
            (Write::Create, _) => {
                selectors::merge_label_keys(object);
                spec::end_at_once_at_the_earliest(object);
            }
            (Write::Subresource("status"), _) => {
                spec_status::keep_metadata(object, old, &["ownerReferences"]);
            }
            (Write::Update, Some(old)) => keep_priority(object, old),
            _ => {}
        }
        spec_status::separate_status(object, old, write, first_status);
        if let Some(pod) = object.as_object_mut() {
            fill_qos_class(pod);
        }
        spec_status::count_spec_changes(object, old);
    }

    fn admit(
        &self,
        object: &mut Value,
        _old: Option<&Value>,
        write: Write<'_>,
        others: &dyn Lookup,
    ) -> Result<(), Status> {
        match write {
            Write::Create => admission::admit(object, others),
            _ => Ok(()),
        }
    }

    fn admit_valid(
        &self,
        object: &Value,
        write: Write<'_>,
        others: &dyn Lookup,
    ) -> Result<(), Status> {
        match write {
            Write::Create | Write::Subresource("resize") => limit_range::check_pod(object, others),
            _ => Ok(()),
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>, write: Write<'_>) -> Vec<FieldError> {
        match (write, old) {
            (Write::Subresource("status"), Some(old)) => update::check_status(object, old),
            (Write::Subresource("resize"), Some(old)) => resize::check(object, old),
            (_, Some(old)) => update::check(object, old),
            (_, None) => validate::validate_new_pod(object),
        }
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        // Programs update pods, and do not read warnings.
        if old.is_some() {
            return Vec::new();
        }
        warnings::warnings(at(object, "spec"), "spec")
    }

    fn selectable_fields(&self) -> Vec<Name> {
        super::names(&SELECTORS)
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        match path {
            // Listed, but the real server compares it with nothing.
            "status.podIPs" => Some(String::new()),
            "spec.hostNetwork" => Some((at(object, path) == &Value::Bool(true)).to_string()),
            _ => super::select(object, &SELECTORS, path),
        }
    }

    fn grace_seconds(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        let finished = ["Succeeded", "Failed"].contains(&text(object, "status.phase"));
        // Nothing runs: there is nothing to wait for.
        if text(object, "spec.nodeName").is_empty() || finished {
            return Some(0);
        }
        let own = at(object, "spec.terminationGracePeriodSeconds").as_i64();
        match asked.or(own).unwrap_or(spec::GRACE_SECONDS) {
            negative if negative < 0 => Some(1),
            seconds => Some(seconds),
        }
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        vec![("spec", json!({"containers": null})), ("status", json!({}))]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns(
            "Name, Ready, Status, Restarts, Age, IP*, Node*, Nominated Node*, Readiness Gates*",
        )
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        cells::cells(object, now)
    }

    fn row_conditions(&self, object: &Value) -> Vec<Value> {
        cells::row_conditions(object)
    }
}

/// The status of a new pod, whatever the client sent.
fn first_status(pod: &JsonObject) -> Value {
    let part = |key: &str| pod.get(key).unwrap_or(&Value::Null);
    if items(part("spec"), "schedulingGates").is_empty() {
        return json!({"phase": "Pending"});
    }
    let now = at(part("metadata"), "creationTimestamp");
    json!({
        "phase": "Pending",
        "conditions": [{
            "type": "PodScheduled", "status": "False", "lastProbeTime": null, "lastTransitionTime": now,
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }],
    })
}

/// A client may send the whole pod without the values that the server derived from its priority class.
fn keep_priority(pod: &mut Value, old: &Value) {
    let spec = pod.as_object_mut().and_then(|pod| inside(pod, "spec"));
    let (Some(spec), before) = (spec, at(old, "spec")) else {
        return;
    };
    for field in ["priority", "preemptionPolicy"] {
        if let Some(value) = before.get(field) {
            fill(spec, field, value.clone());
        }
    }
}

fn fill_qos_class(pod: &mut JsonObject) {
    let class = pod.get("spec").map_or("BestEffort", qos::class);
    fill(open(pod, "status"), "qosClass", class);
}

/// Parts of a status that are always written, and both forms of the address fields.
fn default_status(status: &mut JsonObject) {
    for condition in each(status, "conditions") {
        fill(condition, "lastProbeTime", Value::Null);
        fill(condition, "lastTransitionTime", Value::Null);
    }
    for list in [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ] {
        for container in each(status, list) {
            default_container_status(container);
        }
    }
    synchronise_address(status);
}

fn default_container_status(container: &mut JsonObject) {
    for key in ["state", "lastState"] {
        let state = open(container, key);
        if let Some(running) = inside(state, "running") {
            fill(running, "startedAt", Value::Null);
        }
        if let Some(terminated) = inside(state, "terminated") {
            fill(terminated, "exitCode", 0);
            fill(terminated, "startedAt", Value::Null);
            fill(terminated, "finishedAt", Value::Null);
        }
    }
    fill(container, "ready", false);
    fill(container, "restartCount", 0);
    fill(container, "image", "");
    fill(container, "imageID", "");
}

/// Old clients write one address, new ones a list that starts with it.
fn synchronise_address(status: &mut JsonObject) {
    let first = status
        .get("podIP")
        .filter(|address| !is_empty(address))
        .cloned();
    let listed = status
        .get("podIPs")
        .and_then(|addresses| addresses.get(0))
        .and_then(|address| address.get("ip"))
        .cloned();
    match (first, listed) {
        (Some(first), listed) if listed.as_ref() != Some(&first) => {
            status.insert("podIPs".to_owned(), json!([{"ip": first}]));
        }
        (None, Some(listed)) => {
            status.insert("podIP".to_owned(), listed);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn created(mut pod: Value) -> Value {
        Pod.default(&mut pod);
        Pod.prepare(&mut pod, None, Write::Create);
        pod
    }

    #[test]
    fn a_new_pod_is_pending_whatever_status_it_has() {
        let pod = created(
            json!({"spec": {"containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Running", "podIP": "1.2.3.4"}}),
        );
        assert_eq!(
            pod["status"],
            json!({"phase": "Pending", "qosClass": "BestEffort"})
        );
        assert_eq!(pod["metadata"]["generation"], 1);
    }

    #[test]
    fn a_gated_pod_has_a_condition() {
        let pod =
            created(json!({"spec": {"containers": [], "schedulingGates": [{"name": "x.io/g"}]}}));
        assert_eq!(pod["status"]["conditions"][0]["reason"], "SchedulingGated");
    }

    #[test]
    fn either_address_field_sets_both() {
        for (case, status, want) in [
            (
                "one",
                json!({"podIP": "a"}),
                json!({"podIP": "a", "podIPs": [{"ip": "a"}]}),
            ),
            (
                "a list",
                json!({"podIPs": [{"ip": "a"}, {"ip": "b"}]}),
                json!({"podIP": "a", "podIPs": [{"ip": "a"}, {"ip": "b"}]}),
            ),
            (
                "the single one wins",
                json!({"podIP": "a", "podIPs": [{"ip": "b"}]}),
                json!({"podIP": "a", "podIPs": [{"ip": "a"}]}),
            ),
            ("none", json!({}), json!({})),
        ] {
            let mut status = status;
            synchronise_address(status.as_object_mut().unwrap());
            assert_eq!(status, want, "{case}");
        }
    }

    #[test]
    fn only_a_bound_and_unfinished_pod_gets_a_grace_period() {
        let pod = |node: &str, phase: &str| json!({"spec": {"nodeName": node, "terminationGracePeriodSeconds": 30}, "status": {"phase": phase}});
        for (case, pod, asked, want) in [
            ("its own", pod("n", "Running"), None, 30),
            ("asked for", pod("n", "Running"), Some(5), 5),
            ("negative", pod("n", "Running"), Some(-1), 1),
            ("unbound", pod("", "Pending"), Some(5), 0),
            ("finished", pod("n", "Failed"), None, 0),
        ] {
            assert_eq!(Pod.grace_seconds(&pod, asked), Some(want), "{case}");
        }
    }
}
