//! The observed cluster state: nodes, the pods on them, and the other objects that decisions look at.
//!
//! One writer applies [`Update`]s in their order; a test, a watch and a simulation do it alike. Nothing here decides. Late,
//! repeated and contradictory updates are normal: the last update of an object holds, and no update can leave a count
//! that does not follow from the objects ([`Cluster::check`] verifies it, and tests call it after every step). What the
//! scheduler itself adds (assumed and nominated pods) has methods of its own.

mod accounts;
pub(crate) mod capacity;
mod catalog;
mod check;
mod domains;
pub(crate) mod event;
pub mod kinds;
mod label_index;
mod lending;
mod nodes;
mod pod_classes;
mod storage;
mod terms;
mod view;
mod zone_row;
mod zones;

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use indexmap::IndexMap;

pub(crate) use accounts::Share;
pub use accounts::{Accounts, Part};
pub use catalog::{Catalog, ImageState};
pub use check::Corruption;
pub use event::{Actions, Change, Changed, Event, EventPattern};
pub use kinds::models::*;
pub use kinds::{Key, Kind, Object, Update, Watched};
pub use nodes::{NodeEntry, Nodes};
pub use pod_classes::{PodClass, PodClassId, PodClasses};
pub use storage::{Promise, PromisedClaim, PromisedVolume, Storage};
pub use terms::{TermRole, Terms};
pub use view::{AccountState, NodeState, PodRef, ReclaimedState, Snapshot, UnknownNode};
pub use zone_row::ZoneRow;
pub(crate) use zone_row::positions;
pub(crate) use zones::{Lost, ZoneAmounts};
pub use zones::{NodeZones, ZoneHolder};

use crate::model::{Name, Node, Pod, Resource, Timestamp};
use capacity::{is_excessive, shrink_map};

/// A pod in the table of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodId(usize);

/// A pod that takes capacity of a node.
#[derive(Debug, Clone)]
pub struct Placed {
    pub pod: Arc<Pod>,
    /// Where it really is; for an assumed pod, where it is going.
    pub node: Name,
    /// The scheduler chose the node, and the pod was not yet observed there.
    pub assumed: bool,
    /// The priority and the start of the pod, at hand where many pods are looked at.
    pub(crate) priority: i32,
    pub(crate) started: Option<Timestamp>,
    pub(crate) share: Share,
    /// What its NUMA zones have beyond its requests.
    pub(crate) lost: Lost,
    class: PodClassId,
}

/// A pod that waits for a node on which preemption makes capacity for it.
#[derive(Debug, Clone)]
pub struct Nominated {
    pub pod: Arc<Pod>,
    pub node: Name,
    class: PodClassId,
    /// Its place among the pods nominated to the node.
    number: u64,
}

/// A pod that is off its node for a while.
#[derive(Debug)]
pub(crate) struct Lifted {
    id: PodId,
    placed: Placed,
    slot: Option<usize>,
    /// Among the pods of the node.
    position: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    #[error("pod {namespace}/{name} has no uid")]
    NoUid { namespace: Name, name: Name },
    #[error("pod {namespace}/{name} is bound to no node")]
    Unbound { namespace: Name, name: Name },
    #[error("pod {namespace}/{name} is already on node {node}")]
    AlreadyPlaced {
        namespace: Name,
        name: Name,
        node: Name,
    },
    #[error("pod with uid {uid} is bound to node {node}: only an assumed pod can be forgotten")]
    NotAssumed { uid: Name, node: Name },
}

#[derive(Debug, Clone, Default)]
pub struct Cluster {
    nodes: Nodes,
    pods: Vec<Option<Placed>>,
    free_pods: Vec<usize>,
    by_uid: HashMap<Name, PodId>,
    classes: PodClasses,
    /// Pods on nodes that are not known (yet, or any more).
    stray: HashMap<Name, Vec<PodId>>,
    nominated: IndexMap<Name, Nominated>,
    /// By node: uids in the order of the nominations.
    nominated_to: HashMap<Name, BTreeMap<u64, Name>>,
    next_nomination: u64,
    /// Reports of agents by the name of the node, whether the node is known or not.
    reports: HashMap<Name, Arc<CustomNodeResource>>,
    /// How many of them are of nodes that are not known.
    reports_without_node: usize,
    catalog: Catalog,
    /// Moved by every change that a decision can see.
    version: u64,
}

