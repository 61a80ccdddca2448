//! A machine: what its object says about it. What pods take of it is the cluster's knowledge.

use super::{Amounts, Labels, Name, Taint};

/// A node as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    pub spec: NodeSpec,
    /// From `status.allocatable` only.
    pub allocatable: Amounts,
}

/// What facts may look at: everything about a node that is neither a number nor a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeSpec {
    pub name: Name,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub unschedulable: bool,
    pub images: Vec<Image>,
    pub declared_features: Vec<Name>,
}

/// An image that is on the node, under all its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub names: Vec<Name>,
    pub size: i64,
}
