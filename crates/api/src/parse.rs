//! Converts Kubernetes objects into the engine's types.
//!
//! The error for an invalid object names the object. Invalid parts that Kubernetes tolerates (a selector that does not
//! parse matches nothing) are tolerated here too, in the form that the engine expects.

mod colocation;
mod katalyst;
pub mod koordinator;
#[macro_use]
mod manifest;
mod pod;
mod resource_policy;
mod selector;
mod storage;

use std::sync::Arc;

use engine::cluster::kinds::{Kind, Object};
use engine::cluster::{
    Budget, Namespace, PriorityClass, ReplicaSet, ReplicationController, Service, StatefulSet,
    Workload,
};
use engine::model::{
    Amounts, Effect, Image, Labels, Name, Node, NodeSpec, Owner, PreemptionPolicy, Quantities,
    Quantity, QuantityError, Resource, Selector, Taint, Timestamp, fingerprint,
};

use crate::wire::meta::{self, LabelSelector, Map, ObjectMeta, ResourceList, Time};
use crate::wire::{core, katalyst as katalyst_wire, policy, storage as storage_wire, workload};

pub use colocation::{colocation_profile, colocation_profile_from, limit_range};
pub use katalyst::{custom_node_resource, enhancements};
pub use pod::pod;
pub(crate) use resource_policy::bounds;
pub use resource_policy::{resource_policy, unreadable_resource_policy};
pub(crate) use selector::label_selector;
pub use selector::node_selector;
pub use storage::{
    claim, csi_driver, csi_limits, storage_capacity, storage_class, volume, volume_attachment,
};

manifests! {
    Node(core::Node) "/api/v1/nodes" => |it, _| Ok(node(it)?.into()),
    Pod(core::Pod) "/api/v1/pods" => |it, _| Ok(Arc::new(pod(it)?).into()),
    Namespace(core::Namespace) "/api/v1/namespaces" => |it, _| Ok(namespace(it).into()),
    Service(workload::Service) "/api/v1/services" => |it, _| Ok(service(it).into()),
    ReplicationController(workload::ReplicationController) "/api/v1/replicationcontrollers" =>
        |it, _| Ok(replication_controller(it).into()),
    ReplicaSet(workload::SelectingWorkload) "/apis/apps/v1/replicasets" =>
        |it, _| Ok(ReplicaSet(workload(it)).into()),
    StatefulSet(workload::SelectingWorkload) "/apis/apps/v1/statefulsets" =>
        |it, _| Ok(StatefulSet(workload(it)).into()),
    PodDisruptionBudget(workload::PodDisruptionBudget) "/apis/policy/v1/poddisruptionbudgets" =>
        |it, _| Ok(budget(it).into()),
    PriorityClass(workload::PriorityClass) "/apis/scheduling.k8s.io/v1/priorityclasses" =>
        |it, _| Ok(priority_class(it).into()),
    PersistentVolume(storage_wire::PersistentVolume) "/api/v1/persistentvolumes" =>
        |it, _| Ok(volume(it)?.into()),
    PersistentVolumeClaim(storage_wire::PersistentVolumeClaim) "/api/v1/persistentvolumeclaims" =>
        |it, _| Ok(claim(it)?.into()),
    StorageClass(storage_wire::StorageClass) "/apis/storage.k8s.io/v1/storageclasses" =>
        |it, _| Ok(storage_class(it).into()),
    CsiNode(storage_wire::CsiNode) "/apis/storage.k8s.io/v1/csinodes" =>
        |it, _| Ok(csi_limits(it).into()),
    CsiDriver(storage_wire::CsiDriver) "/apis/storage.k8s.io/v1/csidrivers" =>
        |it, _| Ok(csi_driver(it).into()),
    CsiStorageCapacity(storage_wire::CsiStorageCapacity) "/apis/storage.k8s.io/v1/csistoragecapacities" =>
        |it, _| Ok(storage_capacity(it)?.into()),
    VolumeAttachment(storage_wire::VolumeAttachment) "/apis/storage.k8s.io/v1/volumeattachments" =>
        |it, _| Ok(volume_attachment(it).into()),
    CustomNodeResource(katalyst_wire::CustomNodeResource)
        "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources" => |it, warnings| {
            let (report, wrong) = custom_node_resource(it);
            warnings.extend(wrong);
            Ok(report.into())
        },
    ResourcePolicy(policy::ResourcePolicy)
        "/apis/scheduling.sigs.x-k8s.io/v1alpha1/resourcepolicies" => |it, warnings| {
            let policy = resource_policy(it);
            if let Err(fault) = &policy.spec {
                warnings.push(format!("{} has no effect: {fault}", object("resourcepolicy", &it.metadata)));
            }
            Ok(policy.into())
        },
}

