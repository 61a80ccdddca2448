//! A case as the engine's cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use api::parse;
use api::wire::{core, katalyst, storage, workload};
use engine::cluster::{Cluster, Update};
use engine::model::{Pod, WorkloadKind};
use serde::Deserialize;

use crate::parity::generate::Case;

/// The lists of `e2e/oracle-kube/protocol.go`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Objects {
    pub(super) preempt: bool,
    pub(super) hints: bool,
    pub(super) pod: core::Pod,
    pub(super) nodes: Vec<core::Node>,
    pub(super) pods: Vec<core::Pod>,
    pub(super) nominated: Vec<core::Pod>,
    pub(super) namespaces: Vec<core::Namespace>,
    pub(super) services: Vec<workload::Service>,
    pub(super) replication_controllers: Vec<workload::ReplicationController>,
    pub(super) replica_sets: Vec<workload::SelectingWorkload>,
    pub(super) stateful_sets: Vec<workload::SelectingWorkload>,
    pub(super) persistent_volumes: Vec<storage::PersistentVolume>,
    pub(super) persistent_volume_claims: Vec<storage::PersistentVolumeClaim>,
    pub(super) storage_classes: Vec<storage::StorageClass>,
    pub(super) csi_nodes: Vec<storage::CsiNode>,
    pub(super) csi_drivers: Vec<storage::CsiDriver>,
    pub(super) csi_storage_capacities: Vec<storage::CsiStorageCapacity>,
    pub(super) volume_attachments: Vec<storage::VolumeAttachment>,
    pub(super) pod_disruption_budgets: Vec<workload::PodDisruptionBudget>,
    pub(super) custom_node_resources: Vec<katalyst::CustomNodeResource>,
}

pub(super) struct World {
    pub(super) cluster: Cluster,
    pub(super) pod: Arc<Pod>,
    /// Whether the answer includes every result of preemption.
    pub(super) preempt: bool,
    /// Node names in the order of kube-scheduler's snapshot.
    pub(super) order: Vec<String>,
    pub(super) objects: Objects,
}

impl World {
    pub(super) fn read(case: &Case) -> Result<Self> {
        let objects = Objects::deserialize(&case.0).context("the case has a malformed object")?;
        let mut names = BTreeSet::new();
        for node in &objects.nodes {
            let name = &node.metadata.name;
            // Shrinking takes names away, too, and without them nodes cannot be told apart.
            ensure!(
                !name.is_empty() && names.insert(name),
                "two nodes named {name:?}"
            );
        }
        let mut cluster = load(&objects)?;
        for pod in &objects.nominated {
            let pod = Arc::new(parse::pod(pod)?);
            let node = pod.nominated_node.clone();
            let node = node.context("a pod of \"nominated\" has no status.nominatedNodeName")?;
            cluster.apply(Update::Nominate { pod, node })?;
        }
        cluster.check()?;
        Ok(Self {
            cluster,
            pod: Arc::new(parse::pod(&objects.pod)?),
            preempt: objects.preempt,
            order: snapshot_order(&objects.nodes),
            objects,
        })
    }

    /// The same cluster as if nothing were nominated.
    pub(super) fn without_nominated(&self) -> Result<Cluster> {
        load(&self.objects)
    }

    pub(super) fn position(&self, node: &str) -> Option<usize> {
        self.order.iter().position(|name| name == node)
    }
}

fn load(objects: &Objects) -> Result<Cluster> {
    let mut cluster = Cluster::new();
    let mut apply = |update| cluster.apply(update).map(drop);
    for node in &objects.nodes {
        apply(Update::Node(parse::node(node)?))?;
    }
    for pod in &objects.pods {
        apply(Update::PodBound(Arc::new(parse::pod(pod)?)))?;
    }
    for namespace in &objects.namespaces {
        let (name, labels) = parse::namespace(namespace);
        apply(Update::Namespace { name, labels })?;
    }
    for service in &objects.services {
        apply(Update::Service(parse::service(service)))?;
    }
    for controller in &objects.replication_controllers {
        apply(Update::Workload(parse::replication_controller(controller)))?;
    }
    for (kind, sets) in [
        (WorkloadKind::ReplicaSet, &objects.replica_sets),
        (WorkloadKind::StatefulSet, &objects.stateful_sets),
    ] {
        for set in sets {
            apply(Update::Workload(parse::workload(kind, set)))?;
        }
    }
    for volume in &objects.persistent_volumes {
        apply(Update::Volume(parse::volume(volume)?))?;
    }
    for claim in &objects.persistent_volume_claims {
        apply(Update::Claim(parse::claim(claim)?))?;
    }
    for class in &objects.storage_classes {
        apply(Update::StorageClass(parse::storage_class(class)))?;
    }
    for node in &objects.csi_nodes {
        apply(Update::CsiNode(parse::csi_limits(node)))?;
    }
    for driver in &objects.csi_drivers {
        apply(Update::CsiDriver(parse::csi_driver(driver)))?;
    }
    for capacity in &objects.csi_storage_capacities {
        apply(Update::StorageCapacity(parse::storage_capacity(capacity)?))?;
    }
    for attachment in &objects.volume_attachments {
        apply(Update::VolumeAttachment(parse::volume_attachment(
            attachment,
        )))?;
    }
    for budget in &objects.pod_disruption_budgets {
        apply(Update::Budget(parse::budget(budget)))?;
    }
    for report in &objects.custom_node_resources {
        let (report, _) = parse::custom_node_resource(report);
        apply(Update::CustomNodeResource(report))?;
    }
    Ok(cluster)
}

/// Round robin over the zones, each in the order in which its nodes came; zones by their first node.
fn snapshot_order(nodes: &[core::Node]) -> Vec<String> {
    let mut zones: Vec<((&str, &str), Vec<&str>)> = Vec::new();
    for node in nodes {
        let label = |name: &str| {
            let labels = &node.metadata.labels;
            let beta = labels.get(&format!("failure-domain.beta.kubernetes.io/{name}"));
            beta.or_else(|| labels.get(&format!("topology.kubernetes.io/{name}")))
                .map_or("", String::as_str)
        };
        let zone = (label("region"), label("zone"));
        let name = &node.metadata.name[..];
        match zones.iter_mut().find(|(known, _)| *known == zone) {
            Some((_, members)) if members.contains(&name) => {}
            Some((_, members)) => members.push(name),
            None => zones.push((zone, vec![name])),
        }
    }
    let longest = zones.iter().map(|(_, members)| members.len()).max();
    (0..longest.unwrap_or(0))
        .flat_map(|turn| {
            zones
                .iter()
                .filter_map(move |(_, members)| members.get(turn))
        })
        .map(|name| (*name).to_owned())
        .collect()
}
