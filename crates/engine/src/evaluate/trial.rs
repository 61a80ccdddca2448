//! Many questions about one node after another: what if this pod were gone, and that one back?
//!
//! The same answers as [`Scan::fits_if`], from buffers that are filled once per node and changed in place.

use std::sync::Arc;

use super::refusal::Refusal;
use super::scan::Scan;
use crate::cluster::{Placed, Share};
use crate::framework::{BLOCK, Block, Check, NodeView, Places, Rejection, Row, Verdict};
use crate::model::Pod;

/// A node, and some of its pods that may be taken away and given back, by their position in the list.
pub struct Trial<'s, 'a> {
    scan: &'s Scan<'a>,
    slot: usize,
    pods: Vec<&'s Placed>,
    gone: Vec<bool>,
    /// What each pod takes of each declared column, then how often it moves each count; pod after pod.
    shares: Vec<i64>,
    /// The node's declared columns and moved counts as they are now, in the same order.
    state: Vec<i64>,
    /// Slots that pods are nominated to, in order.
    nominations: Vec<usize>,
    /// Pods nominated to the node that go before ours.
    nominated: Vec<&'s Arc<Pod>>,
    block: Block,
    place: Places,
    /// Whether some filter looks at places at all.
    reads_places: bool,
}

/// Which filter said no, and how.
enum Found {
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
        let nodes = scan.cluster.nodes();
        let mut nominations: Vec<usize> = scan
            .cluster
            .nominations()
            .filter_map(|nominated| nodes.slot(&nominated.node))
            .collect();
        nominations.sort_unstable();
        Self {
            scan,
            slot: 0,
            nominations,
            pods: Vec::new(),
            gone: Vec::new(),
            shares: Vec::new(),
            state: Vec::new(),
            nominated: Vec::new(),
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

    /// Turns to another node, as it is. `pods` are on it.
    pub fn turn_to(&mut self, slot: usize, pods: &[&'s Placed]) {
        let scan = self.scan;
        self.slot = slot;
        self.pods.clear();
        self.pods.extend_from_slice(pods);
        self.gone.clear();
        self.gone.resize(pods.len(), false);
        self.shares.clear();
        for placed in pods {
            self.push_share(&placed.pod, &placed.share);
        }
        let row = scan.cluster.nodes().row(slot);
        let columns = scan.plan.columns.iter();
        self.state.clear();
        self.state
            .extend(columns.map(|column| column.map_or(0, |column| row[column])));
        self.state.resize(self.width(), 0);
        self.nominated = match self.nominations.binary_search(&slot) {
            Ok(_) => scan.nominated_before_us(slot),
            Err(_) => Vec::new(),
        };
        for (own, column) in self.place.facts.iter_mut().zip(&scan.places.facts) {
            own[0] = column.get(slot).copied().unwrap_or_default();
        }
    }

    /// What if this pod were gone?
    pub fn remove(&mut self, pod: usize) {
        if !std::mem::replace(&mut self.gone[pod], true) {
            self.charge(pod, -1);
        }
    }

    /// Gives back a pod that was taken away.
    pub fn put_back(&mut self, pod: usize) {
        if std::mem::replace(&mut self.gone[pod], false) {
            self.charge(pod, 1);
        }
    }

    /// An error if a plugin could not tell.
    pub fn fits(&mut self) -> Result<bool, Refusal> {
        let failed = |trial: &Self, found: Found| match found {
            Found::Words(plugin, rejection) if rejection.is_failure() => {
                Some(Refusal::by_words(trial.scan, plugin, rejection))
            }
            Found::Words(..) | Found::Code(..) => None,
        };
        match self.judge(failed) {
            Ok(()) => Ok(true),
            Err(None) => Ok(false),
            Err(Some(failure)) => Err(failure),
        }
    }

    /// What is said against the node.
    pub fn verdict(&mut self) -> Result<(), Refusal> {
        self.judge(|trial, found| match found {
            Found::Code(filter, verdict) => {
                Refusal::by_code(trial.scan, filter, verdict, trial.lane())
            }
            Found::Words(plugin, rejection) => Refusal::by_words(trial.scan, plugin, rejection),
        })
    }

    /// Declared columns, and counts if anybody reads them.
    fn width(&self) -> usize {
        let counts = if self.reads_places {
            self.scan.plan.counts.len()
        } else {
            0
        };
        self.scan.plan.columns.len() + counts
    }

    fn push_share(&mut self, pod: &Pod, share: &Share) {
        let scan = self.scan;
        let from = self.shares.len();
        let columns = scan.plan.columns.iter();
        self.shares
            .extend(columns.map_while(|column| column.map_or(Some(0), |at| share.column(at))));
        if self.shares.len() - from < scan.plan.columns.len() {
            self.shares.truncate(from);
            self.push_whole_share(pod);
        }
        if self.reads_places {
            let counts = scan.plan.counts.iter();
            self.shares
                .extend(counts.map(|planned| planned.count.pods.moves(&pod.kind)));
        }
    }

    /// Of all columns, those too that only some rows have.
    fn push_whole_share(&mut self, pod: &Pod) {
        let scan = self.scan;
        let mut row = vec![0; scan.cluster.nodes().width()];
        let accounts = scan.cluster.catalog().accounts();
        accounts.charge(&mut row, &pod.requests, 1);
        let columns = scan.plan.columns.iter();
        self.shares
            .extend(columns.map(|column| column.map_or(0, |column| row[column])));
    }

    fn charge(&mut self, pod: usize, sign: i64) {
        let width = self.width();
        let shares = &self.shares[pod * width..(pod + 1) * width];
        for (value, share) in self.state.iter_mut().zip(shares) {
            *value = value.wrapping_add(share.wrapping_mul(sign));
        }
    }

    /// With the nominated pods first, then without them; both must pass.
    fn judge<T>(&mut self, say: impl Fn(&Self, Found) -> T) -> Result<(), T> {
        if !self.nominated.is_empty() {
            let nominated = std::mem::take(&mut self.nominated);
            let own = self.pods.len()..self.pods.len() + nominated.len();
            for pod in &nominated {
                self.push_share(pod, &Share::of(&pod.requests));
            }
            own.clone().for_each(|pod| self.charge(pod, 1));
            let refused = self.refusal(&nominated).map(|found| say(self, found));
            own.for_each(|pod| self.charge(pod, -1));
            self.shares.truncate(self.pods.len() * self.width());
            self.nominated = nominated;
            if let Some(said) = refused {
                return Err(said);
            }
        }
        match self.refusal(&[]) {
            None => Ok(()),
            Some(found) => Err(say(self, found)),
        }
    }

    fn refusal(&mut self, added: &[&Arc<Pod>]) -> Option<Found> {
        let scan = self.scan;
        for (values, value) in self.block.columns.iter_mut().zip(&self.state) {
            values[0] = *value;
        }
        if self.reads_places {
            let moves = &self.state[scan.plan.columns.len()..];
            for (index, (counted, &moved)) in scan.counted.iter().zip(moves).enumerate() {
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
                        .filter(|pod| !self.is_gone(pod))
                        .chain(added.iter().copied())
                        .collect();
                    let spec = &scan.cluster.nodes().get(self.slot)?.node.spec;
                    match filter.filter(NodeView {
                        spec,
                        pods: &pods,
                        catalog: scan.cluster.catalog(),
                    }) {
                        Ok(()) => Verdict::FITS,
                        Err(rejection) => return Some(Found::Words(plugin, rejection)),
                    }
                }
            };
            if !verdict.fits() {
                return Some(Found::Code(index, verdict));
            }
        }
        None
    }

    fn is_gone(&self, pod: &Arc<Pod>) -> bool {
        let mut gone = self.pods.iter().zip(&self.gone).filter(|(_, gone)| **gone);
        gone.any(|(other, _)| Arc::ptr_eq(&other.pod, pod))
    }

    fn lane(&self) -> Row<'_> {
        Row {
            block: &self.block,
            lane: 0,
        }
    }
}
