//! Rejects nodes that have reached the volume limit of a CSI driver.

use std::collections::{BTreeMap, BTreeSet};

use super::csi_migration;
use super::pod_claims::{claim_of, not_made_for, uses};
use crate::model::{Name, Pod, VolumeSource};
use crate::scheduling::framework::{
    Actions, ArgsError, Catalog, Changed, Configure, Event, EventPattern, Kind, NoArgs, NodeFilter,
    NodeView, Plan, Plugin, Point, Points, Rejection, Storage,
};
use crate::scheduling::framework::{Claim, CsiLimits, VolumeHandle};

pub struct NodeVolumeLimits;

impl Configure for NodeVolumeLimits {
    const NAME: &'static str = "NodeVolumeLimits";
    const POINTS: Points = Points::of(&[Point::PreFilter, Point::Filter]);
    type Args = NoArgs;

    fn new(_: NoArgs) -> Result<Self, Vec<ArgsError>> {
        Ok(Self)
    }
}

impl Plugin for NodeVolumeLimits {
    fn prepare(&self, pod: &Pod, catalog: &Catalog, plan: &mut Plan) {
        if may_attach(pod) {
            plan.filter_nodes(Attachable(volumes(pod, catalog.storage())));
        }
    }

    fn events(&self) -> Vec<EventPattern> {
        vec![
            EventPattern::new(Kind::CsiNode, Actions::ADD.and(Actions::UPDATE)),
            EventPattern::new(Kind::Pod, Actions::DELETE),
            EventPattern::new(Kind::PersistentVolumeClaim, Actions::ADD),
            EventPattern::new(Kind::VolumeAttachment, Actions::DELETE),
        ]
    }

    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        match &event.changed {
            Changed::CsiNode(change) => match (&change.old, &change.new) {
                (Some(old), Some(new)) => grew(old, new),
                _ => true,
            },
            Changed::Claim(change) => change.latest().is_some_and(|claim| uses(pod, claim)),
            Changed::VolumeAttachment(change) => change.latest().is_some_and(|attachment| {
                pod.volumes.iter().any(|volume| match &volume.source {
                    VolumeSource::Claim(_) => true,
                    VolumeSource::InTree { plugin, .. } => {
                        csi_migration::driver(plugin) == Some(&attachment.attacher)
                    }
                    _ => false,
                })
            }),
            changed => changed.pod().is_some_and(|(change, held)| {
                held && change.old.as_ref().is_some_and(|gone| may_attach(gone))
            }),
        }
    }
}

/// Whether the pod has volumes that a driver may have to attach.
fn may_attach(pod: &Pod) -> bool {
    pod.volumes.iter().any(|volume| {
        matches!(
            volume.source,
            VolumeSource::Claim(_) | VolumeSource::Ephemeral | VolumeSource::InTree { .. }
        )
    })
}

/// Whether a node can attach more volumes of some driver.
fn grew(old: &CsiLimits, new: &CsiLimits) -> bool {
    new.drivers.iter().any(|(driver, limit)| {
        let before = old.drivers.iter().find(|(known, _)| known == driver);
        match (limit, before) {
            (Some(limit), Some((_, Some(before)))) => limit > before,
            (Some(_), None | Some((_, None))) => true,
            (None, _) => false,
        }
    })
}

/// A volume by its driver's handle, or by its claim until it is provisioned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Handle {
    Volume(Name),
    Claim(Name, Name),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Attached {
    driver: Name,
    handle: Handle,
}

/// Volumes of a pod that drivers attach, or the error that prevents counting them. Migrated in-tree volumes are separate,
/// because they count only on nodes with a CSINode.
#[derive(Default)]
struct Volumes {
    csi: BTreeSet<Attached>,
    migrated: BTreeSet<Attached>,
    /// The faults of the pod's volumes, in their order.
    faults: Vec<Fault>,
}

enum Fault {
    /// Only for the incoming pod: it waits for a claim.
    NoClaim(Rejection),
    Broken(Rejection),
    /// Only where drivers serve in-tree plugins.
    Untranslatable(Rejection),
}

fn volumes(pod: &Pod, storage: &Storage) -> Volumes {
    let mut found = Volumes::default();
    for volume in &pod.volumes {
        if let VolumeSource::InTree { plugin, id } = &volume.source {
            of_inline_disk(&volume.name, plugin, id, &mut found);
        }
        let Some(name) = claim_of(pod, volume) else {
            continue;
        };
        if name.is_empty() {
            let text = "PersistentVolumeClaim had no name";
            found.faults.push(Fault::Broken(Rejection::error(text)));
            continue;
        }
        let Some(claim) = storage.claim(pod.namespace(), &name) else {
            let text = format!(
                "looking up PVC {}/{name}: persistentvolumeclaim \"{name}\" not found",
                pod.namespace()
            );
            found
                .faults
                .push(Fault::NoClaim(Rejection::unresolvable(text)));
            continue;
        };
        if let Some(text) = not_made_for(pod, volume, claim) {
            found.faults.push(Fault::Broken(Rejection::error(text)));
            continue;
        }
        of_claim(claim, storage, &mut found);
    }
    found
}

