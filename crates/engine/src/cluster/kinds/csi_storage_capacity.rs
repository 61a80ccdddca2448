//! CSIStorageCapacities.

use super::{Applied, Changed, Key, Watched};
use crate::cluster::Cluster;
use crate::model::{Name, Quantity, Selector};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageCapacity {
    pub namespace: Name,
    pub name: Name,
    pub class: Name,
    /// `None` matches no node.
    pub topology: Option<Selector>,
    pub capacity: Option<Quantity>,
    pub largest_volume: Option<Quantity>,
}

impl StorageCapacity {
    /// The largest volume that can be provisioned.
    pub fn limit(&self) -> Option<Quantity> {
        self.largest_volume.or(self.capacity)
    }
}

impl Watched for StorageCapacity {
    const NAME: &'static str = "storage.k8s.io/CSIStorageCapacity";
    const PLURAL: &'static str = "csiStorageCapacities";
    const NAMESPACED: bool = true;

    fn key(&self) -> Key {
        Key::new(self.namespace.clone(), self.name.clone())
    }

    fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied {
        let storage = cluster.catalog_mut().storage_mut();
        Ok(storage
            .set_capacity(key, new)
            .events(Changed::StorageCapacity))
    }
}
