//! ClusterColocationProfile: what admission sets in the pods of a cluster. Objects of Koordinator are accepted as they are.

use serde_json::{Value, json};

use super::schema::{object, one_of, text};

pub(super) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "clustercolocationprofiles.config.koordinator.sh"},
        "spec": {
            "group": "config.koordinator.sh",
            "names": {
                "kind": "ClusterColocationProfile",
                "listKind": "ClusterColocationProfileList",
                "plural": "clustercolocationprofiles",
                "singular": "clustercolocationprofile",
            },
            "scope": "Cluster",
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "QoS", "type": "string", "jsonPath": ".spec.qosClass"},
                    {"name": "Priority", "type": "string", "jsonPath": ".spec.priorityClassName"},
                    {"name": "Probability", "type": "string", "jsonPath": ".spec.probability"},
                    {"name": "Scheduler", "type": "string", "priority": 1, "jsonPath": ".spec.schedulerName"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {"openAPIV3Schema": schema()},
            }],
        },
    })
}

fn schema() -> Value {
    object(
        "Defines what admission sets in new pods. All matching profiles apply in the order of their names, so that later ones win.",
        &[],
        json!({
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec(),
            "status": {"type": "object", "description": "Not used."},
        }),
    )
}

fn spec() -> Value {
    object(
        "The pods, and what is set in them.",
        &[],
        json!({
            "namespaceSelector": selector("The labels of the namespaces whose pods match. Without it: all namespaces."),
            "selector": selector("The labels of the pods that match. Without it: all pods."),
            "probability": {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "description": "The share of the matching pods that the profile applies to, in percent, such as 50 or \"50%\". Without it: all.",
                "x-kubernetes-int-or-string": true,
            },
            "labels": map("Labels to set."),
            "annotations": map("Annotations to set."),
            "labelKeysMapping": map("Labels to copy: the value of the first key becomes the value of the second."),
            "annotationKeysMapping": map("Annotations to copy: the value of the first key becomes the value of the second."),
            "labelSuffixes": map("Texts to append to the values of labels that exist."),
            "schedulerName": text("The scheduler of pods that name none, or name default-scheduler."),
            "qosClass": one_of(
                "The value of the label koordinator.sh/qosClass.",
                &["LSE", "LSR", "LS", "BE", "SYSTEM"],
            ),
            "priorityClassName": text("The PriorityClass. Priority and preemption policy are set from it."),
            "koordinatorPriority": {
                "type": "integer",
                "format": "int32",
                "description": "The value of the label koordinator.sh/priority: the order of pods within a priority class.",
            },
            "patch": {
                "description": "A strategic merge patch of the pod.",
                "x-kubernetes-preserve-unknown-fields": true,
            },
        }),
    )
}

fn map(description: &str) -> Value {
    json!({"type": "object", "description": description, "additionalProperties": {"type": "string"}})
}

fn selector(description: &str) -> Value {
    let expression = object(
        "A requirement on one label.",
        &["key", "operator"],
        json!({
            "key": text("The key of the label."),
            "operator": text("In, NotIn, Exists or DoesNotExist."),
            "values": {
                "type": "array",
                "items": {"type": "string"},
                "x-kubernetes-list-type": "atomic",
            },
        }),
    );
    let mut selector = object(
        description,
        &[],
        json!({
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
            "matchExpressions": {"type": "array", "items": expression, "x-kubernetes-list-type": "atomic"},
        }),
    );
    selector["x-kubernetes-map-type"] = json!("atomic");
    selector
}
