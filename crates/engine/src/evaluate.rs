//! Evaluates a pod against every node. Nothing here changes the cluster.
//!
//! [`Scan`] is the evaluator: it runs every check on every node and keeps no result from one decision to the next. The
//! scheduling cycle calls one method per extension point (`points.rs`), so that another evaluator can stand behind the
//! same methods; a scan is the reference for it. `checks.rs` is the only code that runs checks, for blocks of nodes, for
//! one node with other pods on it (`suppose.rs`), and for the dry runs of preemption (`trial.rs`).

mod checks;
mod evaluations;
mod explain;
mod figures;
mod points;
mod prepare;
mod refusal;
mod scan;
mod score;
mod suppose;
mod tally;
mod tier;
mod trial;

pub(crate) use evaluations::Evaluations;
pub use explain::{NodeExplanation, NodeVerdict, PluginScore, PreFilterAnswer};
pub use figures::{NodeAmount, Shortage};
pub use points::FeasibleNodes;
pub(crate) use prepare::PreFilterResult;
pub use refusal::Refusal;
pub(crate) use refusal::Refusals;
pub use scan::{Diagnosis, NodeStatus, Scan};
pub(crate) use score::WeightedScores;
pub use suppose::NodeChange;
pub use tier::{Tier, by_tier};
pub use trial::Trial;

/// The slot from which the search for the best node starts, so that equal nodes take turns. There is one per scheduler.
/// It moves past the chosen node when a decision is committed, and only then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor(usize);

impl Cursor {
    pub fn commit(&mut self, slot: usize) {
        self.0 = slot + 1;
    }

    /// Slots at or after the cursor come first, then those before it.
    fn rotated(self, slot: usize) -> (bool, usize) {
        (slot < self.0, slot)
    }
}

#[cfg(test)]
mod tests;
