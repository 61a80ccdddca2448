//! Scheduler profiles: mostly the default, sometimes with other arguments and weights.

use serde_json::{Value, json};

use super::{Draft, HOSTNAME, ZONE, ZONES};
use crate::random::Random;

/// A profile of a KubeSchedulerConfiguration v1, or none for the default.
pub(super) fn profile(draft: &mut Draft) -> Option<Value> {
    let random = &mut draft.random;
    if random.chance(55) {
        return None;
    }
    let mut args = Vec::new();
    for (chance, plugin, make) in [
        (
            35,
            "NodeAffinity",
            added_affinity as fn(&mut Random) -> Value,
        ),
        (35, "NodeResourcesFit", fit),
        (15, "NodeResourcesBalancedAllocation", balanced),
        (25, "InterPodAffinity", pod_affinity),
        (30, "PodTopologySpread", spread),
    ] {
        if random.chance(chance) {
            args.push(json!({"name": plugin, "args": make(random)}));
        }
    }
    let mut profile = json!({"schedulerName": "default-scheduler", "pluginConfig": args});
    if random.chance(20) {
        profile["plugins"] = plugins(random);
    }
    Some(profile)
}

fn added_affinity(random: &mut Random) -> Value {
    let mut affinity = json!({});
    if random.chance(75) {
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = json!({"nodeSelectorTerms": [
            {"matchExpressions": [{"key": ZONE, "operator": "In", "values": random.several(ZONES, 1, 2)}]},
        ]});
    }
    if random.chance(40) {
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = json!([
            {"weight": 20, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}},
        ]);
    }
    json!({"addedAffinity": affinity})
}

fn scored_resources(random: &mut Random) -> Vec<Value> {
    random
        .several(
            &[
                "cpu",
                "memory",
                "ephemeral-storage",
                "example.com/gpu",
                "pods",
            ],
            1,
            4,
        )
        .into_iter()
        .map(|name| json!({"name": name, "weight": random.one(&[1, 1, 2, 3, 100])}))
        .collect()
}

fn fit(random: &mut Random) -> Value {
    let mut args = json!({});
    if random.chance(80) {
        let kind = random.pick(&[
            "LeastAllocated",
            "MostAllocated",
            "RequestedToCapacityRatio",
        ]);
        let mut strategy = json!({"type": kind});
        if random.chance(60) {
            strategy["resources"] = json!(scored_resources(random));
        }
        if kind == "RequestedToCapacityRatio" {
            let shape = match random.below(3) {
                0 => json!([{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]),
                1 => {
                    json!([{"utilization": 0, "score": 0}, {"utilization": 40, "score": 10}, {"utilization": 100, "score": 1}])
                }
                _ => json!([{"utilization": 30, "score": 3}]),
            };
            strategy["requestedToCapacityRatio"] = json!({"shape": shape});
        }
        args["scoringStrategy"] = strategy;
    }
    if random.chance(30) {
        args["ignoredResources"] = json!(["example.com/gpu"]);
    }
    if random.chance(30) {
        args["ignoredResourceGroups"] = json!(["other.example"]);
    }
    args
}

fn balanced(random: &mut Random) -> Value {
    let resources: Value = random
        .several(
            &["cpu", "memory", "ephemeral-storage", "example.com/gpu"],
            1,
            4,
        )
        .into_iter()
        .map(|name| json!({"name": name, "weight": 1}))
        .collect();
    json!({"resources": resources})
}

fn pod_affinity(random: &mut Random) -> Value {
    json!({
        "hardPodAffinityWeight": random.one(&[0, 1, 10, 100]),
        "ignorePreferredTermsOfExistingPods": random.chance(40),
    })
}

/// Default constraints from a list: hard ones, soft ones, or none at all.
fn spread(random: &mut Random) -> Value {
    let constraints: Value = random
        .several(
            &[
                (HOSTNAME, "DoNotSchedule"),
                (ZONE, "DoNotSchedule"),
                (HOSTNAME, "ScheduleAnyway"),
                (ZONE, "ScheduleAnyway"),
                ("rack", "ScheduleAnyway"),
            ],
            0,
            3,
        )
        .into_iter()
        .map(|(key, action)| {
            json!({"maxSkew": random.between(1, 3), "topologyKey": key, "whenUnsatisfiable": action})
        })
        .collect();
    json!({"defaultingType": "List", "defaultConstraints": constraints})
}

fn plugins(random: &mut Random) -> Value {
    match random.below(4) {
        0 => {
            json!({"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 5}, {"name": "ImageLocality", "weight": 2}]}})
        }
        1 => json!({"multiPoint": {"disabled": [{"name": "TaintToleration"}]}}),
        2 => {
            json!({"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "InterPodAffinity", "weight": 7}, {"name": "PodTopologySpread"}]}})
        }
        _ => json!({"filter": {"disabled": [{"name": "NodePorts"}]}}),
    }
}
