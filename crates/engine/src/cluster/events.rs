//! Updates of the truth as values, and what they mean to pods that wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Cluster, UpdateError};
use crate::framework::{Actions, Change, Changed, Event};
use crate::model::{
    Budget, Claim, CsiDriver, CsiLimits, CustomNodeResource, Labels, Name, Node, PersistentVolume,
    Pod, PriorityClass, Service, StorageCapacity, StorageClass, VolumeAttachment, Workload,
    WorkloadKind,
};

/// Something became known. `*Gone` of an object that is not known is no fault.
#[derive(Debug, Clone)]
pub enum Update {
    Node(Node),
    NodeGone(Name),
    /// A pod that is bound to a node, by whomever.
    PodBound(Arc<Pod>),
    /// A bound pod ended or was deleted, by uid.
    PodGone(Name),
    Assume {
        pod: Arc<Pod>,
        node: Name,
    },
    Forget {
        uid: Name,
    },
    Nominate {
        pod: Arc<Pod>,
        node: Name,
    },
    Denominate {
        uid: Name,
    },
    Namespace {
        name: Name,
        labels: Labels,
    },
    NamespaceGone(Name),
    Service(Service),
    ServiceGone {
        namespace: Name,
        name: Name,
    },
    Workload(Workload),
    WorkloadGone {
        kind: WorkloadKind,
        namespace: Name,
        name: Name,
    },
    Budget(Budget),
    BudgetGone {
        namespace: Name,
        name: Name,
    },
    PriorityClass(PriorityClass),
    PriorityClassGone(Name),
    Volume(PersistentVolume),
    VolumeGone(Name),
    Claim(Claim),
    ClaimGone {
        namespace: Name,
        name: Name,
    },
    StorageClass(StorageClass),
    StorageClassGone(Name),
    CsiNode(CsiLimits),
    CsiNodeGone(Name),
    CsiDriver(CsiDriver),
    CsiDriverGone(Name),
    StorageCapacity(StorageCapacity),
    StorageCapacityGone {
        namespace: Name,
        name: Name,
    },
    VolumeAttachment(VolumeAttachment),
    VolumeAttachmentGone(Name),
    /// What the agent of a node says about it, whether the node is known or not.
    CustomNodeResource(CustomNodeResource),
    /// By the name of the node.
    CustomNodeResourceGone(Name),
}

impl Cluster {
    /// Applies one update and says what happened that waiting pods may care about, in the order they should hear it.
    pub fn apply(&mut self, update: Update) -> Result<Vec<Event>, UpdateError> {
        Ok(match update {
            Update::Node(node) => {
                let name = node.spec.name.clone();
                let old = self.node(&name);
                self.set_node(node);
                node_events(old, self.node(&name))
            }
            Update::NodeGone(name) => {
                let old = self.node(&name);
                self.remove_node(&name);
                node_events(old, None)
            }
            Update::PodBound(pod) => {
                // A pod that we assumed becomes news only now that it is really there.
                let old = self
                    .placed(&pod.uid)
                    .filter(|placed| !placed.assumed)
                    .map(|placed| placed.pod.clone());
                self.set_pod(pod.clone())?;
                self.catalog.storage.withdraw(&pod.uid);
                pod_events(old, Some(pod))
            }
            Update::PodGone(uid) => {
                self.denominate(&uid);
                self.catalog.storage.withdraw(&uid);
                pod_events(self.remove_pod(&uid), None)
            }
            Update::Assume { pod, node } => self.assume(pod, node).map(|()| Vec::new())?,
            Update::Forget { uid } => pod_events(self.forget(&uid)?, None),
            Update::Nominate { pod, node } => self.nominate(pod, node).map(|()| Vec::new())?,
            Update::Denominate { uid } => pod_events(self.denominate(&uid), None),
            Update::CustomNodeResource(report) => {
                let node = report.node.clone();
                self.set_report(&node, Some(report))
            }
            Update::CustomNodeResourceGone(node) => self.set_report(&node, None),
            other => self.apply_object(other),
        })
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes
            .slot(name)
            .and_then(|slot| self.nodes.get(slot))
            .map(|entry| entry.node.clone())
    }

