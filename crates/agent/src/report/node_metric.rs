//! The fields of the NodeMetric.

use engine::node::CpuMemory;
use serde_json::{Value, json};

use super::{Field, Observation, Source, Target, Urgency, usage, whole};

const METRIC: Target = Target::NodeMetric;

/// The use of the node and of its pods. A node that was not measured keeps its old report, whose time shows its age.
pub struct Usage;

impl Source<Observation> for Usage {
    fn fields(&self) -> &'static [Field] {
        const {
            &[
                whole(METRIC, &["status", "updateTime"], Urgency::Periodic),
                whole(METRIC, &["status", "nodeMetric"], Urgency::Periodic),
                whole(METRIC, &["status", "podsMetric"], Urgency::Periodic),
            ]
        }
    }

    fn values(&self, observed: &Observation) -> Vec<Option<Value>> {
        let metric = &observed.metric;
        let Some(node) = metric.node_usage else {
            return vec![None; 3];
        };
        let mut of_node = json!({"nodeUsage": resources(node)});
        if let Some(system) = metric.system_usage {
            of_node["systemUsage"] = resources(system);
        }
        let pods = metric.pods.iter().map(|pod| {
            json!({
                "name": &*pod.name,
                "namespace": &*pod.namespace,
                "podUsage": resources(pod.usage),
                "priority": pod.priority(),
                "qos": pod.qos(),
            })
        });
        vec![
            Some(json!(observed.at.whole_second().to_string())),
            Some(of_node),
            Some(pods.collect()),
        ]
    }
}

/// Requests of online pods that they will not use, and their peak.
pub struct Predictions;

impl Source<Observation> for Predictions {
    fn fields(&self) -> &'static [Field] {
        const {
            &[
                whole(
                    METRIC,
                    &["status", "prodReclaimableMetric"],
                    Urgency::AtOnce,
                ),
                whole(METRIC, &["status", "prodPeakMetric"], Urgency::Periodic),
            ]
        }
    }

    fn values(&self, observed: &Observation) -> Vec<Option<Value>> {
        let metric = &observed.metric;
        let amount = |amount: Option<CpuMemory>| match amount {
            Some(amount) => json!({"resource": resources(amount)}),
            // An empty one counts as zero.
            None => json!({}),
        };
        vec![
            Some(amount(metric.prod_reclaimable)),
            metric.prod_peak.map(|peak| amount(Some(peak))),
        ]
    }
}

fn resources(amount: CpuMemory) -> Value {
    json!({"resources": usage(amount)})
}
