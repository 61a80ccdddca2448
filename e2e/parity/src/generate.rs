//! Random clusters and pods in which every feature of the native plugins meets every other.
//!
//! A case follows from its seed and number alone. Names and values come from small pools, so that
//! selectors match, ports clash and volumes are shared. What a case is worth, `coverage` counts.

mod cluster;
mod constraints;
mod lending;
mod malformed;
mod pods;
mod profile;
mod resources;
mod scored;
mod storage;
mod zones;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::random::Random;

pub(crate) use lending::lending;
pub(crate) use scored::scored;
pub(crate) use zones::{GPU, ZonedMachine, zones};

/// A cluster and a pod, in the form that the oracle reads: plain Kubernetes objects in JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Case(pub(crate) Value);

/// What a case mostly tests. All kinds of constraints at once would leave no node to score and no pod to evict, and would hide
/// each other's messages.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    /// Scoring: nodes have free capacity, and the pod mostly has preferences.
    Easy,
    /// The pod demands a lot of nodes and of other pods: filtering.
    Picky,
    /// The pod has volumes and demands little else.
    Stored,
    /// Nodes are full of pods that may have to go: preemption.
    Full,
}

impl Mood {
    fn pick(random: &mut Random) -> Self {
        match random.below(20) {
            0..=5 => Self::Easy,
            6..=9 => Self::Picky,
            10..=15 => Self::Stored,
            _ => Self::Full,
        }
    }

    /// One of four chances, in percent.
    fn chance(self, easy: u32, picky: u32, stored: u32, full: u32) -> u32 {
        match self {
            Self::Easy => easy,
            Self::Picky => picky,
            Self::Stored => stored,
            Self::Full => full,
        }
    }
}

/// The properties that all parts of a case share.
struct Draft {
    random: Random,
    mood: Mood,
    /// Nodes are alike and so are the pods on them, so that candidates for preemption tie.
    alike: bool,
    /// Names of the nodes, in the order in which they are added.
    nodes: Vec<String>,
}

/// A case of [`case`]; some have what only a kubelet checks.
pub(crate) fn of_kubelets(seed: u64, index: u64) -> Case {
    let mut case = self::case(seed, index);
    let pod = &mut case.0["pod"];
    match index % 12 {
        3 => pod["metadata"]["labels"]["kubernetes.io/os"] = json!("windows"),
        5 => pod["spec"]["os"] = json!({"name": "windows"}),
        7 => {
            pod["spec"]["securityContext"] = json!({"supplementalGroupsPolicy": "Strict"});
            let nodes = case.0["nodes"].as_array_mut();
            // Every second node has a container runtime that supports it.
            for node in nodes.into_iter().flatten().step_by(2) {
                node["status"]["features"] = json!({"supplementalGroupsPolicy": true});
            }
        }
        _ => {}
    }
    case
}

pub(crate) fn case(seed: u64, index: u64) -> Case {
    let mut random = Random::for_case(seed, index);
    let mood = Mood::pick(&mut random);
    let alike = mood == Mood::Full && random.chance(60);
    let count = match mood {
        Mood::Easy => random.between(4, 12),
        _ => random.between(2, 9),
    };
    let mut draft = Draft {
        random,
        mood,
        alike,
        nodes: (0..count).map(|number| format!("n{number}")).collect(),
    };

    let mut case = Map::new();
    if let Some(profile) = profile::profile(&mut draft) {
        case.insert("profile".into(), profile);
    }
    case.insert("preempt".into(), json!(true));
    case.insert("nodes".into(), cluster::nodes(&mut draft));
    case.insert("namespaces".into(), cluster::namespaces(&mut draft));
    cluster::owners(&mut draft, &mut case);
    let storage = storage::storage(&mut draft);
    case.insert("pods".into(), pods::bound(&mut draft, &storage));
    case.insert("nominated".into(), pods::nominated(&mut draft, &storage));
    case.insert("pod".into(), pods::incoming(&mut draft, &storage));
    case.insert(
        "podDisruptionBudgets".into(),
        cluster::disruption_budgets(&mut draft),
    );
    case.extend(storage.objects);
    let mut case = Value::Object(case);
    let is_spoiled = draft.random.chance(9);
    if is_spoiled {
        malformed::spoil(&mut draft.random, &mut case);
    }
    let is_odd = ["pod", "pods", "nodes"].map(|list| is_odd(&case[list]));
    case["hints"] = json!(!is_spoiled && is_odd == [false; 3]);
    Case(case)
}

