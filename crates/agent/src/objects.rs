//! The Node and its pods as the engine reads them.
//!
//! Values that cannot be understood are left out: a pod with a broken annotation is still a pod.

use std::collections::BTreeMap;

use engine::admission::keys::{KOORDINATOR_BAND, KOORDINATOR_CLASS, LEVEL, MEMORY_ENHANCEMENT};
use engine::model::{
    NUMA_ZONES, Name, NumaBinding, QosLabels, QosLevel, Quantity, Resource, Timestamp, ZoneSet,
};
use engine::node::pods::{self, ContainerRole};
use engine::node::{CpuMemory, CpuSet, LocalContainer, LocalNode, LocalPod, PodPhase, PodQos};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WrittenQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;

use crate::agent::PodNames;

/// The hash of a static pod's file, on its mirror pod. The cgroup has this name instead of the uid.
const STATIC_POD_HASH: &str = "kubernetes.io/config.hash";
const MIRROR: &str = "kubernetes.io/config.mirror";
/// CPUs that Koordinator's scheduler bound the pod to.
const KOORDINATOR_STATUS: &str = "scheduling.koordinator.sh/resource-status";
const RAW_ALLOCATABLE: &str = "node.koordinator.sh/raw-allocatable";
const RESERVATION: &str = "node.koordinator.sh/reservation";

type Amounts = BTreeMap<String, WrittenQuantity>;

/// None for an object without a uid, which no API server stores. `static_cpus` are the CPUs of pods that the kubelet's static CPU
/// manager bound, by uid.
pub fn pod(pod: &Pod, static_cpus: &BTreeMap<String, CpuSet>) -> Option<LocalPod> {
    let meta = &pod.metadata;
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref());
    let uid = meta.uid.as_ref()?;
    let hash = annotation(meta, STATIC_POD_HASH);
    let containers = containers(pod);
    let class_label = label(meta, KOORDINATOR_CLASS);
    let level = annotation(meta, LEVEL);
    let labels = QosLabels {
        katalyst_level: level,
        koordinator_class: class_label,
        koordinator_band: label(meta, KOORDINATOR_BAND),
        priority_class: spec.priority_class_name.as_deref(),
        account: containers
            .iter()
            .flat_map(|container| container.tiers.keys().copied())
            .max(),
    };
    let qos = match status.and_then(|it| it.qos_class.as_deref()) {
        Some("Guaranteed") => PodQos::Guaranteed,
        Some("BestEffort") => PodQos::BestEffort,
        _ => PodQos::Burstable,
    };
    let phase = match status.and_then(|it| it.phase.as_deref()) {
        Some("Succeeded" | "Failed") => PodPhase::Finished,
        Some("Running") => PodPhase::Running,
        _ => PodPhase::Pending,
    };
    let mut bound_cpus = koordinator_cpus(meta);
    if let Some(cpus) = static_cpus.get(uid) {
        bound_cpus.0.extend(&cpus.0);
    }
    let class = pods::class(&labels);
    // The scheduler writes events about annotations that are not valid.
    let enhancements =
        api::parse::enhancements(annotation(meta, MEMORY_ENHANCEMENT), &mut Vec::new());
    let level = level.and_then(|text| QosLevel::parse(text).ok());
    let numa_binding = enhancements.binding(level.unwrap_or_default(), class);
    let zones = annotation(meta, NUMA_ZONES).and_then(|text| ZoneSet::parse(text).ok());
    let owners = meta.owner_references.iter().flatten();
    let mut owners = owners.filter(|owner| owner.controller == Some(true));
    Some(LocalPod {
        namespace: Name::from(meta.namespace.as_deref().unwrap_or_default()),
        name: Name::from(meta.name.as_deref().unwrap_or_default()),
        uid: Name::from(&**uid),
        group: Name::from(hash.unwrap_or(uid)),
        class,
        qos,
        phase,
        terminating: meta.deletion_timestamp.is_some(),
        is_static: annotation(meta, MIRROR).is_some(),
        created: meta
            .creation_timestamp
            .as_ref()
            .map_or_else(Timestamp::default, time),
        owner: owners.next().map(|owner| Name::from(&*owner.uid)),
        priority: spec.priority.unwrap_or(0),
        overhead: spec.overhead.as_ref().map_or(CpuMemory::ZERO, native),
        containers,
        bound_cpus,
        is_exclusive: class_label == Some("LSE") || numa_binding == Some(NumaBinding::Exclusive),
        numa_binding,
        zones: zones.unwrap_or_default(),
    })
}

