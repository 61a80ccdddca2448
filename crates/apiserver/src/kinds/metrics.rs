//! `metrics.k8s.io`: the simulated use of pods and nodes. Nothing here is stored: the server derives it from the pods.
//!
//! A pod uses what its annotations say, otherwise what it requests. Its containers share that in proportion to their
//! requests.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kind::{Column, Kind, Rules};
use super::{printer, quantity};
use crate::objects::fields::{at, items, text};
use crate::objects::schema::Schema;

pub(crate) const GROUP: &str = "metrics.k8s.io";
/// How long the use was measured, which is not at all.
const WINDOW: &str = "15s";
const NANOS: i128 = 1_000_000_000;

/// What is measured: its name as a resource, and the annotation of a pod.
const MEASURED: [(&str, &str); 2] = [
    ("cpu", "tidepool.io/cpu-use"),
    ("memory", "tidepool.io/memory-use"),
];

/// The kinds as metrics-server has them.
pub(crate) fn metrics() -> Vec<Kind> {
    let kind = |plural: &'static str, kind: &'static str, namespaced| Kind {
        group: GROUP.into(),
        version: "v1beta1".into(),
        plural: plural.into(),
        singular: "".into(),
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced,
        verbs: vec!["get", "list"],
        subresources: Vec::new(),
        schema: Schema::structural(&json!({})),
        rules: Arc::new(Metrics),
        scale: None,
        alias: None,
        deprecated: None,
        returns_deleted: false,
    };
    vec![
        kind("nodes", "NodeMetrics", false),
        kind("pods", "PodMetrics", true),
    ]
}

struct Metrics;

impl Rules for Metrics {
    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns("Name, Cpu, Memory, Window")
    }

    fn cells(&self, object: &Value, _now: Timestamp) -> Vec<Value> {
        let mut total = Usage::default();
        for container in items(object, "containers") {
            total.add(Usage::of(at(container, "usage")));
        }
        total.add(Usage::of(at(object, "usage")));
        let amounts = total.json();
        vec![
            printer::name(object),
            amounts["cpu"].clone(),
            amounts["memory"].clone(),
            text(object, "window").into(),
        ]
    }
}

/// Amounts in billionths of a unit, in the order of [`MEASURED`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage([i128; 2]);

impl Usage {
    /// The amounts in a map of resources; what is no amount counts as none.
    fn of(resources: &Value) -> Self {
        Self(MEASURED.map(|(resource, _)| amount(at(resources, resource)).unwrap_or_default()))
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (sum, amount) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(amount);
        }
    }

    /// Thousandths of a core and KiB, as clients show them.
    fn json(self) -> Value {
        let [cpu, memory] = self.0;
        json!({
            "cpu": format!("{}m", cpu / (NANOS / 1000)),
            "memory": format!("{}Ki", memory / (NANOS * 1024)),
        })
    }
}

fn amount(value: &Value) -> Option<i128> {
    quantity::nanos(value.as_str()?).filter(|amount| *amount >= 0)
}

/// What a pod uses, by container.
pub(crate) struct PodUse {
    containers: Vec<(String, Usage)>,
    /// About annotations that are no amounts.
    pub(crate) warnings: Vec<String>,
}

impl PodUse {
    /// `None` for a pod that does not run.
    pub(crate) fn of(pod: &Value) -> Option<Self> {
        if text(pod, "status.phase") != "Running" || text(pod, "spec.nodeName").is_empty() {
            return None;
        }
        let sidecars = items(pod, "spec.initContainers").iter();
        let sidecars = sidecars.filter(|container| text(container, "restartPolicy") == "Always");
        let containers = sidecars.chain(items(pod, "spec.containers"));
        let mut containers: Vec<(String, Usage)> = containers
            .map(|container| {
                let requests = Usage::of(at(container, "resources.requests"));
                (text(container, "name").to_owned(), requests)
            })
            .collect();
        let mut warnings = Vec::new();
        for (index, (_, annotation)) in MEASURED.iter().enumerate() {
            let Some(given) = at(pod, "metadata.annotations").get(annotation) else {
                continue;
            };
            match amount(given) {
                Some(total) => share(total, index, &mut containers),
                None => warnings.push(format!(
                    "pod {}/{}: annotation {annotation} is {given}: expected an amount such as 250m or 64Mi; the requests are shown",
                    text(pod, "metadata.namespace"),
                    text(pod, "metadata.name"),
                )),
            }
        }
        Some(Self {
            containers,
            warnings,
        })
    }

