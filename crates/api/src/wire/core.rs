//! Pods, nodes and namespaces.

use serde::Deserialize;

use super::meta::{LabelSelector, Map, ObjectMeta, ResourceList, SelectorRequirement, Time};
use super::nullable;

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct Namespace {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct Node {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, required, tag = "2")]
    pub spec: NodeSpec,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, required, tag = "3")]
    pub status: NodeStatus,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "5")]
    pub taints: Vec<Taint>,
    #[serde(deserialize_with = "nullable")]
    #[prost(bool, tag = "4")]
    pub unschedulable: bool,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct Taint {
    #[prost(string, tag = "1")]
    pub key: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "2")]
    pub value: String,
    #[prost(string, tag = "3")]
    pub effect: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeStatus {
    #[serde(deserialize_with = "nullable")]
    #[prost(btree_map = "string, message", tag = "2")]
    pub allocatable: ResourceList,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "4")]
    pub conditions: Vec<NodeCondition>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "8")]
    pub images: Vec<ContainerImage>,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, repeated, tag = "14")]
    pub declared_features: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct NodeCondition {
    #[serde(rename = "type")]
    #[prost(string, tag = "1")]
    pub kind: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "2")]
    pub status: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerImage {
    #[serde(deserialize_with = "nullable")]
    #[prost(string, repeated, tag = "1")]
    pub names: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    #[prost(int64, tag = "2")]
    pub size_bytes: i64,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct Pod {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, required, tag = "2")]
    pub spec: PodSpec,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, required, tag = "3")]
    pub status: PodStatus,
}

/// The field selector of pods for which [`Pod::is_finished`] is false, percent-encoded.
pub const NOT_FINISHED: &str = "status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";

impl Pod {
    /// Succeeded or failed: it uses no capacity any more.
    pub fn is_finished(&self) -> bool {
        matches!(&self.status.phase[..], "Succeeded" | "Failed")
    }
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "10")]
    pub node_name: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "19")]
    pub scheduler_name: String,
    #[prost(int32, optional, tag = "25")]
    pub priority: Option<i32>,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "24")]
    pub priority_class_name: String,
    #[prost(string, optional, tag = "31")]
    pub preemption_policy: Option<String>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "2")]
    pub containers: Vec<Container>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "20")]
    pub init_containers: Vec<Container>,
    #[prost(message, optional, tag = "40")]
    pub resources: Option<ResourceRequirements>,
    #[serde(deserialize_with = "nullable")]
    #[prost(btree_map = "string, message", tag = "32")]
    pub overhead: ResourceList,
    #[serde(deserialize_with = "nullable")]
    #[prost(btree_map = "string, string", tag = "7")]
    pub node_selector: Map,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, required, tag = "18")]
    pub affinity: Affinity,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "22")]
    pub tolerations: Vec<Toleration>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "33")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "38")]
    pub scheduling_gates: Vec<Named>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "1")]
    pub volumes: Vec<Volume>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "39")]
    pub resource_claims: Vec<Named>,
    #[serde(deserialize_with = "nullable")]
    #[prost(bool, tag = "11")]
    pub host_network: bool,
    #[serde(rename = "hostUsers")]
    #[prost(bool, optional, tag = "37")]
    pub host_users: Option<bool>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct Named {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    #[prost(string, tag = "1")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "2")]
    pub image: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, required, tag = "8")]
    pub resources: ResourceRequirements,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "6")]
    pub ports: Vec<ContainerPort>,
    #[prost(string, optional, tag = "24")]
    pub restart_policy: Option<String>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "25")]
    pub restart_policy_rules: Vec<RestartRule>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct RestartRule {
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "1")]
    pub action: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct ResourceRequirements {
    #[serde(deserialize_with = "nullable")]
    #[prost(btree_map = "string, message", tag = "2")]
    pub requests: ResourceList,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerPort {
    #[serde(deserialize_with = "nullable")]
    #[prost(int32, tag = "2")]
    pub host_port: i32,
    #[serde(rename = "hostIP", deserialize_with = "nullable")]
    #[prost(string, tag = "5")]
    pub host_ip: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "4")]
    pub protocol: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Affinity {
    #[prost(message, optional, tag = "1")]
    pub node_affinity: Option<NodeAffinity>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, required, tag = "2")]
    pub pod_affinity: PodAffinity,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, required, tag = "3")]
    pub pod_anti_affinity: PodAffinity,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    #[prost(message, optional, tag = "1")]
    pub required: Option<NodeSelector>,
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "nullable"
    )]
    #[prost(message, repeated, tag = "2")]
    pub preferred: Vec<PreferredSchedulingTerm>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelector {
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "1")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelectorTerm {
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "1")]
    pub match_expressions: Vec<SelectorRequirement>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "2")]
    pub match_fields: Vec<SelectorRequirement>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct PreferredSchedulingTerm {
    #[prost(int32, tag = "1")]
    pub weight: i32,
    #[prost(message, required, tag = "2")]
    pub preference: NodeSelectorTerm,
}

