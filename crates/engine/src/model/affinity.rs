//! Pod affinity terms: which pods a pod must or must not run beside, and within which topology.

use super::{Labels, Name, Selector};

/// One term. The namespaces are already defaulted: when the term names none and has no selector, its owner's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTerm {
    pub namespaces: Vec<Name>,
    /// `Selector::NOTHING` when the term has no namespace selector.
    pub namespace_selector: Selector,
    pub selector: Selector,
    pub topology_key: Name,
}

impl PodTerm {
    /// Whether a pod with these labels, in this namespace, is meant.
    pub fn matches(&self, namespace: &str, labels: &Labels, namespace_labels: &Labels) -> bool {
        (self.namespaces.iter().any(|listed| **listed == *namespace)
            || self.namespace_selector.matches(namespace_labels))
            && self.selector.matches(labels)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PreferredPodTerm {
    pub weight: i64,
    pub term: PodTerm,
}

impl AsRef<PodTerm> for PodTerm {
    fn as_ref(&self) -> &PodTerm {
        self
    }
}

impl AsRef<PodTerm> for PreferredPodTerm {
    fn as_ref(&self) -> &PodTerm {
        &self.term
    }
}
