//! What a decision may depend on besides the pod and the nodes: objects beside them, and terms that pods carry.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use indexmap::IndexMap;

use super::accounts::Accounts;
use super::storage::Storage;
use crate::kinds::Tables;
use crate::model::{Name, Node, PodKind, PodTerm, Resource};

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

/// The terms that pods carry, by what they do. A kind that carries a term twice counts twice.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    affinity: IndexMap<PodTerm, usize>,
    anti_affinity: IndexMap<PodTerm, usize>,
    preferred_affinity: IndexMap<(i64, PodTerm), usize>,
    preferred_anti_affinity: IndexMap<(i64, PodTerm), usize>,
}

impl Terms {
    pub fn affinity(&self) -> impl Iterator<Item = &PodTerm> {
        self.affinity.keys()
    }

    pub fn anti_affinity(&self) -> impl Iterator<Item = &PodTerm> {
        self.anti_affinity.keys()
    }

    /// Weight and term.
    pub fn preferred_affinity(&self) -> impl Iterator<Item = &(i64, PodTerm)> {
        self.preferred_affinity.keys()
    }

    /// Weight and term.
    pub fn preferred_anti_affinity(&self) -> impl Iterator<Item = &(i64, PodTerm)> {
        self.preferred_anti_affinity.keys()
    }

    pub(super) fn enter(&mut self, kind: &PodKind) {
        for term in &kind.affinity {
            *self.affinity.entry(term.clone()).or_default() += 1;
        }
        for term in &kind.anti_affinity {
            *self.anti_affinity.entry(term.clone()).or_default() += 1;
        }
        for preferred in &kind.preferred_affinity {
            *self
                .preferred_affinity
                .entry((preferred.weight, preferred.term.clone()))
                .or_default() += 1;
        }
        for preferred in &kind.preferred_anti_affinity {
            *self
                .preferred_anti_affinity
                .entry((preferred.weight, preferred.term.clone()))
                .or_default() += 1;
        }
    }

    pub(super) fn leave(&mut self, kind: &PodKind) {
        kind.affinity
            .iter()
            .for_each(|term| drop_one(&mut self.affinity, term));
        kind.anti_affinity
            .iter()
            .for_each(|term| drop_one(&mut self.anti_affinity, term));
        for preferred in &kind.preferred_affinity {
            drop_one(
                &mut self.preferred_affinity,
                &(preferred.weight, preferred.term.clone()),
            );
        }
        for preferred in &kind.preferred_anti_affinity {
            drop_one(
                &mut self.preferred_anti_affinity,
                &(preferred.weight, preferred.term.clone()),
            );
        }
    }

    pub(super) fn uses(&self) -> usize {
        self.affinity
            .values()
            .chain(self.anti_affinity.values())
            .sum::<usize>()
            + self
                .preferred_affinity
                .values()
                .chain(self.preferred_anti_affinity.values())
                .sum::<usize>()
    }
}

fn drop_one<K: std::hash::Hash + Eq>(all: &mut IndexMap<K, usize>, one: &K) {
    if let Some(uses) = all.get_mut(one) {
        *uses -= 1;
        if *uses == 0 {
            all.swap_remove(one);
        }
    }
}
