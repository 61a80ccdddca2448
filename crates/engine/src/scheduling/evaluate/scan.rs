//! The evaluator that runs every check on every node, from the cluster state, without results of earlier decisions.

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::HashMap;

use super::checks::{CheckFailure, CheckInput, lanes_of};
use super::points::FeasibleNodes;
use super::prepare::{PreFilterResult, narrow, prepare};
use super::suppose::NodeChange;
use super::tally::{CountState, evaluate};
use crate::cluster::{Cluster, NodeZones, ZoneRow};
use crate::model::Pod;
use crate::scheduling::framework::{
    BLOCK, Block, Need, Places, Plan, Point, Reason, Rejection, Row, Status, Verdict,
};
use crate::scheduling::profile::Profile;

/// Why no node fits.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Diagnosis {
    /// The number of nodes.
    pub nodes: usize,
    /// The message of PreFilter, if it ended the cycle before any node was evaluated.
    pub pre_filter: Option<String>,
    /// Status of each node, by slot.
    pub statuses: Vec<NodeStatus>,
    /// Reasons, with the number of nodes rejected for each, in the order of the reasons.
    pub reasons: Vec<(Reason, usize)>,
    /// Plugins that rejected nodes, in the order of the profile.
    pub plugins: Vec<&'static str>,
    /// Those of them that wait for something that is already on its way.
    pub pending: Vec<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeStatus {
    pub slot: usize,
    pub status: Status,
}

impl Diagnosis {
    /// Every node was evaluated, and on none of them would it help if pods left.
    pub fn is_unresolvable(&self) -> bool {
        let all = self.statuses.len() == self.nodes && self.nodes > 0;
        let mut statuses = self.statuses.iter();
        all && statuses.all(|it| it.status == Status::Unresolvable)
    }

    /// The message of the pod's condition and event. `post_filter` is the message of PostFilter, or empty.
    pub fn message(&self, post_filter: &str) -> String {
        let mut text = format!("0/{} nodes are available:", self.nodes);
        if let Some(message) = &self.pre_filter {
            text += &format!(" {message}.");
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

/// The evaluation of one pod: feasible nodes, scores, reasons, and what-if questions about nodes.
pub struct Scan<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) profile: &'a Profile,
    pub(super) pod: &'a Arc<Pod>,
    pub(super) plan: Plan<'a>,
    pub(super) places: Places,
    pub(super) counted: Vec<CountState>,
    /// Filters in their order: plugin and position among its filters.
    pub(super) filters: Vec<(usize, usize)>,
    pre_filter: PreFilterResult,
    /// Set once the filters have run.
    judged: Option<FilterResults>,
}

/// The results of the filters for every node.
pub(super) struct FilterResults {
    pub(super) feasible: FeasibleNodes,
    /// Index of the filter that rejected the node, and its code; by slot.
    pub(super) rejections: Vec<(u16, Verdict)>,
    /// Rejections by opaque checks, whose reasons do not follow from a code.
    pub(super) worded: HashMap<usize, (usize, Rejection)>,
    /// Nodes that each plugin rejected.
    pub(super) refused: Vec<usize>,
    /// An opaque check failed: the first node where one did, and its message.
    pub(super) error: Option<(usize, String)>,
}

/// The block of rows around a slot, kept while the next slots are read.
#[derive(Default)]
pub(super) struct Window {
    block: Block,
    from: Option<usize>,
}

/// No filter has evaluated the node: the slot is free, or PreFilter left the node out.
pub(super) const UNJUDGED: u16 = u16::MAX;
/// The rejection is in `worded`.
pub(super) const WORDED: u16 = u16::MAX - 1;

impl<'a> Scan<'a> {
    pub fn new(cluster: &'a Cluster, profile: &'a Profile, pod: &'a Arc<Pod>) -> Self {
        let mut scan = Self::begin(cluster, profile, pod);
        scan.evaluate_for_filters();
        scan
    }

    /// Runs PreFilter only.
    pub(crate) fn begin(cluster: &'a Cluster, profile: &'a Profile, pod: &'a Arc<Pod>) -> Self {
        let plan = prepare(cluster, profile, pod);
        let pre_filter = narrow(cluster, profile, &plan);
        Self::of(cluster, profile, pod, plan, pre_filter)
    }