/// Pod affinity or pod anti-affinity.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct PodAffinity {
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "nullable"
    )]
    #[prost(message, repeated, tag = "1")]
    pub required: Vec<PodAffinityTerm>,
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "nullable"
    )]
    #[prost(message, repeated, tag = "2")]
    pub preferred: Vec<WeightedPodAffinityTerm>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodAffinityTerm {
    #[prost(message, optional, tag = "1")]
    pub label_selector: Option<LabelSelector>,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, repeated, tag = "2")]
    pub namespaces: Vec<String>,
    #[prost(message, optional, tag = "4")]
    pub namespace_selector: Option<LabelSelector>,
    #[prost(string, tag = "3")]
    pub topology_key: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WeightedPodAffinityTerm {
    #[prost(int32, tag = "1")]
    pub weight: i32,
    #[prost(message, required, tag = "2")]
    pub pod_affinity_term: PodAffinityTerm,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct Toleration {
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "1")]
    pub key: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "2")]
    pub operator: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "3")]
    pub value: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "4")]
    pub effect: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TopologySpreadConstraint {
    #[prost(int32, tag = "1")]
    pub max_skew: i32,
    #[prost(string, tag = "2")]
    pub topology_key: String,
    #[prost(string, tag = "3")]
    pub when_unsatisfiable: String,
    #[prost(message, optional, tag = "4")]
    pub label_selector: Option<LabelSelector>,
    #[prost(int32, optional, tag = "5")]
    pub min_domains: Option<i32>,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, repeated, tag = "8")]
    pub match_label_keys: Vec<String>,
    #[prost(string, optional, tag = "6")]
    pub node_affinity_policy: Option<String>,
    #[prost(string, optional, tag = "7")]
    pub node_taints_policy: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct Volume {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Inlined in JSON, a separate message in protobuf.
    #[serde(flatten)]
    #[prost(message, required, tag = "2")]
    pub source: VolumeSource,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSource {
    #[prost(message, optional, tag = "10")]
    pub persistent_volume_claim: Option<ClaimSource>,
    #[prost(message, optional, tag = "29")]
    pub ephemeral: Option<Anything>,
    #[prost(message, optional, tag = "28")]
    pub csi: Option<CsiSource>,
    #[prost(message, optional, tag = "30")]
    pub image: Option<ImageSource>,
    #[prost(message, optional, tag = "3")]
    pub gce_persistent_disk: Option<GcePersistentDisk>,
    #[prost(message, optional, tag = "4")]
    pub aws_elastic_block_store: Option<AwsElasticBlockStore>,
    #[prost(message, optional, tag = "11")]
    pub rbd: Option<Rbd>,
    #[prost(message, optional, tag = "8")]
    pub iscsi: Option<Iscsi>,
    #[prost(message, optional, tag = "22")]
    pub azure_disk: Option<AzureDisk>,
    #[prost(message, optional, tag = "18")]
    pub azure_file: Option<Anything>,
    #[prost(message, optional, tag = "13")]
    pub cinder: Option<VolumeId>,
    #[prost(message, optional, tag = "24")]
    pub portworx_volume: Option<VolumeId>,
    #[prost(message, optional, tag = "20")]
    pub vsphere_volume: Option<Anything>,
}

/// Whether a field is set; its content is not read.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
pub struct Anything {}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimSource {
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "1")]
    pub claim_name: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct CsiSource {
    #[prost(string, tag = "1")]
    pub driver: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct ImageSource {
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "1")]
    pub reference: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GcePersistentDisk {
    #[prost(string, tag = "1")]
    pub pd_name: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(bool, tag = "4")]
    pub read_only: bool,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct AwsElasticBlockStore {
    #[serde(rename = "volumeID")]
    #[prost(string, tag = "1")]
    pub volume_id: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Rbd {
    #[serde(deserialize_with = "nullable")]
    #[prost(string, repeated, tag = "1")]
    pub monitors: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "4")]
    pub pool: String,
    #[prost(string, tag = "2")]
    pub image: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(bool, tag = "8")]
    pub read_only: bool,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Iscsi {
    #[prost(string, tag = "2")]
    pub iqn: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(bool, tag = "6")]
    pub read_only: bool,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct AzureDisk {
    #[serde(rename = "diskURI", deserialize_with = "nullable")]
    #[prost(string, tag = "2")]
    pub disk_uri: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct VolumeId {
    #[serde(rename = "volumeID", deserialize_with = "nullable")]
    #[prost(string, tag = "1")]
    pub volume_id: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "1")]
    pub phase: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "11")]
    pub nominated_node_name: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "9")]
    pub qos_class: String,
    #[prost(message, optional, tag = "7")]
    pub start_time: Option<Time>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "2")]
    pub conditions: Vec<PodCondition>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "8")]
    pub container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "10")]
    pub init_container_statuses: Vec<ContainerStatus>,
    #[prost(message, optional, tag = "20")]
    pub resources: Option<ResourceRequirements>,
    #[serde(deserialize_with = "nullable")]
    #[prost(btree_map = "string, message", tag = "19")]
    pub allocated_resources: ResourceList,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "15")]
    pub resource_claim_statuses: Vec<ResourceClaimStatus>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceClaimStatus {
    #[prost(string, tag = "1")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "2")]
    pub resource_claim_name: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodCondition {
    #[serde(rename = "type")]
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub status: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "5")]
    pub reason: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "6")]
    pub message: String,
    #[prost(message, optional, tag = "4")]
    pub last_transition_time: Option<Time>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "11")]
    pub resources: Option<ResourceRequirements>,
    #[serde(deserialize_with = "nullable")]
    #[prost(btree_map = "string, message", tag = "10")]
    pub allocated_resources: ResourceList,
}
