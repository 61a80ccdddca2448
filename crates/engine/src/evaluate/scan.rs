//! Every check on every node, plainly, from the truth, with no cached results.

use std::sync::Arc;

use hashbrown::HashMap;

use super::Cursor;
use super::prepare::{Narrowed, narrow, prepare};
use super::suppose::Supposed;
use super::tally::{Counted, evaluate};
use crate::cluster::Cluster;
use crate::framework::{
    BLOCK, Block, Check, Need, NodeView, Places, Plan, Point, Reason, Rejection, Row, Status,
    Verdict,
};
use crate::model::{Name, Pod};
use crate::profile::Profile;

/// What became of a pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Chosen {
        slot: usize,
        node: Name,
        /// `None` if nothing was compared: one feasible node, or the nominated one.
        total: Option<i64>,
        feasible: usize,
    },
    Rejected(Diagnosis),
    /// Something broke; the text is what the pod's condition says.
    Failed(String),
}

/// Why no node would do.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Diagnosis {
    /// Nodes there were.
    pub nodes: usize,
    /// Said by PreFilter before any node was looked at.
    pub pre_filter: Option<String>,
    /// Status of each node, by slot.
    pub statuses: Vec<NodeStatus>,
    /// Reasons with the number of nodes that gave each, in the order of the reasons.
    pub reasons: Vec<(Reason, usize)>,
    /// Plugins that said no, in the order of the profile.
    pub plugins: Vec<&'static str>,
    /// Those that only wait for something on its way.
    pub pending: Vec<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeStatus {
    pub slot: usize,
    pub status: Status,
}

impl Diagnosis {
    /// The message of the pod's condition and event. `post_filter` is what PostFilter had to say, if anything.
    pub fn message(&self, post_filter: &str) -> String {
        let mut text = format!("0/{} nodes are available:", self.nodes);
        if let Some(said) = &self.pre_filter {
            text += &format!(" {said}.");
        } else if !self.reasons.is_empty() {
            let mut entries: Vec<String> = self
                .reasons
                .iter()
                .map(|(reason, nodes)| format!("{nodes} {reason}"))
                .collect();
            // As plain strings, so that "10 x" goes before "2 y".
            entries.sort();
            text += &format!(" {}.", entries.join(", "));
        }
        if !post_filter.is_empty() {
            text += &format!(" {post_filter}");
        }
        text
    }
}

/// One pod's evaluation. It can be asked for the decision, for explanations, and about changed worlds.
pub struct Scan<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) profile: &'a Profile,
    pub(super) pod: &'a Arc<Pod>,
    pub(super) plan: Plan<'a>,
    pub(super) places: Places,
    pub(super) counted: Vec<Counted>,
    /// Filters in their order: plugin and position among its filters.
    pub(super) filters: Vec<(usize, usize)>,
    narrowed: Narrowed,
    /// Judged nodes, by slot.
    judged: Option<Judged>,
}

/// What the filters said about every node.
pub(super) struct Judged {
    /// Feasible slots in their order, as places with one node each.
    pub(super) feasible: Vec<(u32, u32)>,
    /// Index of the filter that said no, and its verdict; by slot.
    pub(super) rejections: Vec<(u16, Verdict)>,
    /// Nodes whose reasons cannot be found again from the codes.
    pub(super) worded: HashMap<usize, (usize, Rejection)>,
    /// Nodes that each plugin rejected.
    pub(super) refused: Vec<usize>,
    /// An opaque check broke: on the first node where one did, in these words.
    pub(super) error: Option<(usize, String)>,
}

/// The rows around a slot, kept while its neighbours are asked about.
#[derive(Default)]
pub(super) struct Window {
    block: Block,
    from: Option<usize>,
}

/// No filter has judged the node: it is free, or left out by narrowing.
pub(super) const UNJUDGED: u16 = u16::MAX;
/// The words are in `worded`.
pub(super) const WORDED: u16 = u16::MAX - 1;

impl<'a> Scan<'a> {
    pub fn new(cluster: &'a Cluster, profile: &'a Profile, pod: &'a Arc<Pod>) -> Self {
        let mut scan = Self::begin(cluster, profile, pod);
        scan.look();
        scan
    }

