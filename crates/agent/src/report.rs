//! Reports to the API server: sources register the fields that they fill, and one writer for each object merges and sends them.
//!
//! A [`Source`] turns an observation of the node into values. It does not know when they are sent, to which version of the
//! definition, or what other sources fill. [`Reporter::add`] refuses a field that has a source already.

pub mod cnr;
mod json;
pub mod lease;
pub mod node_metric;
pub mod send;
pub mod taint;
pub mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::model::Timestamp;
use engine::node::{
    AgentCondition, AgentTaint, CpuMemory, Figure, NodeMetricReport, NodeSample, ReclaimedReport,
    ZoneReport,
};
use serde_json::{Value, json};

use crate::request::RequestError;
pub use writer::{Failure, ObjectWriter};

/// What the agent reports at one moment.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// The time of day.
    pub at: Timestamp,
    pub sample: Option<Arc<NodeSample>>,
    /// None: what was reported before stays.
    pub zones: Option<Vec<ZoneReport>>,
    pub reclaimed: ReclaimedReport,
    /// The sums behind `reclaimed`.
    pub terms: Vec<Figure>,
    pub metric: NodeMetricReport,
    pub taints: Vec<AgentTaint>,
    /// With the time of the last change.
    pub conditions: Vec<(AgentCondition, Timestamp)>,
}

/// An object that the agent writes; all have the name of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    CustomNodeResource,
    NodeMetric,
    /// Only with `--taint-target node`. The agent does not create it.
    Node,
}

impl Target {
    pub fn kind(self) -> &'static str {
        match self {
            Self::CustomNodeResource => "CustomNodeResource",
            Self::NodeMetric => "NodeMetric",
            Self::Node => "Node",
        }
    }

    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::CustomNodeResource => "node.katalyst.kubewharf.io/v1alpha1",
            Self::NodeMetric => "slo.koordinator.sh/v1alpha1",
            Self::Node => "v1",
        }
    }

    /// The path of all objects of the kind.
    pub(crate) fn collection(self) -> String {
        match self {
            Self::CustomNodeResource => {
                format!("/apis/{}/customnoderesources", self.api_version())
            }
            Self::NodeMetric => format!("/apis/{}/nodemetrics", self.api_version()),
            Self::Node => "/api/v1/nodes".to_owned(),
        }
    }
}

/// Where a value goes, and how much of it belongs to the agent.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub target: Target,
    /// From the top of the object.
    pub path: &'static [&'static str],
    pub share: Share,
    pub urgency: Urgency,
}

/// Fields are compared by their place.
impl PartialEq for Field {
    fn eq(&self, other: &Self) -> bool {
        (self.target, self.path) == (other.target, other.path)
    }
}

/// How much of a field belongs to the agent.
#[derive(Debug, Clone, Copy)]
pub enum Share {
    Whole,
    /// The field is a list that others write, too. The items for which this holds are the agent's.
    Items(fn(&Value) -> bool),
}

/// When a changed value is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    AtOnce,
    /// With the next value that is sent at once, and at least once in the report period.
    Periodic,
}

/// Fills fields of the reported objects.
pub trait Source<T>: Send + Sync {
    fn fields(&self) -> &'static [Field];
    /// One value for each of the fields, in their order. Null removes a field; without a value it stays as it is.
    fn values(&self, observed: &T) -> Vec<Option<Value>>;
}

/// The fields of one object with their values.
pub type Values = Vec<(Field, Value)>;

/// All sources.
pub struct Reporter<T> {
    sources: Vec<Box<dyn Source<T>>>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} of {} has two sources", path.join("."), target.kind())]
pub struct TakenField {
    target: Target,
    path: &'static [&'static str],
}

impl<T> Default for Reporter<T> {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
        }
    }
}

impl<T> Reporter<T> {
    pub fn add(&mut self, source: impl Source<T> + 'static) -> Result<(), TakenField> {
        let taken = |field: &&Field| self.sources.iter().any(|it| it.fields().contains(field));
        if let Some(field) = source.fields().iter().find(taken) {
            return Err(TakenField {
                target: field.target,
                path: field.path,
            });
        }
        self.sources.push(Box::new(source));
        Ok(())
    }

