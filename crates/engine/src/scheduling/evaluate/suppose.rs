//! Whether the pod fits on a node with some pods added to it and others removed. The cluster is not changed.

use std::borrow::Cow;
use std::sync::Arc;

use super::checks::{CheckFailure, CheckInput};
use super::scan::Scan;
use crate::cluster::NodeZones;
use crate::model::Pod;
use crate::scheduling::framework::{BLOCK, Block, Places, Rejection};

/// Pods to add to a node and pods to remove from it.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeChange<'p> {
    pub added: &'p [&'p Arc<Pod>],
    pub removed: &'p [&'p Arc<Pod>],
}

/// A node with a change. Lane and place 0 are its values after the change.
struct ChangedNode<'c> {
    scan: &'c Scan<'c>,
    slot: usize,
    change: NodeChange<'c>,
    block: Block,
    places: Places,
}

impl CheckInput for ChangedNode<'_> {
    fn places(&self) -> (&Places, usize) {
        (&self.places, 0)
    }

    fn rows(&mut self) -> &Block {
        &self.block
    }

    fn zones(&self, lane: usize) -> Option<Cow<'_, NodeZones>> {
        let (slot, pods) = self.node(lane);
        self.scan.zones_with(slot, pods, self.change.added)
    }

    fn node(&self, _: usize) -> (usize, Vec<&Arc<Pod>>) {
        let NodeChange { added, removed } = self.change;
        (self.slot, self.scan.pods_after(self.slot, added, removed))
    }
}

impl Scan<'_> {
    /// Whether the pod fits on the node as it is, and with the pods nominated to it; else the plugin that rejects it.
    pub fn fits(&self, slot: usize) -> Result<(), (&'static str, Rejection)> {
        self.fits_if(slot, NodeChange::default())
    }

    /// Whether the pod fits after a change: first with nominated pods of equal or higher priority, then without them.
    pub fn fits_if(
        &self,
        slot: usize,
        change: NodeChange,
    ) -> Result<(), (&'static str, Rejection)> {
        self.try_on(slot, change)
            .map_err(|(plugin, rejection)| (self.profile.plugins()[plugin].name, rejection))
    }

    pub(super) fn try_on(&self, slot: usize, change: NodeChange) -> Result<(), (usize, Rejection)> {
        let nominated = self.nominated_before_us(slot);
        if !nominated.is_empty() {
            let added: Vec<&Arc<Pod>> = change.added.iter().copied().chain(nominated).collect();
            self.fits_with(slot, &added, change.removed)?;
        }
        self.fits_with(slot, change.added, change.removed)
    }

    /// Pods nominated to the node that go before this one there.
    pub(super) fn nominated_before_us(&self, slot: usize) -> Vec<&Arc<Pod>> {
        self.cluster.nominated_before(self.pod, slot).collect()
    }

    /// Runs the filters once on one node, with pods added and removed.
    pub(super) fn fits_with(
        &self,
        slot: usize,
        added: &[&Arc<Pod>],
        removed: &[&Arc<Pod>],
    ) -> Result<(), (usize, Rejection)> {
        let mut node = ChangedNode {
            scan: self,
            slot,
            change: NodeChange { added, removed },
            block: self.changed_row(slot, added, removed),
            places: self.changed_place(slot, added, removed),
        };
        match self.first_failure(&mut node) {
            None => Ok(()),
            Some(CheckFailure::Message(plugin, rejection)) => Err((plugin, rejection)),
            Some(CheckFailure::Code(filter, verdict)) => {
                let row = node.block.row(0);
                Err((
                    self.filters[filter].0,
                    self.rejection_of(filter, verdict, row),
                ))
            }
        }
    }

    fn pods_after<'p>(
        &'p self,
        slot: usize,
        added: &[&'p Arc<Pod>],
        removed: &[&Arc<Pod>],
    ) -> Vec<&'p Arc<Pod>> {
        let pods = self.cluster.pods_on(slot).map(|placed| &placed.pod);
        pods.filter(|pod| !removed.iter().any(|gone| gone.uid == pod.uid))
            .chain(added.iter().copied())
            .collect()
    }

    fn changed_row(&self, slot: usize, added: &[&Arc<Pod>], removed: &[&Arc<Pod>]) -> Block {
        let mut row = self.cluster.nodes().row(slot).to_vec();
        let accounts = self.cluster.catalog().accounts();
        added
            .iter()
            .for_each(|pod| accounts.charge(&mut row, &pod.requests, 1));
        let pods = || self.pods_after(slot, added, removed);
        for (_, lost) in self.lost_to(slot, added, pods) {
            accounts.charge_lost(&mut row, &lost, 1);
        }
        for pod in removed {
            accounts.charge(&mut row, &pod.requests, -1);
            if let Some(placed) = self.cluster.placed(&pod.uid) {
                accounts.charge_lost(&mut row, &placed.lost, -1);
            }
        }
        let columns = self.plan.columns.iter().map(|column| {
            let mut lanes = [0; BLOCK];
            lanes[0] = column.map_or(0, |column| row[column]);
            lanes
        });
        Block {
            columns: columns.collect(),
        }
    }

    fn changed_place(&self, slot: usize, added: &[&Arc<Pod>], removed: &[&Arc<Pod>]) -> Places {
        let mut place = Places {
            facts: self
                .places
                .facts
                .iter()
                .map(|column| vec![column.get(slot).copied().unwrap_or_default()])
                .collect(),
            ..Places::default()
        };
        for (index, counted) in self.counted.iter().enumerate() {
            let set = &self.plan.counts[index].count.pods;
            let moves =
                |pods: &[&Arc<Pod>]| pods.iter().map(|pod| set.moves(&pod.kind)).sum::<i64>();
            let delta = moves(added) - moves(removed);
            let (count, tally) = counted.moved(&self.plan, index, &self.places, slot, delta);
            place.counts.push(vec![count]);
            place.tallies.push(tally);
        }
        place
    }
}
