//! Pods: those that run, those that wait for a nominated node, and the one to place.

use serde_json::{Value, json};

use super::cluster::IMAGES;
use super::storage::Storage;
use super::{APPS, Mood, NAMESPACES, World, constraints, resources, set};

/// The pods that are bound to a node. One may sit on a node that is gone.
pub(super) fn bound(world: &mut World, storage: &Storage) -> Value {
    let (least, most) = match world.mood {
        Mood::Full if world.alike => (4, 4),
        Mood::Full => (1, 5),
        _ => (0, 3),
    };
    let mut pods = Vec::new();
    for node in world.nodes.clone() {
        let count = world.random.between(least, most);
        // Distinct on one node, because upstream leaves the order of equals to chance; equal
        // across nodes, so that candidates for preemption tie.
        let mut minute = if world.alike {
            0
        } else {
            world.random.below(3)
        };
        for _ in 0..count {
            let mut pod = pod(world, pods.len(), storage);
            pod["spec"]["nodeName"] = json!(node);
            pod["status"]["startTime"] = json!(format!("2024-05-01T00:{minute:02}:00Z"));
            minute += if world.alike {
                1
            } else {
                world.random.between(1, 3)
            };
            pods.push(pod);
        }
    }
    if world.random.chance(3) {
        let mut pod = pod(world, pods.len(), storage);
        pod["spec"]["nodeName"] = json!("gone");
        pod["status"]["startTime"] = json!("2024-05-01T00:00:00Z");
        pods.push(pod);
    }
    Value::Array(pods)
}

/// Pods of any priority that wait for a node.
pub(super) fn nominated(world: &mut World, storage: &Storage) -> Value {
    let mut pods = Vec::new();
    if world.random.chance(50) {
        for number in 0..world.random.between(1, 3) {
            let mut pod = pod(world, 100 + number, storage);
            if world.random.chance(60) {
                pod["spec"]["containers"][0]["resources"]["requests"] =
                    resources::nominated_requests(world);
            }
            pod["status"]["nominatedNodeName"] = json!(world.random.one(&world.nodes));
            pod["spec"]["priority"] = json!(world.random.one(&[0, 50, 500, 5000]));
            pods.push(pod);
        }
    }
    Value::Array(pods)
}

/// A pod that is not the one to place.
fn pod(world: &mut World, number: usize, storage: &Storage) -> Value {
    let name = format!("p{number}");
    let namespace = world
        .random
        .pick(&["alpha", "alpha", "alpha", "alpha", "beta", "gamma"]);
    let mut spec = json!({"containers": containers(world, Kind::Bound)});
    set(
        &mut spec,
        "initContainers",
        init_containers(world, Kind::Bound),
    );
    let random = &mut world.random;
    if world.alike {
        spec["priority"] = json!(0);
        spec["containers"] = json!([{"name": "c0", "resources": {"requests": {"cpu": "500m"}}}]);
    } else if random.chance(80) {
        spec["priority"] = json!(random.one(&[-10, 0, 0, 0, 5, 100, 1000]));
    }
    let mut affinity = json!({});
    let hard = world.mood.chance(3, 12, 3, 4);
    constraints::pod_affinity(&mut affinity, random, hard, 10);
    if affinity.as_object().is_some_and(|kinds| !kinds.is_empty()) {
        spec["affinity"] = affinity;
    }
    if world.random.chance(6) {
        spec["resources"] = resources::pod_level(world);
    }
    if world.random.chance(6) {
        spec["overhead"] = resources::overhead(world);
    }
    if world.random.chance(60) {
        let volumes = storage.volumes_in_use(&mut world.random, namespace);
        set(&mut spec, "volumes", volumes);
    }
    let mut metadata = json!({"name": name, "namespace": namespace, "uid": name});
    set(&mut metadata, "labels", labels(world));
    let mut status = json!({"phase": "Running"});
    if world.random.chance(9) {
        metadata["deletionTimestamp"] = json!("2024-05-01T02:00:00Z");
        if world.random.chance(60) {
            status["conditions"] = json!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]);
        }
    }
    if world.random.chance(12) {
        resize(world, &spec, &mut status);
    }
    json!({"metadata": metadata, "spec": spec, "status": status})
}

