//! Volumes, claims, storage classes and CSI objects.

use serde::Deserialize;

use super::core::{
    AwsElasticBlockStore, AzureDisk, GcePersistentDisk, NodeSelector, ResourceRequirements,
    VolumeId,
};
use super::meta::{LabelSelector, ObjectMeta, Quantity, ResourceList};
use super::nullable;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: VolumeSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: Phase,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Phase {
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSpec {
    #[serde(deserialize_with = "nullable")]
    pub capacity: ResourceList,
    #[serde(deserialize_with = "nullable")]
    pub access_modes: Vec<String>,
    pub claim_ref: Option<ObjectReference>,
    #[serde(deserialize_with = "nullable")]
    pub storage_class_name: String,
    pub volume_mode: Option<String>,
    pub volume_attributes_class_name: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub node_affinity: VolumeNodeAffinity,
    pub csi: Option<CsiVolume>,
    pub gce_persistent_disk: Option<GcePersistentDisk>,
    pub aws_elastic_block_store: Option<AwsElasticBlockStore>,
    pub azure_disk: Option<AzureDisk>,
    pub cinder: Option<VolumeId>,
    pub portworx_volume: Option<VolumeId>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ObjectReference {
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub uid: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct VolumeNodeAffinity {
    pub required: Option<NodeSelector>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsiVolume {
    pub driver: String,
    pub volume_handle: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeClaim {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: ClaimSpec,
    #[serde(deserialize_with = "nullable")]
    pub status: Phase,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimSpec {
    #[serde(deserialize_with = "nullable")]
    pub volume_name: String,
    pub storage_class_name: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub resources: ResourceRequirements,
    pub selector: Option<LabelSelector>,
    #[serde(deserialize_with = "nullable")]
    pub access_modes: Vec<String>,
    pub volume_mode: Option<String>,
    pub volume_attributes_class_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StorageClass {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub provisioner: String,
    pub volume_binding_mode: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub allowed_topologies: Vec<TopologySelectorTerm>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TopologySelectorTerm {
    #[serde(deserialize_with = "nullable")]
    pub match_label_expressions: Vec<TopologySelectorLabel>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct TopologySelectorLabel {
    pub key: String,
    #[serde(deserialize_with = "nullable")]
    pub values: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct CsiNode {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: CsiNodeSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpec {
    #[serde(deserialize_with = "nullable")]
    pub drivers: Vec<CsiNodeDriver>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct CsiNodeDriver {
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub allocatable: VolumeNodeResources,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct VolumeNodeResources {
    pub count: Option<i64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct CsiDriver {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: CsiDriverSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsiDriverSpec {
    #[serde(deserialize_with = "nullable")]
    pub storage_capacity: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsiStorageCapacity {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub storage_class_name: String,
    pub node_topology: Option<LabelSelector>,
    pub capacity: Option<Quantity>,
    pub maximum_volume_size: Option<Quantity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct VolumeAttachment {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: AttachmentSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AttachmentSpec {
    #[serde(deserialize_with = "nullable")]
    pub attacher: String,
    #[serde(deserialize_with = "nullable")]
    pub node_name: String,
    #[serde(deserialize_with = "nullable")]
    pub source: AttachmentSource,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AttachmentSource {
    pub persistent_volume_name: Option<String>,
}
