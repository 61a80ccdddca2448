//! VolumeAttachments.

use super::{Applied, Changed, Key, Watched};
use crate::cluster::Cluster;
use crate::model::Name;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeAttachment {
    pub name: Name,
    pub attacher: Name,
    pub node: Name,
    /// The attached PersistentVolume; `None` for inline volumes.
    pub volume: Option<Name>,
}

impl Watched for VolumeAttachment {
    const NAME: &'static str = "storage.k8s.io/VolumeAttachment";
    const PLURAL: &'static str = "volumeAttachments";
    const NAMESPACED: bool = false;

    fn key(&self) -> Key {
        self.name.clone().into()
    }

    fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied {
        let storage = cluster.catalog_mut().storage_mut();
        Ok(storage
            .set_attachment(key.name, new)
            .events(Changed::VolumeAttachment))
    }
}
