//! The Node and its pods as the engine reads them.
//!
//! Values that cannot be understood are left out: a pod with a broken annotation is still a pod.

mod marks;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engine::model::{
    Name, NumaBinding, QosLabels, QosLevel, Quantity, Resource, Timestamp, ZoneSet,
};
use engine::node::groups;
use engine::node::pods::{self, ContainerRole};
use engine::node::{
    CpuMemory, CpuSet, GroupClaim, LocalContainer, LocalNode, LocalPod, PodPhase, PodQos,
};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WrittenQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::ListParams;
use kube::{Api, Client};
use serde::Deserialize;

use crate::agent::{Options, PodNames};
use crate::layout;

type Amounts = BTreeMap<String, WrittenQuantity>;

/// What is known about pods beside their objects.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The CPUs of pods that the kubelet's static CPU manager bound, by uid.
    pub static_cpus: BTreeMap<String, CpuSet>,
    /// Where the kubelet keeps the logs of pods, in a directory NAMESPACE_NAME_UID for each.
    pub pod_logs: PathBuf,
    /// Whether CPUs count that the annotation of Koordinator's scheduler names.
    pub koordinator_cpus: bool,
}

/// None for an object without a uid, which no API server stores. Its group is that of its uid until claims are settled.
pub fn pod(pod: &Pod, sources: &Sources) -> Option<LocalPod> {
    let meta = &pod.metadata;
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref());
    let uid = meta.uid.as_ref()?;
    let containers = containers(pod);
    let class_label = marks::koordinator_class(meta);
    let level = marks::level(meta);
    let labels = QosLabels {
        katalyst_level: level,
        koordinator_class: class_label,
        koordinator_band: marks::koordinator_band(meta),
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
    let static_cpus = sources.static_cpus.get(uid);
    let class = pods::class(&labels);
    // The scheduler writes events about annotations that are not valid.
    let enhancements = api::parse::enhancements(marks::memory_enhancement(meta), &mut Vec::new());
    let level = level.and_then(|text| QosLevel::parse(text).ok());
    let numa_binding = enhancements.binding(level.unwrap_or_default(), class);
    let zones = marks::numa_zones(meta).filter(|_| numa_binding.is_some());
    let zones = zones.and_then(|text| ZoneSet::parse(text).ok());
    let owners = meta.owner_references.iter().flatten();
    let mut owners = owners.filter(|owner| owner.controller == Some(true));
    let mut pod = LocalPod {
        namespace: Name::from(meta.namespace.as_deref().unwrap_or_default()),
        name: Name::from(meta.name.as_deref().unwrap_or_default()),
        uid: Name::from(&**uid),
        group: Name::from(&**uid),
        claim: claim(meta, &sources.pod_logs),
        class,
        qos,
        phase,
        terminating: meta.deletion_timestamp.is_some(),
        is_static: marks::is_mirror(meta),
        created: meta
            .creation_timestamp
            .as_ref()
            .map_or_else(Timestamp::default, time),
        owner: owners.next().map(|owner| Name::from(&*owner.uid)),
        priority: spec.priority.unwrap_or(0),
        overhead: spec.overhead.as_ref().map_or(CpuMemory::ZERO, native),
        containers,
        bound_cpus: static_cpus.cloned().unwrap_or_default(),
        is_exclusive: class_label == Some("LSE") || numa_binding == Some(NumaBinding::Exclusive),
        numa_binding,
        zones: zones.unwrap_or_default(),
    };
    // As Koordinator's scheduler does, which binds no other pods.
    let is_bound = matches!(class_label, Some("LSE" | "LSR")) && !pod.is_own();
    if sources.koordinator_cpus && is_bound {
        let named = koordinator_cpus(meta).0.into_iter();
        let most = usize::try_from(pod.request().milli_cpu / 1000).unwrap_or(0);
        pod.bound_cpus.0.extend(named.take(most));
    }
    Some(pod)
}

/// The pods of the node, as the API server lists them.
pub async fn list_pods(client: &Client, options: &Options) -> Result<Vec<LocalPod>, kube::Error> {
    let of_node = ListParams::default().fields(&format!("spec.nodeName={}", options.node));
    let listed = Api::<Pod>::all(client.clone()).list(&of_node).await?;
    let sources = Sources {
        pod_logs: options.pod_logs.clone(),
        ..Sources::default()
    };
    let pods = listed.items.iter().filter_map(|it| pod(it, &sources));
    let mut pods: Vec<LocalPod> = pods.collect();
    groups::settle(&mut pods, |_| false);
    Ok(pods)
}

/// The group that a pod names, and whether the kubelet shows a static pod with it. Only mirror pods have one.
fn claim(meta: &ObjectMeta, pod_logs: &Path) -> Option<GroupClaim> {
    let hash = marks::static_pod_hash(meta)?;
    let is_shown = || {
        let (namespace, name) = (meta.namespace.as_deref()?, meta.name.as_deref()?);
        let directory = pod_logs.join(format!("{namespace}_{name}_{hash}"));
        let found = std::fs::symlink_metadata(directory).ok()?;
        Some(found.is_dir())
    };
    // A hash is not a path. And the log directories of other pods than static ones have the uid of the pod in their name.
    let is_possible = marks::is_mirror(meta) && layout::is_uid(hash);
    Some(GroupClaim {
        hash: Name::from(hash),
        is_shown: is_possible && is_shown().unwrap_or(false),
    })
}

