//! Which plugins evaluated the pod, and how many nodes each, for probes that count.

use super::prepare::PreFilterResult;
use super::scan::Scan;
use crate::scheduling::framework::Point;
use crate::scheduling::hooks::Evaluations;

impl Scan<'_> {
    /// Plugins that did not skip PreFilter, up to the one that ended it.
    pub(crate) fn evaluated_at_pre_filter(&self) -> Evaluations {
        let order = self.profile.at(Point::PreFilter);
        let name = |index: &usize| self.profile.plugins()[*index].name;
        let last = match self.pre_filter_result() {
            PreFilterResult::All | PreFilterResult::Only { .. } => None,
            PreFilterResult::Rejected { plugins, .. } => order
                .iter()
                .rposition(|index| plugins.contains(&name(index))),
            PreFilterResult::Failed { by, .. } => {
                order.iter().rposition(|index| name(index) == *by)
            }
        };
        let asked = &order[..last.map_or(order.len(), |last| last + 1)];
        let runs = |index: &&usize| !self.skips(Point::PreFilter, **index);
        asked.iter().filter(runs).map(|index| (*index, 1)).collect()
    }

    /// Plugins that filtered, each one the nodes that passed the ones before it.
    pub(crate) fn evaluated_at_filter(&self) -> Evaluations {
        let judged = self.judged();
        // Without results only the nominated node was evaluated.
        let mut nodes = judged.map_or(1, |judged| {
            judged.feasible.len() + judged.refused.iter().sum::<usize>()
        });
        let order = self.profile.at(Point::Filter).iter();
        let asked = order.filter(|index| !self.skips(Point::PreFilter, **index));
        let asked = asked.map(|&index| {
            let own = nodes;
            nodes -= judged.map_or(0, |judged| judged.refused[index]);
            (index, own)
        });
        asked.collect()
    }

    /// Plugins that did not skip PreScore.
    pub(crate) fn evaluated_at_pre_score(&self) -> Evaluations {
        let order = self.profile.at(Point::PreScore).iter();
        let asked = order.filter(|index| !self.skips(Point::PreScore, **index));
        asked.map(|index| (*index, 1)).collect()
    }

    /// Plugins that scored so many nodes.
    pub(crate) fn evaluated_at_score(&self, nodes: usize) -> Evaluations {
        let order = self.profile.at(Point::Score).iter();
        let asked = order.filter(|index| !self.skips(Point::PreScore, **index));
        asked.map(|index| (*index, nodes)).collect()
    }

    /// Whether the plugin skips both points. It decides that at the first of them. A plugin that is not enabled at the first
    /// runs at the second.
    fn skips(&self, first: Point, index: usize) -> bool {
        let (plan, tallies) = (&self.plan.plugins[index], &self.places.tallies);
        self.profile.at(first).contains(&index)
            && match first {
                Point::PreFilter => plan.skips_filters(tallies),
                _ => plan.skips_scores(tallies),
            }
    }
}
