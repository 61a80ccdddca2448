//! CustomNodeResource: the report of a node's agent.

use serde_json::{Value, json};

use super::schema::{
    attributes, list, object, one_of, quantity, resources, text, time, unchecked_resources,
};

const LEVELS: [&str; 4] = [
    "reclaimed_cores",
    "shared_cores",
    "dedicated_cores",
    "system_cores",
];
const EFFECTS: [&str; 4] = [
    "NoSchedule",
    "PreferNoSchedule",
    "NoExecute",
    "NoScheduleForReclaimedTasks",
];

pub(super) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "customnoderesources.node.katalyst.kubewharf.io"},
        "spec": {
            "group": "node.katalyst.kubewharf.io",
            "names": {
                "kind": "CustomNodeResource",
                "listKind": "CustomNodeResourceList",
                "plural": "customnoderesources",
                "shortNames": ["kcnr"],
                "singular": "customnoderesource",
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
    // The first of these that exists is shown: the current layout before the older one.
    let reclaimed = |name: &str, resource: &str| {
        let layouts = ["resources.allocatable", "resourceAllocatable"];
        let groups = [
            r"resource\.katalyst\.kubewharf\.io",
            r"katalyst\.kubewharf\.io",
        ];
        let paths = layouts.iter().flat_map(|layout| {
            let path = move |group| format!("'{layout}.{group}/{resource}'");
            groups.iter().map(path)
        });
        let path = format!(".status[{}]", paths.collect::<Vec<_>>().join(","));
        json!({"name": name, "type": "string", "jsonPath": path})
    };
    json!([
        reclaimed("Reclaimed-CPU", "reclaimed_millicpu"),
        reclaimed("Reclaimed-Memory", "reclaimed_memory"),
        {"name": "Taints", "type": "string", "jsonPath": ".spec.taints[*].key"},
        {"name": "Topology", "type": "string", "priority": 1, "jsonPath": ".status.topologyPolicy"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ])
}

fn schema() -> Value {
    object(
        "The report of a node's agent. It has the name of the node.",
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
    let property = object(
        "A property of the node.",
        &["propertyName"],
        json!({
            "propertyName": text("For example numa or cpu."),
            "propertyQuantity": quantity(),
            "propertyValues": list(256, json!({"type": "string"})),
        }),
    );
    object(
        "Properties and taints of the node.",
        &[],
        json!({
            "nodeResourceProperties": list(256, property),
            "taints": list(64, taint()),
        }),
    )
}

fn taint() -> Value {
    let mut taint = object(
        "Repels pods of one QoS level only.",
        &["key", "effect"],
        json!({
            "key": text("The key that tolerations match."),
            "value": text("The value that tolerations match."),
            "effect": one_of(
                "NoScheduleForReclaimedTasks means NoSchedule for reclaimed_cores.",
                &EFFECTS,
            ),
            "qosLevel": one_of("The QoS level that the taint applies to.", &LEVELS),
            "timeAdded": time("When the taint was added."),
        }),
    );
    taint["x-kubernetes-validations"] = json!([{
        "rule": "self.effect == 'NoScheduleForReclaimedTasks' \
                 ? !has(self.qosLevel) || self.qosLevel == 'reclaimed_cores' : has(self.qosLevel)",
        "message": "a taint needs a qosLevel, unless its effect is NoScheduleForReclaimedTasks, which is for reclaimed_cores",
    }]);
    taint
}

fn status() -> Value {
    let package = object(
        "A named part of the node.",
        &["packageName"],
        json!({
            "packageName": text("Its name."),
            "allocatable": resources("What pods can use."),
            "attributes": attributes(),
        }),
    );
    let pool = object(
        "A pool of resources.",
        &["poolName"],
        json!({
            "poolName": text("Its name."),
            "minAllocatable": resources("The least that pods can use."),
            "maxAllocatable": resources("The most that pods can use."),
            "attributes": attributes(),
        }),
    );
    let keyed = |key: &str, items: Value| {
        let mut list = list(64, items);
        list["x-kubernetes-list-type"] = json!("map");
        list["x-kubernetes-list-map-keys"] = json!([key]);
        list
    };
    let condition = object(
        "A condition of the agent.",
        &["type", "status"],
        json!({
            "type": text("For example AgentReady or AgentNotFound."),
            "status": one_of("The status of the condition.", &["True", "False", "Unknown"]),
            "lastHeartbeatTime": time("When the condition was last observed."),
            "reason": text("The reason in CamelCase."),
            "message": text("The message for people."),
        }),
    );
    let mut resources_of_node = offer("The reclaimed resources of the node.");
    resources_of_node["properties"]["resourcePackages"] = keyed("packageName", package);
    resources_of_node["properties"]["resourcePools"] = keyed("poolName", pool);
    object(
        "The observed state of the node.",
        &[],
        json!({
            "resources": resources_of_node,
            "resourceAllocatable": resources("The older form; `resources` takes precedence."),
            "resourceCapacity": resources("The older form; `resources` takes precedence."),
            "topologyPolicy": text("The topology manager policy of the kubelet."),
            "topologyZone": list(64, zone()),
            "topologyStatus": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "conditions": list(64, condition),
            "nodeMetricStatus": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }),
    )
}

fn offer(description: &str) -> Value {
    object(
        description,
        &[],
        json!({
            "allocatable": resources("What pods can use."),
            "capacity": resources("The total."),
        }),
    )
}

fn zone() -> Value {
    let allocation = object(
        "The resources of the zone that a pod uses.",
        &["consumer"],
        json!({
            "consumer": text("namespace/name/uid"),
            "requests": unchecked_resources("The amounts."),
        }),
    );
    let sibling = object(
        "A neighbouring zone.",
        &["type", "name"],
        json!({"type": text("Its type."), "name": text("Its name."), "attributes": attributes()}),
    );
    object(
        "A part of the node: a socket, a NUMA node, a device.",
        &["type", "name"],
        json!({
            "type": text("For example Socket or Numa."),
            "name": text("Its ID."),
            "resources": offer("Its resources."),
            "attributes": attributes(),
            "allocations": list(512, allocation),
            // A schema cannot be recursive, so zones nest to a fixed depth.
            "children": {
                "type": "array",
                "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            },
            "siblings": list(64, sibling),
        }),
    )
}
