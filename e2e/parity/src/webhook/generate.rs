//! Random pods and profiles, as the API server sends them to a webhook.

use serde::Serialize;
use serde_json::{Value, json};

use crate::random::Random;

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionCase {
    pub(super) pod: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) old_pod: Option<Value>,
    pub(super) namespace: Value,
    pub(super) profiles: Vec<Value>,
    pub(super) priority_classes: Vec<Value>,
}

const CLASSES: [&str; 5] = ["LSE", "LSR", "LS", "BE", "SYSTEM"];
const BANDS: [(&str, i64); 4] = [
    ("koord-prod", 9000),
    ("koord-mid", 7000),
    ("koord-batch", 5000),
    ("koord-free", 3000),
];
const QOS_LABEL: &str = "koordinator.sh/qosClass";
const BAND_LABEL: &str = "koordinator.sh/priority-class";

impl AdmissionCase {
    pub(super) fn random(seed: u64, index: u64) -> Self {
        let mut random = Random::for_case(seed, index);
        let pod = pod(&mut random);
        let is_update = random.chance(10);
        let mut case = Self {
            old_pod: None,
            namespace: json!({"metadata": {"name": "shop", "labels": {"tier": random.pick(&["a", "b"])}}}),
            profiles: match is_update {
                true => Vec::new(),
                false => (0..random.one(&[0, 0, 1, 1, 2, 3]))
                    .map(|i| profile(&mut random, i))
                    .collect(),
            },
            priority_classes: BANDS
                .iter()
                .map(|(name, value)| class(name, *value))
                .collect(),
            pod,
        };
        if is_update {
            let mut old = case.pod.clone();
            match random.below(5) {
                0 => case.pod["metadata"]["labels"][QOS_LABEL] = json!(random.pick(&CLASSES)),
                1 => case.pod["metadata"]["labels"][BAND_LABEL] = json!(random.one(&BANDS).0),
                2 => old["metadata"]["labels"]["koordinator.sh/priority"] = json!("7"),
                3 => {
                    case.pod["metadata"]["annotations"]["katalyst.kubewharf.io/qos_level"] =
                        json!("shared_cores")
                }
                _ => case.pod["metadata"]["labels"]["other"] = json!("x"),
            }
            case.old_pod = Some(old);
        }
        case
    }
}

fn class(name: &str, value: i64) -> Value {
    json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority"})
}

