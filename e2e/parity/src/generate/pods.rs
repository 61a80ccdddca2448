//! Pods: those that run, those that wait for a nominated node, and the one to place.

use serde_json::{Value, json};

use super::cluster::IMAGES;
use super::storage::Storage;
use super::{APPS, Draft, Mood, NAMESPACES, constraints, resources, set};

/// The pods that are bound to a node. One may sit on a node that is gone.
pub(super) fn bound(draft: &mut Draft, storage: &Storage) -> Value {
    let (least, most) = match draft.mood {
        Mood::Full if draft.alike => (4, 4),
        Mood::Full => (1, 5),
        _ => (0, 3),
    };
    let mut pods = Vec::new();
    for node in draft.nodes.clone() {
        let count = draft.random.between(least, most);
        // Distinct on one node, because upstream leaves the order of equals to chance; equal
        // across nodes, so that candidates for preemption tie.
        let mut minute = if draft.alike {
            0
        } else {
            draft.random.below(3)
        };
        for _ in 0..count {
            let mut pod = pod(draft, pods.len(), storage);
            pod["spec"]["nodeName"] = json!(node);
            pod["status"]["startTime"] = json!(format!("2024-05-01T00:{minute:02}:00Z"));
            minute += if draft.alike {
                1
            } else {
                draft.random.between(1, 3)
            };
            pods.push(pod);
        }
    }
    if draft.random.chance(3) {
        let mut pod = pod(draft, pods.len(), storage);
        pod["spec"]["nodeName"] = json!("gone");
        pod["status"]["startTime"] = json!("2024-05-01T00:00:00Z");
        pods.push(pod);
    }
    Value::Array(pods)
}

/// Pods of any priority that wait for a node.
pub(super) fn nominated(draft: &mut Draft, storage: &Storage) -> Value {
    let mut pods = Vec::new();
    if draft.random.chance(50) {
        for number in 0..draft.random.between(1, 3) {
            let mut pod = pod(draft, 100 + number, storage);
            if draft.random.chance(60) {
                pod["spec"]["containers"][0]["resources"]["requests"] =
                    resources::nominated_requests(draft);
            }
            pod["status"]["nominatedNodeName"] = json!(draft.random.one(&draft.nodes));
            pod["spec"]["priority"] = json!(draft.random.one(&[0, 50, 500, 5000]));
            pods.push(pod);
        }
    }
    Value::Array(pods)
}

/// A pod that is not the one to place.
fn pod(draft: &mut Draft, number: usize, storage: &Storage) -> Value {
    let name = format!("p{number}");
    let namespace = draft
        .random
        .pick(&["alpha", "alpha", "alpha", "alpha", "beta", "gamma"]);
    let mut spec = json!({"containers": containers(draft, Kind::Bound)});
    set(
        &mut spec,
        "initContainers",
        init_containers(draft, Kind::Bound),
    );
    let random = &mut draft.random;
    if draft.alike {
        spec["priority"] = json!(0);
        spec["containers"] = json!([{"name": "c0", "resources": {"requests": {"cpu": "500m"}}}]);
    } else if random.chance(80) {
        spec["priority"] = json!(random.one(&[-10, 0, 0, 0, 5, 100, 1000]));
    }
    let mut affinity = json!({});
    let hard = draft.mood.chance(3, 12, 3, 4);
    constraints::pod_affinity(&mut affinity, random, hard, 10);
    if affinity.as_object().is_some_and(|kinds| !kinds.is_empty()) {
        spec["affinity"] = affinity;
    }
    if draft.random.chance(6) {
        spec["resources"] = resources::pod_level(draft);
    }
    if draft.random.chance(6) {
        spec["overhead"] = resources::overhead(draft);
    }
    if draft.random.chance(60) {
        let volumes = storage.volumes_in_use(&mut draft.random, namespace);
        set(&mut spec, "volumes", volumes);
    }
    let mut metadata = json!({"name": name, "namespace": namespace, "uid": name});
    set(&mut metadata, "labels", labels(draft));
    let mut status = json!({"phase": "Running"});
    if draft.random.chance(9) {
        metadata["deletionTimestamp"] = json!("2024-05-01T02:00:00Z");
        if draft.random.chance(60) {
            status["conditions"] = json!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]);
        }
    }
    if draft.random.chance(12) {
        resize(draft, &spec, &mut status);
    }
    json!({"metadata": metadata, "spec": spec, "status": status})
}

