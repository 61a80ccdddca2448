//! PersistentVolumeClaims.

use super::{Applied, Changed, Key, Watched, set_in};
use crate::cluster::Cluster;
use crate::model::{Name, Owner, Quantity, Selector};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub namespace: Name,
    pub name: Name,
    pub uid: Name,
    pub phase: ClaimPhase,
    pub deleting: bool,
    /// The volume it is, or is to be, bound to.
    pub volume: Option<Name>,
    /// The binding controller has finished (`pv.kubernetes.io/bind-completed`).
    pub bind_completed: bool,
    /// From the beta annotation, else from the spec; `None` and "" mean no class.
    pub class: Option<Name>,
    /// Node for which a volume is to be provisioned (`volume.kubernetes.io/selected-node`).
    pub selected_node: Option<Name>,
    pub request: Option<Quantity>,
    pub selector: Option<Selector>,
    pub access_modes: Vec<Name>,
    /// `Filesystem` when not given.
    pub volume_mode: Name,
    pub attributes_class: Option<Name>,
    pub owner: Option<Owner>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClaimPhase {
    Pending,
    Bound,
    Lost,
}

impl Watched for Claim {
    const NAME: &'static str = "PersistentVolumeClaim";
    const PLURAL: &'static str = "persistentVolumeClaims";
    const NAMESPACED: bool = true;

    fn key(&self) -> Key {
        Key::new(self.namespace.clone(), self.name.clone())
    }

    fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied {
        let storage = cluster.catalog_mut().storage_mut();
        storage.forget_promised_claim(&key.namespace, &key.name);
        Ok(set_in(&mut storage.claims, key, new).events(Changed::Claim))
    }
}
