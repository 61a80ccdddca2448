//! Rules: how a fact follows from a node, and how often a pod counts. A rule's fields are its identity.

use std::any::Any;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::cluster::{NodeEntry, TermRole};
use crate::model::{Name, NodeSpec, PodKind, PodTerm, PreferredPodTerm};

/// A number that follows from the node's object alone.
pub trait NodeRule: Debug + Eq + Hash + Send + Sync + 'static {
    /// As a gate, 0 passes. As an inclusion, 0 is counted. Otherwise the check defines its meaning.
    fn of(&self, node: &NodeSpec) -> u32;

    /// The number of one of many nodes. The rule may keep in `hint` where it found something on the node before.
    fn of_next(&self, node: &NodeSpec, _hint: &mut usize) -> u32 {
        self.of(node)
    }

    /// For explanations of a gate: what about the node makes the value other than 0. `None` if the gate's reason says all.
    fn detail(&self, _node: &NodeSpec) -> Option<String> {
        None
    }
}

/// How often a pod counts in a set of pods.
pub trait PodRule: Debug + Eq + Hash + Send + Sync + 'static {
    /// For pods that are on nodes when the decision begins, assumed ones included.
    fn counts(&self, pod: &PodKind) -> i64;

    /// For hypothetical changes: nominated pods that are added, victims of preemption that are removed.
    fn moves(&self, pod: &PodKind) -> i64 {
        self.counts(pod)
    }

    /// The only namespace whose pods can count, if there is one: pods of others are skipped.
    fn namespace(&self) -> Option<&Name> {
        None
    }

    /// The terms of which a pod must carry one to count, if that is the rule: other pods are skipped.
    fn carriers(&self) -> Option<Carriers<'_>> {
        None
    }
}

/// Affinity terms that pods carry.
#[derive(Debug, Clone, Copy)]
pub enum Carriers<'a> {
    Requiring(TermRole, &'a [PodTerm]),
    Preferring(TermRole, &'a [PreferredPodTerm]),
}

/// A [`NodeRule`], or a node's domain under a label key. Equal facts are evaluated once per node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fact(FactRule);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum FactRule {
    Rule(Shared<dyn ErasedNodeRule>),
    Domain { key: Name, or_empty: bool },
    Everywhere,
    Bit { of: Box<Fact>, bit: u32 },
}

impl Fact {
    pub fn new(rule: impl NodeRule) -> Self {
        Self(FactRule::Rule(Shared(Arc::new(rule))))
    }

    /// An id of the label's value, equal for equal values; 0 where the label is missing.
    pub fn domain(key: impl Into<Name>) -> Self {
        Self(FactRule::Domain {
            key: key.into(),
            or_empty: false,
        })
    }

    /// An id of the label's value, where a missing label counts as the empty value.
    pub fn domain_or_empty(key: impl Into<Name>) -> Self {
        Self(FactRule::Domain {
            key: key.into(),
            or_empty: true,
        })
    }

    /// 1 on every node: the domain of counts over the whole cluster.
    pub fn everywhere() -> Self {
        Self(FactRule::Everywhere)
    }

    /// What about the node makes the value other than 0.
    pub(crate) fn detail(&self, node: &NodeSpec) -> Option<String> {
        match &self.0 {
            FactRule::Rule(rule) => rule.0.detail(node),
            FactRule::Domain { .. } | FactRule::Everywhere | FactRule::Bit { .. } => None,
        }
    }

    /// 1 where this bit of another fact is set: many small facts for the price of one.
    pub fn bit(of: Fact, bit: u32) -> Self {
        let of = Box::new(of);
        Self(FactRule::Bit { of, bit })
    }

    /// The fact that this one is a bit of, and which.
    pub(crate) fn source(&self) -> Option<(&Fact, u32)> {
        match &self.0 {
            FactRule::Bit { of, bit } => Some((of, *bit)),
            _ => None,
        }
    }

    /// Values for a run of nodes; a free slot is `None` and gets 0.
    pub(crate) fn evaluate(&self, nodes: &[Option<NodeEntry>], out: &mut Vec<u32>) {
        match &self.0 {
            FactRule::Rule(rule) => {
                let mut hint = 0;
                let mut value = |node: &NodeEntry| rule.0.of_next(node.spec(), &mut hint);
                out.extend(nodes.iter().map(|node| node.as_ref().map_or(0, &mut value)));
            }
            FactRule::Domain { key, or_empty } => {
                let mut hint = 0;
                out.extend(nodes.iter().map(|node| match node {
                    None => 0,
                    Some(node) => match node.domain(key, &mut hint) {
                        0 if *or_empty => EMPTY_DOMAIN,
                        id => id,
                    },
                }));
            }
            FactRule::Everywhere => out.extend(nodes.iter().map(|node| u32::from(node.is_some()))),
            FactRule::Bit { of, bit } => {
                let from = out.len();
                of.evaluate(nodes, out);
                let values = &mut out[from..];
                values
                    .iter_mut()
                    .for_each(|value| *value = bit_of(*value, *bit));
            }
        }
    }
}

