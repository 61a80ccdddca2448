//! Random nodes with their pods and metrics, and settings of the cluster.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::random::Random;

#[derive(Debug, Clone, Serialize)]
pub(super) struct TierCase {
    /// The value of the key `colocation-config`.
    pub(super) config: String,
    pub(super) node: Value,
    pub(super) pods: Vec<Value>,
    pub(super) metric: Value,
    /// The age of the metric in minutes; None: it was never filled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) age: Option<u64>,
}

/// The classes of a pod: QoS label, priority class, its value.
const ROWS: [(&str, &str, i64); 6] = [
    ("LSE", "koord-prod", 9000),
    ("LSR", "koord-prod", 9000),
    ("LS", "koord-prod", 9000),
    ("LS", "koord-mid", 7000),
    ("BE", "koord-mid", 7000),
    ("BE", "koord-batch", 5000),
];
const BANDS: [&str; 5] = ["koord-prod", "koord-mid", "koord-batch", "koord-free", ""];
pub(super) const RATIO_LABELS: [&str; 4] = [
    "node.koordinator.sh/cpu-reclaim-ratio",
    "node.koordinator.sh/memory-reclaim-ratio",
    "node.koordinator.sh/mid-static-cpu-reserved-ratio",
    "node.koordinator.sh/mid-static-memory-reserved-ratio",
];

impl TierCase {
    pub(super) fn random(random: &mut Random) -> Self {
        let config = config(random);
        let node = node(random);
        let pods: Vec<Value> = (0..random.between(0, 8)).map(|i| pod(random, i)).collect();
        let metric = metric(random, &pods);
        // A metric is stale after 1 to 30 minutes: so is one of 31.
        let age = match random.below(20) {
            0 => None,
            1 => Some(31),
            _ => Some(0),
        };
        Self {
            config,
            node,
            pods,
            metric,
            age,
        }
    }
}

fn amount(random: &mut Random, milli_cpu: usize, mebibytes: usize) -> Value {
    let cpu = random.below(milli_cpu + 1);
    let memory = (random.below(mebibytes + 1) << 20) + random.one(&[0, 0, 1, 1_000_003]);
    json!({"cpu": format!("{cpu}m"), "memory": memory.to_string()})
}

/// Fields of a strategy, some of them, seldom one that is not allowed.
fn strategy(random: &mut Random, invalid: u32) -> Map<String, Value> {
    let percent = |random: &mut Random| json!(random.one(&[0, 1, 7, 29, 33, 57, 60, 65, 99, 100]));
    let over = |random: &mut Random| json!(random.one(&[0, 10, 58, 100, 101, 150]));
    let policies = ["usage", "maxUsageRequest"];
    let all = [
        ("cpuReclaimThresholdPercent", over(random)),
        ("memoryReclaimThresholdPercent", over(random)),
        ("cpuCalculatePolicy", json!(random.pick(&policies))),
        (
            "memoryCalculatePolicy",
            json!(random.pick(&["usage", "request", "maxUsageRequest"])),
        ),
        ("degradeTimeMinutes", json!(random.between(1, 30))),
        ("updateTimeThresholdSeconds", json!(random.between(1, 600))),
        (
            "resourceDiffThreshold",
            json!(random.one(&[0.05, 0.1, 0.25, 0.3])),
        ),
        ("midCPUThresholdPercent", percent(random)),
        ("midMemoryThresholdPercent", percent(random)),
        ("midUnallocatedPercent", percent(random)),
        ("midStaticCPUReservedPercent", percent(random)),
        ("midStaticMemoryReservedPercent", percent(random)),
        ("batchCPUThresholdPercent", over(random)),
        ("batchMemoryThresholdPercent", over(random)),
    ];
    let mut fields: Map<String, Value> = random
        .several(&all, 0, 8)
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    if random.chance(25) {
        fields.insert("midReclaimMode".to_owned(), json!("static"));
    }
    if random.chance(invalid) {
        let (name, value) = random.one(&[
            ("cpuReclaimThresholdPercent", json!(-1)),
            ("degradeTimeMinutes", json!(0)),
            ("updateTimeThresholdSeconds", json!(-5)),
            ("resourceDiffThreshold", json!(0.0)),
            ("resourceDiffThreshold", json!(1.5)),
            ("midCPUThresholdPercent", json!(101)),
            ("midUnallocatedPercent", json!(-1)),
            ("midStaticCPUReservedPercent", json!(-1)),
            ("batchMemoryThresholdPercent", json!(-1)),
            ("cpuCalculatePolicy", json!("request")),
            ("memoryCalculatePolicy", json!("guess")),
            ("midMemoryThresholdPercent", json!("many")),
        ]);
        fields.insert(name.to_owned(), value);
    }
    fields
}