    fn apply_object(&mut self, update: Update) -> Vec<Event> {
        let catalog = &mut self.catalog;
        let storage = &mut catalog.storage;
        match update {
            Update::Namespace { name, labels } => {
                catalog.namespaces.insert(name, labels);
                Vec::new()
            }
            Update::NamespaceGone(name) => {
                catalog.namespaces.remove(&name);
                Vec::new()
            }
            Update::Service(new) => {
                let (namespace, name) = (new.namespace.clone(), new.name.clone());
                set_in(&mut catalog.services, namespace, name, Some(new));
                Vec::new()
            }
            Update::ServiceGone { namespace, name } => {
                set_in(&mut catalog.services, namespace, name, None);
                Vec::new()
            }
            Update::Workload(new) => {
                let (namespace, name) = (new.namespace.clone(), new.name.clone());
                set_in(
                    catalog.workloads.entry(new.kind).or_default(),
                    namespace,
                    name,
                    Some(new),
                );
                Vec::new()
            }
            Update::WorkloadGone {
                kind,
                namespace,
                name,
            } => {
                set_in(
                    catalog.workloads.entry(kind).or_default(),
                    namespace,
                    name,
                    None,
                );
                Vec::new()
            }
            Update::Budget(new) => {
                let (namespace, name) = (new.namespace.clone(), new.name.clone());
                set_in(&mut catalog.budgets, namespace, name, Some(new));
                Vec::new()
            }
            Update::BudgetGone { namespace, name } => {
                set_in(&mut catalog.budgets, namespace, name, None);
                Vec::new()
            }
            Update::PriorityClass(new) => {
                set(&mut catalog.priority_classes, new.name.clone(), Some(new));
                Vec::new()
            }
            Update::PriorityClassGone(name) => {
                set(&mut catalog.priority_classes, name, None);
                Vec::new()
            }
            Update::Volume(new) => {
                storage.forget_promised_volume(&new.name);
                event(
                    set(&mut storage.volumes, new.name.clone(), Some(new)),
                    Changed::Volume,
                )
            }
            Update::VolumeGone(name) => {
                storage.forget_promised_volume(&name);
                event(set(&mut storage.volumes, name, None), Changed::Volume)
            }
            Update::Claim(new) => {
                let (namespace, name) = (new.namespace.clone(), new.name.clone());
                storage.forget_promised_claim(&namespace, &name);
                event(
                    set_in(&mut storage.claims, namespace, name, Some(new)),
                    Changed::Claim,
                )
            }
            Update::ClaimGone { namespace, name } => {
                storage.forget_promised_claim(&namespace, &name);
                event(
                    set_in(&mut storage.claims, namespace, name, None),
                    Changed::Claim,
                )
            }
            Update::StorageClass(new) => event(
                set(&mut storage.classes, new.name.clone(), Some(new)),
                Changed::StorageClass,
            ),
            Update::StorageClassGone(name) => {
                event(set(&mut storage.classes, name, None), Changed::StorageClass)
            }
            Update::CsiNode(new) => event(
                set(&mut storage.nodes, new.node.clone(), Some(new)),
                Changed::CsiNode,
            ),
            Update::CsiNodeGone(name) => {
                event(set(&mut storage.nodes, name, None), Changed::CsiNode)
            }
            Update::CsiDriver(new) => event(
                set(&mut storage.drivers, new.name.clone(), Some(new)),
                Changed::CsiDriver,
            ),
            Update::CsiDriverGone(name) => {
                event(set(&mut storage.drivers, name, None), Changed::CsiDriver)
            }
            Update::StorageCapacity(new) => {
                let (namespace, name) = (new.namespace.clone(), new.name.clone());
                event(
                    set_in(&mut storage.capacities, namespace, name, Some(new)),
                    Changed::StorageCapacity,
                )
            }
            Update::StorageCapacityGone { namespace, name } => event(
                set_in(&mut storage.capacities, namespace, name, None),
                Changed::StorageCapacity,
            ),
            Update::VolumeAttachment(new) => event(
                set(&mut storage.attachments, new.name.clone(), Some(new)),
                Changed::VolumeAttachment,
            ),
            Update::VolumeAttachmentGone(name) => event(
                set(&mut storage.attachments, name, None),
                Changed::VolumeAttachment,
            ),
            Update::Node(_)
            | Update::NodeGone(_)
            | Update::PodBound(_)
            | Update::PodGone(_)
            | Update::Assume { .. }
            | Update::Forget { .. }
            | Update::Nominate { .. }
            | Update::Denominate { .. }
            | Update::CustomNodeResource(_)
            | Update::CustomNodeResourceGone(_) => Vec::new(),
        }
    }
}

