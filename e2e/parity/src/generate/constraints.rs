//! What pods demand and prefer of nodes and of each other.

use serde_json::{Value, json};

use super::cluster::{EFFECTS, TAINTS};
use super::{APPS, Draft, HOSTNAME, NAMESPACES, RACK, REGION, TOPOLOGY_KEYS, ZONE, ZONES, set};
use crate::random::Random;

pub(super) fn tolerations(random: &mut Random, low: usize, high: usize) -> Value {
    let count = random.between(low, high);
    (0..count)
        .map(|_| {
            let mut toleration = json!({});
            let (key, value) = random.one(TAINTS);
            match random.below(10) {
                0 => toleration["operator"] = json!("Exists"), // Every key.
                1 | 2 => {
                    toleration["key"] = json!(key);
                    toleration["operator"] = json!("Exists");
                }
                3 => {
                    // Means nothing while the feature gate of these operators is off.
                    toleration = json!({"key": "level", "operator": random.pick(&["Gt", "Lt"]), "value": "7"});
                }
                _ => {
                    toleration["key"] = json!(key);
                    if random.chance(50) {
                        toleration["operator"] = json!("Equal");
                    }
                    if !value.is_empty() {
                        toleration["value"] = json!(if random.chance(90) { value } else { "else" });
                    }
                }
            }
            if random.chance(60) {
                toleration["effect"] = json!(random.pick(EFFECTS));
            }
            toleration
        })
        .collect()
}

/// One requirement of a node selector.
fn node_requirement(draft: &mut Draft) -> Value {
    let random = &mut draft.random;
    match random.below(9) {
        0 => json!({"key": ZONE, "operator": "In", "values": random.several(ZONES, 1, 2)}),
        1 => json!({"key": ZONE, "operator": "NotIn", "values": [random.pick(ZONES)]}),
        2 => {
            json!({"key": "disk", "operator": "In", "values": [random.pick(&["ssd", "hdd", "tape"])]})
        }
        3 => json!({"key": RACK, "operator": random.pick(&["Exists", "DoesNotExist"])}),
        4 => {
            json!({"key": "generation", "operator": random.pick(&["Gt", "Lt"]), "values": [random.pick(&["0", "2", "4"])]})
        }
        5 => json!({"key": REGION, "operator": "In", "values": ["r1"]}),
        6 => json!({"key": HOSTNAME, "operator": "NotIn", "values": [random.one(&draft.nodes)]}),
        7 => {
            json!({"key": RACK, "operator": "In", "values": random.several(&["k1", "k2", "k3", "k4"], 1, 3)})
        }
        _ => json!({"key": "disk", "operator": "Exists"}),
    }
}

fn node_term(draft: &mut Draft) -> Value {
    let mut term = json!({});
    if draft.random.chance(3) {
        return term; // Matches nothing.
    }
    if draft.random.chance(90) {
        let count = draft.random.between(1, 2);
        term["matchExpressions"] = (0..count).map(|_| node_requirement(draft)).collect();
    }
    if draft.random.chance(12) || term.as_object().is_some_and(serde_json::Map::is_empty) {
        term["matchFields"] = json!([name_field(draft)]);
    }
    term
}

/// A requirement on the node's name; some name a node that does not exist.
fn name_field(draft: &mut Draft) -> Value {
    let name = draft.random.one(&draft.nodes);
    match draft.random.below(8) {
        0 => json!({"key": "metadata.name", "operator": "NotIn", "values": [name]}),
        1 => json!({"key": "metadata.name", "operator": "In", "values": ["no-such-node"]}),
        _ => json!({"key": "metadata.name", "operator": "In", "values": [name]}),
    }
}

pub(super) fn required_node_affinity(draft: &mut Draft) -> Value {
    let kind = draft.random.below(25);
    let terms: Value = match kind {
        // Two names at once: no node can have both.
        0..=8 => {
            let fields: Value = draft
                .random
                .several(&draft.nodes, 2, 2)
                .into_iter()
                .map(|name| json!({"key": "metadata.name", "operator": "In", "values": [name]}))
                .collect();
            json!([{"matchFields": fields}])
        }
        // By name, as DaemonSet pods do it.
        9..=11 => {
            let count = draft.random.between(1, 4);
            (0..count)
                .map(|_| json!({"matchFields": [name_field(draft)]}))
                .collect()
        }
        // Several names in one requirement: PreFilter takes them, Filter cannot parse them.
        12 => {
            let names = draft.random.several(&draft.nodes, 2, 3);
            json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": names}]}])
        }
        13 => json!([]),
        _ => {
            let count = draft.random.between(1, 3);
            (0..count).map(|_| node_term(draft)).collect()
        }
    };
    json!({"nodeSelectorTerms": terms})
}