fn pod(random: &mut Random) -> Value {
    let mut labels = json!({"app": random.pick(&["web", "job"])});
    let mut annotations = json!({"note": "n"});
    let mut spec = json!({"schedulerName": random.pick(&["default-scheduler", "default-scheduler", "other"]), "priority": 0});
    // Half of the pods have a row of the panorama.
    if random.chance(50) {
        let rows = [
            ("LS", 0),
            ("LSR", 0),
            ("LS", 1),
            ("BE", 1),
            ("BE", 2),
            ("BE", 3),
        ];
        let (qos, band) = random.one(&rows);
        let (name, value) = BANDS[band];
        labels[QOS_LABEL] = json!(qos);
        spec["priorityClassName"] = json!(name);
        spec["priority"] = json!(value);
    } else {
        if random.chance(50) {
            labels[QOS_LABEL] = json!(random.pick(&["LSE", "LSR", "LS", "BE", "SYSTEM", "gold"]));
        }
        match random.below(6) {
            0 => {
                labels[BAND_LABEL] = json!(random.pick(&[
                    "koord-prod",
                    "koord-mid",
                    "koord-batch",
                    "koord-free",
                    "gold"
                ]))
            }
            1 | 2 => {
                let (name, value) = random.one(&BANDS);
                spec["priorityClassName"] = json!(name);
                spec["priority"] = json!(value);
            }
            // A bare number.
            3 => spec["priority"] = json!(random.one(&[9500, 7500, 5500, 3500, 1000])),
            _ => {}
        }
        if random.chance(10) {
            let level = random.pick(&["shared_cores", "reclaimed_cores", "dedicated_cores"]);
            annotations["katalyst.kubewharf.io/qos_level"] = json!(level);
        }
    }
    if random.chance(5) {
        annotations["node.koordinator.sh/extended-resource-spec"] =
            json!("{\"containers\":{\"gone\":{\"requests\":{\"kubernetes.io/batch-cpu\":\"5\"}}}}");
    }
    if random.chance(5) {
        spec["overhead"] = json!({"cpu": "100m", "memory": "10Mi"});
    }
    let shape = random.below(4);
    spec["containers"] = (0..random.between(1, 2))
        .map(|i| container(random, &format!("app{i}"), shape))
        .collect();
    if random.chance(20) {
        let mut init = container(random, "init", shape);
        if random.chance(50) {
            init["restartPolicy"] = json!("Always");
        }
        spec["initContainers"] = json!([init]);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": "shop", "labels": labels, "annotations": annotations}, "spec": spec})
}

fn container(random: &mut Random, name: &str, shape: usize) -> Value {
    let (cpu, memory) = (
        random.pick(&["1", "2", "4", "500m", "1500m"]),
        random.pick(&["1Gi", "512Mi", "1G", "3Gi"]),
    );
    let mut resources = match shape {
        // Guaranteed, with whole cores.
        0 => {
            let both = json!({"cpu": random.pick(&["1", "2"]), "memory": memory});
            json!({"requests": both, "limits": both})
        }
        1 => {
            json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": "4", "memory": "4Gi"}})
        }
        2 => json!({"requests": {"cpu": cpu, "memory": memory}}),
        _ => json!({"limits": {"cpu": cpu}}),
    };
    if random.chance(8) {
        let tier = random.pick(&["mid", "batch"]);
        let amount = random.pick(&["1000", "2000", "1500m"]);
        resources[random.pick(&["requests", "limits"])][format!("kubernetes.io/{tier}-cpu")] =
            json!(amount);
        if random.chance(50) {
            resources["requests"]["cpu"] = json!("0");
        }
    }
    if random.chance(5) {
        resources["requests"]["cpu"] = json!(random.pick(&["0", "8"]));
    }
    // The API server copies limits into missing requests.
    let limits = resources["limits"].as_object().cloned().unwrap_or_default();
    for (resource, amount) in limits {
        if resources["requests"][&resource].is_null() {
            resources["requests"][&resource] = amount;
        }
    }
    json!({"name": name, "image": "image", "env": [{"name": "A", "value": "1"}], "resources": resources})
}

fn profile(random: &mut Random, number: usize) -> Value {
    let mut spec = json!({});
    if random.chance(30) {
        spec["namespaceSelector"] = selector(random, "tier", &["a", "b"]);
    }
    if random.chance(40) {
        spec["selector"] = selector(random, "app", &["web", "job"]);
    }
    if random.chance(20) {
        spec["probability"] = random.one(&[json!(0), json!(100), json!("0%"), json!("100%")]);
    }
    for _ in 0..random.between(1, 3) {
        match random.below(10) {
            0 => spec["labels"] = json!({"team": "a", "app": "profiled"}),
            1 => spec["annotations"] = json!({"note": "profiled"}),
            2 => spec["labelKeysMapping"] = json!({"app": "copied"}),
            3 => spec["annotationKeysMapping"] = json!({"note": "copied", "missing": "empty"}),
            4 => spec["labelSuffixes"] = json!({"app": "-x", "absent": "-x"}),
            5 => spec["schedulerName"] = json!("koord-scheduler"),
            6 => spec["qosClass"] = json!(random.pick(&CLASSES)),
            7 => {
                let name = if random.chance(5) {
                    "gone"
                } else {
                    random.one(&BANDS).0
                };
                spec["priorityClassName"] = json!(name);
            }
            8 => spec["koordinatorPriority"] = json!(random.between(0, 9)),
            _ => {
                spec["patch"] = random.one(&[
                    json!({"metadata": {"labels": {"patched": "true"}}}),
                    json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}),
                    json!({"spec": {"containers": [{"name": "app0", "env": [{"name": "B", "value": "2"}]}]}}),
                    json!({"spec": {"containers": [{"name": "added", "image": "i"}]}}),
                    json!({"spec": {"nodeSelector": {"disk": "ssd"}, "schedulerName": null}}),
                ]);
            }
        }
    }
    let mut metadata = json!({"name": format!("p{number}")});
    if random.chance(5) {
        metadata["annotations"] = json!({"config.koordinator.sh/skip-update-resources": "true"});
    }
    json!({"metadata": metadata, "spec": spec})
}

fn selector(random: &mut Random, key: &str, values: &[&str]) -> Value {
    match random.below(10) {
        0 => json!({}),
        // It cannot be evaluated.
        1 => json!({"matchExpressions": [{"key": key, "operator": "Like", "values": ["a"]}]}),
        2 | 3 => {
            json!({"matchExpressions": [{"key": key, "operator": "NotIn", "values": [random.pick(values)]}]})
        }
        4 => json!({"matchExpressions": [{"key": key, "operator": "Exists"}]}),
        _ => json!({"matchLabels": {key: random.pick(values)}}),
    }
}
