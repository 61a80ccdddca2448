//! Nodes, namespaces, and the objects that select pods: services, controllers, budgets.

use serde_json::{Map, Value, json};

use super::{APPS, Draft, HOSTNAME, Mood, NAMESPACES, RACK, REGION, ZONE, ZONES, resources, set};

const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";

/// Keys and values of taints; tolerations are drawn from the same list.
pub(super) const TAINTS: &[(&str, &str)] = &[
    ("dedicated", "gpu"),
    ("dedicated", "infra"),
    ("maintenance", ""),
    ("level", "5"),
    ("node.kubernetes.io/unschedulable", ""),
];
pub(super) const EFFECTS: &[&str] = &["NoSchedule", "NoExecute", "PreferNoSchedule"];

/// Image names as nodes report them; containers also use short forms.
pub(super) const IMAGES: &[&str] = &[
    "registry.example/web:1",
    "registry.example:5000/db:latest",
    "cache:latest",
    "tools@sha256:0000000000000000000000000000000000000000000000000000000000000000",
];

pub(super) const DECLARED_FEATURES: &[&str] = &[
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
];

pub(super) fn nodes(draft: &mut Draft) -> Value {
    (0..draft.nodes.len())
        .map(|number| node(draft, number))
        .collect()
}

fn node(draft: &mut Draft, number: usize) -> Value {
    let name = draft.nodes[number].clone();
    let labels = node_labels(draft, number);
    let mut spec = json!({});
    set(&mut spec, "taints", taints(draft));
    if draft.random.chance(draft.mood.chance(4, 14, 4, 3)) {
        spec["unschedulable"] = json!(true);
    }
    let mut status = json!({"allocatable": resources::allocatable(draft), "images": images(draft)});
    if draft.random.chance(85) {
        let mut features = draft.random.several(DECLARED_FEATURES, 0, 2);
        if draft.random.chance(20) {
            features.push("SomethingNobodyKnows");
        }
        status["declaredFeatures"] = json!(features);
    }
    json!({"metadata": {"name": name, "uid": name, "labels": labels}, "spec": spec, "status": status})
}

fn node_labels(draft: &mut Draft, number: usize) -> Value {
    let random = &mut draft.random;
    let mut labels = json!({});
    if random.chance(1) {
        return labels;
    }
    if random.chance(96) {
        // Two nodes may claim one host name: domains and nodes are not the same thing.
        let owner = if random.chance(4) {
            random.below(draft.nodes.len())
        } else {
            number
        };
        labels[HOSTNAME] = json!(draft.nodes[owner]);
    }
    if random.chance(88) {
        labels[ZONE] = json!(random.pick(ZONES));
    }
    if random.chance(8) {
        labels[BETA_ZONE] = json!(random.pick(ZONES));
        labels[BETA_REGION] = json!("r1");
    }
    if random.chance(75) {
        labels[REGION] = json!(random.pick(&["r1", "r2"]));
    }
    if random.chance(75) {
        labels[RACK] = json!(random.pick(&["k1", "k2", "k3", "k4"]));
    }
    if random.chance(75) {
        labels["disk"] = json!(random.pick(&["ssd", "hdd"]));
    }
    if random.chance(60) {
        labels["generation"] = json!(random.pick(&["1", "2", "3", "05", "-1", "many"]));
    }
    labels
}

fn taints(draft: &mut Draft) -> Value {
    // Soft taints are what scoring looks at; hard ones must leave something to score.
    let hard = draft.mood.chance(15, 65, 15, 15);
    let random = &mut draft.random;
    if !random.chance(40) {
        return Value::Null;
    }
    let count = random.between(1, 3);
    (0..count)
        .map(|_| {
            let (key, value) = random.one(TAINTS);
            let effect = if random.chance(hard) {
                random.pick(&EFFECTS[..2])
            } else {
                EFFECTS[2]
            };
            let mut taint = json!({"key": key, "effect": effect});
            if !value.is_empty() {
                taint["value"] = json!(value);
            }
            taint
        })
        .collect()
}

fn images(draft: &mut Draft) -> Value {
    const MIB: usize = 1 << 20;
    let random = &mut draft.random;
    random
        .several(IMAGES, 0, 4)
        .into_iter()
        .map(|name| {
            let size = random.one(&[5, 40, 150, 300, 900, 2500]) * MIB + random.below(1000);
            let mut names = vec![name.to_owned()];
            if random.chance(30) {
                names.push(format!(
                    "{}@sha256:1",
                    name.split(':').next().unwrap_or(name)
                ));
            }
            json!({"names": names, "sizeBytes": size})
        })
        .collect()
}

pub(super) fn namespaces(draft: &mut Draft) -> Value {
    let random = &mut draft.random;
    let mut list = Vec::new();
    for name in NAMESPACES {
        if random.chance(8) {
            continue; // Unknown to the scheduler: its labels read as empty.
        }
        let mut labels = json!({"kubernetes.io/metadata.name": name});
        if random.chance(80) {
            labels["team"] = json!(random.pick(&["red", "blue"]));
        }
        list.push(json!({"metadata": {"name": name, "labels": labels}}));
    }
    Value::Array(list)
}

/// Services and controllers, from which default spreading takes its selector.
pub(super) fn owners(draft: &mut Draft, case: &mut Map<String, Value>) {
    let random = &mut draft.random;
    let mut services = Vec::new();
    for number in 0..random.below(3) {
        let namespace = random.pick(&["alpha", "alpha", "alpha", "beta"]);
        let mut spec = json!({});
        match random.below(5) {
            0 => {}
            1 => spec["selector"] = json!({"app": random.pick(APPS), "tier": "front"}),
            _ => spec["selector"] = json!({"app": random.pick(APPS)}),
        }
        services.push(json!({"metadata": {"name": format!("s{number}"), "namespace": namespace}, "spec": spec}));
    }
    case.insert("services".into(), Value::Array(services));

    let meta = json!({"name": "owner", "namespace": "alpha", "uid": "owner"});
    for (kind, probability) in [
        ("replicaSets", 60),
        ("statefulSets", 60),
        ("replicationControllers", 60),
    ] {
        if !random.chance(probability) {
            continue;
        }
        let labels = json!({"app": random.pick(APPS)});
        let selector = match kind {
            "replicationControllers" => labels,
            _ => json!({"matchLabels": labels}),
        };
        let mut spec = json!({"selector": selector});
        if kind != "replicationControllers" {
            spec["template"] = json!({});
        }
        case.insert(kind.into(), json!([{"metadata": meta, "spec": spec}]));
    }
}

pub(super) fn disruption_budgets(draft: &mut Draft) -> Value {
    let count = if draft.mood == Mood::Full {
        draft.random.between(1, 4)
    } else {
        draft.random.below(2)
    };
    let random = &mut draft.random;
    (0..count)
        .map(|number| {
            let selector = match random.below(6) {
                0 => json!({}),
                1 => json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
                2 => Value::Null,
                _ => json!({"matchLabels": {"app": random.pick(APPS)}}),
            };
            let mut budget = json!({
                "metadata": {"name": format!("b{number}"), "namespace": random.pick(&["alpha", "alpha", "beta"])},
                "spec": {},
                "status": {"disruptionsAllowed": random.one(&[0, 0, 1, 2])},
            });
            set(&mut budget["spec"], "selector", selector);
            if random.chance(20) {
                let pod = format!("p{}", random.below(12));
                budget["status"]["disruptedPods"] = json!({pod: "2024-05-01T00:00:00Z"});
            }
            budget
        })
        .collect()
}