fn labels(draft: &mut Draft) -> Value {
    let random = &mut draft.random;
    if random.chance(4) {
        return Value::Null;
    }
    let mut labels = json!({"app": random.pick(APPS)});
    if random.chance(50) {
        labels["tier"] = json!(random.pick(&["front", "back"]));
    }
    if random.chance(60) {
        labels["pod-template-hash"] = json!(random.pick(&["h1", "h2"]));
    }
    labels
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Bound,
    Incoming,
}

fn requests(draft: &mut Draft, kind: Kind) -> Value {
    match kind {
        Kind::Bound => resources::bound_requests(draft),
        Kind::Incoming => resources::incoming_requests(draft),
    }
}

fn container(draft: &mut Draft, name: String, kind: Kind, ports: u32) -> Value {
    let image = draft.random.one(IMAGES);
    // Containers may leave `:latest` out.
    let image = if draft.random.chance(50) {
        image.trim_end_matches(":latest")
    } else {
        image
    };
    let mut container =
        json!({"name": name, "image": image, "resources": {"requests": requests(draft, kind)}});
    let random = &mut draft.random;
    if random.chance(ports) {
        let count = random.between(1, 2);
        container["ports"] = (0..count)
            .map(|_| {
                let number = random.one(&[80, 80, 8080, 9000]);
                let mut port = json!({"containerPort": number, "hostPort": number});
                if random.chance(10) {
                    port["hostPort"] = json!(0);
                }
                if random.chance(60) {
                    port["protocol"] = json!(random.pick(&["TCP", "TCP", "UDP", "SCTP"]));
                }
                if random.chance(40) {
                    port["hostIP"] =
                        json!(random.pick(&["127.0.0.1", "10.0.0.1", "0.0.0.0", "::", ""]));
                }
                port
            })
            .collect();
    }
    container
}

fn containers(draft: &mut Draft, kind: Kind) -> Value {
    let ports = match kind {
        Kind::Bound => 14,
        Kind::Incoming => draft.mood.chance(8, 55, 8, 15),
    };
    let count = draft.random.one(&[1, 1, 1, 2, 2, 3]);
    (0..count)
        .map(|number| container(draft, format!("c{number}"), kind, ports))
        .collect()
}

/// Null in most pods.
fn init_containers(draft: &mut Draft, kind: Kind) -> Value {
    if !draft.random.chance(20) {
        return Value::Null;
    }
    let count = draft.random.between(1, 3);
    (0..count)
        .map(|number| {
            let mut container = container(draft, format!("i{number}"), kind, 10);
            if draft.random.chance(45) {
                container["restartPolicy"] = json!("Always");
            }
            container
        })
        .collect()
}

/// The traces of an in-place resize in a pod's status.
fn resize(draft: &mut Draft, spec: &Value, status: &mut Value) {
    for (containers, statuses) in [
        ("containers", "containerStatuses"),
        ("initContainers", "initContainerStatuses"),
    ] {
        let mut traces = Vec::new();
        for container in spec[containers].as_array().into_iter().flatten() {
            let mut trace = json!({"name": container["name"]});
            if draft.random.chance(80) {
                trace["resources"] = json!({"requests": resources::bound_requests(draft)});
            }
            if draft.random.chance(60) {
                trace["allocatedResources"] = resources::bound_requests(draft);
            }
            traces.push(trace);
        }
        status[statuses] = Value::Array(traces);
    }
    if spec.get("resources").is_some() {
        status["resources"] = resources::pod_level(draft);
        if draft.random.chance(50) {
            status["allocatedResources"] = json!({"cpu": "300m"});
        }
    }
    if draft.random.chance(50) {
        let reason = draft.random.pick(&["Infeasible", "Infeasible", "Deferred"]);
        status["conditions"] =
            json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
    }
}

