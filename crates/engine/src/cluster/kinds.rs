//! The watched kinds: one file per kind (the three workload kinds share one) and its line in `kinds!`.
//!
//! The file of a kind contains its names in the API, the model of its objects, their key, how an update changes the
//! cluster, and the events for waiting pods that follow. `kinds!` generates [`Kind`], [`Object`], [`Changed`] and
//! [`Cluster::apply`]. Code for all kinds iterates over [`Kind::ALL`].

mod csi_driver;
mod csi_node;
mod csi_storage_capacity;
mod custom_node_resource;
mod namespace;
mod node;
mod persistent_volume;
mod persistent_volume_claim;
mod pod;
mod pod_disruption_budget;
mod priority_class;
mod resource_policy;
mod service;
mod storage_class;
mod volume_attachment;
mod workload;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub(crate) use pod::events as assigned_pod_events;
pub use pod::pod_actions;

use crate::cluster::event::{Change, Event};
use crate::cluster::{Cluster, UpdateError};
use crate::model::{Name, Node, Pod, Reclaimed};

/// The models of the objects, as [`crate::model`] shows them.
pub mod models {
    pub use super::csi_driver::CsiDriver;
    pub use super::csi_node::CsiLimits;
    pub use super::csi_storage_capacity::StorageCapacity;
    pub use super::custom_node_resource::CustomNodeResource;
    pub use super::namespace::Namespace;
    pub use super::persistent_volume::{ClaimRef, PersistentVolume, VolumeHandle, VolumePhase};
    pub use super::persistent_volume_claim::{Claim, ClaimPhase};
    pub use super::pod_disruption_budget::Budget;
    pub use super::priority_class::PriorityClass;
    pub use super::resource_policy::ResourcePolicy;
    pub use super::service::Service;
    pub use super::storage_class::{BindingMode, StorageClass};
    pub use super::volume_attachment::VolumeAttachment;
    pub use super::workload::{
        ReplicaSet, ReplicationController, StatefulSet, Workload, WorkloadKind,
    };
}
use models::*;

/// What the file of a kind implements for its model.
pub trait Watched: Sized {
    /// As kube-scheduler names it in events: `Node`, `storage.k8s.io/CSINode`.
    const NAME: &'static str;
    /// As field names are written: `csiNodes`. In lower case it is the resource of the API.
    const PLURAL: &'static str;
    const NAMESPACED: bool;

    fn key(&self) -> Key;

    /// Puts the new object in the place of the one with this key, or removes that. Returns the events for waiting
    /// pods, in kube-scheduler's order.
    fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied;
}

type Applied = Result<Vec<Event>, UpdateError>;

/// What identifies an object among those of its kind: its name, with the namespace if the kind has one. A pod is
/// identified by its uid alone, because another pod can get its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Empty for kinds without namespaces, and for pods.
    pub namespace: Name,
    pub name: Name,
}

impl<N: Into<Name>> From<N> for Key {
    fn from(name: N) -> Self {
        Self {
            namespace: Name::default(),
            name: name.into(),
        }
    }
}

impl Key {
    pub fn new(namespace: impl Into<Name>, name: impl Into<Name>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

impl fmt::Display for Kind {
    /// Without its group: `CSINode`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        f.write_str(name.rsplit_once('/').map_or(name, |(_, kind)| kind))
    }
}

/// A change of an object, as it was observed.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every update is a `Set`, and is applied at once"
)]
#[derive(Debug, Clone)]
pub enum Update {
    /// The object is new, changed or the same.
    Set(Object),
    /// Deleting an object that is not known has no effect.
    Delete(Kind, Key),
}

impl Update {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Set(object) => object.kind(),
            Self::Delete(kind, _) => *kind,
        }
    }
}

impl<T: Into<Object>> From<T> for Update {
    fn from(object: T) -> Self {
        Self::Set(object.into())
    }
}