/// The names of a pod and of its containers, by the uid in the name of its cgroup. `groups` are those of pods whose cgroup has
/// another name than their uid.
pub(crate) fn container_names(
    pod: &Pod,
    groups: &BTreeMap<Name, Name>,
) -> Option<(Name, PodNames)> {
    let meta = &pod.metadata;
    let uid = meta.uid.as_deref()?;
    let group = groups.get(uid).map_or(uid, |group| group);
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
    Some((Name::from(group), names))
}

pub fn node(node: &Node) -> LocalNode {
    let (meta, status) = (&node.metadata, node.status.as_ref());
    let capacity = status.and_then(|it| it.capacity.as_ref());
    let raw = marks::raw_allocatable(meta);
    let raw: Option<Amounts> = raw.and_then(|text| serde_json::from_str(text).ok());
    let allocatable = raw.as_ref();
    let allocatable = allocatable.or_else(|| status.and_then(|it| it.allocatable.as_ref()));
    let reservation: Option<Reservation> =
        marks::reservation(meta).and_then(|text| serde_json::from_str(text).ok());
    let reservation = reservation.unwrap_or_default();
    let reserved_cpus = CpuSet::parse(&reservation.reserved_cpus).unwrap_or_default();
    let mut reserved = native(&reservation.resources);
    if !reserved_cpus.0.is_empty() {
        // Named CPUs take the place of an amount.
        reserved.milli_cpu = 1000 * i64::try_from(reserved_cpus.0.len()).unwrap_or(i64::MAX / 1000);
    }
    LocalNode {
        name: Name::from(meta.name.as_deref().unwrap_or_default()),
        labels: marks::node_labels(meta),
        capacity: capacity.map_or(CpuMemory::ZERO, native),
        allocatable: allocatable.map_or(CpuMemory::ZERO, native),
        reserved,
        reserved_cpus,
    }
}

/// The content of Koordinator's annotation on nodes.
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
    let status = marks::koordinator_status(meta);
    let status = status.and_then(|text| serde_json::from_str::<Status>(text).ok());
    status
        .and_then(|it| CpuSet::parse(&it.cpuset))
        .unwrap_or_default()
}

