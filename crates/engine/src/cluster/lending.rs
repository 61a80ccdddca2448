//! What nodes lend, as their agents report it: kept beside the nodes, because reports come and go on their own.
//!
//! What pods borrow is in the rows with everything else they take, so a report that vanishes and returns finds it there.

use std::sync::Arc;

use super::{Cluster, Part};
use crate::cluster::CustomNodeResource;
use crate::cluster::event::{Actions, Change, Changed, Event};
use crate::model::{Name, Node, NodeSpec, Reclaimed, ReclaimedResource};

impl Cluster {
    /// The last report of a node's agent; `None` if there is none.
    pub fn report(&self, node: &str) -> Option<&Arc<CustomNodeResource>> {
        self.reports.get(node)
    }

    /// Every report, also of nodes that are not known, in no order.
    pub fn reports(&self) -> impl Iterator<Item = &Arc<CustomNodeResource>> {
        self.reports.values()
    }

    /// How many reports are of nodes that are not known.
    pub fn reports_without_node(&self) -> usize {
        self.reports_without_node
    }

    /// The first nodes, by name, that are reported of and not known. Looks at all reports.
    pub fn first_reports_without_node(&self, most: usize) -> Vec<Name> {
        if self.reports_without_node == 0 {
            return Vec::new();
        }
        let unknown = |node: &&Name| self.nodes.slot(node).is_none();
        let mut without_node: Vec<Name> = self.reports.keys().filter(unknown).cloned().collect();
        without_node.sort_unstable();
        without_node.truncate(most);
        without_node
    }

    /// Applies a new report, or the end of the report.
    pub(crate) fn set_report(&mut self, node: &str, new: Option<CustomNodeResource>) -> Vec<Event> {
        let new = new.map(Arc::new);
        let old = match &new {
            Some(report) => {
                self.open_lending();
                self.reports.insert(report.node.clone(), report.clone())
            }
            None => self.reports.remove(node),
        };
        if old != new {
            self.touch();
        }
        let Some(slot) = self.nodes.slot(node) else {
            self.reports_without_node += usize::from(new.is_some());
            self.reports_without_node -= usize::from(old.is_some());
            return Vec::new();
        };
        self.write_lent(slot);
        let change = Change { old, new };
        if is_visible(&change) {
            self.rewrite(slot);
        }
        self.settle_zones(slot);
        self.report_events(slot, change)
    }

    /// Puts what facts may read into a node that is about to be written.
    pub(super) fn annotate(&self, spec: &mut NodeSpec) {
        let report = self.reports.get(&spec.name);
        spec.reports = report.is_some();
        spec.qos_taints = report.map_or_else(Vec::new, |report| report.taints.clone());
        spec.refuses_mid_latency_sensitive =
            report.is_some_and(|report| report.refuses_mid_latency_sensitive);
        spec.topology = report.and_then(|report| report.topology.clone());
    }

    fn rewrite(&mut self, slot: usize) {
        let Some(entry) = self.nodes.get(slot) else {
            return;
        };
        let mut node = Node::clone(&entry.node);
        self.annotate(&mut node.spec);
        self.nodes.replace(slot, Arc::new(node));
    }

    /// Writes what the node lends into its row, and its pool without what pods with zones of their own take.
    pub(super) fn write_lent(&mut self, slot: usize) {
        let entry = self.nodes.get(slot);
        let report = entry.and_then(|entry| self.reports.get(&entry.node.spec.name));
        let report = report.cloned();
        for resource in ReclaimedResource::ALL {
            let lost = self.pods_on(slot);
            let lost = lost.map(|placed| placed.lost.pool.get(resource));
            let lost: i64 = lost.fold(0, i64::wrapping_add);
            for (part, amount) in lent_columns(report.as_deref(), resource) {
                let amount = match part {
                    Part::Pool => amount.wrapping_sub(lost),
                    _ => amount,
                };
                let accounts = &self.catalog.accounts;
                if let Some(column) = accounts.reclaimed_column(resource, part) {
                    self.nodes.row_mut(slot)[column] = amount;
                }
            }
        }
    }