fn config(random: &mut Random) -> String {
    let mut config = strategy(random, 8);
    config.insert("enable".to_owned(), json!(random.chance(90)));
    config.insert("lend".to_owned(), json!("batch"));
    config.insert("midFormula".to_owned(), json!("koordinator"));
    let groups: Vec<Value> = (0..random.one(&[0, 0, 1, 2]))
        .map(|i| {
            let mut group = strategy(random, 2);
            group.insert("name".to_owned(), json!(format!("group-{i}")));
            match random.below(6) {
                0 => {}
                1 => {
                    group.insert("nodeSelector".to_owned(), json!({}));
                }
                _ => {
                    let pool = random.pick(&["a", "b"]);
                    let selector = json!({"matchLabels": {"pool": pool}});
                    group.insert("nodeSelector".to_owned(), selector);
                }
            }
            if random.chance(30) {
                group.insert("enable".to_owned(), json!(random.chance(50)));
            }
            group.into()
        })
        .collect();
    if !groups.is_empty() {
        config.insert("nodeConfigs".to_owned(), groups.into());
    }
    let text = Value::from(config).to_string();
    match random.chance(1) {
        true => text.trim_end_matches('}').to_owned(),
        false => text,
    }
}

fn node(random: &mut Random) -> Value {
    let capacity = match random.chance(3) {
        true => json!({"cpu": "0", "memory": "0"}),
        false => amount(random, 128_000, 512 << 10),
    };
    let mut allocatable = capacity.clone();
    match random.below(4) {
        0 => allocatable = amount(random, 128_000, 512 << 10),
        1 => allocatable["cpu"] = json!("3900m"),
        _ => {}
    }
    let mut labels = json!({"pool": random.pick(&["a", "b", "c"])});
    for label in RATIO_LABELS {
        if random.chance(10) {
            let ratio = random.pick(&["0.57", "0.29", "0.5", "1", "1.2", "-1", "much", ""]);
            labels[label] = json!(ratio);
        }
    }
    let mut annotations = json!({});
    if random.chance(40) {
        let mut reservation = json!({"resources": amount(random, 8000, 16 << 10)});
        match random.below(6) {
            0 => reservation["reservedCPUs"] = json!("0-3,8"),
            1 => reservation = json!({"reservedCPUs": "0,2"}),
            2 => reservation["applyPolicy"] = json!("ReservedCPUsOnly"),
            3 => reservation["applyPolicy"] = json!("Default"),
            4 => reservation["resources"] = amount(random, 256_000, 1 << 20),
            _ => {}
        }
        let text = match random.chance(5) {
            true => "4 cores".to_owned(),
            false => reservation.to_string(),
        };
        annotations["node.koordinator.sh/reservation"] = json!(text);
    }
    if random.chance(15) {
        let mut overrides = strategy(random, 15);
        if random.chance(30) {
            overrides.insert("enable".to_owned(), json!(random.chance(50)));
        }
        let text = match random.chance(10) {
            true => "{".to_owned(),
            false => Value::from(overrides).to_string(),
        };
        annotations["node.koordinator.sh/colocation-strategy"] = json!(text);
    }
    json!({
        "metadata": {"name": "n1", "labels": labels, "annotations": annotations},
        "status": {"capacity": capacity, "allocatable": allocatable},
    })
}