/// The pod to place.
pub(super) fn incoming(draft: &mut Draft, storage: &Storage) -> Value {
    let mut spec = json!({"containers": containers(draft, Kind::Incoming), "schedulerName": "default-scheduler"});
    set(
        &mut spec,
        "initContainers",
        init_containers(draft, Kind::Incoming),
    );
    if draft.random.chance(10) {
        spec["resources"] = resources::pod_level(draft);
    }
    if draft.random.chance(10) {
        spec["overhead"] = resources::overhead(draft);
    }
    demands_of_nodes(draft, &mut spec);
    demands_of_pods(draft, &mut spec);
    let volumes = draft.mood.chance(8, 40, 100, 6);
    if draft.random.chance(volumes) {
        let volumes = storage.volumes_to_place(&mut draft.random);
        set(&mut spec, "volumes", volumes);
    }
    declared_features(draft, &mut spec);

    let random = &mut draft.random;
    if draft.mood == Mood::Full || random.chance(50) {
        spec["priority"] = json!(random.one(&[-5, 0, 50, 500, 500, 2000, 2000, 2000, 2000, 2000]));
    }
    if random.chance(9) {
        spec["preemptionPolicy"] = json!(random.pick(&["Never", "Never", "PreemptLowerPriority"]));
    }
    if random.chance(9) {
        let gates = random.several(&["one.example/a", "two.example/b"], 1, 2);
        spec["schedulingGates"] = gates
            .into_iter()
            .map(|name| json!({"name": name}))
            .collect();
    }
    let mut metadata = json!({"name": "incoming", "namespace": NAMESPACES[0], "uid": "incoming"});
    set(&mut metadata, "labels", labels(draft));
    if draft.random.chance(45) {
        let (kind, version) = draft.random.one(&[
            ("ReplicaSet", "apps/v1"),
            ("StatefulSet", "apps/v1"),
            ("ReplicationController", "v1"),
            ("Job", "batch/v1"),
        ]);
        metadata["ownerReferences"] = json!([{
            "apiVersion": version, "kind": kind, "name": "owner", "uid": "owner", "controller": draft.random.chance(90),
        }]);
    }
    let mut status = json!({"phase": "Pending"});
    if draft.random.chance(7) {
        let node = if draft.random.chance(90) {
            draft.random.one(&draft.nodes)
        } else {
            "gone".to_owned()
        };
        status["nominatedNodeName"] = json!(node);
    }
    json!({"metadata": metadata, "spec": spec, "status": status})
}

fn demands_of_nodes(draft: &mut Draft, spec: &mut Value) {
    let mood = draft.mood;
    if draft.random.chance(65) {
        spec["tolerations"] = constraints::tolerations(&mut draft.random, 1, 4);
    }
    if draft.random.chance(mood.chance(1, 42, 4, 3)) {
        spec["nodeName"] = json!(draft.random.one(&draft.nodes));
    }
    if draft.random.chance(mood.chance(4, 20, 4, 2)) {
        spec["nodeSelector"] = constraints::node_selector(draft);
    }
    let mut affinity = json!({});
    if draft.random.chance(mood.chance(8, 90, 8, 5)) {
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] =
            constraints::required_node_affinity(draft);
    }
    if draft.random.chance(mood.chance(75, 30, 30, 20)) {
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] =
            constraints::preferred_node_affinity(draft);
    }
    if affinity.as_object().is_some_and(|kinds| !kinds.is_empty()) || draft.random.chance(3) {
        spec["affinity"]["nodeAffinity"] = affinity;
    }
}

fn demands_of_pods(draft: &mut Draft, spec: &mut Value) {
    let mood = draft.mood;
    let random = &mut draft.random;
    let mut affinity = json!({});
    let (required, preferred) = (mood.chance(5, 48, 4, 8), mood.chance(30, 20, 20, 15));
    constraints::pod_affinity(&mut affinity, random, required, preferred);
    if let Some(kinds) = affinity.as_object() {
        for (kind, terms) in kinds {
            spec["affinity"][kind] = terms.clone();
        }
    }
    if random.chance(mood.chance(45, 90, 30, 40)) {
        let count = random.between(1, 3);
        let constraints: Vec<Value> = (0..count)
            .map(|_| {
                let demand = random.chance(mood.chance(25, 80, 50, 70));
                constraints::spread(random, demand)
            })
            .collect();
        spec["topologySpreadConstraints"] = json!(constraints);
    }
}

/// Settings that need a feature which the node must have declared.
fn declared_features(draft: &mut Draft, spec: &mut Value) {
    let random = &mut draft.random;
    if random.chance(8) {
        spec["hostNetwork"] = json!(true);
        spec["hostUsers"] = json!(random.chance(20));
    }
    if random.chance(6) {
        spec["containers"][0]["restartPolicy"] = json!("Never");
        spec["containers"][0]["restartPolicyRules"] = json!([{
            "action": random.pick(&["RestartAllContainers", "RestartAllContainers", "Restart"]),
            "exitCodes": {"operator": "In", "values": [42]},
        }]);
    }
}
