//! Volumes, claims, storage classes and CSI objects.

use engine::cluster::{
    BindingMode, Claim, ClaimPhase, ClaimRef, CsiDriver, CsiLimits, PersistentVolume,
    StorageCapacity, StorageClass, VolumeAttachment, VolumeHandle, VolumePhase,
};
use engine::model::{Quantity, TopologyTerm};

use super::selector::node_selector;
use super::{
    ParseError, controller, given, labels, name, names, object, quantity, selector_or_nothing,
};
use crate::wire::meta::{self, ObjectMeta};
use crate::wire::storage as wire;

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// An annotation of an object that says where its author's storage is: a user who forges it can only keep own pods from running.
fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.get(key).map(String::as_str)
}

fn mode(mode: &Option<String>) -> engine::model::Name {
    name(mode.as_deref().unwrap_or("Filesystem"))
}

fn size(
    object: &str,
    field: &'static str,
    text: Option<&meta::Quantity>,
) -> Result<Option<Quantity>, ParseError> {
    text.map(|text| quantity(object, field, "storage", text))
        .transpose()
}

pub fn claim(claim: &wire::PersistentVolumeClaim) -> Result<Claim, ParseError> {
    let object = object("persistentvolumeclaim", &claim.metadata);
    let (meta, spec) = (&claim.metadata, &claim.spec);
    Ok(Claim {
        namespace: name(&meta.namespace),
        name: name(&meta.name),
        uid: name(&meta.uid),
        phase: match &claim.status.phase[..] {
            "Bound" => ClaimPhase::Bound,
            "Lost" => ClaimPhase::Lost,
            _ => ClaimPhase::Pending,
        },
        deleting: meta.deletion_timestamp.is_some(),
        volume: given(&spec.volume_name),
        bind_completed: annotation(meta, BIND_COMPLETED).is_some(),
        class: annotation(meta, CLASS_ANNOTATION)
            .or(spec.storage_class_name.as_deref())
            .map(name),
        selected_node: annotation(meta, SELECTED_NODE).map(name),
        request: size(
            &object,
            "spec.resources.requests",
            spec.resources.requests.get("storage"),
        )?,
        selector: spec
            .selector
            .as_ref()
            .map(|selector| selector_or_nothing(Some(selector))),
        access_modes: names(&spec.access_modes),
        volume_mode: mode(&spec.volume_mode),
        attributes_class: spec.volume_attributes_class_name.as_deref().and_then(given),
        owner: controller(meta),
    })
}

pub fn volume(volume: &wire::PersistentVolume) -> Result<PersistentVolume, ParseError> {
    let object = object("persistentvolume", &volume.metadata);
    let (meta, spec) = (&volume.metadata, &volume.spec);
    let claim = spec.claim_ref.as_ref().map(|claim| ClaimRef {
        namespace: name(&claim.namespace),
        name: name(&claim.name),
        uid: name(&claim.uid),
    });
    Ok(PersistentVolume {
        name: name(&meta.name),
        labels: labels(&meta.labels),
        phase: match &volume.status.phase[..] {
            "Available" => VolumePhase::Available,
            "Bound" => VolumePhase::Bound,
            "Released" => VolumePhase::Released,
            "Failed" => VolumePhase::Failed,
            _ => VolumePhase::Pending,
        },
        deleting: meta.deletion_timestamp.is_some(),
        claim,
        capacity: size(&object, "spec.capacity", spec.capacity.get("storage"))?.unwrap_or_default(),
        class: name(annotation(meta, CLASS_ANNOTATION).unwrap_or(&spec.storage_class_name)),
        access_modes: names(&spec.access_modes),
        volume_mode: mode(&spec.volume_mode),
        attributes_class: spec.volume_attributes_class_name.as_deref().and_then(given),
        node_affinity: spec.node_affinity.required.as_ref().map(node_selector),
        source: handle(spec),
    })
}

fn handle(spec: &wire::VolumeSpec) -> VolumeHandle {
    let in_tree = |plugin: &str, id: &str| VolumeHandle::InTree {
        plugin: name(plugin),
        id: name(id),
    };
    if let Some(csi) = &spec.csi {
        return VolumeHandle::Csi {
            driver: name(&csi.driver),
            handle: name(&csi.volume_handle),
        };
    }
    if let Some(disk) = &spec.aws_elastic_block_store {
        return in_tree("kubernetes.io/aws-ebs", &disk.volume_id);
    }
    if let Some(disk) = &spec.gce_persistent_disk {
        return in_tree("kubernetes.io/gce-pd", &disk.pd_name);
    }
    if let Some(disk) = &spec.azure_disk {
        return in_tree("kubernetes.io/azure-disk", &disk.disk_uri);
    }
    if let Some(disk) = &spec.cinder {
        return in_tree("kubernetes.io/cinder", &disk.volume_id);
    }
    match &spec.portworx_volume {
        Some(disk) => in_tree("kubernetes.io/portworx-volume", &disk.volume_id),
        None => VolumeHandle::Other,
    }
}

pub fn storage_class(class: &wire::StorageClass) -> StorageClass {
    let term = |term: &wire::TopologySelectorTerm| TopologyTerm {
        values: term
            .match_label_expressions
            .iter()
            .map(|label| (name(&label.key), names(&label.values)))
            .collect(),
    };
    StorageClass {
        name: name(&class.metadata.name),
        provisioner: name(&class.provisioner),
        mode: class.volume_binding_mode.as_deref().map(|mode| match mode {
            "WaitForFirstConsumer" => BindingMode::WaitForFirstConsumer,
            _ => BindingMode::Immediate,
        }),
        allowed_topologies: class.allowed_topologies.iter().map(term).collect(),
    }
}

pub fn csi_limits(node: &wire::CsiNode) -> CsiLimits {
    let migrated = annotation(&node.metadata, MIGRATED_PLUGINS).unwrap_or("");
    CsiLimits {
        node: name(&node.metadata.name),
        drivers: node
            .spec
            .drivers
            .iter()
            .map(|driver| (name(&driver.name), driver.allocatable.count))
            .collect(),
        migrated_plugins: migrated.split(',').filter_map(given).collect(),
    }
}

pub fn csi_driver(driver: &wire::CsiDriver) -> CsiDriver {
    CsiDriver {
        name: name(&driver.metadata.name),
        storage_capacity: driver.spec.storage_capacity,
    }
}

pub fn storage_capacity(
    capacity: &wire::CsiStorageCapacity,
) -> Result<StorageCapacity, ParseError> {
    let object = object("csistoragecapacity", &capacity.metadata);
    Ok(StorageCapacity {
        namespace: name(&capacity.metadata.namespace),
        name: name(&capacity.metadata.name),
        class: name(&capacity.storage_class_name),
        topology: capacity
            .node_topology
            .as_ref()
            .map(|selector| selector_or_nothing(Some(selector))),
        capacity: size(&object, "capacity", capacity.capacity.as_ref())?,
        largest_volume: size(
            &object,
            "maximumVolumeSize",
            capacity.maximum_volume_size.as_ref(),
        )?,
    })
}

pub fn volume_attachment(attachment: &wire::VolumeAttachment) -> VolumeAttachment {
    VolumeAttachment {
        name: name(&attachment.metadata.name),
        attacher: name(&attachment.spec.attacher),
        node: name(&attachment.spec.node_name),
        volume: attachment
            .spec
            .source
            .persistent_volume_name
            .as_deref()
            .map(name),
    }
}
