//! The result of one period: what the agent reports, writes and evicts. It leaves the agent no choice.

use std::collections::BTreeMap;

use super::{CpuMemory, Figure, Setting, ZoneReport};
use crate::model::{Name, QosClass};

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Advice {
    pub reclaimed: ReclaimedReport,
    /// For the annotation `tidepool.io/terms`.
    pub terms: Vec<Figure>,
    pub metric: NodeMetricReport,
    /// Every value that cgroups should have, so that files without one stay as they are. No file has two. Of equal writes those
    /// that take something away are made in this order, and those that give back in the opposite order.
    pub settings: Vec<Setting>,
    /// The NUMA zones of the node by their numbers; none without a sample.
    pub zones: Option<Vec<ZoneReport>>,
    /// Whether a pod of the node has NUMA zones, so that cpusets are to be read.
    pub has_zones: bool,
    /// To write now.
    pub events: Vec<PodEvent>,
    /// To send now, in this order. The agent reports each answer with [`super::Advisor::eviction_result`].
    pub evictions: Vec<EvictionOrder>,
    /// The taints that the CNR, or the Node, should have of the agent's keys; others of these keys are to be removed.
    pub taints: Vec<AgentTaint>,
    pub conditions: Vec<AgentCondition>,
    /// Changed since the last period; each is worth one log line.
    pub notices: Vec<String>,
    /// How many milli-cores own best-effort pods may use, and the CPUs; for metrics.
    pub suppression: Option<super::suppress::Grant>,
}

/// What the CNR reports. Decreases are sent at once, increases by the agent's own rules (10 s, 5%).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReclaimedReport {
    /// The whole pool.
    pub capacity: CpuMemory,
    /// What reclaimed pods may request: the pool without the requests of batch pods, where both share it.
    pub allocatable: CpuMemory,
    /// What reclaimed pods may request of each NUMA node; the sum is the node's value.
    pub numa: BTreeMap<u32, CpuMemory>,
}

/// What NodeMetric reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeMetricReport {
    /// None if it could not be measured.
    pub node_usage: Option<CpuMemory>,
    /// The node without its pods.
    pub system_usage: Option<CpuMemory>,
    /// Sorted by namespace and name.
    pub pods: Vec<PodMetric>,
    /// None: an empty `prodReclaimableMetric`, which counts as zero.
    pub prod_reclaimable: Option<CpuMemory>,
    pub prod_peak: Option<CpuMemory>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodMetric {
    pub namespace: Name,
    pub name: Name,
    pub uid: Name,
    pub class: QosClass,
    pub usage: CpuMemory,
}

impl PodMetric {
    /// The name of Koordinator's priority class, for the field `priority`.
    pub fn priority(&self) -> &'static str {
        match self.class {
            QosClass::System | QosClass::Dedicated | QosClass::Online => "koord-prod",
            QosClass::MidLatencySensitive | QosClass::MidBestEffort => "koord-mid",
            QosClass::Lent => "koord-batch",
            QosClass::Free => "koord-free",
        }
    }

    /// The name of Koordinator's QoS class, for the field `qos`.
    pub fn qos(&self) -> &'static str {
        match self.class {
            QosClass::System => "SYSTEM",
            QosClass::Dedicated => "LSR",
            QosClass::Online | QosClass::MidLatencySensitive => "LS",
            QosClass::MidBestEffort | QosClass::Lent | QosClass::Free => "BE",
        }
    }
}

/// A pod to evict with the Eviction API and its uid as precondition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictionOrder {
    pub namespace: Name,
    pub name: Name,
    pub uid: Name,
    /// One sentence with the figures, for the event and the log.
    pub reason: String,
}

/// A warning about a pod, for its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEvent {
    pub namespace: Name,
    pub name: Name,
    pub uid: Name,
    /// In CamelCase.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
}

/// A taint that keeps reclaimed pods away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentTaint {
    /// One of [`super::health::TAINT_KEYS`].
    pub key: &'static str,
    /// Why, in the form of a label value.
    pub value: &'static str,
}

/// A condition of the CNR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCondition {
    /// One of [`super::health::CONDITIONS`].
    pub kind: &'static str,
    pub status: bool,
    /// In CamelCase.
    pub reason: &'static str,
    pub message: String,
}
