//! Nodes: capacity, taints and conditions.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{quantity, spec_status};
use crate::kinds::kind::{Column, Name, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{at, each, fill, is_empty, items, open, text};
use crate::objects::status::{FieldError, FieldReason};

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE_LABEL: &str = "kubernetes.io/role";

/// A node that has not reported yet has all of them, empty.
const SYSTEM_FACTS: [&str; 10] = [
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
];

pub(super) struct Node;

impl Rules for Node {
    fn default(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        let spec = open(fields, "spec");
        if let Some(range) = spec
            .get("podCIDR")
            .filter(|range| !is_empty(range))
            .cloned()
        {
            fill(spec, "podCIDRs", json!([range]));
        }
        let status = open(fields, "status");
        let capacity = status.get("capacity").cloned().unwrap_or_default();
        if status.get("allocatable").is_none_or(is_empty) && !is_empty(&capacity) {
            status.insert("allocatable".to_owned(), capacity);
        }
        fill(
            open(open(status, "daemonEndpoints"), "kubeletEndpoint"),
            "Port",
            0,
        );
        let facts = open(status, "nodeInfo");
        for fact in SYSTEM_FACTS {
            fill(facts, fact, "");
        }
        for condition in each(status, "conditions") {
            fill(condition, "lastHeartbeatTime", Value::Null);
            fill(condition, "lastTransitionTime", Value::Null);
        }
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        // A node registers with its status, so only later writes keep the halves apart.
        if old.is_some() {
            spec_status::separate_status(object, old, write, |_| json!({}));
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>, write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        check_taints(object, &mut errors);
        for list in ["capacity", "allocatable"] {
            check_resources(object, list, &mut errors);
        }
        if let Some(old) = old
            && write == Write::Update
        {
            check_write_once(object, old, &mut errors);
            // Reported twice: the real server checks them once more on updates.
            check_taints(object, &mut errors);
        }
        errors
    }

    fn selectable_fields(&self) -> Vec<Name> {
        super::names(&["spec.unschedulable"])
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        (path == "spec.unschedulable").then(|| is_unschedulable(object).to_string())
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        let mut zero = json!({});
        self.default(&mut zero);
        let fields = ["spec", "status"].into_iter();
        fields.map(|field| (field, zero[field].take())).collect()
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns(
            "Name, Status, Roles, Age, Version, Internal-IP*, External-IP*, OS-Image*, Kernel-Version*, Container-Runtime*",
        )
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let fact = |name: &str| match text(object, &format!("status.nodeInfo.{name}")) {
            "" => "<unknown>".to_owned(),
            fact => fact.to_owned(),
        };
        let kernel = match (
            fact("kernelVersion"),
            text(object, "status.nodeInfo.architecture"),
        ) {
            (kernel, arch) if !arch.is_empty() => format!("{kernel} ({arch})"),
            (kernel, _) => kernel,
        };
        vec![
            printer::name(object),
            status_cell(object).into(),
            roles(object).into(),
            printer::created(object, now),
            text(object, "status.nodeInfo.kubeletVersion").into(),
            printer::or_none(address(object, "InternalIP")),
            printer::or_none(address(object, "ExternalIP")),
            fact("osImage").into(),
            kernel.into(),
            fact("containerRuntimeVersion").into(),
        ]
    }
}

fn is_unschedulable(node: &Value) -> bool {
    at(node, "spec.unschedulable") == &Value::Bool(true)
}

fn status_cell(node: &Value) -> String {
    let ready = items(node, "status.conditions")
        .iter()
        .find(|condition| text(condition, "type") == "Ready");
    let mut cell = match ready.map(|condition| text(condition, "status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if is_unschedulable(node) {
        cell.push_str(",SchedulingDisabled");
    }
    cell
}

fn roles(node: &Value) -> String {
    let labels = at(node, "metadata.labels").as_object();
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => Some(role),
            None if key == ROLE_LABEL => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.join(",")
    }
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    items(node, "status.addresses")
        .iter()
        .find(|address| text(address, "type") == kind)
        .map_or("", |address| text(address, "address"))
}

fn check_taints(node: &Value, errors: &mut Vec<FieldError>) {
    let taints = items(node, "spec.taints");
    for (i, taint) in taints.iter().enumerate() {
        let field = format!("metadata.taints[{i}]");
        let key = text(taint, "key");
        for problem in crate::objects::names::qualified_name(key) {
            errors.push(FieldError::invalid(
                format!("{field}.key"),
                &json!(key),
                &problem,
            ));
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        let effect = at(taint, "effect");
        match effect.as_str().unwrap_or_default() {
            "" => errors.push(FieldError::required(format!("{field}.effect"), "")),
            known if effects.contains(&known) => {}
            _ => errors.push(FieldError::not_supported(
                format!("{field}.effect"),
                effect,
                &effects,
            )),
        }
        let same = |other: &Value| {
            other.get("key") == taint.get("key") && other.get("effect") == taint.get("effect")
        };
        if taints[..i].iter().any(same) {
            let shown = json!({
                "Key": key, "Value": text(taint, "value"), "Effect": effect, "TimeAdded": at(taint, "timeAdded"),
            });
            let message =
                format!("Duplicate value: {shown}: taints must be unique by key and effect pair");
            errors.push(FieldError::new(field, FieldReason::Duplicate, message));
        }
    }
}

/// Resources of a vendor are counted in whole units.
fn check_resources(node: &Value, list: &str, errors: &mut Vec<FieldError>) {
    let resources = at(node, &format!("status.{list}")).as_object();
    for (name, amount) in resources.into_iter().flatten() {
        let value = amount.as_str().unwrap_or_default();
        let negative = quantity::nanos(value).is_some_and(|nanos| nanos < 0);
        let detail = if negative {
            "must be greater than or equal to 0"
        } else if super::pod::is_extended(name) && !quantity::is_whole(value) {
            "must be an integer"
        } else {
            continue;
        };
        errors.push(FieldError::invalid(
            format!("status.{list}.{name}"),
            amount,
            detail,
        ));
    }
}

fn check_write_once(node: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    for (field, detail) in [
        (
            "spec.providerID",
            "node updates may not change providerID except from \"\" to valid",
        ),
        (
            "spec.podCIDRs",
            "node updates may not change podCIDR except from \"\" to valid",
        ),
    ] {
        if !is_empty(at(old, field)) && at(old, field) != at(node, field) {
            errors.push(FieldError::forbidden(field, detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocatable_starts_as_capacity() {
        let mut node = json!({"status": {"capacity": {"cpu": "4"}}});
        Node.default(&mut node);
        assert_eq!(node["status"]["allocatable"], json!({"cpu": "4"}));
        node["status"]["capacity"] = json!({"cpu": "8"});
        Node.default(&mut node);
        assert_eq!(
            node["status"]["allocatable"],
            json!({"cpu": "4"}),
            "it is set once"
        );
    }

    #[test]
    fn the_status_cell_joins_readiness_and_cordon() {
        let ready = |status: &str| json!([{"type": "Ready", "status": status}]);
        for (conditions, cordoned, want) in [
            (ready("True"), false, "Ready"),
            (ready("True"), true, "Ready,SchedulingDisabled"),
            (ready("False"), false, "NotReady"),
            (ready("Unknown"), false, "NotReady"),
            (json!([]), false, "Unknown"),
        ] {
            let node =
                json!({"spec": {"unschedulable": cordoned}, "status": {"conditions": conditions}});
            assert_eq!(status_cell(&node), want);
        }
    }

    #[test]
    fn roles_come_from_two_labels() {
        for (labels, want) in [
            (json!({}), "<none>"),
            (
                json!({"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/edge": ""}),
                "edge,worker",
            ),
            (json!({"kubernetes.io/role": "gpu"}), "gpu"),
        ] {
            assert_eq!(roles(&json!({"metadata": {"labels": labels}})), want);
        }
    }

    #[test]
    fn invalid_nodes_are_refused() {
        let taint = json!({"key": "a", "effect": "NoSchedule"});
        let old = json!({"spec": {"providerID": "x"}});
        for (case, node, want) in [
            (
                "a taint twice",
                json!({"spec": {"taints": [taint, taint]}}),
                "metadata.taints[1]",
            ),
            (
                "an effect of its own",
                json!({"spec": {"taints": [{"key": "a", "effect": "Maybe"}]}}),
                "metadata.taints[0].effect",
            ),
            (
                "half a device",
                json!({"status": {"capacity": {"x.io/gpu": "1500m"}}}),
                "status.capacity.x.io/gpu",
            ),
            (
                "another provider",
                json!({"spec": {"providerID": "y"}}),
                "spec.providerID",
            ),
        ] {
            let old = (case == "another provider").then_some(&old);
            let errors = Node.validate(&node, old, Write::Update);
            assert_eq!(
                errors.first().map(|e| e.field.as_str()),
                Some(want),
                "{case}"
            );
        }
    }
}
