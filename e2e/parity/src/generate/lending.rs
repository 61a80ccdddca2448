//! Cases for Katalyst's two plugins: nodes that lend, pods that borrow, online pods beside them, and every strategy. Only
//! what the Kubernetes that it is built against has: no sidecars, no resources of whole pods, no resizes.

use serde_json::{Map, Value, json};

use super::Case;
use crate::random::Random;

const CPU: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
const MEMORY: &str = "resource.katalyst.kubewharf.io/reclaimed_memory";
const LEVEL: &str = "katalyst.kubewharf.io/qos_level";
const FIT: &str = "QoSAwareNodeResourcesFit";
const BALANCED: &str = "QoSAwareNodeResourcesBalancedAllocation";

pub(crate) fn lending(seed: u64, index: u64) -> Case {
    let mut random = Random::for_case(seed, index);
    let count = random.between(2, 8);
    let names: Vec<String> = (0..count).map(|number| format!("n{number}")).collect();
    let nodes: Vec<Value> = names.iter().map(|name| node(&mut random, name)).collect();
    let mut reports = Vec::new();
    for name in &names {
        if random.chance(94) {
            reports.push(report(&mut random, name));
        }
    }
    let placed: Vec<Value> = (0..random.between(0, 12))
        .map(|number| {
            let reclaimed = random.chance(60);
            let mut pod = pod(&mut random, &format!("placed-{number}"), reclaimed);
            pod["spec"]["nodeName"] = json!(names[random.below(names.len())]);
            pod
        })
        .collect();
    let reclaimed = random.chance(70);
    Case(json!({
        "profile": profile(&mut random),
        "nodes": nodes,
        "customNodeResources": reports,
        "pods": placed,
        "pod": pod(&mut random, "pod", reclaimed),
    }))
}

fn profile(random: &mut Random) -> Value {
    let weight = |random: &mut Random| random.one(&[1, 4, 15]);
    let scorers = [FIT, BALANCED].map(|name| json!({"name": name, "weight": weight(random)}));
    json!({
        "schedulerName": "katalyst-scheduler",
        "plugins": {
            "multiPoint": {"disabled": [{"name": "*"}]},
            "filter": {"enabled": [{"name": FIT}]},
            "score": {"enabled": scorers},
        },
        "pluginConfig": [
            {"name": FIT, "args": fit(random)},
            {"name": BALANCED, "args": balanced(random)},
        ],
    })
}

/// In the layout of today, which is the only one that Katalyst reads.
fn report(random: &mut Random, name: &str) -> Value {
    let cpu = random.one(&["0", "500", "1k", "2k", "4k", "4001", "12k", "1.5k"]);
    let memory = random.one(&["0", "64Mi", "256Mi", "1Gi", "4Gi", "1G", "12884901889"]);
    // Both of them, only one, neither, or no list at all.
    let resources = match random.below(20) {
        0 => json!({"allocatable": {CPU: cpu}}),
        1 => json!({"allocatable": {MEMORY: memory}}),
        2 => json!({"allocatable": {}}),
        3 => json!({}),
        _ => json!({"allocatable": {CPU: cpu, MEMORY: memory}}),
    };
    json!({"metadata": {"name": name}, "status": {"resources": resources}})
}

fn node(random: &mut Random, name: &str) -> Value {
    let mut allocatable = Map::new();
    allocatable.insert(
        "cpu".into(),
        json!(random.one(&["2", "4", "8", "3500m", "0"])),
    );
    allocatable.insert(
        "memory".into(),
        json!(random.one(&["2Gi", "4Gi", "16Gi", "1G", "0"])),
    );
    allocatable.insert("pods".into(), json!("110"));
    if random.chance(30) {
        allocatable.insert("example.com/gpu".into(), json!("4"));
    }
    json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}})
}

