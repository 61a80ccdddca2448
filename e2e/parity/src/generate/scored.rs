//! Cases for Koordinator's two scorers: the nodes and pods of any case, and a profile that has only them.

use serde_json::{Map, Value, json};

use super::{Case, case};
use crate::random::Random;

/// So that a case and its profile do not follow from the same numbers.
const OWN: u64 = 0x6b6f_6f72_6469_6e61;

/// Most are in the capacity of some node and in the requests of some pod; the last is in neither.
const RESOURCES: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "example.com/gpu",
    "other.example/fpga",
    "hugepages-2Mi",
    "kubernetes.io/licence",
    "nvidia.com/gpus",
];

pub(crate) fn scored(seed: u64, index: u64) -> Case {
    let Case(whole) = case(seed, index);
    let mut random = Random::for_case(seed ^ OWN, index);
    let mut own = Map::new();
    own.insert("profile".into(), profile(&mut random));
    for list in ["nodes", "pods", "pod"] {
        own.insert(list.into(), whole[list].clone());
    }
    let mut own = Value::Object(own);
    // Only scores are compared, so no filter may reject a node.
    if let Some(status) = own["pod"]["status"].as_object_mut() {
        status.remove("nominatedNodeName");
    }
    // The Kubernetes that it is built with does not resize whole pods.
    for pod in own["pods"].as_array_mut().into_iter().flatten() {
        if let Some(status) = pod["status"].as_object_mut() {
            status.remove("resources");
        }
    }
    // What upstream cannot do at all should not be most of the cases.
    if !random.chance(5)
        && let Some(spec) = own["pod"]["spec"].as_object_mut()
    {
        spec.remove("overhead");
    }
    Case(own)
}

fn profile(random: &mut Random) -> Value {
    let strategies: Map<String, Value> = random
        .several(RESOURCES, 1, 5)
        .into_iter()
        .map(|name| {
            let kind = random.pick(&["MostAllocated", "LeastAllocated"]);
            let weight = random.one(&[1, 1, 2, 3, 50, 100]);
            (name.to_owned(), json!({"type": kind, "weight": weight}))
        })
        .collect();
    let scarce = random.several(&RESOURCES[2..], 1, 3);
    let (plus, avoidance) = ("NodeResourcesFitPlus", "ScarceResourceAvoidance");
    let weighted =
        |random: &mut Random, name: &str| json!({"name": name, "weight": random.one(&[1, 2, 7])});
    let enabled = [weighted(random, plus), weighted(random, avoidance)];
    json!({
        "schedulerName": "koord-scheduler",
        "plugins": {
            "multiPoint": {"disabled": [{"name": "*"}]},
            "score": {"enabled": enabled},
        },
        "pluginConfig": [
            {"name": plus, "args": {"resources": strategies}},
            {"name": avoidance, "args": {"resources": scarce}},
        ],
    })
}