    /// PreFilter alone, for whoever goes on step by step.
    pub(crate) fn begin(cluster: &'a Cluster, profile: &'a Profile, pod: &'a Arc<Pod>) -> Self {
        let plan = prepare(cluster, profile, pod);
        let narrowed = narrow(cluster, profile, &plan);
        Self::of(cluster, profile, pod, plan, narrowed)
    }

    /// From the filters on, with what PreFilter said elsewhere.
    pub(crate) fn resume(
        cluster: &'a Cluster,
        profile: &'a Profile,
        pod: &'a Arc<Pod>,
        narrowed: Narrowed,
    ) -> Self {
        let plan = prepare(cluster, profile, pod);
        let mut scan = Self::of(cluster, profile, pod, plan, narrowed);
        scan.look();
        scan
    }

    fn of(
        cluster: &'a Cluster,
        profile: &'a Profile,
        pod: &'a Arc<Pod>,
        plan: Plan<'a>,
        narrowed: Narrowed,
    ) -> Self {
        let (mut places, mut counted) = (Places::default(), Vec::new());
        let need = match narrowed {
            Narrowed::All | Narrowed::Only { .. } => Some(Need::PreFilter),
            // Preemption may still ask about nodes.
            Narrowed::None { ref rejection, .. } if rejection.status == Status::Unschedulable => {
                Some(Need::Filter)
            }
            Narrowed::None { .. } | Narrowed::Failed { .. } => None,
        };
        if let Some(need) = need {
            evaluate(cluster, &plan, need, &mut places, &mut counted);
        }
        let filters = profile
            .at(Point::Filter)
            .iter()
            .filter(|&&plugin| plan.plugins[plugin].filters_run(&places.tallies))
            .flat_map(|&plugin| {
                (0..plan.plugins[plugin].filters.len()).map(move |check| (plugin, check))
            })
            .collect();
        Self {
            cluster,
            profile,
            pod,
            plan,
            places,
            counted,
            filters,
            narrowed,
            judged: None,
        }
    }

    /// What filters ask of nodes, unless PreFilter left nothing to ask.
    pub(super) fn look(&mut self) {
        if matches!(self.narrowed, Narrowed::All | Narrowed::Only { .. }) {
            self.know(Need::Filter);
        }
    }

    /// What is needed by then.
    pub(super) fn know(&mut self, need: Need) {
        let (places, counted) = (&mut self.places, &mut self.counted);
        evaluate(self.cluster, &self.plan, need, places, counted);
    }

    /// The decision. Asking changes nothing.
    pub fn decide(&mut self, cursor: Cursor) -> Outcome {
        if self.cluster.nodes().is_empty() {
            return Outcome::Failed("no nodes available to schedule pods".to_owned());
        }
        match &self.narrowed {
            Narrowed::Failed { text, .. } => return Outcome::Failed(text.clone()),
            Narrowed::None { .. } => return Outcome::Rejected(self.diagnosis()),
            Narrowed::All | Narrowed::Only { .. } => {}
        }
        if let Some(slot) = self.nominated_slot()
            && self.fits(slot).is_ok()
        {
            return self.chosen(slot, None, 1);
        }
        self.judge();
        let Some(judged) = &self.judged else {
            return Outcome::Failed("no node was judged".to_owned());
        };
        if let Some((_, text)) = &judged.error {
            return Outcome::Failed(text.clone());
        }
        let feasible = judged.feasible.clone();
        match feasible[..] {
            [] => Outcome::Rejected(self.diagnosis()),
            [(only, _)] => self.chosen(only as usize, None, 1),
            _ => match self.best(&feasible, &[], cursor) {
                Ok((slot, total)) => self.chosen(slot, Some(total), feasible.len()),
                Err(text) => Outcome::Failed(text),
            },
        }
    }

    fn chosen(&self, slot: usize, total: Option<i64>, feasible: usize) -> Outcome {
        let node = self
            .cluster
            .nodes()
            .get(slot)
            .map(|entry| entry.node.spec.name.clone())
            .unwrap_or_default();
        Outcome::Chosen {
            slot,
            node,
            total,
            feasible,
        }
    }

