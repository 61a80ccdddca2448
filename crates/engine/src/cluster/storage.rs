//! Volumes, claims and what surrounds them, as seen, and as decided but not yet seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::catalog::{ByName, ByNamespace};
use crate::model::{
    Claim, CsiDriver, CsiLimits, Name, PersistentVolume, StorageCapacity, StorageClass,
    VolumeAttachment,
};

/// What decisions know of storage. Volumes and claims are read through methods, because what a pod was promised comes
/// before what was last seen; any news of an object ends a promise about it.
#[derive(Debug, Default)]
pub struct Storage {
    pub(super) volumes: ByName<PersistentVolume>,
    pub(super) claims: ByNamespace<Claim>,
    pub classes: ByName<StorageClass>,
    pub nodes: ByName<CsiLimits>,
    pub drivers: ByName<CsiDriver>,
    pub capacities: ByNamespace<StorageCapacity>,
    pub attachments: ByName<VolumeAttachment>,
    promised_volumes: ByName<PersistentVolume>,
    promised_claims: ByNamespace<Claim>,
    promises: BTreeMap<Name, Promise>,
}

/// What has to be written for a pod before it can be bound: the names of volumes and claims whose promised form is to
/// become true.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Promise {
    /// To be bound to a claim of the pod.
    pub volumes: Vec<Name>,
    /// For which a volume is to be made on the pod's node: namespace and name.
    pub claims: Vec<(Name, Name)>,
}

impl Storage {
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<Claim>> {
        self.promised_claims
            .get(namespace)
            .and_then(|claims| claims.get(name))
            .or_else(|| self.claims.get(namespace)?.get(name))
    }

    pub fn volume(&self, name: &str) -> Option<&Arc<PersistentVolume>> {
        self.promised_volumes
            .get(name)
            .or_else(|| self.volumes.get(name))
    }

    /// All volumes, in the order of their names.
    pub fn volumes(&self) -> impl Iterator<Item = &Arc<PersistentVolume>> {
        let latest = |(name, seen)| self.promised_volumes.get(name).unwrap_or(seen);
        self.volumes.iter().map(latest)
    }

    /// What was promised to a pod, by its uid.
    pub fn promise(&self, pod: &str) -> Option<&Promise> {
        self.promises.get(pod)
    }

    /// From now on these are the volumes and claims that decisions see. An earlier promise to the pod is withdrawn.
    pub fn promise_to(&mut self, pod: Name, volumes: Vec<PersistentVolume>, claims: Vec<Claim>) {
        self.withdraw(&pod);
        let promise = Promise {
            volumes: volumes.iter().map(|volume| volume.name.clone()).collect(),
            claims: claims
                .iter()
                .map(|claim| (claim.namespace.clone(), claim.name.clone()))
                .collect(),
        };
        if promise == Promise::default() {
            return;
        }
        for volume in volumes {
            self.promised_volumes
                .insert(volume.name.clone(), Arc::new(volume));
        }
        for claim in claims {
            self.promised_claims
                .entry(claim.namespace.clone())
                .or_default()
                .insert(claim.name.clone(), Arc::new(claim));
        }
        self.promises.insert(pod, promise);
    }

    /// The pod does not get what it was promised. Withdrawing twice is no fault.
    pub fn withdraw(&mut self, pod: &str) {
        let Some(promise) = self.promises.remove(pod) else {
            return;
        };
        for name in &promise.volumes {
            self.promised_volumes.remove(name);
        }
        for (namespace, name) in &promise.claims {
            self.forget_promised_claim(namespace, name);
        }
    }

    pub(super) fn forget_promised_volume(&mut self, name: &str) {
        self.promised_volumes.remove(name);
    }

    pub(super) fn forget_promised_claim(&mut self, namespace: &str, name: &str) {
        if let Some(claims) = self.promised_claims.get_mut(namespace) {
            claims.remove(name);
            if claims.is_empty() {
                self.promised_claims.remove(namespace);
            }
        }
    }

    /// Promised objects that no pod was promised.
    pub(super) fn unaccounted(&self) -> usize {
        let mut volumes: Vec<&Name> = self.promised_volumes.keys().collect();
        let claims = self.promised_claims.iter();
        let mut claims: Vec<(&Name, &Name)> = claims
            .flat_map(|(namespace, claims)| claims.keys().map(move |name| (namespace, name)))
            .collect();
        for promise in self.promises.values() {
            volumes.retain(|name| !promise.volumes.contains(name));
            claims.retain(|(namespace, name)| {
                !promise
                    .claims
                    .iter()
                    .any(|(n, c)| n == *namespace && c == *name)
            });
        }
        volumes.len() + claims.len()
    }
}
