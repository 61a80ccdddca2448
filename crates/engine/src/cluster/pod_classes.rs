//! PodClasses of pods, and how many of each are on which node: what counting walks over instead of pods.

use std::sync::Arc;

use hashbrown::HashMap;
use indexmap::{IndexMap, IndexSet};

use super::terms::Terms;
use crate::model::{Name, PodKind};

/// A class that some placed or nominated pod is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodClassId(usize);

#[derive(Debug, Clone)]
pub struct PodClass {
    pub kind: Arc<PodKind>,
    /// Pods of this class, also those without a known node.
    uses: usize,
    /// Pods per slot; nodes without any are not in it.
    pub on: IndexMap<usize, u32>,
}

#[derive(Debug, Clone, Default)]
pub struct PodClasses {
    all: Vec<Option<PodClass>>,
    free: Vec<usize>,
    ids: HashMap<Arc<PodKind>, PodClassId>,
    by_namespace: HashMap<Name, IndexSet<PodClassId>>,
}

impl PodClasses {
    /// All classes, or those of one namespace, in an order that depends on the history only.
    pub fn of(&self, namespace: Option<&Name>) -> impl Iterator<Item = &PodClass> {
        let (all, some) = match namespace {
            None => (Some(self.all.iter().flatten()), None),
            Some(namespace) => (None, self.by_namespace.get(namespace)),
        };
        let some = some
            .into_iter()
            .flatten()
            .filter_map(|id| self.all[id.0].as_ref());
        all.into_iter().flatten().chain(some)
    }

    pub(super) fn enter(&mut self, kind: &Arc<PodKind>, terms: &mut Terms) -> PodClassId {
        if let Some(id) = self.ids.get(kind) {
            if let Some(known) = self.all[id.0].as_mut() {
                known.uses += 1;
            }
            return *id;
        }
        let entry = Some(PodClass {
            kind: kind.clone(),
            uses: 1,
            on: IndexMap::new(),
        });
        let id = match self.free.pop() {
            Some(free) => {
                self.all[free] = entry;
                PodClassId(free)
            }
            None => {
                self.all.push(entry);
                PodClassId(self.all.len() - 1)
            }
        };
        self.ids.insert(kind.clone(), id);
        self.by_namespace
            .entry(kind.namespace.clone())
            .or_default()
            .insert(id);
        terms.enter(id, kind);
        id
    }

    pub(super) fn leave(&mut self, id: PodClassId, terms: &mut Terms) {
        let Some(known) = self.all.get_mut(id.0).and_then(Option::as_mut) else {
            return;
        };
        known.uses -= 1;
        if known.uses > 0 {
            return;
        }
        let kind = known.kind.clone();
        self.all[id.0] = None;
        self.free.push(id.0);
        self.ids.remove(&kind);
        if let Some(ids) = self.by_namespace.get_mut(&kind.namespace) {
            ids.swap_remove(&id);
            if ids.is_empty() {
                self.by_namespace.remove(&kind.namespace);
            }
        }
        terms.leave(id, &kind);
    }

    pub(super) fn arrive(&mut self, id: PodClassId, slot: usize) {
        if let Some(known) = self.all.get_mut(id.0).and_then(Option::as_mut) {
            *known.on.entry(slot).or_default() += 1;
        }
    }

    pub(super) fn depart(&mut self, id: PodClassId, slot: usize) {
        let Some(known) = self.all.get_mut(id.0).and_then(Option::as_mut) else {
            return;
        };
        if let Some(pods) = known.on.get_mut(&slot) {
            *pods -= 1;
            if *pods == 0 {
                known.on.swap_remove(&slot);
            }
        }
    }

    /// One pod more or less on a node that keeps its place here, even without pods.
    pub(super) fn lift(&mut self, id: PodClassId, slot: usize, is_lifted: bool) {
        let known = self.all.get_mut(id.0).and_then(Option::as_mut);
        if let Some(pods) = known.and_then(|known| known.on.get_mut(&slot)) {
            match is_lifted {
                true => *pods -= 1,
                false => *pods += 1,
            }
        }
    }

    pub(super) fn uses(&self) -> usize {
        self.all.iter().flatten().map(|kind| kind.uses).sum()
    }

    pub(crate) fn get(&self, id: PodClassId) -> Option<&PodClass> {
        self.all.get(id.0)?.as_ref()
    }
}
