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
    let reclaimed = |name: &str, resource: &str| {
        json!({
            "name": name,
            "type": "string",
            "jsonPath": format!(r".status.resources.allocatable['resource\.katalyst\.kubewharf\.io/{resource}']"),
        })
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
        "What the agent of a node says about it. Its name is that of the node.",
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
        "A property of the machine.",
        &["propertyName"],
        json!({
            "propertyName": text("Such as numa or cpu."),
            "propertyQuantity": quantity(),
            "propertyValues": list(256, json!({"type": "string"})),
        }),
    );
    object(
        "What holds until somebody changes it.",
        &[],
        json!({
            "nodeResourceProperties": list(256, property),
            "taints": list(64, taint()),
        }),
    )
}

fn taint() -> Value {
    let mut taint = object(
        "Keeps pods of one QoS level away from the node, and no others.",
        &["key", "effect"],
        json!({
            "key": text("What tolerations name."),
            "value": text("What tolerations may name, too."),
            "effect": one_of(
                "NoScheduleForReclaimedTasks is NoSchedule for reclaimed_cores.",
                &EFFECTS,
            ),
            "qosLevel": one_of("Whom it is for.", &LEVELS),
            "timeAdded": time("Since when."),
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
        "A part of the machine with a name.",
        &["packageName"],
        json!({
            "packageName": text("Its name."),
            "allocatable": resources("What it offers."),
            "attributes": attributes(),
        }),
    );
    let pool = object(
        "A pool of resources.",
        &["poolName"],
        json!({
            "poolName": text("Its name."),
            "minAllocatable": resources("What it offers at least."),
            "maxAllocatable": resources("What it offers at most."),
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
        "A state of the agent.",
        &["type", "status"],
        json!({
            "type": text("Such as AgentReady or AgentNotFound."),
            "status": one_of("Whether it is so.", &["True", "False", "Unknown"]),
            "lastHeartbeatTime": time("When it was last seen."),
            "reason": text("One word."),
            "message": text("One sentence."),
        }),
    );
    let mut resources_of_node = offer("What the node lends.");
    resources_of_node["properties"]["resourcePackages"] = keyed("packageName", package);
    resources_of_node["properties"]["resourcePools"] = keyed("poolName", pool);
    object(
        "What changes all the time.",
        &[],
        json!({
            "resources": resources_of_node,
            "resourceAllocatable": resources("The same, as the design has it; `resources` goes before it."),
            "resourceCapacity": resources("The same, as the design has it; `resources` goes before it."),
            "topologyPolicy": text("How the kubelet aligns resources."),
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
            "allocatable": resources("What pods may take."),
            "capacity": resources("What there is."),
        }),
    )
}

fn zone() -> Value {
    let allocation = object(
        "What a pod takes of the zone.",
        &["consumer"],
        json!({
            "consumer": text("namespace/name/uid"),
            "requests": unchecked_resources("What it takes."),
        }),
    );
    let sibling = object(
        "A zone beside it.",
        &["type", "name"],
        json!({"type": text("Its type."), "name": text("Its name."), "attributes": attributes()}),
    );
    object(
        "A part of the machine: a socket, a NUMA node, a device.",
        &["type", "name"],
        json!({
            "type": text("Such as Socket or Numa."),
            "name": text("Its id."),
            "resources": offer("What it offers."),
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