fn time(time: &Time) -> Timestamp {
    Timestamp(i64::try_from(time.0.as_nanosecond()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use engine::admission::keys::{LEVEL, MEMORY_ENHANCEMENT};
    use engine::model::{NUMA_ZONES, QosClass};
    use serde_json::{Value, json};

    use super::*;

    const HASH: &str = "0123456789abcdef0123456789abcdef";

    fn read(value: Value) -> LocalPod {
        read_with(value, &Sources::default())
    }

    fn read_with(value: Value, sources: &Sources) -> LocalPod {
        pod(&serde_json::from_value(value).unwrap(), sources).unwrap()
    }

    #[test]
    fn a_pod_is_read_with_its_tiers_and_containers() {
        let sources = Sources {
            static_cpus: [("u1".to_owned(), CpuSet::parse("2-3").unwrap())].into(),
            ..Sources::default()
        };
        let object = json!({
            "metadata": {
                "name": "p", "namespace": "ns", "uid": "u1",
                "creationTimestamp": "1970-01-01T00:00:05Z",
                "labels": {"koordinator.sh/qosClass": "BE"},
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
        });
        let pod = read_with(object, &sources);
        assert_eq!(pod.class, QosClass::Lent);
        assert_eq!(pod.qos, PodQos::BestEffort);
        assert_eq!(pod.group, Name::from("u1"));
        assert_eq!(pod.created, Timestamp::from_secs(5));
        assert_eq!(pod.owner, Some(Name::from("o")));
        assert_eq!(pod.bound_cpus.to_string(), "2-3");
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
    fn a_bare_priority_makes_no_pod_ours() {
        let pod = read(json!({
            "metadata": {"name": "p", "uid": "u2", "annotations": {"kubernetes.io/config.mirror": "h"}},
            "spec": {"priority": 5500, "containers": []},
        }));
        assert!(pod.is_static && !pod.is_own());
    }

    #[test]
    fn the_kubelet_shows_static_pods_by_their_log_directories() {
        let logs = tempfile::tempdir().unwrap();
        for directory in [format!("ns_p_{HASH}"), "ns_p_u2".into(), "ns_p_..".into()] {
            std::fs::create_dir(logs.path().join(directory)).unwrap();
        }
        std::fs::write(logs.path().join(format!("ns_file_{HASH}")), "").unwrap();
        std::os::unix::fs::symlink("/", logs.path().join(format!("ns_link_{HASH}"))).unwrap();
        let sources = Sources {
            pod_logs: logs.path().to_owned(),
            ..Sources::default()
        };
        let other = "f".repeat(32);
        for (case, name, hash, is_mirror, want) in [
            ("a static pod", "p", Some(HASH), true, Some(true)),
            ("no mirror pod", "p", Some(HASH), false, Some(false)),
            ("an invented hash", "p", Some(&*other), true, Some(false)),
            (
                "the hash of another pod",
                "q",
                Some(HASH),
                true,
                Some(false),
            ),
            ("a uid that is none", "p", Some("u2"), true, Some(false)),
            ("a path", "p", Some("../../etc"), true, Some(false)),
            ("a part of a path", "p", Some(".."), true, Some(false)),
            ("a file", "file", Some(HASH), true, Some(false)),
            ("a link", "link", Some(HASH), true, Some(false)),
            ("no hash", "p", None, true, None),
        ] {
            let mut annotations = json!({});
            if let Some(hash) = hash {
                annotations["kubernetes.io/config.hash"] = json!(hash);
            }
            if is_mirror {
                annotations["kubernetes.io/config.mirror"] = json!("h");
            }
            let object = json!({
                "metadata": {"namespace": "ns", "name": name, "uid": "u2", "annotations": annotations},
                "spec": {"containers": []},
            });
            let pod = read_with(object, &sources);
            assert_eq!(pod.claim.as_ref().map(|it| it.is_shown), want, "{case}");
            let named = pod.claim.as_ref().map(|it| &*it.hash);
            assert_eq!((named, &*pod.group), (hash, "u2"), "{case}");
        }
    }

    #[test]
    fn names_of_containers_are_those_of_the_settled_group() {
        let object = json!({
            "metadata": {"namespace": "ns", "name": "p", "uid": "u2", "annotations": {
                "kubernetes.io/config.hash": "u1", "kubernetes.io/config.mirror": "h",
            }},
            "spec": {"containers": []},
        });
        let object: Pod = serde_json::from_value(object).unwrap();
        let static_pod = BTreeMap::from([(Name::from("u2"), Name::from(HASH))]);
        for (groups, want) in [(BTreeMap::new(), "u2"), (static_pod, HASH)] {
            let (group, names) = container_names(&object, &groups).unwrap();
            assert_eq!((&*group, &*names.name), (want, "p"));
        }
    }

    #[test]
    fn cpus_of_koordinator_count_only_where_they_are_believed_and_requested() {
        for (case, believed, class, resource, amount, cpuset, want) in [
            ("not believed", false, "LSE", "cpu", "2", "0-1", ""),
            ("LSE", true, "LSE", "cpu", "2", "0-1", "0-1"),
            ("LSR", true, "LSR", "cpu", "2", "4,6", "4,6"),
            ("LS", true, "LS", "cpu", "2", "0-1", ""),
            (
                "BE",
                true,
                "BE",
                "kubernetes.io/batch-cpu",
                "2000",
                "0-1",
                "",
            ),
            (
                "a tier",
                true,
                "LSR",
                "kubernetes.io/batch-cpu",
                "2000",
                "0-1",
                "",
            ),
            (
                "more than requested",
                true,
                "LSE",
                "cpu",
                "2",
                "0-63",
                "0-1",
            ),
            (
                "a part of a core",
                true,
                "LSR",
                "cpu",
                "2500m",
                "0-63",
                "0-1",
            ),
            (
                "a thousandth of a core",
                true,
                "LSE",
                "cpu",
                "1m",
                "0-63",
                "",
            ),
            ("not a set", true, "LSE", "cpu", "2", "all", ""),
        ] {
            let sources = Sources {
                koordinator_cpus: believed,
                ..Sources::default()
            };
            let status = json!({"cpuset": cpuset}).to_string();
            let object = json!({
                "metadata": {
                    "name": "p", "uid": "u",
                    "labels": {"koordinator.sh/qosClass": class},
                    "annotations": {"scheduling.koordinator.sh/resource-status": status},
                },
                "spec": {"containers": [{"name": "c", "resources": {"requests": {resource: amount}}}]},
            });
            let pod = read_with(object, &sources);
            assert_eq!(pod.bound_cpus.to_string(), want, "{case}");
        }
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
            ("shared_cores", binding("true"), "1", "cpu", (None, "")),
            // On borrowed capacity.
            (
                "dedicated_cores",
                binding("true"),
                "1",
                "kubernetes.io/batch-cpu",
                (None, ""),
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
            "node.koordinator.sh/raw-allocatable": r#"{"cpu": "2", "memory": "1Gi"}"#,
            "node.koordinator.sh/reservation": r#"{"resources": {"cpu": "1", "memory": "2Gi"}, "reservedCPUs": "0-1"}"#,
        }));
        assert_eq!(reserved.allocatable, CpuMemory::new(2000, 1 << 30));
        assert_eq!(reserved.reserved, CpuMemory::new(2000, 2 << 30));
        assert_eq!(reserved.reserved_cpus.to_string(), "0-1");
        assert_eq!(
            read(json!({"node.koordinator.sh/reservation": "oops"})),
            plain
        );
    }
}
