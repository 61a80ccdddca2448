//! StorageClasses.

use super::{Applied, Changed, Key, Watched, set};
use crate::cluster::Cluster;
use crate::model::{Name, TopologyTerm};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageClass {
    pub name: Name,
    pub provisioner: Name,
    pub mode: Option<BindingMode>,
    pub allowed_topologies: Vec<TopologyTerm>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BindingMode {
    Immediate,
    WaitForFirstConsumer,
}

impl Watched for StorageClass {
    const NAME: &'static str = "storage.k8s.io/StorageClass";
    const PLURAL: &'static str = "storageClasses";
    const NAMESPACED: bool = false;

    fn key(&self) -> Key {
        self.name.clone().into()
    }

    fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied {
        let storage = cluster.catalog_mut().storage_mut();
        Ok(set(&mut storage.classes, key.name, new).events(Changed::StorageClass))
    }
}
