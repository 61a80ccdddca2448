//! The format of a scenario. Pods and nodes have a short form; everything else is as Kubernetes writes it.

use std::fmt;

use api::parse::Manifest;
use api::wire::core::{ContainerImage, PodSpec};
use api::wire::meta::{Map, Quantity, ResourceList};
use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::kinds::Lists;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Scenario {
    /// A KubeSchedulerConfiguration, as text.
    pub(crate) configuration: Option<String>,
    /// The settings of the tiers, as the text of the key `colocation-config`.
    pub(crate) colocation_config: Option<String>,
    /// What is there before anything is decided.
    pub(crate) cluster: Objects,
    /// What then asks for a node.
    pub(crate) pods: Vec<PodEntry>,
    pub(crate) expect: IndexMap<String, Expect>,
    /// How many pods are on each of these nodes.
    pub(crate) expect_nodes: IndexMap<String, usize>,
    pub(crate) steps: Vec<Step>,
}

/// Objects to create. One of a kind other than nodes and pods replaces the object of its name.
pub(crate) type Objects = Lists<NodeEntry, PodEntry, Manifest>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct NodeEntry {
    pub(crate) name: String,
    /// So many of them, at least one, named `name-0` and so on.
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
    /// NUMA zones of equal size, as sockets and zones per socket: `2x2`.
    pub(crate) zones: Option<String>,
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
    /// So many of them, at least one, named `name-0` and so on.
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
    /// A pod whose scheduling gates are removed.
    pub(crate) ungate: Option<String>,
    /// A pod whose next binding the API server refuses.
    pub(crate) refuse: Option<String>,
    /// The settings of the tiers from now on.
    pub(crate) colocation_config: Option<String>,
    /// Time that passes.
    pub(crate) advance: Option<String>,
    pub(crate) expect: IndexMap<String, Expect>,
    pub(crate) expect_nodes: IndexMap<String, usize>,
}

/// Names of objects; most steps name one. In namespace `default` if it has none in front.
pub(crate) type Named = Lists<String, String, String>;

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

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
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
    /// It waits, and is nominated to this node.
    pub(crate) nominated: Option<String>,
    /// It waits, and is, or is not, kept out of the queue.
    pub(crate) gated: Option<bool>,
    /// How often a node was looked for.
    pub(crate) attempts: Option<u32>,
    /// When it got its node, since the beginning.
    pub(crate) at: Option<String>,
    /// It was evicted or deleted.
    pub(crate) gone: Option<bool>,
    /// It got a warning that contains this.
    pub(crate) warned: Option<String>,
    /// It has these annotations; `null` for one that it does not have.
    pub(crate) annotations: IndexMap<String, Option<String>>,
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
