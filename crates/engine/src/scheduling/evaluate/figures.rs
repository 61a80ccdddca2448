//! Figures for explanations: what exactly about a node made a filter reject it, and how much of each resource is missing.
//! Computed on demand only; a decision does not run this code.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::prepare::PreFilterResult;
use super::scan::{Scan, UNJUDGED, WORDED, Window};
use crate::model::{Name, Pod, Resource};
use crate::scheduling::framework::{Check, RequestedAmount};

/// A resource that some nodes have too little of for the pod. Amounts are written as Kubernetes writes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shortage {
    pub resource: String,
    pub requested: String,
    /// The number of nodes that were rejected for this resource.
    pub nodes: usize,
    /// The largest free amount on these nodes.
    pub most_free: NodeAmount,
    /// The largest allocatable amount on any node.
    pub largest: NodeAmount,
    /// No node is large enough, even without other pods.
    pub can_never_fit: bool,
}

/// An amount, and the node that has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAmount {
    pub node: Name,
    pub amount: String,
}

/// The sums for one resource while nodes are visited.
struct Seen {
    resource: Resource,
    requested: i64,
    nodes: usize,
    /// Amount and slot.
    most_free: (i64, usize),
    largest: (i64, usize),
}

impl Scan<'_> {
    /// For each node, in the order of slots: a text that says more than the rejection, if there is one.
    pub(crate) fn explanations(&mut self) -> Vec<Option<String>> {
        self.judge();
        let slots = self.cluster.nodes().slots().iter().enumerate();
        let slots = slots.filter_map(|(slot, entry)| entry.as_ref().map(|_| slot));
        slots.map(|slot| self.explanation(slot)).collect()
    }

    fn explanation(&self, slot: usize) -> Option<String> {
        let judged = self.judged()?;
        match judged.rejections[slot] {
            (UNJUDGED, _) => match self.pre_filter_result() {
                PreFilterResult::Only { slots, plugins } if slots.binary_search(&slot).is_err() => {
                    let plugins = plugins.join(", ");
                    Some(format!("not one of the nodes that {plugins} allows"))
                }
                _ => None,
            },
            (WORDED, _) => {
                let (_, rejection) = judged.worded.get(&slot)?;
                let nominated = self.nominated_before_us(slot);
                let fits_without = || self.fits_with(slot, &[], &[]).is_ok();
                (!nominated.is_empty() && fits_without())
                    .then(|| format!("{} with {}", rejection.message(), named(&nominated)))
            }
            (filter, verdict) => {
                let &(plugin, check) = self.filters.get(usize::from(filter))?;
                match &self.plan.plugins[plugin].filters[check] {
                    Check::Gate(gate) => {
                        let node = &self.cluster.nodes().get(slot)?.node.spec;
                        let detail = self.plan.facts[gate.fact.0].detail(node)?;
                        Some(format!("{}: {detail}", gate.reason))
                    }
                    Check::Places(check) => {
                        let text = check.explain(verdict.code())?;
                        Some(text.into_owned())
                    }
                    Check::Zones(check) => {
                        let zones = self.cluster.zones_of(slot)?;
                        let (idle, all) = (zones.idle().len(), zones.topology().zones().len());
                        let reason = check.reason(verdict.code());
                        Some(format!("{reason}; {idle} of {all} are idle"))
                    }
                    Check::Rows(_) | Check::Nodes(_) => None,
                }
            }
        }
    }

    /// The resources for which nodes were rejected, in the order in which filters check them.
    pub(crate) fn shortages(&mut self) -> Vec<Shortage> {
        self.judge();
        let (Some(judged), nodes) = (self.judged(), self.cluster.nodes()) else {
            return Vec::new();
        };
        let mut all: Vec<Seen> = Vec::new();
        let mut window = Window::default();
        for (index, &(plugin, check)) in self.filters.iter().enumerate() {
            let Check::Rows(rows) = &self.plan.plugins[plugin].filters[check] else {
                continue;
            };
            let slots = nodes.slots().iter().enumerate();
            for (slot, _) in slots.filter(|(_, entry)| entry.is_some()) {
                let rejected = usize::from(judged.rejections[slot].0) == index;
                for amount in rows.amounts(self.row(slot, &mut window)) {
                    see(&mut all, slot, amount, rejected);
                }
            }
        }
        let short = all.into_iter().filter(|seen| seen.nodes > 0);
        let amount = |resource: &Resource, (amount, slot): (i64, usize)| NodeAmount {
            node: nodes
                .get(slot)
                .map_or_else(Name::default, |entry| entry.node.spec.name.clone()),
            amount: resource.quantity(amount),
        };
        short
            .map(|seen| Shortage {
                resource: seen.resource.name().to_owned(),
                requested: seen.resource.quantity(seen.requested),
                nodes: seen.nodes,
                most_free: amount(&seen.resource, seen.most_free),
                largest: amount(&seen.resource, seen.largest),
                can_never_fit: seen.requested > seen.largest.0,
            })
            .collect()
    }
}

/// Adds the amount of one node. Of equal nodes the first is kept.
fn see(all: &mut Vec<Seen>, slot: usize, found: RequestedAmount, rejected: bool) {
    let known = all.iter().position(|seen| seen.resource == found.resource);
    let index = known.unwrap_or_else(|| {
        all.push(Seen {
            resource: found.resource,
            requested: found.requested,
            nodes: 0,
            most_free: (i64::MIN, slot),
            largest: (i64::MIN, slot),
        });
        all.len() - 1
    });
    let seen = &mut all[index];
    if found.allocatable > seen.largest.0 {
        seen.largest = (found.allocatable, slot);
    }
    if rejected && found.requested > found.free {
        seen.nodes += 1;
        if found.free > seen.most_free.0 {
            seen.most_free = (found.free, slot);
        }
    }
}

/// Pods that are nominated to a node.
fn named(pods: &[&Arc<Pod>]) -> String {
    let names: Vec<String> = pods
        .iter()
        .map(|pod| format!("{}/{}", pod.namespace(), pod.name))
        .collect();
    format!(
        "the nominated pod{} {}",
        if names.len() == 1 { "" } else { "s" },
        names.join(", ")
    )
}
