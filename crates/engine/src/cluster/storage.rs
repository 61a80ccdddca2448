//! Volumes, claims and what surrounds them, as observed, and as decided but not yet observed.

mod index;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::event::Change;
use crate::cluster::kinds::{ByName, ByNamespace, Key, set, set_in};
use crate::cluster::{
    Claim, CsiDriver, CsiLimits, PersistentVolume, StorageCapacity, StorageClass, VolumeAttachment,
};
use crate::model::{Labels, Name, Quantity};
use index::StorageIndexes;

/// What decisions know of storage. Volumes and claims are read through methods, because what a pod was promised comes
/// before what was last observed; any update of an object ends a promise about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Storage {
    volumes: ByName<PersistentVolume>,
    pub(crate) claims: ByNamespace<Claim>,
    pub classes: ByName<StorageClass>,
    pub nodes: ByName<CsiLimits>,
    pub drivers: ByName<CsiDriver>,
    capacities: ByNamespace<StorageCapacity>,
    attachments: ByName<VolumeAttachment>,
    by_need: StorageIndexes,
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

    /// Volumes that are for this claim by name, in the order of their names.
    pub fn volumes_for(&self, claim: &Claim) -> Vec<&Arc<PersistentVolume>> {
        let is_for = |volume: &PersistentVolume| {
            let to = volume.claim.as_ref();
            to.is_some_and(|to| to.namespace == claim.namespace && to.name == claim.name)
        };
        let names: BTreeSet<&Name> = self.by_need.reserved(claim).collect();
        let known = names
            .into_iter()
            .filter(|name| self.volumes.contains_key(*name));
        let latest = known.filter_map(|name| self.volume(name));
        latest.filter(|volume| is_for(volume)).collect()
    }

    /// The smallest volume of the class that is at least so large, is for no claim, and suits. Only volumes that a node
    /// with these labels may reach are looked at; among equals the first by name counts.
    pub fn smallest_free_volume(
        &self,
        class: &str,
        least: Quantity,
        labels: &Labels,
        suits: impl Fn(&PersistentVolume) -> bool,
    ) -> Option<&Arc<PersistentVolume>> {
        let first = |sizes: &'_ BTreeSet<(Quantity, Name)>| {
            let large = sizes.range((least, Name::default())..);
            let mut large = large.filter_map(|(size, name)| Some((*size, self.volume(name)?)));
            large.find(|(_, volume)| volume.claim.is_none() && suits(volume))
        };
        let found = self.by_need.free(class, labels).filter_map(first);
        let found = found.min_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
        found.map(|(_, volume)| volume)
    }

    /// Whether a driver reports that it can make a volume of this class and size for a node with these labels.
    pub fn has_capacity(&self, class: &str, size: Quantity, labels: &Labels) -> bool {
        let serves = |(_, namespace, name): &(Quantity, Name, Name)| {
            let capacity = self.capacities.get(namespace);
            let capacity = capacity.and_then(|all| all.get(name));
            let topology = capacity.and_then(|capacity| capacity.topology.as_ref());
            topology.is_some_and(|topology| topology.matches(labels))
        };
        let from = (size, Name::default(), Name::default());
        let mut sets = self.by_need.capacities(class, labels);
        sets.any(|limits| limits.range(from.clone()..).any(serves))
    }

    /// The attachments of a node, in the order of their names.
    pub fn attachments_of(&self, node: &str) -> impl Iterator<Item = &Arc<VolumeAttachment>> {
        let names = self.by_need.attached(node);
        names.filter_map(|name| self.attachments.get(name))
    }

    pub(crate) fn set_volume(
        &mut self,
        name: Name,
        new: Option<PersistentVolume>,
    ) -> Change<PersistentVolume> {
        self.forget_promised_volume(&name);
        let change = set(&mut self.volumes, name, new);
        self.by_need.volume_changed(&change);
        change
    }

    pub(crate) fn set_capacity(
        &mut self,
        key: Key,
        new: Option<StorageCapacity>,
    ) -> Change<StorageCapacity> {
        let change = set_in(&mut self.capacities, key, new);
        self.by_need.capacity_changed(&change);
        change
    }

    pub(crate) fn set_attachment(
        &mut self,
        name: Name,
        new: Option<VolumeAttachment>,
    ) -> Change<VolumeAttachment> {
        let change = set(&mut self.attachments, name, new);
        self.by_need.attachment_changed(&change);
        change
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
            let change = set(
                &mut self.promised_volumes,
                volume.name.clone(),
                Some(volume),
            );
            self.by_need.promise_changed(&change);
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

    fn forget_promised_volume(&mut self, name: &str) {
        if self.promised_volumes.contains_key(name) {
            let change = set(&mut self.promised_volumes, name.into(), None);
            self.by_need.promise_changed(&change);
        }
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
