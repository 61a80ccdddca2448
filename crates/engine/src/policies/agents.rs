//! The agents of nodes: which of them are silent, and what becomes of the CustomNodeResource and the Lease of each node.
//!
//! A node without a Lease of an agent is never silent. Decides only; the controller of agents reads the objects and
//! carries the plan out.

mod lifecycle;
mod liveness;

pub use lifecycle::{
    AgentAction, AgentNode, AgentPlan, AgentTimes, NodeMeta, ReportMeta, Unreadable, plan,
};
pub use liveness::{Agents, Judgement, Liveness};

/// The key of the QoS taint of a node whose agent is silent.
pub const AGENT_SILENT: &str = "tidepool.io/agent-silent";

#[cfg(test)]
mod tests;