/// Whether kube-scheduler's hints go by something that its verdicts do not: whatever happens helps a pod that it cannot
/// read, it reacts to resources that are not counted, and it does not know the labels of namespaces.
fn is_odd(value: &Value) -> bool {
    let is_odd_field = |key: &str, value: &Value| match key {
        "requests" | "allocatable" => value.get("storage").is_some(),
        "matchFields" => {
            let mut fields = value.as_array().into_iter().flatten();
            fields.any(|field| field["values"].as_array().is_none_or(|v| v.len() != 1))
        }
        "namespaceSelector" => {
            let mut wants = value["matchExpressions"].as_array().into_iter().flatten();
            wants.any(|wanted| {
                ["NotIn", "DoesNotExist"]
                    .iter()
                    .any(|o| wanted["operator"] == *o)
            })
        }
        _ => false,
    };
    match value {
        Value::Object(fields) => fields
            .iter()
            .any(|(key, value)| is_odd_field(key, value) || is_odd(value)),
        Value::Array(items) => items.iter().any(is_odd),
        _ => false,
    }
}

const ZONES: &[&str] = &["z1", "z2", "z3"];
const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const HOSTNAME: &str = "kubernetes.io/hostname";
const RACK: &str = "rack";
const TOPOLOGY_KEYS: &[&str] = &[
    ZONE,
    ZONE,
    ZONE,
    ZONE,
    ZONE,
    HOSTNAME,
    HOSTNAME,
    HOSTNAME,
    HOSTNAME,
    REGION,
    REGION,
    RACK,
    RACK,
    "no-such-key",
];

/// The pod to place lives in the first; a namespace object may be missing.
const NAMESPACES: &[&str] = &["alpha", "beta", "gamma"];

/// Values of the pod label `app`, which selectors mostly look at.
const APPS: &[&str] = &["web", "web", "db", "cache"];

/// Adds a field unless it is null.
fn set(object: &mut Value, key: &str, value: Value) {
    if !value.is_null() {
        object[key] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_follows_from_its_seed_and_number() {
        for index in 0..50 {
            assert_eq!(case(11, index), case(11, index));
        }
        assert_ne!(case(11, 1), case(11, 2));
        assert_ne!(case(11, 1), case(12, 1));
    }

    #[test]
    fn names_and_uids_are_unique_within_a_case() {
        for index in 0..200 {
            let Case(case) = case(5, index);
            let mut seen = std::collections::BTreeSet::new();
            let pods = ["pods", "nominated"]
                .iter()
                .flat_map(|list| case[list].as_array().unwrap())
                .chain([&case["pod"]]);
            for pod in pods {
                let uid = pod["metadata"]["uid"].as_str().unwrap();
                assert!(
                    seen.insert(uid.to_owned()),
                    "{uid} is twice in case {index}"
                );
            }
        }
    }

    /// Upstream orders equally important victims by chance, and takes any of two equal volumes:
    /// cases with such ties could not be compared.
    #[test]
    fn nothing_is_left_to_upstreams_chance() {
        for index in 0..500 {
            let Case(case) = case(3, index);
            let mut starts = std::collections::BTreeSet::new();
            for pod in case["pods"].as_array().unwrap() {
                let start = pod["status"]["startTime"].as_str().unwrap();
                let node = pod["spec"]["nodeName"].as_str().unwrap();
                assert!(starts.insert((node, start)), "{node} {start}");
            }
            let mut sizes = std::collections::BTreeSet::new();
            for volume in case["persistentVolumes"].as_array().unwrap() {
                let size = volume["spec"]["capacity"]["storage"].as_str().unwrap();
                assert!(sizes.insert(size), "two volumes of {size}");
            }
        }
    }
}
