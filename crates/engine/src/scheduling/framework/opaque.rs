//! Opaque checks: they see a whole node, so the evaluator cannot know what they read and cannot cache results.

use std::sync::Arc;

use super::verdict::Rejection;
use crate::cluster::Catalog;
use crate::model::{NodeSpec, Pod};

/// A node with the pods on it, including hypothetical changes such as evicted victims.
pub struct NodeView<'a> {
    pub spec: &'a NodeSpec,
    pub pods: &'a [&'a Arc<Pod>],
    pub catalog: &'a Catalog,
}

/// Filters by anything about a node. Built-in plugins use it only for state that is neither a number nor a count.
pub trait NodeFilter: Send + 'static {
    fn filter(&self, node: NodeView) -> Result<(), Rejection>;
}

/// Scores by anything about a node.
pub trait NodeScore: Send + 'static {
    fn score(&self, node: NodeView) -> i64;
    fn normalize(&self, _scores: &mut [i64]) {}
}
