//! The mid and batch tiers of a node: their capacity, the sum behind each number, and when it is written.
//!
//! The tier controller publishes the result as extended resources in the status of the Node. The settings are those of
//! Koordinator's `colocation-config`, with the fields `lend` and `midFormula` of our own.

mod capacity;
mod publish;
mod settings;

use crate::cluster::CustomNodeResource;
use crate::model::{Amounts, Labels, Name, QosClass, Timestamp, ZoneSet};
use crate::node::CpuMemory;
pub use capacity::capacities;
pub use publish::{Published, TierPhase, TierPlan, plan};
pub use settings::{
    CalculatePolicy, ColocationConfig, ColocationStrategy, MidFormula, MidReclaimMode,
    NodeStrategy, StrategyError, StrategyOverrides, ratio_percent,
};

/// Names of the resources, in the order of [`TierResource`].
pub const TIER_RESOURCES: [TierResource; 4] = [
    TierResource::MidCpu,
    TierResource::MidMemory,
    TierResource::BatchCpu,
    TierResource::BatchMemory,
];

/// A resource that the tier controller publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TierResource {
    MidCpu,
    MidMemory,
    BatchCpu,
    BatchMemory,
}

impl TierResource {
    fn unit(self) -> &'static str {
        match self {
            Self::MidCpu | Self::BatchCpu => "milli-cores",
            Self::MidMemory | Self::BatchMemory => "bytes",
        }
    }

    fn amount(self) -> fn(CpuMemory) -> i64 {
        match self {
            Self::MidCpu | Self::BatchCpu => |it| it.milli_cpu,
            Self::MidMemory | Self::BatchMemory => |it| it.memory,
        }
    }

    /// CPU in integer milli-cores, memory in bytes.
    pub fn name(self) -> &'static str {
        match self {
            Self::MidCpu => "kubernetes.io/mid-cpu",
            Self::MidMemory => "kubernetes.io/mid-memory",
            Self::BatchCpu => "kubernetes.io/batch-cpu",
            Self::BatchMemory => "kubernetes.io/batch-memory",
        }
    }
}

/// A Node object, as far as tiers are about it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TierNodeObject {
    pub uid: Name,
    pub labels: Labels,
    pub capacity: CpuMemory,
    pub allocatable: CpuMemory,
    /// The annotation `node.koordinator.sh/reservation`.
    pub reservation: CpuMemory,
    /// The annotation `node.koordinator.sh/colocation-strategy`.
    pub overrides: Option<StrategyOverrides>,
    pub published: Published,
}

/// What is observed of one node.
#[derive(Debug, Clone, PartialEq)]
pub struct TierNode<'a> {
    /// `status.capacity` and `status.allocatable`.
    pub capacity: CpuMemory,
    pub allocatable: CpuMemory,
    /// The annotation `node.koordinator.sh/reservation`.
    pub reservation: CpuMemory,
    /// Pods bound to the node that have not ended.
    pub pods: &'a [TierPod],
    pub metric: Option<&'a NodeMetric>,
    /// The idle pool as our agent measures it, and the NUMA zones.
    pub report: Option<&'a CustomNodeResource>,
    /// The Lease of the node's agent is silent.
    pub agent_silent: bool,
}

/// A pod, as far as tiers are about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierPod {
    pub namespace: Name,
    pub name: Name,
    pub class: QosClass,
    /// QoS class LSE: its CPU counts by the request, whatever it uses.
    pub exclusive: bool,
    /// NUMA zones that no other pod may use, as far as its request can need them: all of them counts as requested and used.
    pub zones: ZoneSet,
    /// All that it requests, if it has zones.
    pub requests: Amounts,
    /// Running or Pending, terminating or not: it counts in the formulas. Every pod here counts in what is bound.
    pub active: bool,
    pub native: CpuMemory,
    pub mid: CpuMemory,
    pub batch: CpuMemory,
    pub reclaimed: CpuMemory,
}

/// The engine's form of a NodeMetric of Koordinator.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeMetric {
    /// None: it was never filled in.
    pub updated: Option<Timestamp>,
    /// None: it is not there, or cpu or memory is missing in it.
    pub node_usage: Option<CpuMemory>,
    pub system_usage: CpuMemory,
    pub host_applications: Vec<(PriorityBand, CpuMemory)>,
    pub pods: Vec<PodUsage>,
    pub prod_reclaimable: CpuMemory,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodUsage {
    pub namespace: Name,
    pub name: Name,
    pub band: PriorityBand,
    pub usage: CpuMemory,
}

/// Koordinator's priority classes, as NodeMetrics name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PriorityBand {
    Free,
    Batch,
    Mid,
    Prod,
}

#[cfg(test)]
mod tests;
