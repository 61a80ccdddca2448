//! The affinity terms that placed and nominated pods carry: which of them can match a pod, and which pods carry them.

use hashbrown::HashMap;
use indexmap::IndexSet;

use super::label_index::LabelIndex;
use super::pod_classes::PodClassId;
use crate::model::{Labels, Name, PodKind, PodTerm, PreferredPodTerm, Selector};

/// What a term does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TermRole {
    Affinity,
    AntiAffinity,
}

/// Every term once, by what it does.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    affinity: Carried<PodTerm>,
    anti_affinity: Carried<PodTerm>,
    preferred_affinity: Carried<PreferredPodTerm>,
    preferred_anti_affinity: Carried<PreferredPodTerm>,
}

/// Terms of one sort.
#[derive(Debug, Clone)]
struct Carried<T> {
    /// The pod classes that carry each term.
    by: HashMap<T, IndexSet<PodClassId>>,
    /// By the namespace of the pods that they can match; `None` for terms that select namespaces.
    matching: HashMap<Option<Name>, LabelIndex<T>>,
}

impl<T> Default for Carried<T> {
    fn default() -> Self {
        Self {
            by: HashMap::new(),
            matching: HashMap::new(),
        }
    }
}

impl Terms {
    /// The required terms that can match a pod of this namespace with these labels, each once; others cannot.
    pub fn required(
        &self,
        role: TermRole,
        namespace: &Name,
        labels: &Labels,
    ) -> impl Iterator<Item = &PodTerm> {
        self.of(role).that_can_match(namespace, labels)
    }

    /// The preferred terms that can match a pod of this namespace with these labels, each once; others cannot.
    pub fn preferred(
        &self,
        role: TermRole,
        namespace: &Name,
        labels: &Labels,
    ) -> impl Iterator<Item = &PreferredPodTerm> {
        self.preferred_of(role).that_can_match(namespace, labels)
    }

    /// The classes of the pods that carry one of these required terms, each once.
    pub(crate) fn requiring(&self, role: TermRole, terms: &[PodTerm]) -> IndexSet<PodClassId> {
        self.of(role).carriers(terms)
    }

    /// The classes of the pods that carry one of these preferred terms, each once.
    pub(crate) fn preferring(
        &self,
        role: TermRole,
        terms: &[PreferredPodTerm],
    ) -> IndexSet<PodClassId> {
        self.preferred_of(role).carriers(terms)
    }

    fn of(&self, role: TermRole) -> &Carried<PodTerm> {
        match role {
            TermRole::Affinity => &self.affinity,
            TermRole::AntiAffinity => &self.anti_affinity,
        }
    }

    fn preferred_of(&self, role: TermRole) -> &Carried<PreferredPodTerm> {
        match role {
            TermRole::Affinity => &self.preferred_affinity,
            TermRole::AntiAffinity => &self.preferred_anti_affinity,
        }
    }

    pub(super) fn enter(&mut self, class: PodClassId, kind: &PodKind) {
        self.affinity.enter(class, &kind.affinity);
        self.anti_affinity.enter(class, &kind.anti_affinity);
        self.preferred_affinity
            .enter(class, &kind.preferred_affinity);
        self.preferred_anti_affinity
            .enter(class, &kind.preferred_anti_affinity);
    }

    pub(super) fn leave(&mut self, class: PodClassId, kind: &PodKind) {
        self.affinity.leave(class, &kind.affinity);
        self.anti_affinity.leave(class, &kind.anti_affinity);
        self.preferred_affinity
            .leave(class, &kind.preferred_affinity);
        self.preferred_anti_affinity
            .leave(class, &kind.preferred_anti_affinity);
    }

    /// Pairs of a term and a class that carries it.
    pub fn uses(&self) -> usize {
        self.affinity.uses()
            + self.anti_affinity.uses()
            + self.preferred_affinity.uses()
            + self.preferred_anti_affinity.uses()
    }
}

impl<T: AsRef<PodTerm> + Clone + Ord + std::hash::Hash> Carried<T> {
    fn enter(&mut self, class: PodClassId, terms: &[T]) {
        for carried in terms {
            let classes = self.by.entry(carried.clone()).or_default();
            let is_known = !classes.is_empty();
            classes.insert(class);
            if is_known {
                continue;
            }
            let term = carried.as_ref();
            let pairs = term.selector.pairs_to_match();
            for namespace in namespaces(term) {
                let matching = self.matching.entry(namespace).or_default();
                matching.insert(&pairs, carried);
            }
        }
    }

    fn leave(&mut self, class: PodClassId, terms: &[T]) {
        for carried in terms {
            let Some(classes) = self.by.get_mut(carried) else {
                continue;
            };
            classes.swap_remove(&class);
            if !classes.is_empty() {
                continue;
            }
            self.by.remove(carried);
            let term = carried.as_ref();
            let pairs = term.selector.pairs_to_match();
            for namespace in namespaces(term) {
                if let Some(matching) = self.matching.get_mut(&namespace) {
                    matching.remove(&pairs, carried);
                    if matching.is_empty() {
                        self.matching.remove(&namespace);
                    }
                }
            }
        }
    }

    fn that_can_match(&self, namespace: &Name, labels: &Labels) -> impl Iterator<Item = &T> {
        let own = self.matching.get(&Some(namespace.clone()));
        let any = self.matching.get(&None);
        let matching = own.into_iter().chain(any);
        matching.flat_map(|terms| terms.that_can_match(labels).flatten())
    }

    fn carriers(&self, terms: &[T]) -> IndexSet<PodClassId> {
        let carriers = terms.iter().filter_map(|term| self.by.get(term));
        carriers.flatten().copied().collect()
    }

    fn uses(&self) -> usize {
        self.by.values().map(IndexSet::len).sum()
    }
}

/// Where the pods are that the term can match.
fn namespaces(term: &PodTerm) -> Vec<Option<Name>> {
    if term.namespace_selector != Selector::NOTHING {
        return vec![None];
    }
    term.namespaces.iter().cloned().map(Some).collect()
}
