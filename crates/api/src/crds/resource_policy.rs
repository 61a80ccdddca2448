//! ResourcePolicy: which nodes the pods of a workload fill first, and how many of them each kind of node takes.

use engine::model::{HIGHEST_MAX_COUNT, HIGHEST_PRIORITY};
use serde_json::{Value, json};

use super::schema::{list, object, one_of, text, time};
use crate::parse::bounds::{MOST_KEYS, MOST_REQUIREMENTS, MOST_UNITS, MOST_VALUES};

/// A label key: a name, with a DNS subdomain before it or not.
const KEY: &str = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$";
/// 253 characters, a slash and 63 characters.
const LONGEST_KEY: usize = 317;
/// The value of a label.
const VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";
const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const LONGEST_NAME: usize = 63;

pub(super) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "resourcepolicies.scheduling.sigs.x-k8s.io"},
        "spec": {
            "group": "scheduling.sigs.x-k8s.io",
            "names": {
                "kind": "ResourcePolicy",
                "listKind": "ResourcePolicyList",
                "plural": "resourcepolicies",
                "shortNames": ["rsp"],
                "singular": "resourcepolicy",
            },
            "scope": "Namespaced",
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns(),
                "schema": {"openAPIV3Schema": schema()},
            }],
        },
    })
}

fn columns() -> Value {
    json!([
        {"name": "Strategy", "type": "string", "jsonPath": ".spec.strategy"},
        {"name": "Pods", "type": "integer", "jsonPath": ".status.matchedPods"},
        {"name": "Units", "type": "string", "jsonPath": ".status.summary"},
        {
            "name": "Conflict",
            "type": "string",
            "priority": 1,
            "jsonPath": ".status.conditions[?(@.type==\"Conflicting\")].status",
        },
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ])
}

fn schema() -> Value {
    object(
        "Defines which nodes the pods of a workload fill first, and how many of these pods each kind of node takes.",
        &["spec"],
        json!({
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec(),
            "status": status(),
        }),
    )
}

fn spec() -> Value {
    let mut keys = list(MOST_KEYS, label_key());
    keys["x-kubernetes-list-type"] = json!("set");
    keys["description"] = json!(
        "Pods with different values of these labels are counted separately. For a pod without such a label, pods with any value are counted."
    );
    let mut terminating = json!({"type": "boolean", "default": false});
    terminating["description"] = json!("If true, terminating pods are not counted.");
    let mut strategy = one_of(
        "What happens on nodes in no unit: `required` rejects the pod there, `prefer` uses them after all others.",
        &["required", "prefer"],
    );
    strategy["default"] = json!("required");
    let mut units = list(MOST_UNITS, unit());
    units["minItems"] = json!(1);
    units["x-kubernetes-list-type"] = json!("atomic");
    units["description"] = json!("Kinds of nodes.");
    let mut spec = object(
        "The pods, and the kinds of nodes in the order of their priority.",
        &["units"],
        json!({
            "podSelector": selector("The pods of the namespace that the policy applies to. Without it: all."),
            "matchLabelKeys": keys,
            "matchPolicy": object(
                "Which pods are counted.",
                &[],
                json!({"ignoreTerminatingPod": terminating}),
            ),
            "strategy": strategy,
            "units": units,
        }),
    );
    spec["x-kubernetes-validations"] = json!([
        {
            "rule": "self.units.all(u, !has(u.name) || self.units.exists_one(v, has(v.name) && v.name == u.name))",
            "message": "unit names must be unique",
        },
        {
            "rule": "!has(self.matchLabelKeys) || !has(self.podSelector) || self.matchLabelKeys.all(k, \
                     !(has(self.podSelector.matchLabels) && k in self.podSelector.matchLabels) && \
                     !(has(self.podSelector.matchExpressions) && \
                     self.podSelector.matchExpressions.exists(e, e.key == k)))",
            "message": "a key of matchLabelKeys must not be in podSelector",
        },
    ]);
    spec
}

fn unit() -> Value {
    let mut name =
        text("A name that no other unit has. A unit without a name is called by its index.");
    name["maxLength"] = json!(LONGEST_NAME);
    name["pattern"] = json!(DNS_LABEL);
    let number = |description: &str, highest: u32| {
        json!({
            "type": "integer",
            "format": "int32",
            "description": description,
            "minimum": 0,
            "maximum": highest,
        })
    };
    let mut priority = number(
        "Pods go to units of a higher priority first.",
        HIGHEST_PRIORITY.into(),
    );
    priority["default"] = json!(0);
    object(
        "A kind of nodes.",
        &["nodeSelector"],
        json!({
            "name": name,
            "priority": priority,
            "maxCount": number(
                "At most this many pods of a group. 0 admits no more pods; without it there is no limit.",
                HIGHEST_MAX_COUNT,
            ),
            "nodeSelector": selector("The nodes of the unit. `{}` selects every node."),
        }),
    )
}

fn label_key() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": KEY})
}

fn selector(description: &str) -> Value {
    let value = || json!({"type": "string", "maxLength": LONGEST_NAME, "pattern": VALUE});
    let mut expression = object(
        "A requirement on one label.",
        &["key", "operator"],
        json!({
            "key": label_key(),
            "operator": one_of("How the label is compared.", &["In", "NotIn", "Exists", "DoesNotExist"]),
            "values": list(MOST_VALUES, value()),
        }),
    );
    expression["x-kubernetes-validations"] = json!([{
        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
        "message": "In and NotIn need values, Exists and DoesNotExist must have none",
    }]);
    object(
        description,
        &[],
        json!({
            "matchLabels": {
                "type": "object",
                "maxProperties": MOST_REQUIREMENTS,
                "additionalProperties": value(),
            },
            "matchExpressions": list(MOST_REQUIREMENTS, expression),
        }),
    )
}

fn status() -> Value {
    let count = |description: &str| json!({"type": "integer", "format": "int32", "description": description});
    let condition = object(
        "Accepted, Conflicting, UnitsOverlap or DeletionCostConflict.",
        &["type", "status", "lastTransitionTime", "reason", "message"],
        json!({
            "type": text("The type of the condition."),
            "status": one_of("The status of the condition.", &["True", "False", "Unknown"]),
            "observedGeneration": {"type": "integer", "format": "int64"},
            "lastTransitionTime": time("When the status last changed."),
            "reason": text("The reason in CamelCase."),
            "message": text("The message for people."),
        }),
    );
    let mut conditions = list(8, condition);
    conditions["x-kubernetes-list-type"] = json!("map");
    conditions["x-kubernetes-list-map-keys"] = json!(["type"]);
    let unit = object(
        "A unit as it is now.",
        &["name"],
        json!({
            "name": text("Its name, or its index."),
            "nodes": count("Nodes in the unit."),
            "pods": count("Pods that count in the unit, of all groups."),
            "overLimit": count("Pods above maxCount, of all groups."),
        }),
    );
    object(
        "What the controller observed.",
        &[],
        json!({
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "description": "The generation of the spec that the status is about.",
            },
            "conditions": conditions,
            "matchedPods": count("Counted pods of the policy that are on a node."),
            "outsidePods": count("Those of them on nodes in no unit."),
            "units": list(MOST_UNITS, unit),
            "summary": text("Pods and maxCount of each unit."),
        }),
    )
}