fn labels(world: &mut World) -> Value {
    let random = &mut world.random;
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

fn requests(world: &mut World, kind: Kind) -> Value {
    match kind {
        Kind::Bound => resources::bound_requests(world),
        Kind::Incoming => resources::incoming_requests(world),
    }
}

fn container(world: &mut World, name: String, kind: Kind, ports: u32) -> Value {
    let image = world.random.one(IMAGES);
    // Containers may leave `:latest` out.
    let image = if world.random.chance(50) {
        image.trim_end_matches(":latest")
    } else {
        image
    };
    let mut container =
        json!({"name": name, "image": image, "resources": {"requests": requests(world, kind)}});
    let random = &mut world.random;
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

fn containers(world: &mut World, kind: Kind) -> Value {
    let ports = match kind {
        Kind::Bound => 14,
        Kind::Incoming => world.mood.chance(8, 55, 8, 15),
    };
    let count = world.random.one(&[1, 1, 1, 2, 2, 3]);
    (0..count)
        .map(|number| container(world, format!("c{number}"), kind, ports))
        .collect()
}

/// Null in most pods.
fn init_containers(world: &mut World, kind: Kind) -> Value {
    if !world.random.chance(20) {
        return Value::Null;
    }
    let count = world.random.between(1, 3);
    (0..count)
        .map(|number| {
            let mut container = container(world, format!("i{number}"), kind, 10);
            if world.random.chance(45) {
                container["restartPolicy"] = json!("Always");
            }
            container
        })
        .collect()
}

/// The traces of an in-place resize in a pod's status.
fn resize(world: &mut World, spec: &Value, status: &mut Value) {
    for (containers, statuses) in [
        ("containers", "containerStatuses"),
        ("initContainers", "initContainerStatuses"),
    ] {
        let mut traces = Vec::new();
        for container in spec[containers].as_array().into_iter().flatten() {
            let mut trace = json!({"name": container["name"]});
            if world.random.chance(80) {
                trace["resources"] = json!({"requests": resources::bound_requests(world)});
            }
            if world.random.chance(60) {
                trace["allocatedResources"] = resources::bound_requests(world);
            }
            traces.push(trace);
        }
        status[statuses] = Value::Array(traces);
    }
    if spec.get("resources").is_some() {
        status["resources"] = resources::pod_level(world);
        if world.random.chance(50) {
            status["allocatedResources"] = json!({"cpu": "300m"});
        }
    }
    if world.random.chance(50) {
        let reason = world.random.pick(&["Infeasible", "Infeasible", "Deferred"]);
        status["conditions"] =
            json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
    }
}

/// The pod to place.
pub(super) fn incoming(world: &mut World, storage: &Storage) -> Value {
    let mut spec = json!({"containers": containers(world, Kind::Incoming), "schedulerName": "default-scheduler"});
    set(
        &mut spec,
        "initContainers",
        init_containers(world, Kind::Incoming),
    );
    if world.random.chance(10) {
        spec["resources"] = resources::pod_level(world);
    }
    if world.random.chance(10) {
        spec["overhead"] = resources::overhead(world);
    }
    demands_of_nodes(world, &mut spec);
    demands_of_pods(world, &mut spec);
    let volumes = world.mood.chance(8, 40, 100, 6);
    if world.random.chance(volumes) {
        let volumes = storage.volumes_to_place(&mut world.random);
        set(&mut spec, "volumes", volumes);
    }
    declared_features(world, &mut spec);

    let random = &mut world.random;
    if world.mood == Mood::Full || random.chance(50) {
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
    set(&mut metadata, "labels", labels(world));
    if world.random.chance(45) {
        let (kind, version) = world.random.one(&[
            ("ReplicaSet", "apps/v1"),
            ("StatefulSet", "apps/v1"),
            ("ReplicationController", "v1"),
            ("Job", "batch/v1"),
        ]);
        metadata["ownerReferences"] = json!([{
            "apiVersion": version, "kind": kind, "name": "owner", "uid": "owner", "controller": world.random.chance(90),
        }]);
    }
    let mut status = json!({"phase": "Pending"});
    if world.random.chance(7) {
        let node = if world.random.chance(90) {
            world.random.one(&world.nodes)
        } else {
            "gone".to_owned()
        };
        status["nominatedNodeName"] = json!(node);
    }
    json!({"metadata": metadata, "spec": spec, "status": status})
}

fn demands_of_nodes(world: &mut World, spec: &mut Value) {
    let mood = world.mood;
    if world.random.chance(65) {
        spec["tolerations"] = constraints::tolerations(&mut world.random, 1, 4);
    }
    if world.random.chance(mood.chance(1, 42, 4, 3)) {
        spec["nodeName"] = json!(world.random.one(&world.nodes));
    }
    if world.random.chance(mood.chance(4, 20, 4, 2)) {
        spec["nodeSelector"] = constraints::node_selector(world);
    }
    let mut affinity = json!({});
    if world.random.chance(mood.chance(8, 90, 8, 5)) {
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] =
            constraints::required_node_affinity(world);
    }
    if world.random.chance(mood.chance(75, 30, 30, 20)) {
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] =
            constraints::preferred_node_affinity(world);
    }
    if affinity.as_object().is_some_and(|kinds| !kinds.is_empty()) || world.random.chance(3) {
        spec["affinity"]["nodeAffinity"] = affinity;
    }
}

fn demands_of_pods(world: &mut World, spec: &mut Value) {
    let mood = world.mood;
    let random = &mut world.random;
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
fn declared_features(world: &mut World, spec: &mut Value) {
    let random = &mut world.random;
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