pub(super) fn preferred_node_affinity(draft: &mut Draft) -> Value {
    let count = draft.random.between(1, 3);
    (0..count)
        .map(|_| {
            let preference = node_term(draft);
            let weight = draft.random.one(&[1, 5, 10, 33, 100]);
            json!({"weight": weight, "preference": preference})
        })
        .collect()
}

pub(super) fn node_selector(draft: &mut Draft) -> Value {
    let random = &mut draft.random;
    match random.below(5) {
        0 => json!({ZONE: random.pick(ZONES)}),
        1 => json!({"disk": "ssd", RACK: random.pick(&["k1", "k2"])}),
        // Not an empty one: the API server stores protobuf, which has no empty maps.
        2 => Value::Null,
        _ => json!({"disk": random.pick(&["ssd", "hdd"])}),
    }
}

/// A selector of pods; null and empty ones mean opposite things.
pub(super) fn pod_selector(random: &mut Random) -> Value {
    match random.below(16) {
        0 => Value::Null,
        1 => json!({}),
        2 => {
            json!({"matchExpressions": [{"key": "app", "operator": "In", "values": random.several(APPS, 1, 2)}]})
        }
        3 => {
            json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [random.pick(APPS)]}]})
        }
        4 => json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
        5 => json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
        6 => {
            json!({"matchLabels": {"app": random.pick(APPS), "tier": random.pick(&["front", "back"])}})
        }
        _ => json!({"matchLabels": {"app": random.pick(APPS)}}),
    }
}

fn pod_term(random: &mut Random) -> Value {
    let mut term = json!({"topologyKey": random.pick(TOPOLOGY_KEYS)});
    set(&mut term, "labelSelector", pod_selector(random));
    if random.chance(25) {
        term["namespaces"] = json!(random.several(NAMESPACES, 1, 2));
    }
    if random.chance(25) {
        term["namespaceSelector"] = match random.below(6) {
            0 => json!({}),
            1 => {
                json!({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]})
            }
            2 => json!({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}),
            _ => json!({"matchLabels": {"team": random.pick(&["red", "blue"])}}),
        };
    }
    if random.chance(8) {
        // The API server has already merged these into the selector.
        term["matchLabelKeys"] = json!(["pod-template-hash"]);
    }
    term
}

fn weighted(random: &mut Random) -> Value {
    let weight = random.one(&[1, 7, 29, 50, 100]);
    json!({"weight": weight, "podAffinityTerm": pod_term(random)})
}

/// `hard` is the chance, in percent, of required terms of either kind.
pub(super) fn pod_affinity(affinity: &mut Value, random: &mut Random, hard: u32, soft: u32) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    for kind in ["podAffinity", "podAntiAffinity"] {
        if random.chance(hard) {
            let count = random.between(1, 2);
            affinity[kind][REQUIRED] = (0..count).map(|_| pod_term(random)).collect();
        }
        if random.chance(soft) {
            let count = random.between(1, 3);
            affinity[kind][PREFERRED] = (0..count).map(|_| weighted(random)).collect();
        }
        if random.chance(2) && affinity.get(kind).is_none() {
            affinity[kind] = json!({});
        }
    }
}

pub(super) fn spread(random: &mut Random, hard: bool) -> Value {
    let key = random.pick(TOPOLOGY_KEYS);
    let mut constraint = json!({
        "maxSkew": random.one(&[1, 1, 1, 1, 2, 3]),
        "topologyKey": key,
        "whenUnsatisfiable": if hard { "DoNotSchedule" } else { "ScheduleAnyway" },
    });
    // Few pods match most selectors, and skew needs many.
    let selector = if random.chance(50) {
        json!({"matchLabels": {"app": APPS[0]}})
    } else {
        pod_selector(random)
    };
    set(&mut constraint, "labelSelector", selector);
    if hard && random.chance(25) {
        constraint["minDomains"] = json!(random.between(1, 5));
    }
    if random.chance(30) {
        constraint["nodeAffinityPolicy"] = json!(random.pick(&["Honor", "Ignore"]));
    }
    if random.chance(30) {
        constraint["nodeTaintsPolicy"] = json!(random.pick(&["Honor", "Ignore"]));
    }
    if random.chance(15) && constraint.get("labelSelector").is_some() {
        constraint["matchLabelKeys"] = json!(["pod-template-hash", "not-a-label-of-the-pod"]);
    }
    constraint
}
