//! CustomNodeResources: what the agent of a node reports. The cluster keeps them beside the nodes, because they come and go
//! on their own.

use std::sync::Arc;

use super::{Applied, Key, Watched};
use crate::cluster::Cluster;
use crate::model::{Name, QosTaint, Reclaimed, Topology};

/// What a node's agent reports about it. It never ages: who watches over agents taints it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CustomNodeResource {
    pub node: Name,
    pub allocatable: Reclaimed,
    /// The whole idle pool, for reclaimed and batch pods together; None if the report has none.
    pub pool: Option<Reclaimed>,
    pub taints: Vec<QosTaint>,
    /// The condition `MidLSUnsupported`.
    pub refuses_mid_latency_sensitive: bool,
    /// The NUMA zones, if any are reported.
    pub topology: Option<Arc<Topology>>,
}

impl CustomNodeResource {
    /// The most that reclaimed and batch pods may request together. A node that lends its idle capacity as batch resources
    /// alone reports a pool of nothing: the status of the Node bounds its pods.
    pub fn pool_bound(&self) -> Option<Reclaimed> {
        self.pool.filter(|pool| !pool.is_zero())
    }
}

impl Watched for CustomNodeResource {
    const NAME: &'static str = "node.katalyst.kubewharf.io/CustomNodeResource";
    const PLURAL: &'static str = "customNodeResources";
    const NAMESPACED: bool = false;

    fn key(&self) -> Key {
        self.node.clone().into()
    }

    fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied {
        Ok(cluster.set_report(&key.name, new))
    }
}
