//! The format: what a file may say. Short forms of pods and nodes are for people; everything else is as Kubernetes
//! writes it.

use std::fmt;

use api::wire::core::{ContainerImage, PodSpec};
use api::wire::meta::{Map, Quantity, ResourceList};
use api::wire::{katalyst, storage, workload};
use api::yaml;
use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::BadScenario;

/// Reads a scenario; every key must be known, however deep.
pub(crate) fn read(text: &str) -> Result<Scenario, BadScenario> {
    yaml::decode_strict(text).map_err(BadScenario)
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Scenario {
    /// A KubeSchedulerConfiguration, as text.
    pub(crate) configuration: Option<String>,
    /// What is there before anything is decided.
    pub(crate) cluster: Objects,
    /// What then asks for a node.
    pub(crate) pods: Vec<PodEntry>,
    pub(crate) expect: IndexMap<String, Expect>,
    /// How many pods are on each of these nodes.
    pub(crate) expect_nodes: IndexMap<String, usize>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Objects {
    pub(crate) nodes: Vec<NodeEntry>,
    pub(crate) pods: Vec<PodEntry>,
    pub(crate) namespaces: Vec<api::wire::core::Namespace>,
    pub(crate) services: Vec<workload::Service>,
    pub(crate) replication_controllers: Vec<workload::ReplicationController>,
    pub(crate) replica_sets: Vec<workload::SelectingWorkload>,
    pub(crate) stateful_sets: Vec<workload::SelectingWorkload>,
    pub(crate) disruption_budgets: Vec<workload::PodDisruptionBudget>,
    pub(crate) priority_classes: Vec<workload::PriorityClass>,
    pub(crate) volumes: Vec<storage::PersistentVolume>,
    pub(crate) claims: Vec<storage::PersistentVolumeClaim>,
    pub(crate) storage_classes: Vec<storage::StorageClass>,
    pub(crate) csi_nodes: Vec<storage::CsiNode>,
    pub(crate) csi_drivers: Vec<storage::CsiDriver>,
    pub(crate) storage_capacities: Vec<storage::CsiStorageCapacity>,
    pub(crate) volume_attachments: Vec<storage::VolumeAttachment>,
    /// Each takes the place of the one it had.
    pub(crate) custom_node_resources: Vec<katalyst::CustomNodeResource>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct NodeEntry {
    pub(crate) name: String,
    /// So many of them, named `name-0` and so on.
    pub(crate) count: Option<u32>,
    pub(crate) cpu: Option<Quantity>,
    pub(crate) memory: Option<Quantity>,
    /// How many pods fit; 110 when not given.
    pub(crate) pods: Option<Quantity>,
    /// Any other resource.
    pub(crate) resources: ResourceList,
    pub(crate) labels: Map,
    /// Short for the label `topology.kubernetes.io/zone`.
    pub(crate) zone: Option<String>,
    /// As kubectl writes them: `key=value:NoSchedule`.
    pub(crate) taints: Vec<String>,
    pub(crate) unschedulable: bool,
    pub(crate) images: Vec<ContainerImage>,
    pub(crate) declared_features: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct PodEntry {
    pub(crate) name: String,
    /// `default` when not given.
    pub(crate) namespace: Option<String>,
    /// So many of them, named `name-0` and so on.
    pub(crate) count: Option<u32>,
    /// Requests of its one container.
    pub(crate) cpu: Option<Quantity>,
    pub(crate) memory: Option<Quantity>,
    pub(crate) requests: ResourceList,
    pub(crate) image: Option<String>,
    pub(crate) host_port: Option<i32>,
    pub(crate) labels: Map,
    pub(crate) annotations: Map,
    pub(crate) priority: Option<i32>,
    pub(crate) gates: Vec<String>,
    /// Where it runs already.
    pub(crate) node: Option<String>,
    /// How long it takes to leave its node when it is deleted or evicted; it is gone at once when not given.
    pub(crate) leaves_after: Option<String>,
    /// The first profile of the configuration when not given.
    pub(crate) scheduler: Option<String>,
    /// Anything else, as Kubernetes writes it.
    pub(crate) spec: PodSpec,
}

/// One thing that happens, and what must then be true.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Step {
    pub(crate) create: Option<Objects>,
    pub(crate) delete: Option<Named>,
    pub(crate) relabel: Option<Relabel>,
    pub(crate) taint: Option<Taints>,
    pub(crate) resize: Option<Resize>,
    /// A node that takes no more pods.
    pub(crate) cordon: Option<String>,
    pub(crate) uncordon: Option<String>,
    /// A pod that loses its gates.
    pub(crate) ungate: Option<String>,
    /// A pod whose next binding the API server refuses.
    pub(crate) refuse: Option<String>,
    /// Time that passes.
    pub(crate) advance: Option<String>,
    pub(crate) expect: IndexMap<String, Expect>,
    pub(crate) expect_nodes: IndexMap<String, usize>,
}

/// Names of objects of any kind that can be created; most steps name one. In namespace `default` if it has none in front.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Named {
    pub(crate) pod: Option<String>,
    pub(crate) pods: Vec<String>,
    pub(crate) node: Option<String>,
    pub(crate) nodes: Vec<String>,
    pub(crate) namespaces: Vec<String>,
    pub(crate) services: Vec<String>,
    pub(crate) replication_controllers: Vec<String>,
    pub(crate) replica_sets: Vec<String>,
    pub(crate) stateful_sets: Vec<String>,
    pub(crate) disruption_budgets: Vec<String>,
    pub(crate) priority_classes: Vec<String>,
    pub(crate) volumes: Vec<String>,
    pub(crate) claims: Vec<String>,
    pub(crate) storage_classes: Vec<String>,
    pub(crate) csi_nodes: Vec<String>,
    pub(crate) csi_drivers: Vec<String>,
    pub(crate) storage_capacities: Vec<String>,
    pub(crate) volume_attachments: Vec<String>,
    pub(crate) custom_node_resources: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Relabel {
    pub(crate) pod: Option<String>,
    pub(crate) node: Option<String>,
    /// Set on top of those it has; `null` takes one away.
    pub(crate) labels: IndexMap<String, Option<String>>,
}

/// All taints that a node has from now on.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Taints {
    pub(crate) node: String,
    pub(crate) taints: Vec<String>,
}

/// What a node offers, or a pod asks for, from now on; what is not named stays.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Resize {
    pub(crate) pod: Option<String>,
    pub(crate) node: Option<String>,
    pub(crate) cpu: Option<Quantity>,
    pub(crate) memory: Option<Quantity>,
    pub(crate) pods: Option<Quantity>,
    pub(crate) resources: ResourceList,
}

/// What must be true of a pod: the name of the node it is on, or more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expect(pub(crate) Expected);

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Expected {
    /// It is on this node.
    pub(crate) on: Option<String>,
    /// It is on one of these nodes.
    pub(crate) among: Option<Vec<String>>,
    /// It waits, and every node of the cluster is refused by this plugin.
    pub(crate) rejected: Option<IndexMap<String, String>>,
    /// It waits, and this is what its last attempt said.
    pub(crate) message: Option<String>,
    /// It waits, and room is kept for it there.
    pub(crate) nominated: Option<String>,
    /// It waits, and is, or is not, kept out of the queue.
    pub(crate) gated: Option<bool>,
    /// How often a node was looked for.
    pub(crate) attempts: Option<u32>,
    /// When it got its node, since the beginning.
    pub(crate) at: Option<String>,
    /// It was evicted or deleted.
    pub(crate) gone: Option<bool>,
    /// Whoever made it was told something that contains this.
    pub(crate) warned: Option<String>,
}

impl<'de> Deserialize<'de> for Expect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Expect;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a node, or what is expected by name")
            }

            fn visit_str<E>(self, node: &str) -> Result<Expect, E> {
                Ok(Expect(Expected {
                    on: Some(node.to_owned()),
                    ..Expected::default()
                }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Expect, A::Error> {
                Expected::deserialize(MapAccessDeserializer::new(map)).map(Expect)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
