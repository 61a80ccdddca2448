//! The declarations of one pod's plugins: the only input of the evaluators besides the observed cluster state.

use super::opaque::{NodeFilter, NodeScore};
use super::place::{
    ErasedPlaceFilter, ErasedPlaceScore, ErasedPlaceTier, PlaceFilter, PlaceScore, PlaceTier, Tally,
};
use super::row::{ColumnId, ErasedRowFilter, ErasedRowScore, RowFilter, RowScore};
use super::rule::{Count, Fact, Within};
use super::verdict::{Reason, Rejection};
use super::zone::{ZoneFilter, ZoneScore};
use crate::cluster::{Catalog, Part};
use crate::model::{Name, ReclaimedResource, Resource};

/// A declared fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FactId(pub(crate) usize);

/// A declared count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CountId(pub(crate) usize);

/// Collects the declarations of all plugins of a profile for one pod. Equal facts, counts and columns are shared.
pub struct Plan<'a> {
    catalog: &'a Catalog,
    pub(crate) facts: Vec<Fact>,
    pub(crate) counts: Vec<PlannedCount>,
    /// Index of the column in the rows; `None` reads as 0, for resources that no node offers.
    pub(crate) columns: Vec<Option<usize>>,
    pub(crate) plugins: Vec<PluginPlan>,
    /// At which step each fact and each count is first needed.
    fact_needs: Vec<Need>,
    /// For facts that are a bit of another fact: that fact, and the bit.
    fact_sources: Vec<Option<(FactId, u32)>>,
    count_needs: Vec<Need>,
    /// The declarations of the current plugin so far: its checks can read nothing else.
    readable: (Vec<FactId>, Vec<CountId>),
}

/// The step at which a value is needed for all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// Counts of filters, and what they are made from.
    PreFilter,
    Filter,
    Score,
}

/// A count with its facts resolved.
pub(crate) struct PlannedCount {
    pub(crate) count: Count,
    /// The domain and the inclusions; `None` for counts on the node.
    pub(crate) domain: Option<(FactId, Vec<FactId>)>,
}

/// The declarations of one plugin.
#[derive(Default)]
pub struct PluginPlan {
    pub(crate) filters: Vec<Check>,
    pub(crate) scores: Vec<Score>,
    pub(crate) tiers: Vec<Box<dyn ErasedPlaceTier>>,
    pub(crate) only: Option<Vec<Name>>,
    pub(crate) rejection: Option<Rejection>,
    pub(crate) score_error: Option<String>,
    pub(crate) filters_need: Option<Vec<CountId>>,
    pub(crate) scores_need: Option<Vec<CountId>>,
}

impl PluginPlan {
    /// Whether the filters run, given the tallies of all counts.
    pub(crate) fn filters_run(&self, tallies: &[Tally]) -> bool {
        !self.filters.is_empty() && any(&self.filters_need, tallies)
    }

    /// Whether it skips PreFilter and Filter.
    pub(crate) fn skips_filters(&self, tallies: &[Tally]) -> bool {
        self.rejection.is_none() && self.only.is_none() && !self.filters_run(tallies)
    }

    /// Whether it skips PreScore and Score.
    pub(crate) fn skips_scores(&self, tallies: &[Tally]) -> bool {
        self.score_error.is_none() && (self.scores.is_empty() || !self.scores_run(tallies))
    }

    pub(crate) fn scores_run(&self, tallies: &[Tally]) -> bool {
        any(&self.scores_need, tallies)
    }
}

fn any(needed: &Option<Vec<CountId>>, tallies: &[Tally]) -> bool {
    let Some(counts) = needed else { return true };
    counts
        .iter()
        .filter_map(|count| tallies.get(count.0))
        .any(|tally| tally.first_total != 0)
}

/// A fact that must be 0.
pub struct Gate {
    pub(crate) fact: FactId,
    pub(crate) reason: Reason,
}