    /// Continues after a PreFilter that ran on another view of the cluster.
    pub(crate) fn resume(
        cluster: &'a Cluster,
        profile: &'a Profile,
        pod: &'a Arc<Pod>,
        pre_filter: PreFilterResult,
    ) -> Self {
        let plan = prepare(cluster, profile, pod);
        let mut scan = Self::of(cluster, profile, pod, plan, pre_filter);
        scan.evaluate_for_filters();
        scan
    }

    fn of(
        cluster: &'a Cluster,
        profile: &'a Profile,
        pod: &'a Arc<Pod>,
        plan: Plan<'a>,
        pre_filter: PreFilterResult,
    ) -> Self {
        let (mut places, mut counted) = (Places::default(), Vec::new());
        let need = match pre_filter {
            PreFilterResult::All | PreFilterResult::Only { .. } => Some(Need::PreFilter),
            // Preemption may still evaluate nodes.
            PreFilterResult::Rejected { ref rejection, .. }
                if rejection.status == Status::Unschedulable =>
            {
                Some(Need::Filter)
            }
            PreFilterResult::Rejected { .. } | PreFilterResult::Failed { .. } => None,
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
            pre_filter,
            judged: None,
        }
    }

    /// Evaluates what the filters read, unless PreFilter ended the cycle.
    pub(super) fn evaluate_for_filters(&mut self) {
        if matches!(
            self.pre_filter,
            PreFilterResult::All | PreFilterResult::Only { .. }
        ) {
            self.evaluate_until(Need::Filter);
        }
    }

    /// Evaluates what is needed up to this point.
    pub(super) fn evaluate_until(&mut self, need: Need) {
        let (places, counted) = (&mut self.places, &mut self.counted);
        evaluate(self.cluster, &self.plan, need, places, counted);
    }

    pub(super) fn nominated_slot(&self) -> Option<usize> {
        self.cluster
            .nodes()
            .slot(self.pod.nominated_node.as_deref()?)
    }

    pub(super) fn is_candidate(&self, slot: usize) -> bool {
        match &self.pre_filter {
            PreFilterResult::All => true,
            PreFilterResult::Only { slots, .. } => slots.binary_search(&slot).is_ok(),
            PreFilterResult::Rejected { .. } | PreFilterResult::Failed { .. } => false,
        }
    }

    /// Runs every filter on every node, once.
    pub(super) fn judge(&mut self) {
        if self.judged.is_some()
            || matches!(
                self.pre_filter,
                PreFilterResult::Rejected { .. } | PreFilterResult::Failed { .. }
            )
        {
            return;
        }
        self.evaluate_for_filters();
        let slots = self.cluster.nodes().slots();
        let mut judged = FilterResults {
            feasible: FeasibleNodes::default(),
            rejections: vec![(UNJUDGED, Verdict::FITS); slots.len()],
            worded: HashMap::new(),
            refused: vec![0; self.plan.plugins.len()],
            error: None,
        };
        self.judge_nominated(&mut judged);
        self.judge_own_nomination(&mut judged);
        let mut block = Block::default();
        let mut feasible = Vec::with_capacity(slots.len());
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
            let passed = self.judge_block(from, alive, &mut block, &mut judged);
            feasible.extend(lanes_of(passed).map(|lane| ((from + lane) as u32, 1)));
            // Nodes with nominated pods were evaluated first, so the error may be further on.
            let is_over = |(slot, _): &(usize, String)| *slot < from + BLOCK;
            if judged.error.as_ref().is_some_and(is_over) {
                break;
            }
        }
        judged.feasible = FeasibleNodes(Arc::new(feasible));
        self.judged = Some(judged);
    }

    /// Nodes that hold nominated pods must also fit with those on them.
    fn judge_nominated(&self, judged: &mut FilterResults) {
        let slots = self.cluster.nominated_slots().into_iter();
        for slot in slots.filter(|slot| self.is_candidate(*slot)) {
            let added = self.nominated_before_us(slot);
            if added.is_empty() {
                continue;
            }
            if let Err((plugin, rejection)) = self.fits_with(slot, &added, &[]) {
                self.reject(judged, slot, plugin, rejection);
            }
        }
    }

