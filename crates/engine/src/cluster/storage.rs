//! Volumes, claims and what surrounds them, as observed, and as decided but not yet observed.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::kinds::{ByName, ByNamespace};
use crate::model::{
    Claim, CsiDriver, CsiLimits, Name, PersistentVolume, StorageCapacity, StorageClass,
    VolumeAttachment,
};

/// What decisions know of storage. Volumes and claims are read through methods, because what a pod was promised comes
/// before what was last observed; any update of an object ends a promise about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Storage {
    pub(crate) volumes: ByName<PersistentVolume>,
    pub(crate) claims: ByNamespace<Claim>,
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
    pub volumes: Vec<PromisedVolume>,
    pub claims: Vec<PromisedClaim>,
}

/// A volume to be bound to a claim of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromisedVolume {
    pub volume: Name,
    pub namespace: Name,
    pub claim: Name,
}

/// A claim for which a volume is to be made where a node can reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromisedClaim {
    pub namespace: Name,
    pub claim: Name,
    pub node: Name,
}

impl PromisedVolume {
    /// `None` if the volume is for no claim.
    fn of(volume: &PersistentVolume) -> Option<Self> {
        let claim = volume.claim.as_ref()?;
        Some(Self {
            volume: volume.name.clone(),
            namespace: claim.namespace.clone(),
            claim: claim.name.clone(),
        })
    }
}

impl PromisedClaim {
    /// `None` if no node was chosen for the claim.
    fn of(claim: &Claim) -> Option<Self> {
        Some(Self {
            namespace: claim.namespace.clone(),
            claim: claim.name.clone(),
            node: claim.selected_node.clone()?,
        })
    }
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
            volumes: volumes.iter().filter_map(PromisedVolume::of).collect(),
            claims: claims.iter().filter_map(PromisedClaim::of).collect(),
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

    /// The pod has what it was promised, or does not get it. Withdrawing twice is no fault.
    pub fn withdraw(&mut self, pod: &str) {
        let Some(promise) = self.promises.remove(pod) else {
            return;
        };
        // Pods can share a claim, and what ended with an update may have been promised to another pod since.
        for bound in &promise.volumes {
            let current = self.promised_volumes.get(&bound.volume);
            let is_current = current
                .and_then(|volume| PromisedVolume::of(volume))
                .as_ref()
                == Some(bound);
            if is_current && !self.is_promised_volume(bound) {
                self.forget_promised_volume(&bound.volume);
            }
        }
        for made in &promise.claims {
            let current = self.promised_claims.get(&made.namespace);
            let current = current.and_then(|claims| claims.get(&made.claim));
            let is_current =
                current.and_then(|claim| PromisedClaim::of(claim)).as_ref() == Some(made);
            if is_current && !self.is_promised_claim(made) {
                self.forget_promised_claim(&made.namespace, &made.claim);
            }
        }
    }

    fn is_promised_volume(&self, bound: &PromisedVolume) -> bool {
        let mut promises = self.promises.values();
        promises.any(|promise| promise.volumes.contains(bound))
    }

    fn is_promised_claim(&self, made: &PromisedClaim) -> bool {
        let mut promises = self.promises.values();
        promises.any(|promise| promise.claims.contains(made))
    }

    pub(crate) fn forget_promised_volume(&mut self, name: &str) {
        self.promised_volumes.remove(name);
    }

    pub(crate) fn forget_promised_claim(&mut self, namespace: &str, name: &str) {
        if let Some(claims) = self.promised_claims.get_mut(namespace) {
            claims.remove(name);
            if claims.is_empty() {
                self.promised_claims.remove(namespace);
            }
        }
    }

    /// Promised objects that no pod was promised.
    pub(super) fn unaccounted(&self) -> usize {
        let volumes = self.promised_volumes.values();
        let lone_volumes = volumes.filter(|volume| {
            !PromisedVolume::of(volume).is_some_and(|bound| self.is_promised_volume(&bound))
        });
        let claims = self.promised_claims.values().flat_map(BTreeMap::values);
        let lone_claims = claims.filter(|claim| {
            !PromisedClaim::of(claim).is_some_and(|made| self.is_promised_claim(&made))
        });
        lone_volumes.count() + lone_claims.count()
    }
}
