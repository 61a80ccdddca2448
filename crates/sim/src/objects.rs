//! From short forms to objects as Kubernetes writes them.

use api::wire::core::{Container, ContainerPort, Node, Pod, Taint};
use api::wire::katalyst::CustomNodeResource;
use api::wire::meta::{Quantity, ResourceList};
use api::zone_grid::ZoneGrid;

use crate::scenario::{NodeEntry, PodEntry, Resize};

/// More of one kind than any scenario needs.
const MOST: u32 = 10_000;

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Names of the objects that an entry stands for.
pub(crate) fn names(kind: &str, name: &str, count: Option<u32>) -> Result<Vec<String>, String> {
    match count {
        _ if name.is_empty() => Err(format!("a {kind} needs a name")),
        Some(0) => Err(format!(
            "count is 0: use 1 to {MOST}, or leave the {kind} out"
        )),
        None => Ok(vec![name.to_owned()]),
        Some(count) if count > MOST => {
            Err(format!("count is {count}: at most {MOST} are possible"))
        }
        Some(count) => Ok((0..count).map(|i| format!("{name}-{i}")).collect()),
    }
}

pub(crate) fn nodes(entry: &NodeEntry) -> Result<Vec<Node>, String> {
    let taints = taints(&entry.taints)?;
    let names = names("node", &entry.name, entry.count)?;
    let node = |name: String| {
        let mut node = Node::default();
        node.metadata.labels = entry.labels.clone();
        if let Some(zone) = &entry.zone {
            node.metadata.labels.insert(ZONE.to_owned(), zone.clone());
        }
        let hostname = node.metadata.labels.entry(HOSTNAME.to_owned());
        hostname.or_insert_with(|| name.clone());
        node.metadata.name = name;
        node.spec.taints = taints.clone();
        node.spec.unschedulable = entry.unschedulable;
        let allocatable = &mut node.status.allocatable;
        *allocatable = entry.resources.clone();
        set(allocatable, "cpu", &entry.cpu);
        set(allocatable, "memory", &entry.memory);
        allocatable.insert("pods".to_owned(), Quantity("110".to_owned()));
        set(allocatable, "pods", &entry.pods);
        node.status.images = entry.images.clone();
        node.status.declared_features = entry.declared_features.clone();
        node
    };
    Ok(names.into_iter().map(node).collect())
}

/// What the agents of these nodes report, if they have NUMA zones.
pub(crate) fn zones(entry: &NodeEntry) -> Result<Vec<CustomNodeResource>, String> {
    let Some(text) = &entry.zones else {
        return Ok(Vec::new());
    };
    let grid: ZoneGrid = text.parse()?;
    let amount = |amount: &Option<Quantity>| {
        let amount = amount.as_ref().map(|amount| amount.0.clone());
        amount.ok_or("a node with zones needs cpu and memory")
    };
    let (cpu, memory) = (amount(&entry.cpu)?, amount(&entry.memory)?);
    let names = names("node", &entry.name, entry.count)?;
    let report = |name: String| grid.manifest(&name, &cpu, &memory);
    names.into_iter().map(report).collect()
}

fn set(list: &mut ResourceList, resource: &str, amount: &Option<Quantity>) {
    if let Some(amount) = amount {
        list.insert(resource.to_owned(), amount.clone());
    }
}

/// `key=value:Effect`, as kubectl writes taints; value and `=` may be missing.
pub(crate) fn taints(texts: &[String]) -> Result<Vec<Taint>, String> {
    let parse = |text: &String| {
        let wrong = || format!("taint `{text}` is not of the form key=value:Effect");
        let (pair, effect) = text.rsplit_once(':').ok_or_else(wrong)?;
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let is_effect = matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute");
        if key.is_empty() || !is_effect {
            return Err(wrong());
        }
        Ok(Taint {
            key: key.to_owned(),
            value: value.to_owned(),
            effect: effect.to_owned(),
        })
    };
    texts.iter().map(parse).collect()
}