impl Cluster {
    pub fn new() -> Self {
        let mut cluster = Self::default();
        cluster.nodes.widen(cluster.catalog.accounts.width());
        cluster
    }

    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub fn catalog_mut(&mut self) -> &mut Catalog {
        self.touch();
        &mut self.catalog
    }

    /// Two decisions about equal pods at the same version are equal.
    pub fn version(&self) -> u64 {
        self.version
    }

    fn touch(&mut self) {
        self.version += 1;
    }

    /// Whether victims are being evicted for the pod.
    pub(crate) fn set_preempting(&mut self, uid: &Name, preempting: bool) {
        if self.catalog.is_preempting(uid) != preempting {
            self.catalog_mut().set_preempting(uid.clone(), preempting);
        }
    }

    /// The pod has what it was promised, or does not get it.
    pub(crate) fn withdraw_promise(&mut self, uid: &str) {
        if self.catalog.storage().promise(uid).is_some() {
            self.catalog_mut().storage_mut().withdraw(uid);
        }
    }

    pub fn pod_classes(&self) -> &PodClasses {
        &self.classes
    }

    pub(crate) fn node(&self, name: &str) -> Option<&Arc<Node>> {
        let entry = self.nodes.get(self.nodes.slot(name)?)?;
        Some(&entry.node)
    }

    pub fn pod(&self, id: PodId) -> Option<&Placed> {
        self.pods.get(id.0)?.as_ref()
    }

    pub fn placed(&self, uid: &str) -> Option<&Placed> {
        self.pod(*self.by_uid.get(uid)?)
    }

    /// Every pod that takes capacity, also on nodes that are not known.
    pub fn all_placed(&self) -> impl Iterator<Item = &Placed> {
        self.pods.iter().flatten()
    }

    pub fn placed_count(&self) -> usize {
        self.by_uid.len()
    }

    /// Pods on a node, assumed ones included.
    pub fn pods_on(&self, slot: usize) -> impl Iterator<Item = &Placed> {
        self.nodes
            .get(slot)
            .into_iter()
            .flat_map(|entry| &entry.pods)
            .filter_map(|id| self.pod(*id))
    }

    /// Pods nominated to a node, in the order of their nomination.
    pub fn nominated_to(&self, node: &str) -> impl Iterator<Item = &Nominated> {
        self.nominated_to
            .get(node)
            .into_iter()
            .flat_map(BTreeMap::values)
            .filter_map(|uid| self.nominated.get(uid))
    }