/// An invalid object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("{object}: {resource} of {field}: {source}")]
    Quantity {
        object: String,
        field: &'static str,
        resource: String,
        source: QuantityError,
    },
    #[error("{object}: {field} is `{found}`: use {allowed}")]
    Value {
        object: String,
        field: &'static str,
        found: String,
        allowed: &'static str,
    },
}

/// `pod default/web`, for messages.
fn object(kind: &str, meta: &ObjectMeta) -> String {
    if meta.namespace.is_empty() {
        format!("{kind} {}", meta.name)
    } else {
        format!("{kind} {}/{}", meta.namespace, meta.name)
    }
}

fn name(text: &str) -> Name {
    text.into()
}

fn names(texts: &[String]) -> Vec<Name> {
    texts.iter().map(|text| name(text)).collect()
}

/// Empty text is "not given".
fn given(text: &str) -> Option<Name> {
    (!text.is_empty()).then(|| name(text))
}

fn labels(map: &Map) -> Labels {
    map.iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

fn time(time: Time) -> Timestamp {
    // Times after the year 2262 do not fit and become the last moment that does.
    let seconds = time.seconds.saturating_mul(Timestamp::SECOND);
    Timestamp(seconds.saturating_add(time.nanos.into()))
}

fn controller(meta: &ObjectMeta) -> Option<Owner> {
    meta.owner_references
        .iter()
        .find(|owner| owner.controller)
        .map(|owner| Owner {
            api_version: name(&owner.api_version),
            kind: name(&owner.kind),
            name: name(&owner.name),
            uid: name(&owner.uid),
        })
}

/// Quantities by resource; unknown names are skipped without reading their quantity.
fn quantities(
    object: &str,
    field: &'static str,
    list: &ResourceList,
) -> Result<Quantities, ParseError> {
    list.iter()
        .filter_map(|(resource, text)| Some((Resource::parse(resource)?, text)))
        .map(|(resource, text)| {
            Ok((
                resource.clone(),
                quantity(object, field, resource.name(), text)?,
            ))
        })
        .collect()
}

fn quantity(
    object: &str,
    field: &'static str,
    resource: &str,
    text: &meta::Quantity,
) -> Result<Quantity, ParseError> {
    Quantity::parse(&text.0).map_err(|source| ParseError::Quantity {
        object: object.to_owned(),
        field,
        resource: resource.to_owned(),
        source,
    })
}

/// A selector that does not parse matches nothing.
fn selector_or_nothing(selector: Option<&LabelSelector>) -> Selector {
    selector::label_selector(selector).unwrap_or(Selector::NOTHING)
}

pub fn node(node: &core::Node) -> Result<Node, ParseError> {
    let object = object("node", &node.metadata);
    let allocatable = quantities(&object, "status.allocatable", &node.status.allocatable)?;
    let amount = |(resource, quantity): (&Resource, &Quantity)| {
        (resource.clone(), resource.integer(*quantity))
    };
    let mut allocatable: Amounts = allocatable.iter().map(amount).collect();
    // Only administrators and the node itself can write a Node.
    let reservation = node.metadata.annotations.get(koordinator::RESERVATION);
    // One that cannot be read reserves nothing; the tier controller warns about it.
    let reservation = reservation.and_then(|text| koordinator::node_reservation(text).ok());
    if let Some(reserved) = reservation {
        for (resource, amount) in [
            (Resource::Cpu, reserved.milli_cpu),
            (Resource::Memory, reserved.memory),
        ] {
            let rest = allocatable.get(&resource).saturating_sub(amount).max(0);
            if allocatable.contains(&resource) {
                allocatable.set(resource, rest);
            }
        }
    }
    Ok(Node {
        spec: NodeSpec {
            name: name(&node.metadata.name),
            labels: labels(&node.metadata.labels),
            taints: node
                .spec
                .taints
                .iter()
                .map(|t| Taint {
                    key: name(&t.key),
                    value: name(&t.value),
                    effect: Effect::parse(&t.effect),
                })
                .collect(),
            unschedulable: node.spec.unschedulable,
            images: node
                .status
                .images
                .iter()
                .map(|image| Image {
                    names: names(&image.names),
                    size: image.size_bytes,
                })
                .collect(),
            declared_features: names(&node.status.declared_features),
            has_reservation: reservation.is_some(),
            ..NodeSpec::default()
        },
        allocatable,
        conditions: {
            let conditions = node.status.conditions.iter();
            let mut conditions: Vec<(&str, &str)> =
                conditions.map(|c| (&*c.kind, &*c.status)).collect();
            conditions.sort_unstable();
            fingerprint(conditions)
        },
        annotations: {
            let annotations = node.metadata.annotations.iter();
            fingerprint(annotations.map(|(key, value)| (&**key, &**value)))
        },
    })
}

pub fn namespace(namespace: &core::Namespace) -> Namespace {
    Namespace {
        name: name(&namespace.metadata.name),
        labels: labels(&namespace.metadata.labels),
    }
}

pub fn service(service: &workload::Service) -> Service {
    Service {
        namespace: name(&service.metadata.namespace),
        name: name(&service.metadata.name),
        selector: service.spec.selector.as_ref().map(labels),
    }
}

pub fn replication_controller(
    controller: &workload::ReplicationController,
) -> ReplicationController {
    let pairs = controller
        .spec
        .selector
        .as_ref()
        .map(|map| Selector::pairs(&labels(map)));
    ReplicationController(Workload {
        namespace: name(&controller.metadata.namespace),
        name: name(&controller.metadata.name),
        selector: pairs.unwrap_or(Selector::EVERYTHING),
    })
}

/// A ReplicaSet or a StatefulSet.
pub fn workload(workload: &workload::SelectingWorkload) -> Workload {
    Workload {
        namespace: name(&workload.metadata.namespace),
        name: name(&workload.metadata.name),
        selector: selector_or_nothing(workload.spec.selector.as_ref()),
    }
}

pub fn priority_class(class: &workload::PriorityClass) -> PriorityClass {
    PriorityClass {
        name: name(&class.metadata.name),
        value: class.value,
        global_default: class.global_default,
        preemption_policy: preemption_policy(class.preemption_policy.as_deref())
            .unwrap_or_default(),
    }
}

fn preemption_policy(text: Option<&str>) -> Option<PreemptionPolicy> {
    text.map(|text| match text {
        "Never" => PreemptionPolicy::Never,
        _ => PreemptionPolicy::LowerPriority,
    })
}

pub fn budget(budget: &workload::PodDisruptionBudget) -> Budget {
    Budget {
        namespace: name(&budget.metadata.namespace),
        name: name(&budget.metadata.name),
        selector: selector_or_nothing(budget.spec.selector.as_ref()),
        disruptions_allowed: budget.status.disruptions_allowed,
        disrupted_pods: budget
            .status
            .disrupted_pods
            .iter()
            .map(|(pod, at)| (name(pod), time(*at)))
            .collect(),
    }
}
