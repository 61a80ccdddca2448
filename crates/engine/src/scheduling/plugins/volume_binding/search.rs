//! Finds volumes on a node for claims that wait for a pod: existing volumes, or volumes to provision.

use std::sync::Arc;

use crate::model::{Name, NodeMatch, NodeSpec};
use crate::scheduling::framework::{Claim, ClaimRef, PersistentVolume, StorageClass, VolumePhase};
use crate::scheduling::framework::{Reason, Storage};

const NO_VOLUME: Reason =
    Reason::Borrowed("node(s) didn't find available persistent volumes to bind");
const NO_SPACE: Reason = Reason::Borrowed("node(s) did not have enough free storage");
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// A claim that is bound after its pod has a node (WaitForFirstConsumer).
pub(super) struct Delayed {
    pub(super) claim: Arc<Claim>,
    pub(super) class: Arc<StorageClass>,
}

/// The planned bindings.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// Volumes to bind to claims of the pod.
    pub(super) volumes: Vec<PersistentVolume>,
    /// Claims to provision on the node.
    pub(super) claims: Vec<Claim>,
}

pub(super) fn choose(
    delayed: &[Delayed],
    node: &NodeSpec,
    storage: &Storage,
) -> Result<Choice, Reason> {
    let (decided, mut open): (Vec<&Delayed>, Vec<&Delayed>) = delayed
        .iter()
        .partition(|delayed| delayed.claim.selected_node.is_some());
    let elsewhere = |delayed: &&Delayed| delayed.claim.selected_node.as_ref() != Some(&node.name);
    if decided.iter().any(elsewhere) {
        return Err(NO_VOLUME);
    }
    let mut choice = Choice::default();
    let mut to_make = decided;
    // The smallest claim first, so that a small claim does not take the volume of a large one.
    open.sort_by_key(|delayed| delayed.claim.request.unwrap_or_default());
    for delayed in open {
        match smallest(&delayed.claim, node, storage, &choice.volumes) {
            Some(volume) => choice.volumes.push(bound(volume, &delayed.claim)),
            None => to_make.push(delayed),
        }
    }
    for delayed in to_make {
        can_be_made(delayed, node, storage)?;
        choice.claims.push(Claim {
            selected_node: Some(node.name.clone()),
            ..(*delayed.claim).clone()
        });
    }
    Ok(choice)
}

fn bound(volume: &PersistentVolume, claim: &Claim) -> PersistentVolume {
    PersistentVolume {
        claim: Some(ClaimRef {
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            uid: claim.uid.clone(),
        }),
        ..volume.clone()
    }
}

/// The volume reserved for the claim, or else the smallest one that matches.
fn smallest<'s>(
    claim: &Claim,
    node: &NodeSpec,
    storage: &'s Storage,
    taken: &[PersistentVolume],
) -> Option<&'s PersistentVolume> {
    let class = claim.class.as_deref().unwrap_or_default();
    let labels = &node.labels;
    let reachable = |volume: &PersistentVolume| {
        let affinity = volume.node_affinity.as_ref();
        affinity.is_none_or(|affinity| affinity.matches(NodeMatch::Labels(labels)))
    };
    let is_usable = |volume: &PersistentVolume| {
        let is_taken = || taken.iter().any(|other| other.name == volume.name);
        could_hold(volume, claim) && !is_taken()
    };
    let mut reserved = storage.volumes_for(claim).into_iter();
    let reserved = reserved.find(|volume| *volume.class == *class && is_usable(volume));
    if let Some(volume) = reserved {
        return reachable(volume).then_some(volume);
    }
    let least = claim.request.unwrap_or_default();
    let found = storage.smallest_free_volume(class, least, labels, |volume| {
        is_usable(volume) && suits(volume, claim) && reachable(volume)
    });
    found.map(|volume| &**volume)
}

fn could_hold(volume: &PersistentVolume, claim: &Claim) -> bool {
    let is_promised_here = |promised: &ClaimRef| {
        promised.namespace == claim.namespace
            && promised.name == claim.name
            && (promised.uid.is_empty() || promised.uid == claim.uid)
    };
    volume.claim.as_ref().is_none_or(is_promised_here)
        && volume.capacity >= claim.request.unwrap_or_default()
        && volume.volume_mode == claim.volume_mode
        && volume.attributes_class == claim.attributes_class
        && !volume.deleting
}

fn suits(volume: &PersistentVolume, claim: &Claim) -> bool {
    let allows = |mode: &Name| volume.access_modes.contains(mode);
    volume.phase == VolumePhase::Available
        && claim
            .selector
            .as_ref()
            .is_none_or(|selector| selector.matches(&volume.labels))
        && claim.access_modes.iter().all(allows)
}

fn can_be_made(delayed: &Delayed, node: &NodeSpec, storage: &Storage) -> Result<(), Reason> {
    let class = &delayed.class;
    if class.provisioner.is_empty() || *class.provisioner == *NO_PROVISIONER {
        return Err(NO_VOLUME);
    }
    let topologies = &class.allowed_topologies;
    if !topologies.is_empty() && !topologies.iter().any(|term| term.matches(&node.labels)) {
        return Err(NO_VOLUME);
    }
    if has_space(&delayed.claim, class, node, storage) {
        Ok(())
    } else {
        Err(NO_SPACE)
    }
}

/// Checks capacity only for drivers that publish it.
fn has_space(claim: &Claim, class: &StorageClass, node: &NodeSpec, storage: &Storage) -> bool {
    let Some(size) = claim.request else {
        return true;
    };
    let driver = storage.drivers.get(&class.provisioner);
    if !driver.is_some_and(|driver| driver.storage_capacity) {
        return true;
    }
    storage.has_capacity(&class.name, size, &node.labels)
}
