//! NodeMetric: the use of a node and what of it can be reclaimed, as its agent measures it.

use serde_json::{Value, json};

use super::schema::{list, object, text, time, unchecked_resources};

/// The most pods of a node.
const MOST_PODS: usize = 1000;

pub(super) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "nodemetrics.slo.koordinator.sh"},
        "spec": {
            "group": "slo.koordinator.sh",
            "names": {
                "kind": "NodeMetric",
                "listKind": "NodeMetricList",
                "plural": "nodemetrics",
                "singular": "nodemetric",
            },
            "scope": "Cluster",
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
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": format!(".status.{path}")});
    json!([
        column("CPU", "nodeMetric.nodeUsage.resources.cpu"),
        column("Memory", "nodeMetric.nodeUsage.resources.memory"),
        column("Reclaimable-CPU", "prodReclaimableMetric.resource.resources.cpu"),
        column("Reclaimable-Memory", "prodReclaimableMetric.resource.resources.memory"),
        {"name": "Updated", "type": "date", "jsonPath": ".status.updateTime"},
    ])
}

fn schema() -> Value {
    object(
        "The use of a node, as its agent measures it. It has the name of the node.",
        &[],
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
    let seconds = |description: &str| json!({"type": "integer", "format": "int64", "description": description});
    let policy = object(
        "How the agent measures.",
        &[],
        json!({
            "aggregateDurationSeconds": seconds("The time that values are aggregated over."),
            "reportIntervalSeconds": seconds("The time between two reports."),
            "nodeAggregatePolicy": object(
                "What is aggregated.",
                &[],
                json!({"durations": list(16, json!({"type": "string"}))}),
            ),
            "nodeMemoryCollectPolicy": text("What of the page cache counts as use."),
        }),
    );
    object("Settings.", &[], json!({"metricCollectPolicy": policy}))
}

fn status() -> Value {
    let aggregated = object(
        "The use over some time.",
        &[],
        json!({
            "duration": text("The time, such as 5m0s."),
            "usage": {
                "type": "object",
                "description": "By kind of aggregation, such as avg or p95.",
                "additionalProperties": usage("The use."),
            },
        }),
    );
    let pod = object(
        "The use of a pod.",
        &[],
        json!({
            "name": text("The name of the pod."),
            "namespace": text("The namespace of the pod."),
            "podUsage": usage("The use."),
            "priority": text("The priority class, such as koord-prod."),
            "qos": text("The QoS class, such as LS."),
            "extensions": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }),
    );
    let application = object(
        "The use of processes outside of pods.",
        &[],
        json!({
            "name": text("The name of the application."),
            "usage": usage("The use."),
            "priority": text("The priority class."),
            "qos": text("The QoS class."),
        }),
    );
    let node = object(
        "The use of the node.",
        &[],
        json!({
            "nodeUsage": usage("The use of all processes."),
            "systemUsage": usage("The use of the processes outside of pods."),
            "aggregatedNodeUsages": list(16, aggregated.clone()),
            "aggregatedSystemUsages": list(16, aggregated),
        }),
    );
    let peak = |description: &str| {
        let resource = usage("The amounts.");
        object(description, &[], json!({"resource": resource}))
    };
    object(
        "What the agent measured.",
        &[],
        json!({
            "updateTime": time("When the agent wrote the status."),
            "nodeMetric": node,
            "podsMetric": list(MOST_PODS, pod),
            "hostApplicationMetric": list(64, application),
            "prodReclaimableMetric": peak("Requests of online pods that they will not use, as predicted."),
            "prodPeakMetric": peak("The highest use of online pods, as predicted."),
        }),
    )
}

/// Amounts by resource and by device.
fn usage(description: &str) -> Value {
    object(
        description,
        &[],
        json!({
            "resources": unchecked_resources("The amounts."),
            "devices": {
                "type": "array",
                "maxItems": 64,
                "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            },
        }),
    )
}
