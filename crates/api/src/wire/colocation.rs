//! ClusterColocationProfiles, `config.koordinator.sh/v1alpha1`, and LimitRanges: what admission reads.

use serde::Deserialize;
use serde_json::Value;

use super::meta::{LabelSelector, Map, ObjectMeta, ResourceList};
use super::nullable;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ClusterColocationProfile {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: ClusterColocationProfileSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterColocationProfileSpec {
    /// Absent and empty both match every namespace.
    pub namespace_selector: Option<LabelSelector>,
    /// Absent and empty both match every pod.
    pub selector: Option<LabelSelector>,
    /// A number, or a text such as `50%`.
    pub probability: Option<Value>,
    #[serde(deserialize_with = "nullable")]
    pub labels: Map,
    #[serde(deserialize_with = "nullable")]
    pub annotations: Map,
    #[serde(deserialize_with = "nullable")]
    pub label_keys_mapping: Map,
    #[serde(deserialize_with = "nullable")]
    pub annotation_keys_mapping: Map,
    #[serde(deserialize_with = "nullable")]
    pub label_suffixes: Map,
    pub scheduler_name: Option<String>,
    pub qos_class: Option<String>,
    pub priority_class_name: Option<String>,
    pub koordinator_priority: Option<i32>,
    pub patch: Option<Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct LimitRange {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: LimitRangeSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct LimitRangeSpec {
    #[serde(deserialize_with = "nullable")]
    pub limits: Vec<LimitRangeItem>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LimitRangeItem {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(deserialize_with = "nullable")]
    pub default: ResourceList,
    #[serde(deserialize_with = "nullable")]
    pub default_request: ResourceList,
    #[serde(deserialize_with = "nullable")]
    pub min: ResourceList,
    #[serde(deserialize_with = "nullable")]
    pub max: ResourceList,
    #[serde(deserialize_with = "nullable")]
    pub max_limit_request_ratio: ResourceList,
}