    pub(super) fn open_lending(&mut self) {
        if self.catalog.accounts.open_reclaimed() {
            self.nodes.widen(self.catalog.accounts.width());
        }
    }

    /// What is left of what the node lends; below zero if it lends less than before.
    fn left(&self, slot: usize) -> Reclaimed {
        let row = self.nodes.row(slot);
        let accounts = &self.catalog.accounts;
        let value = |resource, part| {
            accounts
                .reclaimed_column(resource, part)
                .map_or(0, |c| row[c])
        };
        let left = |resource| {
            let taken = value(resource, Part::Requested);
            value(resource, Part::Allocatable).wrapping_sub(taken)
        };
        Reclaimed {
            milli_cpu: left(ReclaimedResource::Cpu),
            memory: left(ReclaimedResource::Memory),
        }
    }

    /// What waiting pods may care about; a node that lends less helps no pod.
    fn report_events(&self, slot: usize, change: Change<CustomNodeResource>) -> Vec<Event> {
        let actions: Vec<Actions> = match (&change.old, &change.new) {
            (None, None) => Vec::new(),
            (None, Some(_)) => vec![Actions::ADD],
            (Some(_), None) => vec![Actions::DELETE],
            (Some(old), Some(new)) => [
                (
                    new.allocatable.grew_from(old.allocatable)
                        || pool_grew(old, new)
                        || new.topology != old.topology,
                    Actions::NODE_ALLOCATABLE,
                ),
                (new.taints != old.taints, Actions::NODE_TAINT),
                (
                    old.refuses_mid_latency_sensitive && !new.refuses_mid_latency_sensitive,
                    Actions::NODE_CONDITION,
                ),
            ]
            .into_iter()
            .filter_map(|(differs, actions)| differs.then_some(actions))
            .collect(),
        };
        if actions.is_empty() {
            return Vec::new();
        }
        let left = self.left(slot);
        let borrowers = self.pods_on(slot);
        let borrowers = borrowers.filter(|placed| placed.pod.requests.reclaimed.is_some());
        let lowest = borrowers.map(|placed| placed.pod.priority).min();
        let event = |actions| Event {
            actions,
            changed: Changed::Report {
                change: change.clone(),
                left,
                lowest,
            },
        };
        actions.into_iter().map(event).collect()
    }
}

/// What a report puts into the row of its node.
pub(super) fn lent_columns(
    report: Option<&CustomNodeResource>,
    resource: ReclaimedResource,
) -> [(Part, i64); 2] {
    let lent = report.map_or(0, |report| report.allocatable.get(resource));
    let bound = report.and_then(CustomNodeResource::pool_bound);
    let pool = bound.map_or(0, |pool| pool.get(resource).wrapping_sub(i64::MAX));
    [(Part::Allocatable, lent), (Part::Pool, pool)]
}

fn pool_grew(old: &CustomNodeResource, new: &CustomNodeResource) -> bool {
    match (old.pool_bound(), new.pool_bound()) {
        (Some(old), Some(new)) => new.grew_from(old),
        (old, new) => old.is_some() && new.is_none(),
    }
}

/// Whether facts can see the difference.
fn is_visible(change: &Change<CustomNodeResource>) -> bool {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => {
            old.taints != new.taints
                || old.refuses_mid_latency_sensitive != new.refuses_mid_latency_sensitive
                || old.topology != new.topology
        }
        (old, new) => old.is_some() != new.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, report};

    #[test]
    fn the_first_reports_without_a_node_are_named() {
        let mut cluster = Cluster::new();
        let named = |cluster: &Cluster| cluster.first_reports_without_node(2).join(" ");
        assert_eq!(named(&cluster), "");
        for name in ["c", "b", "d", "a"] {
            cluster.apply(report(name).into()).unwrap();
        }
        assert_eq!(named(&cluster), "a b");
        cluster.apply(node("a").build().into()).unwrap();
        assert_eq!(named(&cluster), "b c");
    }
}
