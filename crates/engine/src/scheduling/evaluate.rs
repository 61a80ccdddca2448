//! Evaluates a pod against every node. Nothing here changes the cluster.
//!
//! [`Scan`] is the evaluator: it runs every check on every node and keeps no result from one decision to the next. The
//! scheduling cycle calls one method per extension point (`points.rs`), so that another evaluator can stand behind the
//! same methods; a scan is the reference for it. `checks.rs` is the only code that runs checks, for blocks of nodes, for
//! one node with other pods on it (`suppose.rs`), and for the dry runs of preemption (`trial.rs`).

mod checks;
mod cursor;
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

pub use cursor::Cursor;
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

#[cfg(test)]
mod tests;
