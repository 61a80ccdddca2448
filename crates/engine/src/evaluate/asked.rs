//! Which plugins had something to say about the pod, for those who count.

use super::prepare::Narrowed;
use super::scan::Scan;
use crate::framework::Point;

/// A plugin by its index in the profile, and how many nodes it was asked about: 1 where nodes are not asked about one by
/// one.
pub(crate) type Asked = Vec<(usize, usize)>;

impl Scan<'_> {
    /// Plugins that had something to say at PreFilter, up to the one that ended it.
    pub(crate) fn asked_to_pre_filter(&self) -> Asked {
        let order = self.profile.at(Point::PreFilter);
        let name = |index: &usize| self.profile.plugins()[*index].name;
        let last = match self.narrowed() {
            Narrowed::All | Narrowed::Only { .. } => None,
            Narrowed::None { plugins, .. } => order
                .iter()
                .rposition(|index| plugins.contains(&name(index))),
            Narrowed::Failed { by, .. } => order.iter().rposition(|index| name(index) == *by),
        };
        let asked = &order[..last.map_or(order.len(), |last| last + 1)];
        let speaks = |index: &&usize| !self.skips(Point::PreFilter, **index);
        asked
            .iter()
            .filter(speaks)
            .map(|index| (*index, 1))
            .collect()
    }

    /// Plugins that filtered, each asked about the nodes that the ones before it let pass.
    pub(crate) fn asked_to_filter(&self) -> Asked {
        let judged = self.judged();
        // Only the nominated node was asked about if nothing was judged.
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

    /// Plugins that had something to say at PreScore.
    pub(crate) fn asked_to_pre_score(&self) -> Asked {
        let order = self.profile.at(Point::PreScore).iter();
        let asked = order.filter(|index| !self.skips(Point::PreScore, **index));
        asked.map(|index| (*index, 1)).collect()
    }

    /// Plugins that scored so many nodes.
    pub(crate) fn asked_to_score(&self, nodes: usize) -> Asked {
        let order = self.profile.at(Point::Score).iter();
        let asked = order.filter(|index| !self.skips(Point::PreScore, **index));
        asked.map(|index| (*index, nodes)).collect()
    }

    /// Whether the plugin said at the first of two points that it has nothing to say at either. One that is not asked
    /// there is asked at the second.
    fn skips(&self, first: Point, index: usize) -> bool {
        let (plan, tallies) = (&self.plan.plugins[index], &self.places.tallies);
        self.profile.at(first).contains(&index)
            && match first {
                Point::PreFilter => plan.skips_filters(tallies),
                _ => plan.skips_scores(tallies),
            }
    }
}
