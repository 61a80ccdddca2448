//! Many questions about one node after another: what if this pod were gone, and that one back?
//!
//! The same answers as [`Scan::fits_if`], from buffers that are filled once per node and changed in place.

use std::sync::Arc;

use super::scan::Scan;
use crate::framework::{BLOCK, Block, Check, NodeView, Places, Rejection, Row, Verdict};
use crate::model::Pod;

/// A node with pods taken away and given back.
pub struct Trial<'s, 'a> {
    scan: &'s Scan<'a>,
    slot: usize,
    row: Vec<i64>,
    removed: Vec<&'s Arc<Pod>>,
    /// Pods nominated to the node that go before ours.
    nominated: Vec<&'s Arc<Pod>>,
    /// Pods of each count that came to the node, less those that went.
    moves: Vec<i64>,
    block: Block,
    place: Places,
    /// Whether some filter looks at places at all.
    reads_places: bool,
}

/// Which filter said no, and how.
enum Refusal {
    Code(usize, Verdict),
    Words(usize, Rejection),
}

impl<'s, 'a> Trial<'s, 'a> {
    pub fn new(scan: &'s Scan<'a>) -> Self {
        let filters = scan
            .filters
            .iter()
            .map(|&(plugin, check)| &scan.plan.plugins[plugin].filters[check]);
        let mut reads_places = false;
        for filter in filters {
            reads_places |= matches!(filter, Check::Places(_));
        }
        Self {
            scan,
            slot: 0,
            row: Vec::new(),
            removed: Vec::new(),
            nominated: Vec::new(),
            moves: vec![0; scan.counted.len()],
            block: Block {
                columns: vec![[0; BLOCK]; scan.plan.columns.len()],
            },
            place: Places {
                facts: vec![vec![0]; scan.places.facts.len()],
                counts: vec![vec![0]; scan.counted.len()],
                tallies: scan.places.tallies.clone(),
            },
            reads_places,
        }
    }

    /// Turns to another node, as it is.
    pub fn turn_to(&mut self, slot: usize) {
        self.slot = slot;
        self.removed.clear();
        self.row.clear();
        self.row
            .extend_from_slice(self.scan.cluster.nodes().row(slot));
        self.moves.fill(0);
        self.nominated = self.scan.nominated_before_us(slot);
        for (own, column) in self.place.facts.iter_mut().zip(&self.scan.places.facts) {
            own[0] = column[slot];
        }
    }

    /// What if the pod were gone?
    pub fn remove(&mut self, pod: &'s Arc<Pod>) {
        self.charge(pod, -1);
        self.removed.push(pod);
    }

    /// Gives back a pod that was taken away.
    pub fn put_back(&mut self, pod: &'s Arc<Pod>) {
        self.charge(pod, 1);
        self.removed.retain(|gone| gone.uid != pod.uid);
    }

    pub fn fits(&mut self) -> bool {
        self.judge(|_, _| ()).is_ok()
    }

    /// The plugin that says no, and its words.
    pub fn verdict(&mut self) -> Result<(), (&'static str, Rejection)> {
        self.judge(Self::words)
    }

    fn charge(&mut self, pod: &Pod, sign: i64) {
        let accounts = self.scan.cluster.catalog().accounts();
        accounts.charge(&mut self.row, &pod.requests, sign);
        if self.reads_places {
            for (moves, planned) in self.moves.iter_mut().zip(&self.scan.plan.counts) {
                *moves += sign * planned.count.pods.moves(&pod.kind);
            }
        }
    }

    /// With the nominated pods first, then without them; both must pass.
    fn judge<T>(&mut self, say: impl Fn(&Self, Refusal) -> T) -> Result<(), T> {
        if !self.nominated.is_empty() {
            let nominated = std::mem::take(&mut self.nominated);
            nominated.iter().for_each(|pod| self.charge(pod, 1));
            let refused = self.refusal(&nominated).map(|refusal| say(self, refusal));
            nominated.iter().for_each(|pod| self.charge(pod, -1));
            self.nominated = nominated;
            if let Some(said) = refused {
                return Err(said);
            }
        }
        match self.refusal(&[]) {
            None => Ok(()),
            Some(refusal) => Err(say(self, refusal)),
        }
    }

    fn refusal(&mut self, added: &[&Arc<Pod>]) -> Option<Refusal> {
        let scan = self.scan;
        for (values, column) in self.block.columns.iter_mut().zip(&scan.plan.columns) {
            values[0] = column.map_or(0, |column| self.row[column]);
        }
        if self.reads_places {
            for (index, counted) in scan.counted.iter().enumerate() {
                let moved = self.moves[index];
                let (count, tally) =
                    counted.moved(&scan.plan, index, &scan.places, self.slot, moved);
                self.place.counts[index][0] = count;
                self.place.tallies[index] = tally;
            }
        }
        for (index, &(plugin, check)) in scan.filters.iter().enumerate() {
            let verdict = match &scan.plan.plugins[plugin].filters[check] {
                Check::Gate(gate) if self.place.facts[gate.fact.0][0] == 0 => Verdict::FITS,
                Check::Gate(_) => Verdict::unresolvable(1),
                Check::Rows(rows) => rows.filter_row(self.lane()),
                Check::Places(filter) => {
                    let mut verdict = [Verdict::FITS];
                    filter.filter_range(&self.place, 0, &mut verdict);
                    verdict[0]
                }
                Check::Nodes(filter) => {
                    let pods: Vec<&Arc<Pod>> = scan
                        .cluster
                        .pods_on(self.slot)
                        .map(|placed| &placed.pod)
                        .filter(|pod| !self.removed.iter().any(|gone| gone.uid == pod.uid))
                        .chain(added.iter().copied())
                        .collect();
                    let spec = &scan.cluster.nodes().get(self.slot)?.node.spec;
                    match filter.filter(NodeView {
                        spec,
                        pods: &pods,
                        catalog: scan.cluster.catalog(),
                    }) {
                        Ok(()) => Verdict::FITS,
                        Err(rejection) => return Some(Refusal::Words(plugin, rejection)),
                    }
                }
            };
            if !verdict.fits() {
                return Some(Refusal::Code(index, verdict));
            }
        }
        None
    }

    fn lane(&self) -> Row<'_> {
        Row {
            block: &self.block,
            lane: 0,
        }
    }

    fn words(&self, refusal: Refusal) -> (&'static str, Rejection) {
        let (plugin, rejection) = match refusal {
            Refusal::Words(plugin, rejection) => (plugin, rejection),
            Refusal::Code(index, verdict) => {
                let (plugin, check) = self.scan.filters[index];
                let reasons = match &self.scan.plan.plugins[plugin].filters[check] {
                    Check::Gate(gate) => vec![gate.reason.clone()],
                    Check::Rows(rows) => rows.reasons(self.lane()),
                    Check::Places(filter) => vec![filter.reason(verdict.code())],
                    Check::Nodes(_) => Vec::new(),
                };
                let status = verdict.status();
                (plugin, Rejection { status, reasons })
            }
        };
        (self.scan.profile.plugins()[plugin].name, rejection)
    }
}