/// Pods without uid; the simulation gives it.
pub(crate) fn pods(entry: &PodEntry, scheduler: &str) -> Result<Vec<Pod>, String> {
    let mut pod = Pod {
        spec: entry.spec.clone(),
        ..Pod::default()
    };
    pod.metadata.namespace = entry
        .namespace
        .clone()
        .unwrap_or_else(|| "default".to_owned());
    pod.metadata.labels = entry.labels.clone();
    pod.metadata.annotations = entry.annotations.clone();
    let is_short = entry.cpu.is_some()
        || entry.memory.is_some()
        || !entry.requests.is_empty()
        || entry.image.is_some()
        || entry.host_port.is_some();
    let spec = &mut pod.spec;
    if spec.containers.is_empty() {
        spec.containers.push(container(entry));
    } else if is_short {
        return Err(
            "cpu, memory, requests, image and hostPort are of a pod without spec.containers"
                .to_owned(),
        );
    }
    spec.priority = entry.priority.or(spec.priority);
    spec.scheduler_name = match &entry.scheduler {
        Some(name) => name.clone(),
        None if spec.scheduler_name.is_empty() => scheduler.to_owned(),
        None => spec.scheduler_name.clone(),
    };
    if let Some(node) = &entry.node {
        spec.node_name = node.clone();
    }
    let gates = entry.gates.iter();
    spec.scheduling_gates
        .extend(gates.map(|name| api::wire::core::Named { name: name.clone() }));
    let names = names("pod", &entry.name, entry.count)?;
    let named = |name: String| {
        let mut pod = pod.clone();
        pod.metadata.name = name;
        pod
    };
    Ok(names.into_iter().map(named).collect())
}

fn container(entry: &PodEntry) -> Container {
    let mut container = Container {
        name: "main".to_owned(),
        image: entry.image.clone().unwrap_or_default(),
        ..Container::default()
    };
    let requests = &mut container.resources.requests;
    *requests = entry.requests.clone();
    set(requests, "cpu", &entry.cpu);
    set(requests, "memory", &entry.memory);
    container.ports = entry
        .host_port
        .map(|host_port| ContainerPort {
            host_port,
            protocol: "TCP".to_owned(),
            ..ContainerPort::default()
        })
        .into_iter()
        .collect();
    container
}

/// Changes amounts; what is not named stays.
pub(crate) fn resize(list: &mut ResourceList, resize: &Resize) {
    set(list, "cpu", &resize.cpu);
    set(list, "memory", &resize.memory);
    set(list, "pods", &resize.pods);
    for (resource, amount) in &resize.resources {
        list.insert(resource.clone(), amount.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_as_kubectl_writes_them() {
        let text = |text: &str| taints(&[text.to_owned()]).map(|mut taints| taints.remove(0));
        for (given, key, value, effect) in [
            ("a=b:NoSchedule", "a", "b", "NoSchedule"),
            ("a:NoExecute", "a", "", "NoExecute"),
            ("a=b:c:PreferNoSchedule", "a", "b:c", "PreferNoSchedule"),
        ] {
            let taint = text(given).unwrap();
            assert_eq!(
                (&taint.key[..], &taint.value[..], &taint.effect[..]),
                (key, value, effect),
                "{given}"
            );
        }
        for given in ["a=b", "a=b:Never", ":NoSchedule", "=b:NoSchedule", ""] {
            assert!(text(given).is_err(), "{given}");
        }
    }

    #[test]
    fn an_entry_may_stand_for_many() {
        let entry = |count| NodeEntry {
            name: "n".to_owned(),
            count,
            ..NodeEntry::default()
        };
        let names = |count| nodes(&entry(count)).map(|nodes| nodes.len());
        assert_eq!(names(None), Ok(1));
        assert_eq!(names(Some(3)), Ok(3));
        assert_eq!(nodes(&entry(Some(2))).unwrap()[1].metadata.name, "n-1");
        assert!(names(Some(MOST + 1)).is_err());
        let none = "count is 0: use 1 to 10000, or leave the node out";
        assert_eq!(names(Some(0)), Err(none.to_owned()));
        assert!(nodes(&NodeEntry::default()).is_err());
    }
}