pub(crate) fn bit_of(value: u32, bit: u32) -> u32 {
    value.checked_shr(bit).unwrap_or(0) & 1
}

/// The id of the empty value under every key.
pub(crate) const EMPTY_DOMAIN: u32 = 1;

/// A [`PodRule`] that can be shared and compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodSet(Shared<dyn ErasedPodRule>);

impl PodSet {
    pub fn new(rule: impl PodRule) -> Self {
        Self(Shared(Arc::new(rule)))
    }

    pub(crate) fn counts(&self, pod: &PodKind) -> i64 {
        self.0.0.counts(pod)
    }

    pub(crate) fn moves(&self, pod: &PodKind) -> i64 {
        match self.namespace() {
            Some(namespace) if *namespace != pod.namespace => 0,
            _ => self.0.0.moves(pod),
        }
    }

    pub(crate) fn namespace(&self) -> Option<&Name> {
        self.0.0.namespace()
    }

    pub(crate) fn carriers(&self) -> Option<Carriers<'_>> {
        self.0.0.carriers()
    }
}

/// Pods of a set, counted per node or per domain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Count {
    pub(crate) pods: PodSet,
    pub(crate) within: Within,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Within {
    Node,
    /// In the domain that the fact names. Only nodes where all of `include` are 0 are counted; all nodes can read it.
    Domain {
        of: Fact,
        include: Vec<Fact>,
    },
}

impl Count {
    pub fn on_node(pods: PodSet) -> Self {
        Self {
            pods,
            within: Within::Node,
        }
    }

    pub fn in_domain(pods: PodSet, of: Fact, include: Vec<Fact>) -> Self {
        Self {
            pods,
            within: Within::Domain { of, include },
        }
    }
}

/// Shared behind a pointer, compared by content.
#[derive(Debug)]
struct Shared<T: ?Sized>(Arc<T>);

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

trait ErasedNodeRule: Debug + Send + Sync {
    fn of_next(&self, node: &NodeSpec, hint: &mut usize) -> u32;
    fn detail(&self, node: &NodeSpec) -> Option<String>;
    fn any(&self) -> &dyn Any;
    fn same(&self, other: &dyn Any) -> bool;
    fn hash_into(&self, state: &mut dyn Hasher);
}

impl<R: NodeRule> ErasedNodeRule for R {
    fn of_next(&self, node: &NodeSpec, hint: &mut usize) -> u32 {
        NodeRule::of_next(self, node, hint)
    }
    fn detail(&self, node: &NodeSpec) -> Option<String> {
        NodeRule::detail(self, node)
    }
    fn any(&self) -> &dyn Any {
        self
    }
    fn same(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<R>().is_some_and(|other| self == other)
    }
    fn hash_into(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }
}

trait ErasedPodRule: Debug + Send + Sync {
    fn counts(&self, pod: &PodKind) -> i64;
    fn moves(&self, pod: &PodKind) -> i64;
    fn namespace(&self) -> Option<&Name>;
    fn carriers(&self) -> Option<Carriers<'_>>;
    fn any(&self) -> &dyn Any;
    fn same(&self, other: &dyn Any) -> bool;
    fn hash_into(&self, state: &mut dyn Hasher);
}

impl<R: PodRule> ErasedPodRule for R {
    fn counts(&self, pod: &PodKind) -> i64 {
        PodRule::counts(self, pod)
    }
    fn moves(&self, pod: &PodKind) -> i64 {
        PodRule::moves(self, pod)
    }
    fn namespace(&self) -> Option<&Name> {
        PodRule::namespace(self)
    }
    fn carriers(&self) -> Option<Carriers<'_>> {
        PodRule::carriers(self)
    }
    fn any(&self) -> &dyn Any {
        self
    }
    fn same(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<R>().is_some_and(|other| self == other)
    }
    fn hash_into(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }
}

macro_rules! compare_by_content {
    ($($erased:ident),*) => {$(
        impl PartialEq for Shared<dyn $erased> {
            fn eq(&self, other: &Self) -> bool {
                Arc::ptr_eq(&self.0, &other.0) || self.0.same(other.0.any())
            }
        }
        impl Eq for Shared<dyn $erased> {}
        impl Hash for Shared<dyn $erased> {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.0.hash_into(state);
            }
        }
    )*};
}
compare_by_content!(ErasedNodeRule, ErasedPodRule);
