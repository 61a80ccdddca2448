//! Zone checks: they see the NUMA zones of a node and the pods that have them.

use super::verdict::{Reason, Verdict};
use crate::cluster::NodeZones;

/// Filters by the NUMA zones of a node; `None` if its agent reports none.
pub trait ZoneFilter: Send + 'static {
    fn filter(&self, node: Option<&NodeZones>) -> Verdict;
    /// The message for a code.
    fn reason(&self, code: u8) -> Reason;
}

/// Scores by the NUMA zones of a node, 0..=100, final.
pub trait ZoneScore: Send + 'static {
    fn score(&self, node: Option<&NodeZones>) -> i64;
}