    /// The values of all sources, by object.
    pub fn values(&self, observed: &T) -> BTreeMap<Target, Values> {
        let mut values: BTreeMap<Target, Values> = BTreeMap::new();
        for source in &self.sources {
            for (field, value) in source.fields().iter().zip(source.values(observed)) {
                let fields = values.entry(field.target).or_default();
                fields.extend(value.map(|value| (*field, value)));
            }
        }
        values
    }
}

/// The reporter with all sources of the agent.
pub fn reporter(taints: taint::Taints) -> Result<Reporter<Observation>, TakenField> {
    let mut reporter = Reporter::default();
    reporter.add(cnr::Headroom)?;
    reporter.add(cnr::Terms)?;
    reporter.add(cnr::Zones)?;
    reporter.add(cnr::Conditions)?;
    reporter.add(cnr::UseByLevel)?;
    reporter.add(node_metric::Usage)?;
    reporter.add(node_metric::Predictions)?;
    reporter.add(taints)?;
    Ok(reporter)
}

/// Removes what an agent reported, when none runs on the node any more: the node lends nothing, has no zones, no taints and
/// conditions of the agent, and no Lease.
pub async fn withdraw(
    client: &kube::Client,
    node: &str,
    taint_target: taint::TaintTarget,
) -> Result<(), Failure> {
    let taints = taint::Taints {
        target: taint_target,
        form: taint::TaintForm::default(),
    };
    let reporter = reporter(taints).map_err(|error| Failure::Request(error.to_string()))?;
    let mut values = reporter.values(&Observation {
        // Without an agent no process binds pods to zones.
        zones: Some(Vec::new()),
        ..Observation::default()
    });
    for target in [Target::CustomNodeResource, Target::Node] {
        // The agent may not read the Node if it sets no taints there.
        let Some(values) = values.remove(&target) else {
            continue;
        };
        let url = format!("{}/{node}", target.collection());
        match crate::request::get(client, &url).await {
            Ok(_) => {
                let mut writer = ObjectWriter::new(client.clone(), target, node);
                writer.write(&values).await?;
            }
            Err(RequestError::NotFound) => {}
            Err(error) => return Err(Failure::Request(error.to_string())),
        }
    }
    lease::remove(client, node).await
}

/// A field that belongs to the agent.
const fn whole(target: Target, path: &'static [&'static str], urgency: Urgency) -> Field {
    Field {
        target,
        path,
        share: Share::Whole,
        urgency,
    }
}

/// Use of a node or a pod, as a list of resources.
fn usage(amount: CpuMemory) -> Value {
    json!({"cpu": format!("{}m", amount.milli_cpu), "memory": amount.memory.to_string()})
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(&'static [Field]);

    impl Source<u32> for Fixed {
        fn fields(&self) -> &'static [Field] {
            self.0
        }

        fn values(&self, observed: &u32) -> Vec<Option<Value>> {
            vec![Some(json!(observed)); self.0.len()]
        }
    }

    #[test]
    fn a_field_has_one_source() {
        const ZONES: Field = whole(
            Target::CustomNodeResource,
            &["status", "topologyZone"],
            Urgency::AtOnce,
        );
        const USE: Field = whole(
            Target::NodeMetric,
            &["status", "nodeMetric"],
            Urgency::AtOnce,
        );
        let mut reporter = Reporter::default();
        reporter.add(Fixed(&[ZONES])).unwrap();
        let error = reporter.add(Fixed(&[USE, ZONES])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "status.topologyZone of CustomNodeResource has two sources"
        );
        reporter.add(Fixed(&[USE])).unwrap();
        let values = reporter.values(&7);
        assert_eq!(values[&Target::NodeMetric], [(USE, json!(7))]);
        assert_eq!(values[&Target::CustomNodeResource], [(ZONES, json!(7))]);
    }
}