/// The names of a pod and of its containers, by the uid in the name of its cgroup.
pub(crate) fn container_names(pod: &Pod) -> Option<(Name, PodNames)> {
    let meta = &pod.metadata;
    let uid = annotation(meta, STATIC_POD_HASH).or(meta.uid.as_deref())?;
    let status = pod.status.as_ref();
    let regular = status.and_then(|it| it.container_statuses.as_ref());
    let init = status.and_then(|it| it.init_container_statuses.as_ref());
    let statuses = regular.into_iter().chain(init).flatten();
    let containers = statuses.filter_map(|status| {
        let id = container_id(status)?;
        Some((id.to_owned(), status.name.clone()))
    });
    let names = PodNames {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        containers: containers.collect(),
    };
    Some((Name::from(uid), names))
}

pub fn node(node: &Node) -> LocalNode {
    let (meta, status) = (&node.metadata, node.status.as_ref());
    let capacity = status.and_then(|it| it.capacity.as_ref());
    let raw = annotation(meta, RAW_ALLOCATABLE);
    let raw: Option<Amounts> = raw.and_then(|text| serde_json::from_str(text).ok());
    let allocatable = raw.as_ref();
    let allocatable = allocatable.or_else(|| status.and_then(|it| it.allocatable.as_ref()));
    let reservation: Option<Reservation> =
        annotation(meta, RESERVATION).and_then(|text| serde_json::from_str(text).ok());
    let reservation = reservation.unwrap_or_default();
    let reserved_cpus = CpuSet::parse(&reservation.reserved_cpus).unwrap_or_default();
    let mut reserved = native(&reservation.resources);
    if !reserved_cpus.0.is_empty() {
        // Named CPUs take the place of an amount.
        reserved.milli_cpu = 1000 * i64::try_from(reserved_cpus.0.len()).unwrap_or(i64::MAX / 1000);
    }
    let labels = meta.labels.iter().flatten();
    LocalNode {
        name: Name::from(meta.name.as_deref().unwrap_or_default()),
        labels: labels.map(|(key, value)| (&**key, &**value)).collect(),
        capacity: capacity.map_or(CpuMemory::ZERO, native),
        allocatable: allocatable.map_or(CpuMemory::ZERO, native),
        reserved,
        reserved_cpus,
    }
}

/// Of Koordinator's annotation on nodes.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Reservation {
    resources: Amounts,
    #[serde(rename = "reservedCPUs")]
    reserved_cpus: String,
}

fn containers(pod: &Pod) -> Vec<LocalContainer> {
    let (Some(spec), status) = (&pod.spec, pod.status.as_ref()) else {
        return Vec::new();
    };
    let statuses = status.and_then(|it| it.container_statuses.as_ref());
    let init_statuses = status.and_then(|it| it.init_container_statuses.as_ref());
    let init = spec.init_containers.iter().flatten().map(|it| {
        let role = match it.restart_policy.as_deref() {
            Some("Always") => ContainerRole::Sidecar,
            _ => ContainerRole::Init,
        };
        container(it, role, init_statuses)
    });
    let regular = spec.containers.iter();
    let regular = regular.map(|it| container(it, ContainerRole::Regular, statuses));
    init.chain(regular).collect()
}

fn container(
    written: &Container,
    role: ContainerRole,
    statuses: Option<&Vec<ContainerStatus>>,
) -> LocalContainer {
    let status = statuses.and_then(|all| all.iter().find(|it| it.name == written.name));
    let mut container = LocalContainer {
        name: Name::from(&*written.name),
        id: status.and_then(container_id).map(Name::from),
        role,
        ..LocalContainer::default()
    };
    let resources = written.resources.as_ref();
    for (name, quantity) in resources
        .and_then(|it| it.requests.as_ref())
        .into_iter()
        .flatten()
    {
        if let Ok(quantity) = Quantity::parse(&quantity.0) {
            container.add_request(name, quantity);
        }
    }
    for (name, quantity) in resources
        .and_then(|it| it.limits.as_ref())
        .into_iter()
        .flatten()
    {
        if let Ok(quantity) = Quantity::parse(&quantity.0) {
            container.add_limit(name, quantity);
        }
    }
    container
}