    pub(crate) fn total(&self) -> Usage {
        let mut total = Usage::default();
        self.containers
            .iter()
            .for_each(|(_, usage)| total.add(*usage));
        total
    }
}

/// Gives the containers their parts of the total: in proportion to their requests, or equal parts.
fn share(total: i128, index: usize, containers: &mut [(String, Usage)]) {
    let requests: i128 = containers.iter().map(|(_, usage)| usage.0[index]).sum();
    let count = containers.len() as i128;
    for (_, usage) in containers {
        let part = &mut usage.0[index];
        // In thousandths, so that the product of two amounts cannot be too large.
        *part = match requests {
            0 => total / count,
            requests => total.saturating_mul(*part / 1000) / (requests / 1000).max(1),
        };
    }
}

/// The metrics of a running pod.
pub(crate) fn pod_metrics(pod: &Value, usage: &PodUse, now: &str) -> Value {
    let containers: Vec<Value> = usage
        .containers
        .iter()
        .map(|(name, usage)| json!({"name": name, "usage": usage.json()}))
        .collect();
    let mut metrics = measured(pod, now);
    metrics["metadata"]["namespace"] = at(pod, "metadata.namespace").clone();
    metrics["containers"] = Value::Array(containers);
    metrics
}

/// The metrics of a node whose pods use so much together.
pub(crate) fn node_metrics(node: &Value, usage: Usage, now: &str) -> Value {
    let mut metrics = measured(node, now);
    metrics["usage"] = usage.json();
    metrics
}

fn measured(object: &Value, now: &str) -> Value {
    let mut metadata = json!({"name": at(object, "metadata.name"), "creationTimestamp": now});
    let labels = at(object, "metadata.labels");
    if labels.is_object() {
        metadata["labels"] = labels.clone();
    }
    json!({"metadata": metadata, "timestamp": now, "window": WINDOW})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(annotations: Value, requests: [&str; 2]) -> Value {
        let container = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}});
        json!({
            "metadata": {"name": "p", "namespace": "d", "annotations": annotations},
            "spec": {"nodeName": "n", "containers": [container("a", requests[0]), container("b", requests[1])]},
            "status": {"phase": "Running"},
        })
    }

    #[test]
    fn a_pod_uses_what_it_says_or_what_it_requests() {
        for (case, annotations, requests, want) in [
            (
                "its requests",
                json!({}),
                ["100m", "300m"],
                ["100m", "300m"],
            ),
            (
                "parts of its use",
                json!({"tidepool.io/cpu-use": "200m"}),
                ["100m", "300m"],
                ["50m", "150m"],
            ),
            (
                "equal parts",
                json!({"tidepool.io/cpu-use": "200m"}),
                ["0", "0"],
                ["100m", "100m"],
            ),
            (
                "nothing",
                json!({"tidepool.io/cpu-use": "0"}),
                ["1", "3"],
                ["0m", "0m"],
            ),
            (
                "no amount",
                json!({"tidepool.io/cpu-use": "much"}),
                ["1", "3"],
                ["1000m", "3000m"],
            ),
            (
                "a negative amount",
                json!({"tidepool.io/cpu-use": "-1"}),
                ["1", "3"],
                ["1000m", "3000m"],
            ),
            (
                "a huge amount",
                json!({"tidepool.io/cpu-use": "9E"}),
                ["1", "1"],
                ["4500000000000000000000m", "4500000000000000000000m"],
            ),
        ] {
            let pod = pod(annotations, requests);
            let usage = PodUse::of(&pod).unwrap();
            let metrics = pod_metrics(&pod, &usage, "now");
            let cpu = |at: usize| &metrics["containers"][at]["usage"]["cpu"];
            assert_eq!([cpu(0), cpu(1)], want, "{case}");
            assert_eq!(
                metrics["containers"][0]["usage"]["memory"], "65536Ki",
                "{case}"
            );
        }
    }

    #[test]
    fn only_running_pods_use_anything() {
        let mut waiting = pod(json!({}), ["1", "1"]);
        waiting["status"]["phase"] = json!("Pending");
        assert!(PodUse::of(&waiting).is_none());
        let bad = pod(json!({"tidepool.io/memory-use": "x"}), ["1", "1"]);
        let warnings = PodUse::of(&bad).unwrap().warnings;
        assert_eq!(
            warnings,
            [
                "pod d/p: annotation tidepool.io/memory-use is \"x\": expected an amount such as 250m or 64Mi; the requests are shown"
            ]
        );
    }
}