fn pod(random: &mut Random, index: usize) -> Value {
    let mut labels = json!({});
    let mut spec = json!({"nodeName": "n1"});
    let native = amount(random, 16_000, 32 << 10);
    let mut requests = json!({});
    match random.below(12) {
        // No class by name: a service.
        0..=4 => requests = native,
        // Best effort, or a bare number.
        5 if random.chance(20) => {}
        5 if random.chance(20) => {
            spec["priority"] = json!(random.one(&[7500, 5500, 3500]));
            requests = native;
        }
        _ => {
            let (class, band, priority) = random.one(&ROWS);
            labels["koordinator.sh/qosClass"] = json!(class);
            if random.chance(50) {
                labels["koordinator.sh/priority-class"] = json!(band);
            }
            spec["priorityClassName"] = json!(band);
            spec["priority"] = json!(priority);
            let (cpu, memory) = (random.below(4000), random.below(1 << 32));
            match band {
                "koord-mid" if random.chance(60) => {
                    requests =
                        json!({"kubernetes.io/mid-cpu": cpu, "kubernetes.io/mid-memory": memory});
                }
                "koord-batch" => {
                    requests = json!({"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": memory});
                }
                _ => requests = native,
            }
        }
    }
    let container = |name: &str, requests: Value| json!({"name": name, "image": "app", "resources": {"requests": requests}});
    spec["containers"] = json!([container("app", requests)]);
    if random.chance(15) {
        let init = container("init", amount(random, 20_000, 40 << 10));
        spec["initContainers"] = json!([init]);
    }
    let mut metadata = json!({"name": format!("pod-{index}"), "namespace": "default", "uid": format!("uid-{index}"), "labels": labels});
    if random.chance(5) {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    let phase = match random.below(12) {
        0 => random.pick(&["Succeeded", "Failed"]),
        1 => "Pending",
        _ => "Running",
    };
    json!({"metadata": metadata, "spec": spec, "status": {"phase": phase}})
}

fn metric(random: &mut Random, pods: &[Value]) -> Value {
    let usage =
        |random: &mut Random, cpu, memory| json!({"resources": amount(random, cpu, memory)});
    // A run of new pods is seldom.
    let has_new = random.chance(25);
    let mut measured = Vec::new();
    for pod in pods {
        if !(has_new && random.chance(30)) {
            let priority = pod["spec"]["priorityClassName"].as_str().unwrap_or("");
            measured.push(json!({
                "namespace": "default", "name": pod["metadata"]["name"], "priority": priority,
                "podUsage": usage(random, 20_000, 40 << 10),
            }));
        }
    }
    for i in 0..random.one(&[0, 0, 0, 1, 2]) {
        measured.push(json!({
            "namespace": "gone", "name": format!("gone-{i}"), "priority": random.pick(&BANDS),
            "podUsage": usage(random, 4000, 4 << 10),
        }));
    }
    let applications: Vec<Value> = (0..random.one(&[0, 0, 0, 1, 2]))
        .map(|i| json!({"name": format!("host-{i}"), "priority": random.pick(&BANDS), "usage": usage(random, 4000, 4 << 10)}))
        .collect();
    let mut node = json!({
        "nodeUsage": usage(random, 100_000, 400 << 10),
        "systemUsage": usage(random, 8000, 16 << 10),
    });
    match random.below(20) {
        0 => node["nodeUsage"] = json!({}),
        1 => node["nodeUsage"]["resources"] = json!({"cpu": "3"}),
        2 => node["systemUsage"] = json!({}),
        3 => node["systemUsage"]["resources"] = json!({"memory": "1Gi"}),
        _ => {}
    }
    let mut status =
        json!({"nodeMetric": node, "podsMetric": measured, "hostApplicationMetric": applications});
    match random.below(10) {
        0 => {}
        1 => status["prodReclaimableMetric"] = json!({"resource": {}}),
        _ => {
            status["prodReclaimableMetric"] = json!({"resource": usage(random, 64_000, 256 << 10)})
        }
    }
    json!({"metadata": {"name": "n1"}, "status": status})
}