fn of_inline_disk(volume: &str, plugin: &str, id: &Name, found: &mut Volumes) {
    let Some(driver) = csi_migration::driver(plugin) else {
        return;
    };
    match csi_migration::handle(plugin, id, None) {
        Ok(handle) => {
            found.migrated.insert(Attached {
                driver: driver.into(),
                handle: Handle::Volume(handle),
            });
        }
        Err(text) => {
            let text = format!("converting volume({volume}) from inline to csi: {text}");
            found
                .faults
                .push(Fault::Untranslatable(Rejection::error(text)));
        }
    }
}

fn of_claim(claim: &Claim, storage: &Storage, found: &mut Volumes) {
    let volume = claim.volume.as_ref().and_then(|name| storage.volume(name));
    let Some(volume) = volume else {
        return to_be_made(claim, storage, found);
    };
    match &volume.source {
        VolumeHandle::Csi { driver, handle } => {
            found.csi.insert(Attached {
                driver: driver.clone(),
                handle: Handle::Volume(handle.clone()),
            });
        }
        VolumeHandle::InTree { plugin, id } => {
            let handle = csi_migration::handle(plugin, id, Some(&volume.labels));
            // A volume without a handle of its driver is not counted, and is no error.
            if let (Some(driver), Ok(handle)) = (csi_migration::driver(plugin), handle) {
                found.migrated.insert(Attached {
                    driver: driver.into(),
                    handle: Handle::Volume(handle),
                });
            }
        }
        VolumeHandle::Other => {}
    }
}

/// A volume that is not provisioned yet is counted by its storage class.
fn to_be_made(claim: &Claim, storage: &Storage, found: &mut Volumes) {
    let class = claim
        .class
        .as_ref()
        .and_then(|name| storage.classes.get(name));
    let Some(class) = class else { return };
    let attached = |driver: Name| Attached {
        driver,
        handle: Handle::Claim(claim.namespace.clone(), claim.name.clone()),
    };
    if let Some(driver) = csi_migration::driver(&class.provisioner) {
        found.migrated.insert(attached(driver.into()));
    } else if csi_migration::is_driver(&class.provisioner) {
        found.csi.insert(attached(class.provisioner.clone()));
    }
}

impl Volumes {
    fn all(self) -> BTreeSet<Attached> {
        let mut all = self.csi;
        all.extend(self.migrated);
        all
    }

    /// The first error that prevents counting, for the incoming pod or for one on the node.
    fn fault(&self, has_csi_node: bool, is_new: bool) -> Option<&Rejection> {
        self.faults.iter().find_map(|fault| match fault {
            Fault::NoClaim(rejection) => is_new.then_some(rejection),
            Fault::Broken(rejection) => Some(rejection),
            Fault::Untranslatable(rejection) => has_csi_node.then_some(rejection),
        })
    }
}

/// The pod's volumes.
struct Attachable(Volumes);

impl NodeFilter for Attachable {
    fn filter(&self, node: NodeView) -> Result<(), Rejection> {
        let storage = node.catalog.storage();
        let csi_node = storage.nodes.get(&node.spec.name);
        if let Some(fault) = self.0.fault(csi_node.is_some(), true) {
            return Err(fault.clone());
        }
        let limits = csi_node.map_or(&[][..], |csi_node| &csi_node.drivers);
        let mut new: BTreeSet<&Attached> = self.0.csi.union(&self.0.migrated).collect();
        if new.is_empty() || limits.iter().all(|(_, limit)| limit.is_none()) {
            return Ok(());
        }
        let mut attached = BTreeSet::new();
        for pod in node.pods {
            let volumes = volumes(pod, storage);
            if let Some(fault) = volumes.fault(true, false) {
                return Err(fault.clone());
            }
            attached.extend(volumes.all());
        }
        new.retain(|volume| !attached.contains(*volume));
        // Volumes that no pod uses any more stay attached for a while. A pod that uses one of them again is counted
        // twice, as in kube-scheduler.
        attached.extend(still_attached(&node.spec.name, storage));
        let mut counts: BTreeMap<&Name, i64> = BTreeMap::new();
        for volume in &new {
            *counts.entry(&volume.driver).or_default() += 1;
        }
        let exceeds = |(driver, limit): &(Name, Option<i64>)| {
            let (Some(limit), Some(new)) = (limit, counts.get(driver)) else {
                return false;
            };
            let old = attached.iter().filter(|volume| volume.driver == *driver);
            old.count() as i64 + new > *limit
        };
        if limits.iter().any(exceeds) {
            return Err(Rejection::unschedulable("node(s) exceed max volume count"));
        }
        Ok(())
    }
}

fn still_attached(node: &str, storage: &Storage) -> impl Iterator<Item = Attached> {
    storage.attachments_of(node).filter_map(|attachment| {
        let volume = storage.volume(attachment.volume.as_ref()?)?;
        let VolumeHandle::Csi { handle, .. } = &volume.source else {
            return None;
        };
        Some(Attached {
            driver: attachment.attacher.clone(),
            handle: Handle::Volume(handle.clone()),
        })
    })
}

#[cfg(test)]
mod tests;
