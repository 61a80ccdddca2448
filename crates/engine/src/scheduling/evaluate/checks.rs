//! Runs the checks of the filters, in their order, on one node or on a block of nodes.

use std::borrow::Cow;
use std::sync::Arc;

use super::scan::Scan;
use crate::cluster::{Lost, NodeZones, ZoneRow};
use crate::model::{Name, Pod};
use crate::scheduling::framework::{BLOCK, Block, Check, NodeView, Places, Rejection, Verdict};

/// What the checks read: up to [`BLOCK`] nodes, as they are or with other pods on them.
pub(super) trait CheckInput {
    /// The facts and counts, and the index of the first node in them.
    fn places(&self) -> (&Places, usize);
    /// The rows. Only called if a check reads them.
    fn rows(&mut self) -> &Block;
    /// The numbers of the NUMA zones of a lane, if they are kept. Only called for zone checks.
    fn zone_row(&self, _: usize) -> Option<&ZoneRow> {
        None
    }
    /// The NUMA zones of a lane, if it has any. Only called for zone checks.
    fn zones(&self, lane: usize) -> Option<Cow<'_, NodeZones>>;
    /// The slot of a lane, and the pods on the node. Only called for opaque checks.
    fn node(&self, lane: usize) -> (usize, Vec<&Arc<Pod>>);
}

/// The first check that rejected a node.
pub(super) enum CheckFailure {
    /// Position of the filter, and its code.
    Code(usize, Verdict),
    /// An opaque check of this plugin has a message of its own.
    Message(usize, Rejection),
}

impl Scan<'_> {
    /// Runs the filters on the lanes that are set in `alive`, as many as `verdicts` has. A node that is rejected is
    /// reported once and leaves `alive`. Returns the lanes that passed.
    #[inline]
    pub(super) fn run_checks(
        &self,
        input: &mut impl CheckInput,
        verdicts: &mut [Verdict],
        mut alive: u64,
        mut reject: impl FnMut(usize, CheckFailure),
    ) -> u64 {
        for (index, &(plugin, check)) in self.filters.iter().enumerate() {
            if alive == 0 {
                break;
            }
            match &self.plan.plugins[plugin].filters[check] {
                Check::Gate(gate) => {
                    let (places, from) = input.places();
                    let facts = &places.facts[gate.fact.0][from..];
                    let facts = &facts[..verdicts.len()];
                    // Most gates reject no node of a block.
                    if facts.iter().fold(0, |any, fact| any | fact) == 0 {
                        continue;
                    }
                    for (verdict, fact) in verdicts.iter_mut().zip(facts) {
                        *verdict = match *fact {
                            0 => Verdict::FITS,
                            _ => Verdict::unresolvable(1),
                        };
                    }
                }
                Check::Rows(rows) => {
                    let block = input.rows();
                    if let [verdict] = verdicts {
                        *verdict = rows.filter_row(block.row(0));
                    } else if let Ok(verdicts) = verdicts.try_into() {
                        rows.filter_block(block, verdicts);
                    } else {
                        let mut all = [Verdict::FITS; BLOCK];
                        rows.filter_block(block, &mut all);
                        verdicts.copy_from_slice(&all[..verdicts.len()]);
                    }
                }
                Check::Places(filter) => {
                    let (places, from) = input.places();
                    filter.filter_range(places, from, verdicts);
                }
                Check::Zones(filter) => {
                    verdicts.fill(Verdict::FITS);
                    for lane in lanes_of(alive) {
                        let row = input.zone_row(lane);
                        let verdict = row.and_then(|row| filter.filter_row(row));
                        verdicts[lane] =
                            verdict.unwrap_or_else(|| filter.filter(input.zones(lane).as_deref()));
                    }
                }
                Check::Nodes(filter) => {
                    verdicts.fill(Verdict::FITS);
                    for lane in lanes_of(alive) {
                        let (slot, pods) = input.node(lane);
                        let Some(entry) = self.cluster.nodes().get(slot) else {
                            continue;
                        };
                        let node = NodeView {
                            spec: &entry.node.spec,
                            pods: &pods,
                            catalog: self.cluster.catalog(),
                        };
                        if let Err(rejection) = filter.filter(node) {
                            reject(lane, CheckFailure::Message(plugin, rejection));
                            alive &= !(1 << lane);
                        }
                    }
                }
            }
            // Checks all of them, which is faster than stopping at the first.
            let all_fit = |fit: bool, verdict: &Verdict| fit & verdict.fits();
            if verdicts.iter().fold(true, all_fit) {
                continue;
            }
            for lane in lanes_of(alive) {
                if !verdicts[lane].fits() {
                    reject(lane, CheckFailure::Code(index, verdicts[lane]));
                    alive &= !(1 << lane);
                }
            }
        }
        alive
    }

    /// The NUMA zones of a node with these pods on it. Those that were added and have no zones yet get theirs first.
    pub(super) fn zones_with(
        &self,
        slot: usize,
        mut pods: Vec<&Arc<Pod>>,
        added: &[&Arc<Pod>],
    ) -> Option<Cow<'_, NodeZones>> {
        let entry = self.cluster.nodes().get(slot)?;
        let topology = entry.node.spec.topology.as_ref()?;
        let is_new = |pod: &Pod| pod.zones.is_none() && added.iter().any(|new| new.uid == pod.uid);
        pods.retain(|pod| !is_new(pod));
        let first = added.iter().copied().filter(|pod| pod.zones.is_none());
        Some(Cow::Owned(self.profile.zones_with(topology, &pods, first)))
    }

    /// What pods that are added take beyond their requests, because no other pod may use their zones.
    pub(super) fn lost_to<'p>(
        &self,
        slot: usize,
        added: &[&Arc<Pod>],
        pods: impl FnOnce() -> Vec<&'p Arc<Pod>>,
    ) -> Vec<(Name, Lost)> {
        if !added.iter().any(|pod| pod.takes_whole_zones()) {
            return Vec::new();
        }
        let zones = self.zones_with(slot, pods(), added);
        let mut lost = self.cluster.lost_from(slot, zones.as_deref());
        lost.retain(|(uid, _)| added.iter().any(|pod| pod.uid == *uid));
        lost
    }

    /// Runs the filters on one node; `None` if it passes.
    pub(super) fn first_failure(&self, input: &mut impl CheckInput) -> Option<CheckFailure> {
        let mut found = None;
        self.run_checks(input, &mut [Verdict::FITS], 1, |_, failure| {
            found = Some(failure);
        });
        found
    }
}

pub(super) fn lanes_of(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let lane = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            lane
        })
    })
}