fn pod(random: &mut Random, name: &str, reclaimed: bool) -> Value {
    let mut meta = json!({"name": name, "namespace": "default", "uid": name});
    let other = [
        "",
        "shared_cores",
        "dedicated_cores",
        "system_cores",
        "Reclaimed_Cores",
    ];
    let level = if reclaimed {
        "reclaimed_cores"
    } else {
        random.pick(&other)
    };
    if !level.is_empty() {
        meta["annotations"] = json!({LEVEL: level});
    }
    let containers = |random: &mut Random, low, high| -> Vec<Value> {
        let count = random.between(low, high);
        (0..count)
            .map(|number| container(random, number, reclaimed))
            .collect()
    };
    let mut spec = json!({"containers": containers(random, 1, 3)});
    if random.chance(25) {
        spec["initContainers"] = json!(containers(random, 1, 2));
    }
    if random.chance(15) {
        spec["overhead"] = requests(random, reclaimed);
    }
    json!({"metadata": meta, "spec": spec})
}

fn container(random: &mut Random, number: usize, reclaimed: bool) -> Value {
    let mut container = json!({"name": format!("c{number}")});
    if random.chance(85) {
        container["resources"] = json!({"requests": requests(random, reclaimed)});
    }
    container
}

/// Reclaimed pods may request both; others only native resources.
fn requests(random: &mut Random, reclaimed: bool) -> Value {
    let mut all = Map::new();
    if reclaimed {
        if random.chance(80) {
            let amount = random.one(&["0", "1", "100", "250", "500", "1k", "2k", "1.5k"]);
            all.insert(CPU.into(), json!(amount));
        }
        if random.chance(75) {
            let amount = random.one(&["0", "1", "64Mi", "100M", "512Mi", "1Gi"]);
            all.insert(MEMORY.into(), json!(amount));
        }
    }
    if !reclaimed || random.chance(10) {
        if random.chance(80) {
            all.insert(
                "cpu".into(),
                json!(random.one(&["0", "100m", "500m", "1", "1500m"])),
            );
        }
        if random.chance(80) {
            all.insert(
                "memory".into(),
                json!(random.one(&["0", "100Mi", "512Mi", "1Gi"])),
            );
        }
        if random.chance(15) {
            all.insert("example.com/gpu".into(), json!("1"));
        }
    }
    Value::Object(all)
}

fn fit(random: &mut Random) -> Value {
    if random.chance(15) {
        return json!({});
    }
    let kind = random.one(&[
        "LeastAllocated",
        "MostAllocated",
        "RequestedToCapacityRatio",
    ]);
    let mut strategy = json!({"type": kind});
    if random.chance(60) {
        strategy["resources"] = weights(random, &["cpu", "memory", "example.com/gpu"]);
    }
    if random.chance(60) {
        strategy["reclaimedResources"] = weights(random, &[CPU, MEMORY]);
    }
    if kind == "RequestedToCapacityRatio" {
        strategy["requestedToCapacityRatio"] = json!({"shape": shape(random)});
        strategy["reclaimedRequestedToCapacityRatio"] = json!({"shape": shape(random)});
    }
    json!({"scoringStrategy": strategy})
}

fn weights(random: &mut Random, names: &[&str]) -> Value {
    let chosen = random.several(names, 1, names.len());
    let weighted = chosen.into_iter().map(|name| {
        let weight = random.one(&[0, 1, 1, 3, 30, 70, 100]);
        json!({"name": name, "weight": weight})
    });
    weighted.collect()
}

fn shape(random: &mut Random) -> Value {
    let points = random.several(&[0, 10, 20, 35, 50, 75, 100], 1, 4);
    let point = points.into_iter().map(|utilization| {
        let score = random.between(0, 10);
        json!({"utilization": utilization, "score": score})
    });
    point.collect()
}

fn balanced(random: &mut Random) -> Value {
    if random.chance(50) {
        return json!({});
    }
    let mut list = |names: &[&str]| -> Value {
        let chosen = random.several(names, 1, names.len()).into_iter();
        chosen
            .map(|name| json!({"name": name, "weight": 1}))
            .collect()
    };
    json!({
        "resources": list(&["cpu", "memory", "example.com/gpu"]),
        "reclaimedResources": list(&[CPU, MEMORY]),
    })
}
