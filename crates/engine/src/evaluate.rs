//! A pod and the truth in; a node, or the reasons against every node, out.
//!
//! Nothing here changes the cluster: whoever takes the decision commits it ([`crate::cluster::Cluster::assume`]) and moves
//! the [`Cursor`]. `scan` asks every check about every node; it is the reference for any evaluator that remembers.

mod among;
mod asked;
mod explain;
mod prepare;
mod refusal;
mod scan;
mod score;
mod suppose;
mod tally;
mod trial;

pub(crate) use asked::Asked;
pub use explain::{Explanation, NodeExplanation, NodeVerdict, PluginScore, PreFilterAnswer};
pub(crate) use prepare::Narrowed;
pub use refusal::Refusal;
pub(crate) use refusal::Refusals;
pub use scan::{Diagnosis, NodeStatus, Outcome, Scan};
pub use suppose::Supposed;
pub use trial::Trial;

/// Where the search for equals begins: one per engine. It moves past the chosen node when a decision is committed,
/// and never for a mere question.
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
