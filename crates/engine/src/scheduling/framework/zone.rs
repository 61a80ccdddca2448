//! Zone checks: they see the NUMA zones of a node and the pods that have them.

use super::verdict::{Reason, Verdict};
use crate::cluster::{NodeZones, ZoneRow};

/// Filters by the NUMA zones of a node; `None` if its agent reports none.
pub trait ZoneFilter: Send + 'static {
    fn filter(&self, node: Option<&NodeZones>) -> Verdict;
    /// The verdict from the numbers of the zones; `None` if they do not suffice. It runs on every node.
    fn filter_row(&self, _: &ZoneRow) -> Option<Verdict> {
        None
    }
    /// The message for a code.
    fn reason(&self, code: u8) -> Reason;
}

/// Scores by the NUMA zones of a node, 0..=100, final.
pub trait ZoneScore: Send + 'static {
    fn score(&self, node: Option<&NodeZones>) -> i64;
    /// The score from the numbers of the zones; `None` if they do not suffice. It runs on every node.
    fn score_row(&self, _: &ZoneRow) -> Option<i64> {
        None
    }
}