/// One filter, in the order of declaration.
pub enum Check {
    Gate(Gate),
    #[expect(
        private_interfaces,
        reason = "evaluators call it, authors hand it over"
    )]
    Rows(Box<dyn ErasedRowFilter>),
    #[expect(
        private_interfaces,
        reason = "evaluators call it, authors hand it over"
    )]
    Places(Box<dyn ErasedPlaceFilter>),
    Zones(Box<dyn ZoneFilter>),
    Nodes(Box<dyn NodeFilter>),
}

/// One scorer.
pub enum Score {
    #[expect(
        private_interfaces,
        reason = "evaluators call it, authors hand it over"
    )]
    Rows(Box<dyn ErasedRowScore>),
    #[expect(
        private_interfaces,
        reason = "evaluators call it, authors hand it over"
    )]
    Places(Box<dyn ErasedPlaceScore>),
    Zones(Box<dyn ZoneScore>),
    Nodes(Box<dyn NodeScore>),
}

impl<'a> Plan<'a> {
    pub(crate) fn new(catalog: &'a Catalog) -> Self {
        Self {
            catalog,
            facts: Vec::new(),
            counts: Vec::new(),
            columns: Vec::new(),
            plugins: Vec::new(),
            fact_needs: Vec::new(),
            fact_sources: Vec::new(),
            count_needs: Vec::new(),
            readable: (Vec::new(), Vec::new()),
        }
    }

    pub(crate) fn fact_need(&self, fact: usize) -> Need {
        self.fact_needs[fact]
    }

    pub(crate) fn fact_source(&self, fact: usize) -> Option<(FactId, u32)> {
        self.fact_sources[fact]
    }

    pub(crate) fn count_need(&self, count: usize) -> Need {
        self.count_needs[count]
    }

    /// Starts the declarations of the next plugin.
    pub(crate) fn next_plugin(&mut self) {
        self.plugins.push(PluginPlan::default());
        self.readable.0.clear();
        self.readable.1.clear();
    }

    fn plugin(&mut self) -> &mut PluginPlan {
        if self.plugins.is_empty() {
            self.next_plugin();
        }
        self.plugins.last_mut().expect("one was just pushed")
    }

    /// A number of the node's own row; 0 everywhere if no node offers the resource.
    pub fn column(&mut self, resource: &Resource, part: Part) -> ColumnId {
        let column = self.catalog.accounts().column(resource, part);
        ColumnId(position_or_push(&mut self.columns, column))
    }

    /// A number of the node's own row for reclaimed resources; 0 everywhere if no node reports any.
    pub fn reclaimed_column(&mut self, resource: ReclaimedResource, part: Part) -> ColumnId {
        let column = self.catalog.accounts().reclaimed_column(resource, part);
        ColumnId(position_or_push(&mut self.columns, column))
    }

    /// A fact of the node's object.
    pub fn fact(&mut self, fact: Fact) -> FactId {
        // A source goes before its bits, so that it is evaluated first.
        let source = fact
            .source()
            .map(|(of, bit)| (of.clone(), bit))
            .map(|(of, bit)| (self.fact(of), bit));
        let fact = FactId(position_or_push(&mut self.facts, fact));
        self.fact_needs.resize(self.facts.len(), Need::Score);
        self.fact_sources.resize(self.facts.len(), source);
        self.readable.0.push(fact);
        fact
    }

    /// Pods of a set, on the node or in its domain.
    pub fn count(&mut self, count: Count) -> CountId {
        if let Some(known) = self
            .counts
            .iter()
            .position(|planned| planned.count == count)
        {
            self.readable.1.push(CountId(known));
            return CountId(known);
        }
        let domain = match &count.within {
            Within::Node => None,
            Within::Domain { of, include } => {
                let of = self.fact(of.clone());
                Some((
                    of,
                    include.iter().map(|fact| self.fact(fact.clone())).collect(),
                ))
            }
        };
        self.counts.push(PlannedCount { count, domain });
        self.count_needs.push(Need::Score);
        let count = CountId(self.counts.len() - 1);
        self.readable.1.push(count);
        count
    }

