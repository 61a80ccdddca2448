//! What the scheduler records about its decisions: metrics, timings, attempts, scores and log lines.

pub(crate) mod attempts;
pub(crate) mod log;
pub(crate) mod metrics;
pub mod score_table;
pub(crate) mod scores;
pub(crate) mod timings;