    pub(super) fn nominated_slot(&self) -> Option<usize> {
        self.cluster
            .nodes()
            .slot(self.pod.nominated_node.as_deref()?)
    }

    pub(super) fn is_candidate(&self, slot: usize) -> bool {
        match &self.narrowed {
            Narrowed::All => true,
            Narrowed::Only { slots, .. } => slots.binary_search(&slot).is_ok(),
            Narrowed::None { .. } | Narrowed::Failed { .. } => false,
        }
    }

    /// Runs every filter on every node, once.
    pub(super) fn judge(&mut self) {
        if self.judged.is_some()
            || matches!(
                self.narrowed,
                Narrowed::None { .. } | Narrowed::Failed { .. }
            )
        {
            return;
        }
        self.look();
        let slots = self.cluster.nodes().slots();
        let mut judged = Judged {
            feasible: Vec::new(),
            rejections: vec![(UNJUDGED, Verdict::FITS); slots.len()],
            worded: HashMap::new(),
            refused: vec![0; self.plan.plugins.len()],
            error: None,
        };
        self.judge_nominated(&mut judged);
        self.judge_own_nomination(&mut judged);
        let mut block = Block::default();
        for from in (0..slots.len()).step_by(BLOCK) {
            let lanes = BLOCK.min(slots.len() - from);
            let mut alive = 0_u64;
            for lane in 0..lanes {
                let slot = from + lane;
                if slots[slot].is_some()
                    && judged.rejections[slot].0 == UNJUDGED
                    && self.is_candidate(slot)
                {
                    alive |= 1 << lane;
                }
            }
            self.judge_block(from, alive, &mut block, &mut judged);
            // A node further on may have broken before, because of a pod nominated there.
            let is_over = |(slot, _): &(usize, String)| *slot < from + BLOCK;
            if judged.error.as_ref().is_some_and(is_over) {
                break;
            }
        }
        self.judged = Some(judged);
    }

    /// Nodes that hold nominated pods must also fit with those on them.
    fn judge_nominated(&self, judged: &mut Judged) {
        let mut slots: Vec<usize> = self
            .cluster
            .nominations()
            .filter_map(|nominated| self.cluster.nodes().slot(&nominated.node))
            .collect();
        slots.sort_unstable();
        slots.dedup();
        for slot in slots.into_iter().filter(|slot| self.is_candidate(*slot)) {
            let added = self.nominated_before_us(slot);
            if added.is_empty() {
                continue;
            }
            if let Err((plugin, rejection)) = self.fits_with(slot, &added, &[]) {
                self.reject(judged, slot, plugin, rejection);
            }
        }
    }

    /// The pod's own nominated node was tried first, even if PreFilter leaves it out. What breaks there is no matter.
    fn judge_own_nomination(&self, judged: &mut Judged) {
        let Some(slot) = self
            .nominated_slot()
            .filter(|slot| !self.is_candidate(*slot))
        else {
            return;
        };
        if let Err((plugin, rejection)) = self.try_on(slot, Supposed::default())
            && rejection.status != Status::Error
        {
            self.reject(judged, slot, plugin, rejection);
        }
    }

    fn reject(&self, judged: &mut Judged, slot: usize, plugin: usize, rejection: Rejection) {
        if rejection.status == Status::Error {
            let name = self.profile.plugins()[plugin].name;
            let is_first = judged.error.as_ref().is_none_or(|(first, _)| slot < *first);
            if is_first {
                judged.error = Some((slot, filter_failed(name, &rejection)));
            }
        }
        judged.rejections[slot] = (WORDED, Verdict::FITS);
        judged.refused[plugin] += 1;
        judged.worded.insert(slot, (plugin, rejection));
    }

