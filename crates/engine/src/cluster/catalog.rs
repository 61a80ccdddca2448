//! What a decision may depend on besides the pod and the nodes: objects beside them, and terms that pods carry.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::accounts::Accounts;
use super::storage::Storage;
use super::terms::Terms;
use crate::cluster::kinds::Tables;
use crate::model::{Name, Node, Resource};

/// Everything that `prepare` may look at besides the pod. It holds no nodes and no pods.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    pub(super) accounts: Accounts,
    pub(super) terms: Terms,
    pub(super) images: ImageStates,
    pub(super) node_count: usize,
    /// Read through methods in the file of each kind.
    pub(crate) objects: Tables,
    pub(super) storage: Storage,
    /// Uids of pods whose victims are being evicted.
    preempting: BTreeSet<Name>,
}

impl Catalog {
    /// Every resource that a node may offer: those that all have an account for, and whatever else some node has.
    pub fn offered(&self) -> Vec<Resource> {
        let scalars = self.accounts.scalars().cloned().map(Resource::Scalar);
        let own = [
            Resource::Cpu,
            Resource::Memory,
            Resource::EphemeralStorage,
            Resource::Pods,
        ];
        let mut all: Vec<Resource> = own.into_iter().chain(scalars).collect();
        all.sort();
        all
    }

    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Terms that placed or nominated pods carry, each once, with the label it is about.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// An image under one of its names; `None` if no node has it.
    pub fn image(&self, name: &str) -> Option<ImageState> {
        self.images.0.get(name).copied()
    }

    pub fn node_count(&self) -> usize {
        self.node_count
    }

    /// Whether victims are being evicted for the pod.
    pub fn is_preempting(&self, uid: &str) -> bool {
        self.preempting.contains(uid)
    }

    pub fn set_preempting(&mut self, uid: Name, preempting: bool) {
        if preempting {
            self.preempting.insert(uid);
        } else {
            self.preempting.remove(&uid);
        }
    }

    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    pub fn storage_mut(&mut self) -> &mut Storage {
        &mut self.storage
    }
}

/// How far an image has spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageState {
    /// As the first node that had it reported.
    pub size: i64,
    pub nodes: usize,
}

#[derive(Debug, Clone, Default)]
pub(super) struct ImageStates(HashMap<Name, ImageState>);

impl ImageStates {
    pub(super) fn enter(&mut self, node: &Node) {
        for (name, size) in node.spec.images.iter() {
            self.0
                .entry(name.clone())
                .or_insert(ImageState { size, nodes: 0 })
                .nodes += 1;
        }
    }

    pub(super) fn leave(&mut self, node: &Node) {
        for (name, _) in node.spec.images.iter() {
            if let Some(state) = self.0.get_mut(name) {
                state.nodes -= 1;
                if state.nodes == 0 {
                    self.0.remove(name);
                }
            }
        }
    }

    pub(super) fn uses(&self) -> usize {
        self.0.values().map(|state| state.nodes).sum()
    }
}