    /// Pods nominated to the node that go before this one there.
    pub(crate) fn nominated_before<'c>(
        &'c self,
        pod: &'c Pod,
        slot: usize,
    ) -> impl Iterator<Item = &'c Arc<Pod>> {
        let entry = self.nodes().get(slot).into_iter();
        entry
            .flat_map(|entry| self.nominated_to(&entry.node.spec.name))
            .map(|nominated| &nominated.pod)
            .filter(|other| other.uid != pod.uid)
            .filter(|other| other.priority >= pod.priority || !pod.may_harm(other))
    }

    /// In an order that depends on the history only.
    pub fn nominations(&self) -> impl Iterator<Item = &Nominated> {
        self.nominated.values()
    }

    /// The slots of nodes that pods are nominated to, in order.
    pub(crate) fn nominated_slots(&self) -> Vec<usize> {
        let nodes = self.nominated_to.keys();
        let mut slots: Vec<usize> = nodes.filter_map(|node| self.nodes.slot(node)).collect();
        slots.sort_unstable();
        slots
    }

    /// A node appears or changes. Its pods, also those that came before it, stay.
    pub fn set_node(&mut self, mut node: Node) {
        self.annotate(&mut node.spec);
        if let Some(known) = self.node(&node.spec.name)
            && (&known.spec, &known.allocatable) == (&node.spec, &node.allocatable)
        {
            return self.set_unread(node);
        }
        self.touch();
        self.nodes.domains.share(&mut node.spec.labels);
        let node = Arc::new(node);
        for name in scalars(&node) {
            if self.catalog.accounts.open(name).is_some() {
                self.nodes.widen(self.catalog.accounts.width());
                self.charge_everywhere(name);
            }
        }
        let previous = self
            .nodes
            .slot(&node.spec.name)
            .map(|slot| (slot, self.nodes.get(slot).map(|e| e.node.clone())));
        let slot = match &previous {
            Some((slot, old)) => {
                if let Some(old) = old {
                    self.catalog.images.leave(old);
                }
                self.nodes.replace(*slot, node.clone());
                *slot
            }
            None => {
                self.reports_without_node -= usize::from(node.spec.reports);
                self.nodes.insert(node.clone())
            }
        };
        self.catalog.images.enter(&node);
        let old = previous.and_then(|(_, old)| old);
        self.nodes
            .write_allocatable(slot, &node, old.as_deref(), &self.catalog.accounts);
        self.write_lent(slot);
        if let Some(old) = old {
            self.close_accounts(&old);
        } else if let Some(pods) = self.stray.remove(&node.spec.name) {
            for id in pods {
                self.arrive(id, slot);
            }
        }
        self.settle_zones(slot);
        self.catalog.node_count = self.nodes.len();
    }

    /// Takes over what no decision reads. A heartbeat changes not even that.
    fn set_unread(&mut self, new: Node) {
        let slot = self.nodes.slot(&new.spec.name);
        let Some(entry) = slot.and_then(|slot| self.nodes.entry_mut(slot)) else {
            return;
        };
        let old = &*entry.node;
        if (old.conditions, old.annotations) != (new.conditions, new.annotations) {
            // The specs are equal, and the known one shares its texts with other nodes.
            let spec = old.spec.clone();
            entry.node = Arc::new(Node { spec, ..new });
        }
    }

    /// A node is gone. Pods on it are kept aside until they are deleted themselves.
    pub fn remove_node(&mut self, name: &str) {
        let Some(slot) = self.nodes.slot(name) else {
            return;
        };
        self.touch();
        let pods: Vec<PodId> = self
            .nodes
            .get(slot)
            .map(|entry| entry.pods.clone())
            .unwrap_or_default();
        for id in &pods {
            self.depart(*id, slot);
        }
        if let Some(entry) = self.nodes.remove(slot) {
            self.reports_without_node += usize::from(entry.node.spec.reports);
            self.catalog.images.leave(&entry.node);
            self.close_accounts(&entry.node);
            if !pods.is_empty() {
                self.stray.insert(entry.node.spec.name.clone(), pods);
            }
        }
        self.catalog.node_count = self.nodes.len();
    }

    /// A bound pod was seen: new, changed, or the one we assumed, perhaps on another node.
    pub fn set_pod(&mut self, pod: Arc<Pod>) -> Result<(), UpdateError> {
        check_uid(&pod)?;
        let Some(node) = pod.node.clone() else {
            return Err(UpdateError::Unbound {
                namespace: pod.namespace().clone(),
                name: pod.name.clone(),
            });
        };
        self.remove_pod(&pod.uid.clone());
        self.remove_nomination(&pod.uid.clone());
        self.insert(pod, node, false);
        Ok(())
    }

    /// A placed pod ended, or the pod that was nominated is gone.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<Pod>> {
        let id = self.by_uid.remove(uid)?;
        self.touch();
        let node = self.pod(id)?.node.clone();
        match self.nodes.slot(&node) {
            Some(slot) => self.depart(id, slot),
            None => {
                if let Some(pods) = self.stray.get_mut(&node) {
                    pods.retain(|stray| *stray != id);
                    if pods.is_empty() {
                        self.stray.remove(&node);
                    }
                }
            }
        }
        let placed = self.pods[id.0].take()?;
        self.free_pods.push(id.0);
        self.classes.leave(placed.class, &mut self.catalog.terms);
        if is_excessive(self.by_uid.len(), self.pods.len()) {
            self.compact();
        }
        Some(placed.pod)
    }

    /// Takes a pod off its node for questions about the cluster without it, for the cost of that pod alone. Its class
    /// stays, without pods, which no decision can see.
    pub(crate) fn lift(&mut self, uid: &str) -> Option<Lifted> {
        let id = *self.by_uid.get(uid)?;
        let slot = self.nodes.slot(&self.pod(id)?.node);
        let mut position = 0;
        if let Some(entry) = slot.and_then(|slot| self.nodes.entry_mut(slot)) {
            position = entry.pods.iter().position(|other| *other == id)?;
            entry.pods.remove(position);
        }
        self.by_uid.remove(uid);
        let mut placed = self.pods[id.0].take()?;
        let lost = std::mem::take(&mut placed.lost);
        let lifted = Lifted {
            id,
            placed,
            slot,
            position,
        };
        self.charge_lifted(&lifted, true);
        if let Some(slot) = slot {
            let row = self.nodes.row_mut(slot);
            self.catalog.accounts.charge_lost(row, &lost, -1);
            self.settle_zones(slot);
        }
        Some(lifted)
    }

    /// Puts a lifted pod back as it was. Nothing else may have changed since.
    pub(crate) fn put_back(&mut self, lifted: Lifted) {
        self.charge_lifted(&lifted, false);
        let id = lifted.id;
        let node = lifted.slot.and_then(|slot| self.nodes.entry_mut(slot));
        if let Some(entry) = node {
            entry.pods.insert(lifted.position, id);
        }
        self.by_uid.insert(lifted.placed.pod.uid.clone(), id);
        self.pods[id.0] = Some(lifted.placed);
        if let Some(slot) = lifted.slot {
            self.settle_zones(slot);
        }
    }

    fn charge_lifted(&mut self, lifted: &Lifted, is_lifted: bool) {
        if let Some(slot) = lifted.slot {
            self.classes.lift(lifted.placed.class, slot, is_lifted);
            let sign = if is_lifted { -1 } else { 1 };
            let (row, requests) = (self.nodes.row_mut(slot), &lifted.placed.pod.requests);
            self.catalog.accounts.charge(row, requests, sign);
        }
    }

    /// The scheduler chose a node: the pod takes its capacity at once, and its nomination ends.
    pub fn assume(&mut self, pod: Arc<Pod>, node: Name) -> Result<(), UpdateError> {
        check_uid(&pod)?;
        if let Some(placed) = self.placed(&pod.uid) {
            let (namespace, name) = (pod.namespace().clone(), pod.name.clone());
            return Err(UpdateError::AlreadyPlaced {
                namespace,
                name,
                node: placed.node.clone(),
            });
        }
        self.remove_nomination(&pod.uid.clone());
        self.insert(pod, node, true);
        Ok(())
    }

    /// The pod was not bound after all. Returns what waiting pods may care about. Forgetting a pod that is not here has no
    /// effect.
    pub fn forget(&mut self, uid: &str) -> Result<Vec<Event>, UpdateError> {
        match self.placed(uid) {
            Some(placed) if !placed.assumed => Err(UpdateError::NotAssumed {
                uid: uid.into(),
                node: placed.node.clone(),
            }),
            _ => Ok(kinds::assigned_pod_events(self.remove_pod(uid), None)),
        }
    }

    /// Preemption makes capacity on the node for a waiting pod. A later nomination replaces an earlier one; placed pods get none.
    pub fn nominate(&mut self, pod: Arc<Pod>, node: Name) -> Result<(), UpdateError> {
        check_uid(&pod)?;
        if let Some(placed) = self.placed(&pod.uid) {
            let (namespace, name) = (pod.namespace().clone(), pod.name.clone());
            return Err(UpdateError::AlreadyPlaced {
                namespace,
                name,
                node: placed.node.clone(),
            });
        }
        self.remove_nomination(&pod.uid.clone());
        self.touch();
        let class = self.classes.enter(&pod.kind, &mut self.catalog.terms);
        self.next_nomination += 1;
        let number = self.next_nomination;
        self.nominated_to
            .entry(node.clone())
            .or_default()
            .insert(number, pod.uid.clone());
        let uid = pod.uid.clone();
        let nominated = Nominated {
            pod,
            node,
            class,
            number,
        };
        self.nominated.insert(uid, nominated);
        Ok(())
    }

    pub fn remove_nomination(&mut self, uid: &str) -> Option<Arc<Pod>> {
        let nominated = self.nominated.swap_remove(uid)?;
        self.touch();
        if let Some(uids) = self.nominated_to.get_mut(&nominated.node) {
            uids.remove(&nominated.number);
            if uids.is_empty() {
                self.nominated_to.remove(&nominated.node);
            }
        }
        self.classes.leave(nominated.class, &mut self.catalog.terms);
        Some(nominated.pod)
    }

    fn insert(&mut self, pod: Arc<Pod>, node: Name, assumed: bool) {
        self.touch();
        if pod.requests.reclaimed.is_some() {
            self.open_lending();
        }
        let class = self.classes.enter(&pod.kind, &mut self.catalog.terms);
        let uid = pod.uid.clone();
        let placed = Some(Placed {
            node: node.clone(),
            assumed,
            priority: pod.priority,
            started: pod.started,
            share: Share::of(&pod.requests),
            lost: Lost::default(),
            class,
            pod,
        });
        let id = match self.free_pods.pop() {
            Some(free) => {
                self.pods[free] = placed;
                PodId(free)
            }
            None => {
                self.pods.push(placed);
                PodId(self.pods.len() - 1)
            }
        };
        self.by_uid.insert(uid, id);
        match self.nodes.slot(&node) {
            Some(slot) => self.arrive(id, slot),
            None => self.stray.entry(node).or_default().push(id),
        }
    }

    fn arrive(&mut self, id: PodId, slot: usize) {
        let Some(placed) = self.pods[id.0].as_ref() else {
            return;
        };
        self.classes.arrive(placed.class, slot);
        self.catalog
            .accounts
            .charge(self.nodes.row_mut(slot), &placed.pod.requests, 1);
        if let Some(entry) = self.nodes.entry_mut(slot) {
            entry.pods.push(id);
        }
        self.settle_zones(slot);
    }

    fn depart(&mut self, id: PodId, slot: usize) {
        let Some(placed) = self.pods[id.0].as_mut() else {
            return;
        };
        let lost = std::mem::take(&mut placed.lost);
        self.classes.depart(placed.class, slot);
        let row = self.nodes.row_mut(slot);
        let accounts = &self.catalog.accounts;
        accounts.charge(row, &placed.pod.requests, -1);
        accounts.charge_lost(row, &lost, -1);
        if let Some(entry) = self.nodes.entry_mut(slot) {
            entry.pods.retain(|other| *other != id);
        }
        self.settle_zones(slot);
    }

    /// Gives the table of pods the size that it needs.
    fn compact(&mut self) {
        let mut new_ids = vec![None; self.pods.len()];
        let mut pods = Vec::with_capacity(2 * self.by_uid.len());
        for (old, placed) in std::mem::take(&mut self.pods).into_iter().enumerate() {
            if placed.is_some() {
                new_ids[old] = Some(PodId(pods.len()));
                pods.push(placed);
            }
        }
        let renumber = |id: &mut PodId| *id = new_ids[id.0].unwrap_or(*id);
        self.by_uid.values_mut().for_each(renumber);
        self.stray.values_mut().flatten().for_each(renumber);
        for slot in 0..self.nodes.slots().len() {
            let pods = self.nodes.entry_mut(slot).map(|entry| &mut entry.pods);
            pods.into_iter().flatten().for_each(renumber);
        }
        self.pods = pods;
        self.free_pods = Vec::new();
        shrink_map(&mut self.by_uid);
    }

    /// A new account begins with what pods already take of it.
    fn charge_everywhere(&mut self, name: &Name) {
        let resource = Resource::Scalar(name.clone());
        let Some(column) = self.catalog.accounts.column(&resource, Part::Requested) else {
            return;
        };
        for slot in 0..self.nodes.slots().len() {
            let taken = self.pods_on(slot).fold(0_i64, |sum, p| {
                sum.wrapping_add(p.pod.requests.placed.get(&resource))
            });
            if taken != 0 {
                self.nodes.row_mut(slot)[column] = taken;
            }
        }
    }

    fn close_accounts(&mut self, node: &Node) {
        for name in scalars(node) {
            if let Some(column) = self.catalog.accounts.close(name) {
                self.nodes.clear_account(column);
            }
        }
    }
}

fn check_uid(pod: &Pod) -> Result<(), UpdateError> {
    if pod.uid.is_empty() {
        return Err(UpdateError::NoUid {
            namespace: pod.namespace().clone(),
            name: pod.name.clone(),
        });
    }
    Ok(())
}

fn scalars(node: &Node) -> impl Iterator<Item = &Name> {
    node.allocatable
        .iter()
        .filter_map(|(resource, _)| match resource {
            Resource::Scalar(name) => Some(name),
            _ => None,
        })
}
