//! Claims, volumes and their classes.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{ObjectReference, TopologySelectorTerm},
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
    },
};
use serde::Deserialize;

super::kind!(PersistentVolumeClaim, "", "persistentvolumeclaims");
super::kind!(PersistentVolume, "", "persistentvolumes", cluster);
super::kind!(StorageClass, "storage.k8s.io", "storageclasses", cluster);

type Amounts = BTreeMap<String, Quantity>;

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct PersistentVolumeClaim {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: ClaimSpec,
    #[serde(default)]
    pub(crate) status: ClaimStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimSpec {
    pub(crate) access_modes: Vec<String>,
    pub(crate) resources: ClaimResources,
    pub(crate) selector: Option<LabelSelector>,
    /// An absent class may get the default one, an empty class means none.
    pub(crate) storage_class_name: Option<String>,
    pub(crate) volume_mode: Option<String>,
    pub(crate) volume_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimResources {
    pub(crate) requests: Amounts,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimStatus {
    pub(crate) phase: String,
    pub(crate) access_modes: Vec<String>,
    pub(crate) capacity: Amounts,
}

impl PersistentVolumeClaim {
    pub(crate) fn class(&self) -> &str {
        self.spec.storage_class_name.as_deref().unwrap_or_default()
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct PersistentVolume {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: VolumeSpec,
    #[serde(default)]
    pub(crate) status: VolumeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VolumeSpec {
    pub(crate) access_modes: Vec<String>,
    pub(crate) capacity: Amounts,
    pub(crate) claim_ref: Option<ObjectReference>,
    pub(crate) persistent_volume_reclaim_policy: String,
    pub(crate) storage_class_name: String,
    pub(crate) volume_mode: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct VolumeStatus {
    pub(crate) phase: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StorageClass {
    pub(crate) metadata: ObjectMeta,
    pub(crate) provisioner: String,
    pub(crate) reclaim_policy: String,
    pub(crate) volume_binding_mode: String,
    pub(crate) mount_options: Vec<String>,
    pub(crate) allowed_topologies: Vec<TopologySelectorTerm>,
}

impl StorageClass {
    pub(crate) fn waits_for_a_pod(&self) -> bool {
        self.volume_binding_mode == "WaitForFirstConsumer"
    }
}
