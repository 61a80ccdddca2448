//! CSINodes: how many volumes of each driver fit on a node.

use super::{Applied, Changed, Key, Watched, set};
use crate::cluster::Cluster;
use crate::model::Name;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CsiLimits {
    pub node: Name,
    /// Driver and its limit; `None` is unlimited.
    pub drivers: Vec<(Name, Option<i64>)>,
    /// In-tree plugins that are served by CSI on this node.
    pub migrated_plugins: Vec<Name>,
}

impl Watched for CsiLimits {
    const NAME: &'static str = "storage.k8s.io/CSINode";
    const PLURAL: &'static str = "csiNodes";
    const NAMESPACED: bool = false;

    fn key(&self) -> Key {
        self.node.clone().into()
    }

    fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied {
        let storage = cluster.catalog_mut().storage_mut();
        Ok(set(&mut storage.nodes, key.name, new).events(Changed::CsiNode))
    }
}
