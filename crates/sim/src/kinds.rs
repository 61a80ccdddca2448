//! Everything in a cluster but nodes and pods, told as it is.

use api::parse::{self, ParseError};
use engine::cluster::Update;
use engine::model::WorkloadKind;

use crate::scenario::Objects;
use crate::volumes::Storage;

/// Updates with the place of their objects below the list of lists; or what is wrong, and where.
pub(crate) type Updates = Result<Vec<(String, Update)>, (String, ParseError)>;

pub(crate) fn updates(objects: &Objects, storage: &mut Storage) -> Updates {
    use WorkloadKind::{ReplicaSet, StatefulSet};
    let mut all = Vec::new();
    each(&mut all, "namespaces", &objects.namespaces, |namespace| {
        let (name, labels) = parse::namespace(&namespace);
        Ok(Update::Namespace { name, labels })
    })?;
    each(&mut all, "services", &objects.services, |mut service| {
        in_default(&mut service.metadata.namespace);
        Ok(Update::Service(parse::service(&service)))
    })?;
    let controllers = &objects.replication_controllers;
    each(
        &mut all,
        "replicationControllers",
        controllers,
        |mut controller| {
            in_default(&mut controller.metadata.namespace);
            Ok(Update::Workload(parse::replication_controller(&controller)))
        },
    )?;
    for (field, kind, sets) in [
        ("replicaSets", ReplicaSet, &objects.replica_sets),
        ("statefulSets", StatefulSet, &objects.stateful_sets),
    ] {
        each(&mut all, field, sets, |mut set| {
            in_default(&mut set.metadata.namespace);
            Ok(Update::Workload(parse::workload(kind, &set)))
        })?;
    }
    each(
        &mut all,
        "disruptionBudgets",
        &objects.disruption_budgets,
        |mut budget| {
            in_default(&mut budget.metadata.namespace);
            Ok(Update::Budget(parse::budget(&budget)))
        },
    )?;
    each(
        &mut all,
        "storageClasses",
        &objects.storage_classes,
        |class| Ok(Update::StorageClass(parse::storage_class(&class))),
    )?;
    each(&mut all, "volumes", &objects.volumes, |volume| {
        Ok(storage.set_volume(parse::volume(&volume)?))
    })?;
    each(&mut all, "claims", &objects.claims, |mut claim| {
        in_default(&mut claim.metadata.namespace);
        // So that a volume can name the claim it is bound to.
        claim.metadata.uid = format!("claim-{}", claim.metadata.name);
        Ok(storage.set_claim(parse::claim(&claim)?))
    })?;
    each(&mut all, "csiNodes", &objects.csi_nodes, |node| {
        Ok(Update::CsiNode(parse::csi_limits(&node)))
    })?;
    each(&mut all, "csiDrivers", &objects.csi_drivers, |driver| {
        Ok(Update::CsiDriver(parse::csi_driver(&driver)))
    })?;
    each(
        &mut all,
        "storageCapacities",
        &objects.storage_capacities,
        |capacity| Ok(Update::StorageCapacity(parse::storage_capacity(&capacity)?)),
    )?;
    each(
        &mut all,
        "volumeAttachments",
        &objects.volume_attachments,
        |attachment| {
            Ok(Update::VolumeAttachment(parse::volume_attachment(
                &attachment,
            )))
        },
    )?;
    Ok(all)
}

fn each<T: Clone>(
    all: &mut Vec<(String, Update)>,
    field: &str,
    objects: &[T],
    mut update: impl FnMut(T) -> Result<Update, ParseError>,
) -> Result<(), (String, ParseError)> {
    for (i, object) in objects.iter().enumerate() {
        let place = format!("{field}[{i}]");
        match update(object.clone()) {
            Ok(update) => all.push((place, update)),
            Err(error) => return Err((place, error)),
        }
    }
    Ok(())
}

fn in_default(namespace: &mut String) {
    if namespace.is_empty() {
        "default".clone_into(namespace);
    }
}
