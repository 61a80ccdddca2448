//! CSIDrivers.

use super::{Applied, Changed, Key, Watched, set};
use crate::cluster::Cluster;
use crate::model::Name;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiDriver {
    pub name: Name,
    pub storage_capacity: bool,
}

impl Watched for CsiDriver {
    const NAME: &'static str = "storage.k8s.io/CSIDriver";
    const PLURAL: &'static str = "csiDrivers";
    const NAMESPACED: bool = false;

    fn key(&self) -> Key {
        self.name.clone().into()
    }

    fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied {
        let storage = cluster.catalog_mut().storage_mut();
        Ok(set(&mut storage.drivers, key.name, new).events(Changed::CsiDriver))
    }
}
