//! The evaluator's interface to the scheduling cycle: one method per extension point.

use std::sync::Arc;

use super::Cursor;
use super::scan::{Diagnosis, Scan};
use crate::scheduling::framework::{Need, Point, Rejection};

/// Nodes that passed every filter, by slot. A clone is cheap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeasibleNodes(
    /// As places of one node each, the form that scores are computed from.
    pub(super) Arc<Vec<(u32, u32)>>,
);

impl FeasibleNodes {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn slots(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|(slot, _)| *slot as usize)
    }
}

impl FromIterator<usize> for FeasibleNodes {
    fn from_iter<I: IntoIterator<Item = usize>>(slots: I) -> Self {
        let places = slots.into_iter().map(|slot| (slot as u32, 1));
        Self(Arc::new(places.collect()))
    }
}

impl Scan<'_> {
    /// The rejection that ends the cycle at PreFilter, if any; an error if a plugin failed.
    pub(crate) fn pre_filter(&self) -> Result<Option<Rejection>, String> {
        match self.early_end() {
            Some((_, rejection)) if rejection.is_failure() => Err(rejection.message()),
            end => Ok(end.map(|(_, rejection)| rejection)),
        }
    }

    /// All nodes that pass every filter, in the order of slots. An error if a plugin failed on a node: that of the first
    /// such node.
    pub(crate) fn filter(&mut self) -> Result<FeasibleNodes, String> {
        self.judge();
        match self.judged() {
            None => self.pre_filter().map(|_| FeasibleNodes::default()),
            Some(judged) => match &judged.error {
                Some((_, text)) => Err(text.clone()),
                None => Ok(judged.feasible.clone()),
            },
        }
    }

    /// The node that the pod is nominated to, if it fits.
    pub(crate) fn filter_nominated(&mut self) -> Option<usize> {
        self.evaluate_for_filters();
        let slot = self.nominated_slot()?;
        self.fits(slot).is_ok().then_some(slot)
    }

    /// Why nodes were rejected, for the pod's condition, the queue and preemption.
    pub(crate) fn diagnose(&mut self) -> Diagnosis {
        self.judge();
        self.diagnosis()
    }

    pub(crate) fn pre_score(&mut self) -> Result<(), String> {
        self.evaluate_until(Need::Score);
        for &index in self.profile.at(Point::PreScore) {
            if let Some(text) = &self.plan.plugins[index].score_error {
                let name = self.profile.plugins()[index].name;
                return Err(format!("running PreScore plugin \"{name}\": {text}"));
            }
        }
        Ok(())
    }

    /// The best of these nodes and its total. `extra` is added to the totals, in the order of the nodes, unless it is
    /// empty.
    pub(crate) fn score(
        &mut self,
        nodes: &FeasibleNodes,
        extra: &[i64],
        cursor: Cursor,
    ) -> Result<(usize, i64), String> {
        self.best(&nodes.0, extra, cursor)
    }
}
