//! The tier controller in virtual time: publishes the mid and batch resources of nodes that have a NodeMetric.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::parse::koordinator;
use api::wire::koordinator as wire;
use api::wire::meta::Quantity;
use engine::model::Timestamp;
use engine::policies::tiers::{
    ColocationConfig, NodeMetric, TIER_RESOURCES, TierNode, TierPlan, TierPod, plan,
};

use crate::simulation::Simulation;

/// What the controller knows beside the objects of the scheduler.
#[derive(Default)]
pub(crate) struct Tiers {
    settings: ColocationConfig,
    /// By node; None once it was deleted.
    metrics: BTreeMap<String, Option<NodeMetric>>,
    /// When the resources of a node were written last.
    written: BTreeMap<String, Timestamp>,
}

impl Simulation {
    /// The text of the key `colocation-config`.
    pub(crate) fn set_colocation_config(&mut self, text: &str) -> Result<(), String> {
        self.tiers.settings = koordinator::colocation_config(text)?;
        self.log("the settings of the tiers change");
        Ok(())
    }

    /// Without a time it is measured now.
    pub(crate) fn set_metric(&mut self, metric: &wire::NodeMetric) -> Result<(), String> {
        let name = &metric.metadata.name;
        if name.is_empty() {
            return Err("a NodeMetric needs a name".to_owned());
        }
        self.node(name)?;
        let (mut parsed, warnings) = koordinator::node_metric(metric);
        for warning in warnings {
            self.log(format!("warning: {warning}"));
        }
        if metric.status.update_time.is_none() && metric.status.node_metric.is_some() {
            parsed.updated = Some(self.now);
        }
        self.tiers.metrics.insert(name.clone(), Some(parsed));
        Ok(())
    }

    pub(crate) fn delete_metric(&mut self, name: &str) -> Result<(), String> {
        match self.tiers.metrics.get_mut(name).and_then(Option::take) {
            Some(_) => self.log(format!("NodeMetric {name} is deleted")),
            None => return Err(format!("there is no NodeMetric `{name}`")),
        }
        Ok(())
    }

    /// Publishes what has changed. Whether anything was written.
    pub(crate) fn publish(&mut self) -> Result<bool, String> {
        let mut has_written = false;
        for name in self.measured() {
            let Some(plan) = self.tier_plan(&name).filter(|it| it.write) else {
                continue;
            };
            let mut node = self.node(&name)?;
            let mut shown = Vec::new();
            for (resource, value) in TIER_RESOURCES.iter().zip(plan.values) {
                let key = resource.name().to_owned();
                match value {
                    Some(value) => {
                        shown.push(format!("{key}={value}"));
                        let value = Quantity(value.to_string());
                        node.status.allocatable.insert(key, value);
                    }
                    None => drop(node.status.allocatable.remove(&key)),
                }
            }
            let shown = match shown.is_empty() {
                true => "no tier resources".to_owned(),
                false => shown.join(" "),
            };
            self.log(format!("node {name} publishes {shown}"));
            self.tiers.written.insert(name, self.now);
            self.set_node(node)?;
            has_written = true;
        }
        Ok(has_written)
    }

    /// When a node may be written although nothing happens.
    pub(crate) fn publish_due(&self) -> Option<Timestamp> {
        let plans = self.measured().into_iter();
        plans
            .filter_map(|name| self.tier_plan(&name)?.again)
            .map(|at| at.max(Timestamp(self.now.0 + 1)))
            .min()
    }

    fn measured(&self) -> Vec<String> {
        let exists = |name: &&String| self.nodes.contains_key(*name);
        let names = self.tiers.metrics.keys().filter(exists);
        names.cloned().collect()
    }

    fn tier_plan(&self, name: &str) -> Option<TierPlan> {
        let node = self.nodes.get(name)?;
        let status = wire::CapacityStatus {
            capacity: node.status.allocatable.clone(),
            allocatable: node.status.allocatable.clone(),
        };
        // What is wrong with it was logged when it was created.
        let (parsed, _) = koordinator::tier_node(&wire::CapacityNode {
            metadata: node.metadata.clone(),
            status,
        });
        let bound = self.pods.values().filter(|it| it.node() == Some(name));
        let pods = bound.filter_map(|it| koordinator::tier_pod(&it.wire).ok());
        let pods: Vec<TierPod> = pods.collect();
        let observed = TierNode {
            capacity: parsed.capacity,
            allocatable: parsed.allocatable,
            reservation: parsed.reservation,
            pods: &pods,
            metric: self.tiers.metrics.get(name)?.as_ref(),
            report: self.scheduler.cluster().report(name).map(Arc::as_ref),
            agent_silent: false,
        };
        let settings = &self.tiers.settings;
        let strategy = settings.strategy(&parsed.labels, parsed.overrides.as_ref());
        let written = self.tiers.written.get(name).copied();
        let published = &parsed.published;
        Some(plan(
            &observed, &strategy, false, published, written, self.now,
        ))
    }
}
