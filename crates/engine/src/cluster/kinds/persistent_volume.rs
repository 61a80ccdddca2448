//! PersistentVolumes.

use super::{Applied, Changed, Key, Watched};
use crate::cluster::Cluster;
use crate::model::{Labels, Name, NodeSelector, Quantity};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentVolume {
    pub name: Name,
    pub labels: Labels,
    pub phase: VolumePhase,
    pub deleting: bool,
    pub claim: Option<ClaimRef>,
    pub capacity: Quantity,
    pub class: Name,
    pub access_modes: Vec<Name>,
    pub volume_mode: Name,
    pub attributes_class: Option<Name>,
    pub node_affinity: Option<NodeSelector>,
    pub source: VolumeHandle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VolumePhase {
    Pending,
    Available,
    Bound,
    Released,
    Failed,
}

/// Which volume it is for its driver. In-tree sources are kept by their plugin's name until they are translated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VolumeHandle {
    Csi { driver: Name, handle: Name },
    InTree { plugin: Name, id: Name },
    Other,
}

/// The claim that a volume is, or is to be, bound to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClaimRef {
    pub namespace: Name,
    pub name: Name,
    pub uid: Name,
}

impl Watched for PersistentVolume {
    const NAME: &'static str = "PersistentVolume";
    const PLURAL: &'static str = "persistentVolumes";
    const NAMESPACED: bool = false;

    fn key(&self) -> Key {
        self.name.clone().into()
    }

    fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied {
        let storage = cluster.catalog_mut().storage_mut();
        Ok(storage.set_volume(key.name, new).events(Changed::Volume))
    }
}
