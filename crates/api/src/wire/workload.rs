//! Objects that own, select or protect pods.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::meta::{LabelSelector, Map, ObjectMeta, Time};
use super::nullable;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Service {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: ServiceSpec,
}

/// The spec of services and replication controllers: their selector is plain pairs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ServiceSpec {
    pub selector: Option<Map>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ReplicationController {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: ServiceSpec,
}

/// ReplicaSets and StatefulSets.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SelectingWorkload {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: SelectingSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SelectingSpec {
    pub selector: Option<LabelSelector>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PodDisruptionBudget {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: SelectingSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: BudgetStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BudgetStatus {
    #[serde(deserialize_with = "nullable")]
    pub disruptions_allowed: i32,
    #[serde(deserialize_with = "nullable")]
    pub disrupted_pods: BTreeMap<String, Time>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PriorityClass {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub value: i32,
    #[serde(deserialize_with = "nullable")]
    pub global_default: bool,
    pub preemption_policy: Option<String>,
}
