//! CustomNodeResource, the report of a node's agent, in the current and in the older layout.

use serde::Deserialize;

use super::meta::{ObjectMeta, ResourceList};
use super::nullable;

/// `node.katalyst.kubewharf.io/v1alpha1`, named after its node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct CustomNodeResource {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: CustomNodeResourceSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: CustomNodeResourceStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct CustomNodeResourceSpec {
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<QosTaint>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct QosTaint {
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    #[serde(deserialize_with = "nullable")]
    pub value: String,
    #[serde(deserialize_with = "nullable")]
    pub effect: String,
    /// Absent in the older layout, whose only effect applies to reclaimed pods.
    #[serde(deserialize_with = "nullable")]
    pub qos_level: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CustomNodeResourceStatus {
    /// The current layout.
    #[serde(deserialize_with = "nullable")]
    pub resources: Resources,
    /// The older layout.
    pub resource_allocatable: Option<ResourceList>,
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<ReportCondition>,
    pub resource_capacity: Option<ResourceList>,
    #[serde(deserialize_with = "nullable")]
    pub topology_policy: String,
    #[serde(deserialize_with = "nullable")]
    pub topology_zone: Vec<TopologyZone>,
}

/// A socket, a NUMA node or a device.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct TopologyZone {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: String,
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub resources: Resources,
    #[serde(deserialize_with = "nullable")]
    pub attributes: Vec<Attribute>,
    #[serde(deserialize_with = "nullable")]
    pub allocations: Vec<Allocation>,
    /// The API server does not validate them: each is decoded on its own.
    #[serde(deserialize_with = "nullable")]
    pub children: Vec<serde_json::Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Attribute {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub value: String,
}

/// What a pod uses of a zone.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Allocation {
    /// `namespace/name/uid`.
    #[serde(deserialize_with = "nullable")]
    pub consumer: String,
    #[serde(deserialize_with = "nullable")]
    pub requests: ResourceList,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    pub allocatable: Option<ResourceList>,
    pub capacity: Option<ResourceList>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ReportCondition {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: String,
    #[serde(deserialize_with = "nullable")]
    pub status: String,
}