fn set<T>(all: &mut BTreeMap<Name, Arc<T>>, name: Name, new: Option<T>) -> Change<T> {
    let new = new.map(Arc::new);
    let old = match &new {
        Some(new) => all.insert(name, new.clone()),
        None => all.remove(&name),
    };
    Change { old, new }
}

fn set_in<T>(
    all: &mut BTreeMap<Name, BTreeMap<Name, Arc<T>>>,
    namespace: Name,
    name: Name,
    new: Option<T>,
) -> Change<T> {
    let inner = all.entry(namespace.clone()).or_default();
    let change = set(inner, name, new);
    if inner.is_empty() {
        all.remove(&namespace);
    }
    change
}

fn event<T>(change: Change<T>, changed: impl FnOnce(Change<T>) -> Changed) -> Vec<Event> {
    let actions = match (&change.old, &change.new) {
        (None, None) => return Vec::new(),
        (None, Some(_)) => Actions::ADD,
        (Some(_), None) => Actions::DELETE,
        (Some(_), Some(_)) => Actions::UPDATE,
    };
    vec![Event {
        actions,
        changed: changed(change),
    }]
}

/// One event per kind of difference, in kube-scheduler's order; none for a node that only reported.
fn node_events(old: Option<Arc<Node>>, new: Option<Arc<Node>>) -> Vec<Event> {
    let (Some(before), Some(after)) = (&old, &new) else {
        return event(Change { old, new }, Changed::Node);
    };
    let (was, is) = (&before.spec, &after.spec);
    [
        (was.unschedulable && !is.unschedulable, Actions::NODE_TAINT),
        (
            before.allocatable != after.allocatable,
            Actions::NODE_ALLOCATABLE,
        ),
        (was.labels != is.labels, Actions::NODE_LABEL),
        (was.taints != is.taints, Actions::NODE_TAINT),
        (
            before.conditions != after.conditions,
            Actions::NODE_CONDITION,
        ),
        (
            before.annotations != after.annotations,
            Actions::NODE_ANNOTATION,
        ),
        (
            was.declared_features != is.declared_features,
            Actions::NODE_DECLARED_FEATURE,
        ),
    ]
    .into_iter()
    .filter(|(differs, _)| *differs)
    .map(|(_, actions)| Event {
        actions,
        changed: Changed::Node(Change {
            old: old.clone(),
            new: new.clone(),
        }),
    })
    .collect()
}

fn pod_events(old: Option<Arc<Pod>>, new: Option<Arc<Pod>>) -> Vec<Event> {
    let (Some(was), Some(is)) = (&old, &new) else {
        return event(Change { old, new }, Changed::AssignedPod);
    };
    pod_actions(was, is)
        .into_iter()
        .map(|actions| Event {
            actions,
            changed: Changed::AssignedPod(Change {
                old: old.clone(),
                new: new.clone(),
            }),
        })
        .collect()
}

/// What differs between two forms of a pod; a plain update if nothing that anyone asks for does.
pub fn pod_actions(was: &Pod, is: &Pod) -> Vec<Actions> {
    let shrank = is.requests.shrank_from(&was.requests);
    let found: Vec<Actions> = [
        (was.labels() != is.labels(), Actions::POD_LABEL),
        (shrank, Actions::POD_SCALE_DOWN),
        (
            !was.scheduling_gates.is_empty() && is.scheduling_gates.is_empty(),
            Actions::POD_GATES_ELIMINATED,
        ),
        (
            // The level says which QoS taints are meant for the pod.
            was.tolerations.len() != is.tolerations.len() || was.level != is.level,
            Actions::POD_TOLERATION,
        ),
        (
            was.generated_claims != is.generated_claims,
            Actions::POD_GENERATED_CLAIM,
        ),
    ]
    .into_iter()
    .filter_map(|(differs, actions)| differs.then_some(actions))
    .collect();
    if found.is_empty() {
        vec![Actions::UPDATE]
    } else {
        found
    }
}
