//! Would the pod fit on this node if these pods came and those went? The truth is not touched.

use std::sync::Arc;

use super::scan::Scan;
use crate::framework::{BLOCK, Block, Check, NodeView, Places, Rejection, Row};
use crate::model::Pod;

/// A changed world on one node: pods added to it and pods taken from it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Supposed<'p> {
    pub added: &'p [&'p Arc<Pod>],
    pub removed: &'p [&'p Arc<Pod>],
}

impl Scan<'_> {
    /// Whether the pod fits on the node as it is, and with the pods nominated to it; else the plugin that says no.
    pub fn fits(&self, slot: usize) -> Result<(), (&'static str, Rejection)> {
        self.fits_if(slot, Supposed::default())
    }

    /// The same in a changed world: first with nominated pods of equal or higher priority, then without them.
    pub fn fits_if(&self, slot: usize, world: Supposed) -> Result<(), (&'static str, Rejection)> {
        self.try_on(slot, world)
            .map_err(|(plugin, rejection)| (self.profile.plugins()[plugin].name, rejection))
    }

    pub(super) fn try_on(&self, slot: usize, world: Supposed) -> Result<(), (usize, Rejection)> {
        let nominated = self.nominated_before_us(slot);
        if !nominated.is_empty() {
            let added: Vec<&Arc<Pod>> = world.added.iter().copied().chain(nominated).collect();
            self.fits_with(slot, &added, world.removed)?;
        }
        self.fits_with(slot, world.added, world.removed)
    }

    /// Pods nominated to the node that go before this one there.
    pub(super) fn nominated_before_us(&self, slot: usize) -> Vec<&Arc<Pod>> {
        let Some(entry) = self.cluster.nodes().get(slot) else {
            return Vec::new();
        };
        self.cluster
            .nominated_to(&entry.node.spec.name)
            .map(|nominated| &nominated.pod)
            .filter(|other| other.uid != self.pod.uid)
            .filter(|other| other.priority >= self.pod.priority || !self.pod.may_harm(other))
            .collect()
    }

    /// Runs the filters once on one node, with pods added and removed.
    pub(super) fn fits_with(
        &self,
        slot: usize,
        added: &[&Arc<Pod>],
        removed: &[&Arc<Pod>],
    ) -> Result<(), (usize, Rejection)> {
        let block = self.supposed_row(slot, added, removed);
        let places = self.supposed_place(slot, added, removed);
        let row = Row {
            block: &block,
            lane: 0,
        };
        for &(plugin, check) in &self.filters {
            let refused = match &self.plan.plugins[plugin].filters[check] {
                Check::Gate(gate) => (places.facts[gate.fact.0][0] != 0)
                    .then(|| Rejection::unresolvable(gate.reason.clone())),
                Check::Rows(rows) => {
                    let verdict = rows.filter_row(row);
                    (!verdict.fits()).then(|| Rejection {
                        status: verdict.status(),
                        reasons: {
                            let mut reasons = Vec::new();
                            rows.reasons(row, &mut |code| reasons.push(rows.reason(code)));
                            reasons
                        },
                    })
                }
                Check::Places(filter) => {
                    let mut verdict = [Default::default()];
                    filter.filter_range(&places, 0, &mut verdict);
                    let [verdict] = verdict;
                    (!verdict.fits()).then(|| Rejection {
                        status: verdict.status(),
                        reasons: vec![filter.reason(verdict.code())],
                    })
                }
                Check::Nodes(filter) => {
                    let pods: Vec<&Arc<Pod>> = self
                        .cluster
                        .pods_on(slot)
                        .map(|placed| &placed.pod)
                        .filter(|pod| !removed.iter().any(|gone| gone.uid == pod.uid))
                        .chain(added.iter().copied())
                        .collect();
                    let entry = self.cluster.nodes().get(slot);
                    entry.and_then(|e| {
                        filter
                            .filter(NodeView {
                                spec: &e.node.spec,
                                pods: &pods,
                                catalog: self.cluster.catalog(),
                            })
                            .err()
                    })
                }
            };
            if let Some(rejection) = refused {
                return Err((plugin, rejection));
            }
        }
        Ok(())
    }

    pub(super) fn supposed_row(
        &self,
        slot: usize,
        added: &[&Arc<Pod>],
        removed: &[&Arc<Pod>],
    ) -> Block {
        let mut row = self.cluster.nodes().row(slot).to_vec();
        let accounts = self.cluster.catalog().accounts();
        added
            .iter()
            .for_each(|pod| accounts.charge(&mut row, &pod.requests, 1));
        removed
            .iter()
            .for_each(|pod| accounts.charge(&mut row, &pod.requests, -1));
        let columns = self.plan.columns.iter().map(|column| {
            let mut lanes = [0; BLOCK];
            lanes[0] = column.map_or(0, |column| row[column]);
            lanes
        });
        Block {
            columns: columns.collect(),
        }
    }

    fn supposed_place(&self, slot: usize, added: &[&Arc<Pod>], removed: &[&Arc<Pod>]) -> Places {
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