/// `containerd://ID`
fn container_id(status: &ContainerStatus) -> Option<&str> {
    let (_, id) = status.container_id.as_ref()?.split_once("://")?;
    Some(id)
}

/// The amounts of cpu and memory.
fn native(amounts: &Amounts) -> CpuMemory {
    let amount = |resource: Resource| {
        let quantity = amounts.get(resource.name())?;
        let quantity = Quantity::parse(&quantity.0).ok()?;
        Some(resource.integer(quantity).max(0))
    };
    CpuMemory {
        milli_cpu: amount(Resource::Cpu).unwrap_or(0),
        memory: amount(Resource::Memory).unwrap_or(0),
    }
}

fn koordinator_cpus(meta: &ObjectMeta) -> CpuSet {
    #[derive(Deserialize)]
    struct Status {
        cpuset: String,
    }
    let status = annotation(meta, KOORDINATOR_STATUS);
    let status = status.and_then(|text| serde_json::from_str::<Status>(text).ok());
    status
        .and_then(|it| CpuSet::parse(&it.cpuset))
        .unwrap_or_default()
}

fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

fn time(time: &Time) -> Timestamp {
    Timestamp(i64::try_from(time.0.as_nanosecond()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use engine::model::QosClass;
    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> LocalPod {
        let cpus = BTreeMap::from([("u1".to_owned(), CpuSet::parse("2-3").unwrap())]);
        pod(&serde_json::from_value(value).unwrap(), &cpus).unwrap()
    }

    #[test]
    fn a_pod_is_read_with_its_tiers_and_containers() {
        let pod = read(json!({
            "metadata": {
                "name": "p", "namespace": "ns", "uid": "u1",
                "creationTimestamp": "1970-01-01T00:00:05Z",
                "labels": {"koordinator.sh/qosClass": "BE"},
                "annotations": {"scheduling.koordinator.sh/resource-status": "{\"cpuset\":\"0-1\"}"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "o", "controller": true}],
            },
            "spec": {
                "priority": 5000,
                "overhead": {"cpu": "10m"},
                "initContainers": [
                    {"name": "i", "resources": {"requests": {"kubernetes.io/batch-cpu": "100"}}},
                    {"name": "s", "restartPolicy": "Always"},
                ],
                "containers": [{"name": "c", "resources": {
                    "requests": {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi", "cpu": "oops"},
                    "limits": {"kubernetes.io/batch-cpu": "2000"},
                }}],
            },
            "status": {"phase": "Running", "qosClass": "BestEffort", "containerStatuses": [
                {"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0, "containerID": "containerd://abc"},
            ]},
        }));
        assert_eq!(pod.class, QosClass::Lent);
        assert_eq!(pod.qos, PodQos::BestEffort);
        assert_eq!(pod.group, Name::from("u1"));
        assert_eq!(pod.created, Timestamp::from_secs(5));
        assert_eq!(pod.owner, Some(Name::from("o")));
        assert_eq!(pod.bound_cpus.to_string(), "0-3");
        assert_eq!(pod.overhead, CpuMemory::new(10, 0));
        let roles: Vec<ContainerRole> = pod.containers.iter().map(|it| it.role).collect();
        let want = [
            ContainerRole::Init,
            ContainerRole::Sidecar,
            ContainerRole::Regular,
        ];
        assert_eq!(roles, want);
        let container = &pod.containers[2];
        assert_eq!(container.id, Some(Name::from("abc")));
        let amounts = container.amounts(pod.class);
        assert_eq!(amounts.requests, CpuMemory::new(1500, 1 << 30));
        assert_eq!(amounts.limits, CpuMemory::new(2000, 0));
    }

    #[test]
    fn a_static_pod_has_the_group_of_its_file_and_a_bare_priority_makes_no_pod_ours() {
        let pod = read(json!({
            "metadata": {"name": "p", "uid": "u2", "annotations": {
                "kubernetes.io/config.hash": "h", "kubernetes.io/config.mirror": "h",
            }},
            "spec": {"priority": 5500, "containers": []},
        }));
        assert_eq!((&*pod.uid, &*pod.group), ("u2", "h"));
        assert!(pod.is_static && !pod.is_own());
    }

    #[test]
    fn exclusive_pods_are_lse_or_dedicated_with_exclusive_numa_nodes() {
        let options = r#"{"numa_binding": "true", "numa_exclusive": "true"}"#;
        for (labels, annotations, want) in [
            (json!({"koordinator.sh/qosClass": "LSE"}), json!({}), true),
            (json!({"koordinator.sh/qosClass": "LSR"}), json!({}), false),
            (
                json!({}),
                json!({LEVEL: "dedicated_cores", MEMORY_ENHANCEMENT: options}),
                true,
            ),
            (
                json!({}),
                json!({LEVEL: "dedicated_cores", MEMORY_ENHANCEMENT: r#"{"numa_binding": "true"}"#}),
                true,
            ),
            (
                json!({}),
                json!({LEVEL: "dedicated_cores",
                    MEMORY_ENHANCEMENT: r#"{"numa_binding": "true", "numa_exclusive": "false"}"#}),
                false,
            ),
            (
                json!({}),
                json!({LEVEL: "shared_cores", MEMORY_ENHANCEMENT: options}),
                false,
            ),
            (
                json!({}),
                json!({LEVEL: "dedicated_cores", MEMORY_ENHANCEMENT: "oops"}),
                false,
            ),
        ] {
            let case = format!("{labels} {annotations}");
            let pod = read(json!({
                "metadata": {"name": "p", "uid": "u", "labels": labels, "annotations": annotations},
                "spec": {"containers": []},
            }));
            assert_eq!(pod.is_exclusive, want, "{case}");
        }
    }

    #[test]
    fn zones_are_those_of_the_annotation() {
        use NumaBinding::{Exclusive, Shared};
        let binding = |exclusive: &str| {
            format!(r#"{{"numa_binding": "true", "numa_exclusive": "{exclusive}"}}"#)
        };
        for (level, options, zones, resource, want) in [
            (
                "dedicated_cores",
                binding("true"),
                "0,2",
                "cpu",
                (Some(Exclusive), "0,2"),
            ),
            (
                "dedicated_cores",
                binding("false"),
                "1",
                "cpu",
                (Some(Shared), "1"),
            ),
            ("shared_cores", binding("true"), "1", "cpu", (None, "1")),
            // On borrowed capacity.
            (
                "dedicated_cores",
                binding("true"),
                "1",
                "kubernetes.io/batch-cpu",
                (None, "1"),
            ),
            (
                "dedicated_cores",
                binding("true"),
                "0-3",
                "cpu",
                (Some(Exclusive), ""),
            ),
            (
                "dedicated_cores",
                binding("true"),
                "64",
                "cpu",
                (Some(Exclusive), ""),
            ),
        ] {
            let pod = read(json!({
                "metadata": {"name": "p", "uid": "u", "annotations": {
                    LEVEL: level, MEMORY_ENHANCEMENT: options, NUMA_ZONES: zones,
                }},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {resource: "1"}}}]},
            }));
            let found = (pod.numa_binding, &*pod.zones.to_string());
            assert_eq!(found, want, "{level} {options} {zones} {resource}");
        }
    }

    #[test]
    fn a_node_is_read_with_its_reservation() {
        let read = |annotations: Value| {
            let object = json!({
                "metadata": {"name": "n", "labels": {"a": "b"}, "annotations": annotations},
                "status": {
                    "capacity": {"cpu": "4", "memory": "8Gi"},
                    "allocatable": {"cpu": "3900m", "memory": "7Gi"},
                },
            });
            node(&serde_json::from_value(object).unwrap())
        };
        let plain = read(json!({}));
        assert_eq!(plain.capacity, CpuMemory::new(4000, 8 << 30));
        assert_eq!(plain.allocatable, CpuMemory::new(3900, 7 << 30));
        assert_eq!(plain.labels.get("a"), Some("b"));
        let reserved = read(json!({
            RAW_ALLOCATABLE: r#"{"cpu": "2", "memory": "1Gi"}"#,
            RESERVATION: r#"{"resources": {"cpu": "1", "memory": "2Gi"}, "reservedCPUs": "0-1"}"#,
        }));
        assert_eq!(reserved.allocatable, CpuMemory::new(2000, 1 << 30));
        assert_eq!(reserved.reserved, CpuMemory::new(2000, 2 << 30));
        assert_eq!(reserved.reserved_cpus.to_string(), "0-1");
        assert_eq!(read(json!({RESERVATION: "oops"})), plain);
    }
}
