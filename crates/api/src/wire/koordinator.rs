//! What the tiers are calculated from: NodeMetrics, the capacity of nodes, and Koordinator's annotations of nodes.

use serde::Deserialize;

use super::meta::{ObjectMeta, ResourceList, Time};
use super::nullable;

/// `slo.koordinator.sh/v1alpha1`, named after its node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeMetric {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub status: NodeMetricStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeMetricStatus {
    pub update_time: Option<Time>,
    pub node_metric: Option<NodeUsage>,
    #[serde(deserialize_with = "nullable")]
    pub pods_metric: Vec<PodUsage>,
    #[serde(deserialize_with = "nullable")]
    pub host_application_metric: Vec<ApplicationUsage>,
    #[serde(deserialize_with = "nullable")]
    pub prod_reclaimable_metric: Reclaimable,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeUsage {
    #[serde(deserialize_with = "nullable")]
    pub node_usage: Usage,
    #[serde(deserialize_with = "nullable")]
    pub system_usage: Usage,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodUsage {
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub priority: String,
    #[serde(deserialize_with = "nullable")]
    pub pod_usage: Usage,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ApplicationUsage {
    #[serde(deserialize_with = "nullable")]
    pub priority: String,
    #[serde(deserialize_with = "nullable")]
    pub usage: Usage,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Reclaimable {
    #[serde(deserialize_with = "nullable")]
    pub resource: Usage,
}

/// Amounts of resources.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Usage {
    #[serde(deserialize_with = "nullable")]
    pub resources: ResourceList,
}

/// The annotation `node.koordinator.sh/reservation`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeReservation {
    #[serde(deserialize_with = "nullable")]
    pub resources: ResourceList,
    /// A list of CPUs such as `0-5,8`. Their number replaces `resources.cpu`.
    #[serde(rename = "reservedCPUs", deserialize_with = "nullable")]
    pub reserved_cpus: String,
    #[serde(deserialize_with = "nullable")]
    pub apply_policy: String,
}

/// A Node with the fields that tiers are about. Nodes are many, so they are read from protobuf.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct CapacityNode {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, required, tag = "3")]
    pub status: CapacityStatus,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct CapacityStatus {
    #[serde(deserialize_with = "nullable")]
    #[prost(btree_map = "string, message", tag = "1")]
    pub capacity: ResourceList,
    #[serde(deserialize_with = "nullable")]
    #[prost(btree_map = "string, message", tag = "2")]
    pub allocatable: ResourceList,
}
