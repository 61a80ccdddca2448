//! Dry runs of preemption: removes pods from a node and puts them back, one by one.
//!
//! Gives the same answers as [`Scan::fits_if`], from buffers that are filled once per node and changed in place.

use std::borrow::Cow;
use std::sync::Arc;

use super::checks::{CheckFailure, CheckInput};
use super::refusal::Refusal;
use super::scan::Scan;
use crate::cluster::{Lost, NodeZones, Placed, Share};
use crate::model::Pod;
use crate::scheduling::framework::{BLOCK, Block, Check, Places};

/// A node, and some of its pods that can be removed and put back, by their position in the list.
pub struct Trial<'s, 'a> {
    scan: &'s Scan<'a>,
    slot: usize,
    pods: Vec<&'s Placed>,
    gone: Vec<bool>,
    /// For each pod, its share of each declared column, then how often it moves each count.
    shares: Vec<i64>,
    /// The node's declared columns and moved counts as they are now, in the same order.
    state: Vec<i64>,
    /// Slots that pods are nominated to, in order.
    nominations: Vec<usize>,
    /// Pods nominated to the node that take precedence over the pod.
    nominated: Vec<&'s Arc<Pod>>,
    block: Block,
    place: Places,
    /// Whether a filter reads places.
    reads_places: bool,
}

/// The node of a trial as it is now, and pods that are added for one question.
struct TriedNode<'t, 's, 'a> {
    trial: &'t Trial<'s, 'a>,
    added: &'t [&'t Arc<Pod>],
}

impl CheckInput for TriedNode<'_, '_, '_> {
    fn places(&self) -> (&Places, usize) {
        (&self.trial.place, 0)
    }

    fn rows(&mut self) -> &Block {
        &self.trial.block
    }

    fn zones(&self, lane: usize) -> Option<Cow<'_, NodeZones>> {
        let (slot, pods) = self.node(lane);
        self.trial.scan.zones_with(slot, pods, self.added)
    }

    fn node(&self, _: usize) -> (usize, Vec<&Arc<Pod>>) {
        let trial = self.trial;
        let pods = trial.scan.cluster.pods_on(trial.slot);
        let pods = pods
            .map(|placed| &placed.pod)
            .filter(|pod| !trial.is_gone(pod))
            .chain(self.added.iter().copied());
        (trial.slot, pods.collect())
    }
}

impl<'s, 'a> Trial<'s, 'a> {
    pub fn new(scan: &'s Scan<'a>) -> Self {
        let reads_places = scan.filters.iter().any(|&(plugin, check)| {
            matches!(scan.plan.plugins[plugin].filters[check], Check::Places(_))
        });
        Self {
            scan,
            slot: 0,
            nominations: scan.cluster.nominated_slots(),
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

    /// Begins again with another node, as it is. `pods` are on it.
    pub fn reset_to_node(&mut self, slot: usize, pods: &[&'s Placed]) {
        let scan = self.scan;
        self.slot = slot;
        self.pods.clear();
        self.pods.extend_from_slice(pods);
        self.gone.clear();
        self.gone.resize(pods.len(), false);
        self.shares.clear();
        for placed in pods {
            self.push_share(&placed.pod, &placed.share);
            self.add_lost(&placed.lost);
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

    /// Removes a pod.
    pub fn remove(&mut self, pod: usize) {
        if !std::mem::replace(&mut self.gone[pod], true) {
            self.charge(pod, -1);
        }
    }

    /// Puts back a pod that was removed.
    pub fn put_back(&mut self, pod: usize) {
        if std::mem::replace(&mut self.gone[pod], false) {
            self.charge(pod, 1);
        }
    }

    /// Whether the pod fits; an error if a plugin failed.
    pub fn fits(&mut self) -> Result<bool, Refusal> {
        let failed = |trial: &Self, found: CheckFailure| match found {
            CheckFailure::Message(plugin, rejection) if rejection.is_failure() => {
                Some(Refusal::by_message(trial.scan, plugin, rejection))
            }
            CheckFailure::Message(..) | CheckFailure::Code(..) => None,
        };
        match self.judge(failed) {
            Ok(()) => Ok(true),
            Err(None) => Ok(false),
            Err(Some(failure)) => Err(failure),
        }
    }

    /// Whether the pod fits; else the refusal.
    pub fn verdict(&mut self) -> Result<(), Refusal> {
        self.judge(|trial, found| match found {
            CheckFailure::Code(filter, verdict) => {
                Refusal::by_code(trial.scan, filter, verdict, trial.block.row(0))
            }
            CheckFailure::Message(plugin, rejection) => {
                Refusal::by_message(trial.scan, plugin, rejection)
            }
        })
    }

    /// Declared columns, and counts if a filter reads them.
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

    /// Adds what a pod takes beyond its requests to the share that was pushed last.
    fn add_lost(&mut self, lost: &Lost) {
        if *lost == Lost::default() {
            return;
        }
        let scan = self.scan;
        let mut row = vec![0; scan.cluster.nodes().width()];
        scan.cluster
            .catalog()
            .accounts()
            .charge_lost(&mut row, lost, 1);
        let from = self.shares.len() - self.width();
        for (share, column) in self.shares[from..].iter_mut().zip(&scan.plan.columns) {
            *share = share.wrapping_add(column.map_or(0, |column| row[column]));
        }
    }

    /// Adds a share of all columns, those too that only some rows have.
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
    fn judge<T>(&mut self, describe: impl Fn(&Self, CheckFailure) -> T) -> Result<(), T> {
        if !self.nominated.is_empty() {
            let nominated = std::mem::take(&mut self.nominated);
            let own = self.pods.len()..self.pods.len() + nominated.len();
            let added = &nominated;
            let tried = TriedNode { trial: self, added };
            let lost = self.scan.lost_to(self.slot, added, || tried.node(0).1);
            for pod in &nominated {
                self.push_share(pod, &Share::of(&pod.requests));
                if let Some((_, lost)) = lost.iter().find(|(uid, _)| *uid == pod.uid) {
                    self.add_lost(lost);
                }
            }
            own.clone().for_each(|pod| self.charge(pod, 1));
            let refused = self.refusal(&nominated).map(|found| describe(self, found));
            own.for_each(|pod| self.charge(pod, -1));
            self.shares.truncate(self.pods.len() * self.width());
            self.nominated = nominated;
            if let Some(refusal) = refused {
                return Err(refusal);
            }
        }
        match self.refusal(&[]) {
            None => Ok(()),
            Some(found) => Err(describe(self, found)),
        }
    }

    fn refusal(&mut self, added: &[&Arc<Pod>]) -> Option<CheckFailure> {
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
        scan.first_failure(&mut TriedNode { trial: self, added })
    }

    fn is_gone(&self, pod: &Arc<Pod>) -> bool {
        let mut gone = self.pods.iter().zip(&self.gone).filter(|(_, gone)| **gone);
        gone.any(|(other, _)| Arc::ptr_eq(&other.pod, pod))
    }
}
