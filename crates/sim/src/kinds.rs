//! Everything in a cluster but nodes and pods, told as it is.

use api::parse::{self, ParseError};
use engine::cluster::Update;
use engine::model::{Name, WorkloadKind};

use crate::scenario::{Named, Objects};
use crate::volumes::Storage;
use crate::world::key;

/// Updates with the place of their objects below the list of lists; or what is wrong, and where.
pub(crate) type Updates = Result<Vec<(String, Update)>, (String, ParseError)>;

/// `warnings` get what is wrong with objects that can be used all the same.
pub(crate) fn updates(
    objects: &Objects,
    storage: &mut Storage,
    warnings: &mut Vec<String>,
) -> Updates {
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
        "priorityClasses",
        &objects.priority_classes,
        |class| Ok(Update::PriorityClass(parse::priority_class(&class))),
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
        |mut capacity| {
            in_default(&mut capacity.metadata.namespace);
            Ok(Update::StorageCapacity(parse::storage_capacity(&capacity)?))
        },
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
    each(
        &mut all,
        "customNodeResources",
        &objects.custom_node_resources,
        |report| {
            let (report, wrong) = parse::custom_node_resource(&report);
            warnings.extend(wrong);
            Ok(Update::CustomNodeResource(report))
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

/// An object by what its kind is called in words, and its name; with the namespace in front if it is in one.
pub(crate) type Identity = (&'static str, String);

/// Which object an update is about.
pub(crate) fn identity(update: &Update) -> Option<Identity> {
    let within = |namespace: &Name, name: &Name| format!("{namespace}/{name}");
    Some(match update {
        Update::Namespace { name, .. } => ("namespace", name.to_string()),
        Update::Service(service) => ("service", within(&service.namespace, &service.name)),
        Update::Workload(workload) => (
            in_words(workload.kind),
            within(&workload.namespace, &workload.name),
        ),
        Update::Budget(budget) => ("disruption budget", within(&budget.namespace, &budget.name)),
        Update::PriorityClass(class) => ("priority class", class.name.to_string()),
        Update::Volume(volume) => ("volume", volume.name.to_string()),
        Update::Claim(claim) => ("claim", within(&claim.namespace, &claim.name)),
        Update::StorageClass(class) => ("storage class", class.name.to_string()),
        Update::CsiNode(node) => ("CSI node", node.node.to_string()),
        Update::CsiDriver(driver) => ("CSI driver", driver.name.to_string()),
        Update::StorageCapacity(capacity) => (
            "storage capacity",
            within(&capacity.namespace, &capacity.name),
        ),
        Update::VolumeAttachment(attachment) => ("volume attachment", attachment.name.to_string()),
        Update::CustomNodeResource(report) => ("custom node resource", report.node.to_string()),
        _ => return None,
    })
}

fn in_words(kind: WorkloadKind) -> &'static str {
    match kind {
        WorkloadKind::ReplicationController => "replication controller",
        WorkloadKind::ReplicaSet => "replica set",
        WorkloadKind::StatefulSet => "stateful set",
    }
}

/// What is told when these objects are gone; nodes and pods are not among them.
pub(crate) fn gone(named: &Named) -> Vec<(Identity, Update)> {
    use WorkloadKind::{ReplicaSet, ReplicationController, StatefulSet};
    let mut all = Vec::new();
    let alone = |names: &[String], kind: &'static str, update: fn(Name) -> Update| {
        let each = names.iter();
        let each = each.map(|name| ((kind, name.clone()), update(name.as_str().into())));
        each.collect::<Vec<_>>()
    };
    let within = |names: &[String], kind: &'static str, update: &dyn Fn(Name, Name) -> Update| {
        let each = names.iter().map(|name| {
            let key = key(name);
            let (namespace, name) = key.split_once('/').unwrap_or_default();
            let update = update(namespace.into(), name.into());
            ((kind, key), update)
        });
        each.collect::<Vec<_>>()
    };
    all.extend(alone(&named.namespaces, "namespace", Update::NamespaceGone));
    all.extend(alone(
        &named.priority_classes,
        "priority class",
        Update::PriorityClassGone,
    ));
    all.extend(alone(&named.volumes, "volume", Update::VolumeGone));
    all.extend(alone(
        &named.storage_classes,
        "storage class",
        Update::StorageClassGone,
    ));
    all.extend(alone(&named.csi_nodes, "CSI node", Update::CsiNodeGone));
    all.extend(alone(
        &named.csi_drivers,
        "CSI driver",
        Update::CsiDriverGone,
    ));
    all.extend(alone(
        &named.volume_attachments,
        "volume attachment",
        Update::VolumeAttachmentGone,
    ));
    all.extend(alone(
        &named.custom_node_resources,
        "custom node resource",
        Update::CustomNodeResourceGone,
    ));
    all.extend(within(&named.services, "service", &|namespace, name| {
        Update::ServiceGone { namespace, name }
    }));
    for (kind, names) in [
        (ReplicationController, &named.replication_controllers),
        (ReplicaSet, &named.replica_sets),
        (StatefulSet, &named.stateful_sets),
    ] {
        all.extend(within(names, in_words(kind), &|namespace, name| {
            Update::WorkloadGone {
                kind,
                namespace,
                name,
            }
        }));
    }
    all.extend(within(
        &named.disruption_budgets,
        "disruption budget",
        &|namespace, name| Update::BudgetGone { namespace, name },
    ));
    all.extend(within(&named.claims, "claim", &|namespace, name| {
        Update::ClaimGone { namespace, name }
    }));
    all.extend(within(
        &named.storage_capacities,
        "storage capacity",
        &|namespace, name| Update::StorageCapacityGone { namespace, name },
    ));
    all
}

fn in_default(namespace: &mut String) {
    if namespace.is_empty() {
        "default".clone_into(namespace);
    }
}
