//! Pods, nodes and namespaces.

use serde::Deserialize;

use super::meta::{LabelSelector, Map, ObjectMeta, ResourceList, SelectorRequirement};
use super::nullable;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Namespace {
    pub metadata: ObjectMeta,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: NodeSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<Taint>,
    #[serde(deserialize_with = "nullable")]
    pub unschedulable: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Taint {
    pub key: String,
    #[serde(deserialize_with = "nullable")]
    pub value: String,
    pub effect: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeStatus {
    #[serde(deserialize_with = "nullable")]
    pub allocatable: ResourceList,
    #[serde(deserialize_with = "nullable")]
    pub images: Vec<ContainerImage>,
    #[serde(deserialize_with = "nullable")]
    pub declared_features: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerImage {
    #[serde(deserialize_with = "nullable")]
    pub names: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub size_bytes: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: PodSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: PodStatus,
}

impl Pod {
    /// Ended for good: it takes no room any more.
    pub fn is_finished(&self) -> bool {
        matches!(&self.status.phase[..], "Succeeded" | "Failed")
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    #[serde(deserialize_with = "nullable")]
    pub node_name: String,
    #[serde(deserialize_with = "nullable")]
    pub scheduler_name: String,
    pub priority: Option<i32>,
    #[serde(deserialize_with = "nullable")]
    pub priority_class_name: String,
    pub preemption_policy: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<Container>,
    #[serde(deserialize_with = "nullable")]
    pub init_containers: Vec<Container>,
    pub resources: Option<ResourceRequirements>,
    #[serde(deserialize_with = "nullable")]
    pub overhead: ResourceList,
    pub node_selector: Option<Map>,
    #[serde(deserialize_with = "nullable")]
    pub affinity: Affinity,
    #[serde(deserialize_with = "nullable")]
    pub tolerations: Vec<Toleration>,
    #[serde(deserialize_with = "nullable")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    #[serde(deserialize_with = "nullable")]
    pub scheduling_gates: Vec<Named>,
    #[serde(deserialize_with = "nullable")]
    pub volumes: Vec<Volume>,
    #[serde(deserialize_with = "nullable")]
    pub resource_claims: Vec<Named>,
    #[serde(deserialize_with = "nullable")]
    pub host_network: bool,
    #[serde(rename = "hostUsers")]
    pub host_users: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Named {
    pub name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub image: String,
    #[serde(deserialize_with = "nullable")]
    pub resources: ResourceRequirements,
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<ContainerPort>,
    pub restart_policy: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub restart_policy_rules: Vec<RestartRule>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RestartRule {
    #[serde(deserialize_with = "nullable")]
    pub action: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ResourceRequirements {
    #[serde(deserialize_with = "nullable")]
    pub requests: ResourceList,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerPort {
    #[serde(deserialize_with = "nullable")]
    pub host_port: i32,
    #[serde(rename = "hostIP", deserialize_with = "nullable")]
    pub host_ip: String,
    #[serde(deserialize_with = "nullable")]
    pub protocol: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Affinity {
    pub node_affinity: Option<NodeAffinity>,
    #[serde(deserialize_with = "nullable")]
    pub pod_affinity: PodAffinity,
    #[serde(deserialize_with = "nullable")]
    pub pod_anti_affinity: PodAffinity,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Option<Vec<PreferredSchedulingTerm>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelector {
    #[serde(deserialize_with = "nullable")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelectorTerm {
    #[serde(deserialize_with = "nullable")]
    pub match_expressions: Vec<SelectorRequirement>,
    #[serde(deserialize_with = "nullable")]
    pub match_fields: Vec<SelectorRequirement>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PreferredSchedulingTerm {
    pub weight: i32,
    pub preference: NodeSelectorTerm,
}

/// Pod affinity and anti-affinity have one form.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PodAffinity {
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "nullable"
    )]
    pub required: Vec<PodAffinityTerm>,
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "nullable"
    )]
    pub preferred: Vec<WeightedPodAffinityTerm>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodAffinityTerm {
    pub label_selector: Option<LabelSelector>,
    #[serde(deserialize_with = "nullable")]
    pub namespaces: Vec<String>,
    pub namespace_selector: Option<LabelSelector>,
    pub topology_key: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WeightedPodAffinityTerm {
    pub weight: i32,
    pub pod_affinity_term: PodAffinityTerm,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Toleration {
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    #[serde(deserialize_with = "nullable")]
    pub operator: String,
    #[serde(deserialize_with = "nullable")]
    pub value: String,
    #[serde(deserialize_with = "nullable")]
    pub effect: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TopologySpreadConstraint {
    pub max_skew: i32,
    pub topology_key: String,
    pub when_unsatisfiable: String,
    pub label_selector: Option<LabelSelector>,
    pub min_domains: Option<i32>,
    #[serde(deserialize_with = "nullable")]
    pub match_label_keys: Vec<String>,
    pub node_affinity_policy: Option<String>,
    pub node_taints_policy: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume {
    pub name: String,
    pub persistent_volume_claim: Option<ClaimSource>,
    pub ephemeral: Option<serde::de::IgnoredAny>,
    pub csi: Option<CsiSource>,
    pub image: Option<ImageSource>,
    pub gce_persistent_disk: Option<GcePersistentDisk>,
    pub aws_elastic_block_store: Option<AwsElasticBlockStore>,
    pub rbd: Option<Rbd>,
    pub iscsi: Option<Iscsi>,
    pub azure_disk: Option<AzureDisk>,
    pub azure_file: Option<serde::de::IgnoredAny>,
    pub cinder: Option<VolumeId>,
    pub portworx_volume: Option<VolumeId>,
    pub vsphere_volume: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimSource {
    #[serde(deserialize_with = "nullable")]
    pub claim_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct CsiSource {
    pub driver: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ImageSource {
    #[serde(deserialize_with = "nullable")]
    pub reference: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GcePersistentDisk {
    pub pd_name: String,
    #[serde(deserialize_with = "nullable")]
    pub read_only: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct AwsElasticBlockStore {
    #[serde(rename = "volumeID")]
    pub volume_id: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Rbd {
    #[serde(deserialize_with = "nullable")]
    pub monitors: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub pool: String,
    pub image: String,
    #[serde(deserialize_with = "nullable")]
    pub read_only: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Iscsi {
    pub iqn: String,
    #[serde(deserialize_with = "nullable")]
    pub read_only: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct AzureDisk {
    #[serde(rename = "diskURI", deserialize_with = "nullable")]
    pub disk_uri: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct VolumeId {
    #[serde(rename = "volumeID", deserialize_with = "nullable")]
    pub volume_id: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
    #[serde(deserialize_with = "nullable")]
    pub nominated_node_name: String,
    pub start_time: Option<jiff::Timestamp>,
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<PodCondition>,
    #[serde(deserialize_with = "nullable")]
    pub container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "nullable")]
    pub init_container_statuses: Vec<ContainerStatus>,
    pub resources: Option<ResourceRequirements>,
    #[serde(deserialize_with = "nullable")]
    pub allocated_resources: ResourceList,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    #[serde(deserialize_with = "nullable")]
    pub reason: String,
    #[serde(deserialize_with = "nullable")]
    pub message: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    pub name: String,
    pub resources: Option<ResourceRequirements>,
    #[serde(deserialize_with = "nullable")]
    pub allocated_resources: ResourceList,
}