    /// Prepares for a filter that may read all declarations of the plugin.
    fn needed_by_filter(&mut self) {
        for fact in &self.readable.0 {
            let need = &mut self.fact_needs[fact.0];
            *need = (*need).min(Need::Filter);
        }
        for count in &self.readable.1 {
            self.count_needs[count.0] = Need::PreFilter;
            let domain = self.counts[count.0].domain.iter();
            for fact in domain.flat_map(|(of, include)| include.iter().chain([of])) {
                self.fact_needs[fact.0] = Need::PreFilter;
                if let Some((source, _)) = self.fact_sources[fact.0] {
                    self.fact_needs[source.0] = Need::PreFilter;
                }
            }
        }
    }

    /// Filter: the fact must be 0, or the node is unresolvable: preemption does not change a node's object.
    pub fn gate(&mut self, fact: Fact, reason: impl Into<Reason>) {
        let fact = self.fact(fact);
        self.needed_by_filter();
        self.plugin().filters.push(Check::Gate(Gate {
            fact,
            reason: reason.into(),
        }));
    }

    /// Filter by the node's own numbers.
    pub fn filter_rows(&mut self, check: impl RowFilter) {
        self.plugin().filters.push(Check::Rows(Box::new(check)));
    }

    /// Score by the node's own numbers.
    pub fn score_rows(&mut self, check: impl RowScore) {
        self.plugin().scores.push(Score::Rows(Box::new(check)));
    }

    /// Filter by facts and counts.
    pub fn filter_places(&mut self, check: impl PlaceFilter) {
        self.needed_by_filter();
        self.plugin().filters.push(Check::Places(Box::new(check)));
    }

    /// Score by facts and counts.
    pub fn score_places(&mut self, check: impl PlaceScore) {
        self.plugin().scores.push(Score::Places(Box::new(check)));
    }

    /// Places of a lower tier win regardless of scores. With several tiers, those of earlier plugins are compared first.
    pub fn tier(&mut self, check: impl PlaceTier) {
        self.plugin().tiers.push(Box::new(check));
    }

    /// Filter by the NUMA zones of a node.
    pub fn filter_zones(&mut self, check: impl ZoneFilter) {
        self.plugin().filters.push(Check::Zones(Box::new(check)));
    }

    /// Score by the NUMA zones of a node.
    pub fn score_zones(&mut self, check: impl ZoneScore) {
        self.plugin().scores.push(Score::Zones(Box::new(check)));
    }

    /// Filter by anything about a node: last resort.
    pub fn filter_nodes(&mut self, check: impl NodeFilter) {
        self.plugin().filters.push(Check::Nodes(Box::new(check)));
    }

    /// Score by anything about a node: last resort.
    pub fn score_nodes(&mut self, check: impl NodeScore) {
        self.plugin().scores.push(Score::Nodes(Box::new(check)));
    }

    /// PreFilter: only these nodes are candidates.
    pub fn only(&mut self, nodes: Vec<Name>) {
        self.plugin().only = Some(nodes);
    }

    /// PreFilter: no node is feasible.
    pub fn reject(&mut self, rejection: Rejection) {
        self.plugin().rejection = Some(rejection);
    }

    /// PreFilter: skips the plugin's filters unless one of these counts found a pod somewhere. Hypothetical pods
    /// come too late: a plugin that skipped does not see them.
    pub fn filter_only_with(&mut self, counts: Vec<CountId>) {
        self.needed_by_filter();
        self.plugin().filters_need = Some(counts);
    }

    /// PreScore: skips the plugin's scores unless one of these counts found a pod somewhere.
    pub fn score_only_with(&mut self, counts: Vec<CountId>) {
        self.plugin().scores_need = Some(counts);
    }

    /// PreScore: an error that aborts the cycle only if nodes must be scored.
    pub fn fail_scoring(&mut self, text: impl Into<String>) {
        self.plugin().score_error = Some(text.into());
    }
}

fn position_or_push<T: PartialEq>(all: &mut Vec<T>, one: T) -> usize {
    all.iter()
        .position(|known| *known == one)
        .unwrap_or_else(|| {
            all.push(one);
            all.len() - 1
        })
}
