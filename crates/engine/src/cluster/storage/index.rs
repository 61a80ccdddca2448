//! Indexes over observed storage objects, by what decisions search them for: a node looks only at what it may use.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use super::super::label_index::LabelIndex;
use crate::cluster::event::Change;
use crate::cluster::{Claim, PersistentVolume, StorageCapacity, VolumeAttachment};
use crate::model::{Labels, Name, Quantity};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StorageIndexes {
    /// Volumes for no claim, by class: size and name, by the labels of nodes that reach them.
    free: HashMap<Name, LabelIndex<(Quantity, Name)>>,
    /// Volumes for a claim, by its namespace and name.
    reserved: HashMap<(Name, Name), BTreeSet<Name>>,
    /// Volumes that a pod was promised, by the namespace and name of the claim.
    promised: HashMap<(Name, Name), BTreeSet<Name>>,
    /// Capacities by class: limit, namespace and name, by the labels of nodes that they are for.
    capacities: HashMap<Name, LabelIndex<(Quantity, Name, Name)>>,
    /// Attachments by node.
    attached: HashMap<Name, BTreeSet<Name>>,
}

impl StorageIndexes {
    pub(super) fn free(
        &self,
        class: &str,
        labels: &Labels,
    ) -> impl Iterator<Item = &BTreeSet<(Quantity, Name)>> {
        let class = self.free.get(class).into_iter();
        class.flat_map(|volumes| volumes.that_can_match(labels))
    }

    /// Volumes for the claim, observed or promised.
    pub(super) fn reserved(&self, claim: &Claim) -> impl Iterator<Item = &Name> {
        let key = (claim.namespace.clone(), claim.name.clone());
        let observed = self.reserved.get(&key).into_iter().flatten();
        observed.chain(self.promised.get(&key).into_iter().flatten())
    }

    pub(super) fn capacities(
        &self,
        class: &str,
        labels: &Labels,
    ) -> impl Iterator<Item = &BTreeSet<(Quantity, Name, Name)>> {
        let class = self.capacities.get(class).into_iter();
        class.flat_map(|capacities| capacities.that_can_match(labels))
    }

    pub(super) fn attached(&self, node: &str) -> impl Iterator<Item = &Name> {
        self.attached.get(node).into_iter().flatten()
    }

    pub(super) fn volume_changed(&mut self, change: &Change<PersistentVolume>) {
        if let Some(old) = &change.old {
            match reserved_for(old) {
                Some(claim) => drop_name(&mut self.reserved, &claim, &old.name),
                None => {
                    let (pairs, item) = (reach(old), (old.capacity, old.name.clone()));
                    drop_item(&mut self.free, &old.class, &pairs, &item);
                }
            }
        }
        if let Some(new) = &change.new {
            match reserved_for(new) {
                Some(claim) => {
                    let names = self.reserved.entry(claim).or_default();
                    names.insert(new.name.clone());
                }
                None => {
                    let volumes = self.free.entry(new.class.clone()).or_default();
                    volumes.insert(&reach(new), &(new.capacity, new.name.clone()));
                }
            }
        }
    }

    pub(super) fn promise_changed(&mut self, change: &Change<PersistentVolume>) {
        if let Some((old, claim)) = change.old.as_ref().zip(reserved_of(&change.old)) {
            drop_name(&mut self.promised, &claim, &old.name);
        }
        if let Some((new, claim)) = change.new.as_ref().zip(reserved_of(&change.new)) {
            let names = self.promised.entry(claim).or_default();
            names.insert(new.name.clone());
        }
    }

    pub(super) fn capacity_changed(&mut self, change: &Change<StorageCapacity>) {
        if let Some((old, pairs, item)) = change.old.as_ref().and_then(usable) {
            drop_item(&mut self.capacities, &old.class, &pairs, &item);
        }
        if let Some((new, pairs, item)) = change.new.as_ref().and_then(usable) {
            let capacities = self.capacities.entry(new.class.clone()).or_default();
            capacities.insert(&pairs, &item);
        }
    }

    pub(super) fn attachment_changed(&mut self, change: &Change<VolumeAttachment>) {
        if let Some(old) = &change.old {
            drop_name(&mut self.attached, &old.node, &old.name);
        }
        if let Some(new) = &change.new {
            let names = self.attached.entry(new.node.clone()).or_default();
            names.insert(new.name.clone());
        }
    }
}

fn reserved_of(volume: &Option<Arc<PersistentVolume>>) -> Option<(Name, Name)> {
    volume.as_ref().and_then(|volume| reserved_for(volume))
}

fn reserved_for(volume: &PersistentVolume) -> Option<(Name, Name)> {
    let claim = volume.claim.as_ref()?;
    Some((claim.namespace.clone(), claim.name.clone()))
}

/// Pairs of labels of which a node must have one to reach the volume.
fn reach(volume: &PersistentVolume) -> Vec<(Name, Name)> {
    let affinity = volume.node_affinity.as_ref();
    affinity.map_or_else(Vec::new, |affinity| affinity.pairs_to_match())
}

type LabelPairs = Vec<(Name, Name)>;

/// A capacity that some node may use, with its entry in the index.
fn usable(
    capacity: &Arc<StorageCapacity>,
) -> Option<(&StorageCapacity, LabelPairs, (Quantity, Name, Name))> {
    let (topology, limit) = (capacity.topology.as_ref()?, capacity.limit()?);
    let item = (limit, capacity.namespace.clone(), capacity.name.clone());
    Some((capacity, topology.pairs_to_match(), item))
}

fn drop_item<T: Ord + Clone>(
    all: &mut HashMap<Name, LabelIndex<T>>,
    class: &Name,
    pairs: &[(Name, Name)],
    item: &T,
) {
    if let Some(items) = all.get_mut(class) {
        items.remove(pairs, item);
        if items.is_empty() {
            all.remove(class);
        }
    }
}

fn drop_name<K: Eq + std::hash::Hash>(all: &mut HashMap<K, BTreeSet<Name>>, key: &K, name: &Name) {
    if let Some(names) = all.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            all.remove(key);
        }
    }
}