    /// The pod's own nominated node was tried first, even if PreFilter leaves it out. Errors there are ignored.
    fn judge_own_nomination(&self, judged: &mut FilterResults) {
        let Some(slot) = self
            .nominated_slot()
            .filter(|slot| !self.is_candidate(*slot))
        else {
            return;
        };
        if let Err((plugin, rejection)) = self.try_on(slot, NodeChange::default())
            && rejection.status != Status::Error
        {
            self.reject(judged, slot, plugin, rejection);
        }
    }

    fn reject(&self, judged: &mut FilterResults, slot: usize, plugin: usize, rejection: Rejection) {
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

    /// Runs the filters on the nodes of a block that are set in `alive`. Returns those that passed.
    fn judge_block(
        &self,
        from: usize,
        alive: u64,
        block: &mut Block,
        judged: &mut FilterResults,
    ) -> u64 {
        let lanes = BLOCK.min(judged.rejections.len() - from);
        let mut verdicts = [Verdict::FITS; BLOCK];
        let mut input = NodeInput {
            scan: self,
            from,
            block,
            is_filled: false,
        };
        self.run_checks(
            &mut input,
            &mut verdicts[..lanes],
            alive,
            |lane, failure| {
                let slot = from + lane;
                match failure {
                    CheckFailure::Code(filter, verdict) => {
                        judged.rejections[slot] = (filter as u16, verdict);
                        judged.refused[self.filters[filter].0] += 1;
                    }
                    CheckFailure::Message(plugin, rejection) => {
                        self.reject(judged, slot, plugin, rejection);
                    }
                }
            },
        )
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
                    let rows = rows.get(*column..).unwrap_or_default();
                    let column = rows.iter().step_by(width);
                    for (value, &found) in values.iter_mut().zip(column) {
                        *value = found;
                    }
                }
                None => values.fill(0),
            }
        }
    }

    /// The plugin that rejected a node, and its rejection.
    pub(super) fn rejection(&self, slot: usize, at: &mut Window) -> Option<(usize, Rejection)> {
        let judged = self.judged.as_ref()?;
        let (index, verdict) = judged.rejections[slot];
        if index == WORDED {
            return judged.worded.get(&slot).cloned();
        }
        let filter = usize::from(index);
        let &(plugin, _) = self.filters.get(filter)?;
        let row = self.row(slot, at);
        Some((plugin, self.rejection_of(filter, verdict, row)))
    }

    /// The node's row, read as part of its block.
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

    pub(crate) fn pre_filter_result(&self) -> &PreFilterResult {
        &self.pre_filter
    }

    pub(crate) fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    pub(crate) fn profile(&self) -> &'a Profile {
        self.profile
    }

    pub(crate) fn pod(&self) -> &'a Arc<Pod> {
        self.pod
    }

    pub(super) fn judged(&self) -> Option<&FilterResults> {
        self.judged.as_ref()
    }
}

/// A block of nodes as they are.
struct NodeInput<'n> {
    scan: &'n Scan<'n>,
    from: usize,
    block: &'n mut Block,
    is_filled: bool,
}

impl CheckInput for NodeInput<'_> {
    fn places(&self) -> (&Places, usize) {
        (&self.scan.places, self.from)
    }

    fn rows(&mut self) -> &Block {
        if !self.is_filled {
            self.scan.fill(self.block, self.from);
            self.is_filled = true;
        }
        self.block
    }

    fn zone_row(&self, lane: usize) -> Option<&ZoneRow> {
        self.scan.cluster.nodes().zone_row(self.from + lane)
    }

    fn zones(&self, lane: usize) -> Option<Cow<'_, NodeZones>> {
        let zones = self.scan.cluster.zones_of(self.from + lane);
        zones.map(Cow::Borrowed)
    }

    fn node(&self, lane: usize) -> (usize, Vec<&Arc<Pod>>) {
        let slot = self.from + lane;
        let pods = self.scan.cluster.pods_on(slot);
        (slot, pods.map(|placed| &placed.pod).collect())
    }
}

/// The message of a filter that failed.
pub(super) fn filter_failed(plugin: &str, rejection: &Rejection) -> String {
    format!(
        "running \"{plugin}\" filter plugin: {}",
        rejection.message()
    )
}
