//! Opaque checks: they see a whole node, so what they read is unknown and nothing can be remembered of them.

use std::sync::Arc;

use super::verdict::Rejection;
use crate::cluster::Catalog;
use crate::model::{NodeSpec, Pod};

/// A node with the pods on it. In a question about a changed world, the pods of that world.
pub struct NodeView<'a> {
    pub spec: &'a NodeSpec,
    pub pods: &'a [&'a Arc<Pod>],
    pub catalog: &'a Catalog,
}

/// Says no by anything about a node. Of ours, only plugins whose state is neither number nor count may use it.
pub trait NodeFilter: Send + 'static {
    fn filter(&self, node: NodeView) -> Result<(), Rejection>;
}

/// Scores by anything about a node.
pub trait NodeScore: Send + 'static {
    fn score(&self, node: NodeView) -> i64;
    fn normalize(&self, _scores: &mut [i64]) {}
}