/// `Kind(model) in table of the catalog => variant of Changed`. Without a table the cluster keeps the objects in a
/// structure of their own; without a variant a change of an object is no event, or one of its own form.
macro_rules! kinds {
    ($($kind:ident($model:ty) $(in $table:ident)? $(=> $changed:ident)?,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind {
            $($kind,)*
        }

        impl Kind {
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// As kube-scheduler names it in events: `Node`, `storage.k8s.io/CSINode`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => <$model>::NAME,)*
                }
            }

            /// As field names are written: `csiNodes`.
            pub const fn plural(self) -> &'static str {
                match self {
                    $(Self::$kind => <$model>::PLURAL,)*
                }
            }

            pub const fn is_namespaced(self) -> bool {
                match self {
                    $(Self::$kind => <$model>::NAMESPACED,)*
                }
            }
        }

        /// An object of any kind.
        #[derive(Debug, Clone)]
        pub enum Object {
            $($kind($model),)*
        }

        impl Object {
            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind,)*
                }
            }

            pub fn key(&self) -> Key {
                match self {
                    $(Self::$kind(object) => object.key(),)*
                }
            }
        }

        $(impl From<$model> for Object {
            fn from(object: $model) -> Self {
                Self::$kind(object)
            }
        })*

        /// The objects that the catalog keeps as they are.
        #[derive(Debug, Clone, Default)]
        pub(crate) struct Tables {
            $($(pub(crate) $table: ByNamespace<$model>,)?)*
        }

        impl Cluster {
            /// Applies an update and returns what waiting pods may care about, in order. After an error nothing has
            /// changed.
            pub fn apply(&mut self, update: Update) -> Applied {
                match update {
                    $(Update::Set(Object::$kind(new)) => <$model>::apply(self, new.key(), Some(new)),
                    Update::Delete(Kind::$kind, key) => <$model>::apply(self, key, None),)*
                }
            }
        }

        /// What an event is about.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Changed {
            /// A pod that is on a node, or that a node's capacity is held for.
            AssignedPod(Change<Pod>),
            /// A pod that waits.
            WaitingPod(Change<Pod>),
            /// The report of a node that is known.
            Report {
                change: Change<CustomNodeResource>,
                /// What is left of what the node lends; below zero if it lends less than is borrowed.
                left: Reclaimed,
                /// The lowest priority among the pods that borrow.
                lowest: Option<i32>,
            },
            /// Everything, or everything about one pod: time-outs and forced retries.
            Anything { pod: Option<Name> },
            $($($changed(Change<$model>),)?)*
        }

        impl Changed {
            pub fn kind(&self) -> Option<Kind> {
                Some(match self {
                    Self::AssignedPod(_) | Self::WaitingPod(_) => Kind::Pod,
                    Self::Report { .. } => Kind::CustomNodeResource,
                    Self::Anything { .. } => return None,
                    $($(Self::$changed(_) => Kind::$kind,)?)*
                })
            }
        }
    };
}

kinds! {
    Node(Node) => Node,
    Pod(Arc<Pod>),
    Namespace(Namespace) in namespaces,
    Service(Service) in services,
    ReplicationController(ReplicationController) in replication_controllers,
    ReplicaSet(ReplicaSet) in replica_sets,
    StatefulSet(StatefulSet) in stateful_sets,
    PodDisruptionBudget(Budget) in budgets,
    PriorityClass(PriorityClass) in priority_classes,
    PersistentVolume(PersistentVolume) => Volume,
    PersistentVolumeClaim(Claim) => Claim,
    StorageClass(StorageClass) => StorageClass,
    CsiNode(CsiLimits) => CsiNode,
    CsiDriver(CsiDriver) => CsiDriver,
    CsiStorageCapacity(StorageCapacity) => StorageCapacity,
    VolumeAttachment(VolumeAttachment) => VolumeAttachment,
    CustomNodeResource(CustomNodeResource),
    ResourcePolicy(ResourcePolicy) in resource_policies => ResourcePolicy,
}

impl Changed {
    /// A pod before and after, and whether it is on a node or capacity is held for it.
    pub fn pod(&self) -> Option<(&Change<Pod>, bool)> {
        match self {
            Self::AssignedPod(change) => Some((change, true)),
            Self::WaitingPod(change) => {
                let held = change
                    .latest()
                    .is_some_and(|pod| pod.node.is_some() || pod.nominated_node.is_some());
                Some((change, held))
            }
            _ => None,
        }
    }

    /// Whether it is this very pod that changed.
    pub fn is_update_of(&self, pod: &Pod) -> bool {
        self.pod()
            .and_then(|(change, _)| change.new.as_ref())
            .is_some_and(|new| new.uid == pod.uid)
    }
}

pub(crate) type ByName<T> = BTreeMap<Name, Arc<T>>;
/// Objects without a namespace are below the empty name.
pub(crate) type ByNamespace<T> = BTreeMap<Name, ByName<T>>;

pub(crate) fn set<T>(all: &mut ByName<T>, name: Name, new: Option<T>) -> Change<T> {
    let new = new.map(Arc::new);
    let old = match &new {
        Some(new) => all.insert(name, new.clone()),
        None => all.remove(&name),
    };
    Change { old, new }
}

pub(crate) fn set_in<T>(all: &mut ByNamespace<T>, key: Key, new: Option<T>) -> Change<T> {
    let inner = all.entry(key.namespace.clone()).or_default();
    let change = set(inner, key.name, new);
    if inner.is_empty() {
        all.remove(&key.namespace);
    }
    change
}