    fn judge_block(&self, from: usize, mut alive: u64, block: &mut Block, judged: &mut Judged) {
        let mut filled = false;
        let mut verdicts = [Verdict::FITS; BLOCK];
        for (index, &(plugin, check)) in self.filters.iter().enumerate() {
            if alive == 0 {
                return;
            }
            match &self.plan.plugins[plugin].filters[check] {
                Check::Gate(gate) => {
                    let facts = &self.places.facts[gate.fact.0][from..];
                    for (verdict, fact) in verdicts.iter_mut().zip(facts) {
                        *verdict = if *fact == 0 {
                            Verdict::FITS
                        } else {
                            Verdict::unresolvable(1)
                        };
                    }
                }
                Check::Rows(rows) => {
                    if !filled {
                        self.fill(block, from);
                        filled = true;
                    }
                    rows.filter_block(block, &mut verdicts);
                }
                Check::Places(filter) => {
                    let lanes = BLOCK.min(judged.rejections.len() - from);
                    filter.filter_range(&self.places, from, &mut verdicts[..lanes]);
                }
                Check::Nodes(filter) => {
                    verdicts = [Verdict::FITS; BLOCK];
                    for lane in lanes_of(alive) {
                        let slot = from + lane;
                        let Some(entry) = self.cluster.nodes().get(slot) else {
                            continue;
                        };
                        let pods: Vec<&Arc<Pod>> = self
                            .cluster
                            .pods_on(slot)
                            .map(|placed| &placed.pod)
                            .collect();
                        if let Err(rejection) = filter.filter(NodeView {
                            spec: &entry.node.spec,
                            pods: &pods,
                            catalog: self.cluster.catalog(),
                        }) {
                            self.reject(judged, slot, plugin, rejection);
                            alive &= !(1 << lane);
                        }
                    }
                }
            }
            for lane in lanes_of(alive) {
                if !verdicts[lane].fits() {
                    judged.rejections[from + lane] = (index as u16, verdicts[lane]);
                    judged.refused[plugin] += 1;
                    alive &= !(1 << lane);
                }
            }
        }
        judged
            .feasible
            .extend(lanes_of(alive).map(|lane| ((from + lane) as u32, 1)));
    }

    /// Copies the declared columns of up to a block of rows.
    pub(super) fn fill(&self, block: &mut Block, from: usize) {
        block.columns.resize(self.plan.columns.len(), [0; BLOCK]);
        let nodes = self.cluster.nodes();
        let width = nodes.width();
        let rows = &nodes.rows()[from * width..];
        for (column, values) in self.plan.columns.iter().zip(&mut block.columns) {
            match column {
                Some(column) => {
                    for (value, row) in values.iter_mut().zip(rows.chunks_exact(width)) {
                        *value = row[*column];
                    }
                }
                None => values.fill(0),
            }
        }
    }

    /// The plugin, status and words of a node that was judged and did not fit.
    pub(super) fn rejection(&self, slot: usize, at: &mut Window) -> Option<(usize, Rejection)> {
        let judged = self.judged.as_ref()?;
        let (index, verdict) = judged.rejections[slot];
        if index == WORDED {
            return judged.worded.get(&slot).cloned();
        }
        let filter = usize::from(index);
        let &(plugin, _) = self.filters.get(filter)?;
        let mut reasons = Vec::new();
        self.each_code(filter, verdict, self.row(slot, at), &mut |code| {
            reasons.push(self.reason(filter, code));
        });
        Some((
            plugin,
            Rejection {
                status: verdict.status(),
                reasons,
            },
        ))
    }

    /// The node's row, read with its neighbours'.
    pub(super) fn row<'w>(&self, slot: usize, at: &'w mut Window) -> Row<'w> {
        let from = slot / BLOCK * BLOCK;
        if at.from != Some(from) {
            self.fill(&mut at.block, from);
            at.from = Some(from);
        }
        Row {
            block: &at.block,
            lane: slot - from,
        }
    }

    pub(crate) fn narrowed(&self) -> &Narrowed {
        &self.narrowed
    }

    pub(super) fn judged(&self) -> Option<&Judged> {
        self.judged.as_ref()
    }
}

fn lanes_of(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let lane = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            lane
        })
    })
}

/// What is said of a filter that could not tell.
pub(super) fn filter_failed(plugin: &str, rejection: &Rejection) -> String {
    format!(
        "running \"{plugin}\" filter plugin: {}",
        rejection.message()
    )
}
