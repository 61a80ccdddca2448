//! Node selectors and node affinity, of the pod and of the scheduler's configuration.

mod args;

use std::sync::Arc;

use crate::model::{
    Name, Node, NodeMatch, NodeSelector, NodeSpec, Operator, Pod, PreferredNodeTerm, RequiredNodes,
};
use crate::scheduling::framework::arithmetic::{Direction, default_normalize};
use crate::scheduling::framework::{
    Actions, ArgsError, Catalog, Changed, Configure, Event, EventPattern, Fact, FactId, Feasible,
    Kind, NodeRule, Place, PlaceScore, Plan, Plugin, Point, Points, Rejection, error_list, facts,
};

pub use args::NodeAffinityArgs;

pub struct NodeAffinity {
    /// Required by the configuration for every pod, in addition to the pod's own requirements.
    added: Option<RequiredNodes>,
    /// Preferred by the configuration; `None` if it has no preferences, unlike preferences without effect.
    added_preferences: Option<Vec<PreferredNodeTerm>>,
}

impl Configure for NodeAffinity {
    const NAME: &'static str = "NodeAffinity";
    const POINTS: Points = Points::of(&[
        Point::PreFilter,
        Point::Filter,
        Point::PreScore,
        Point::Score,
    ]);
    type Args = NodeAffinityArgs;

    fn new(args: NodeAffinityArgs) -> Result<Self, Vec<ArgsError>> {
        let (required, preferred) = args.parse()?;
        Ok(Self {
            added: required.map(|selector| RequiredNodes {
                pairs: None,
                affinity: Some(selector),
            }),
            added_preferences: (!preferred.is_empty()).then(|| effective(&preferred).collect()),
        })
    }
}

impl Plugin for NodeAffinity {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        if let Some(added) = &self.added {
            plan.gate(
                facts::required_nodes(added),
                "node(s) didn't match scheduler-enforced node affinity",
            );
        }
        if !pod.nodes.is_absent() {
            plan.gate(
                facts::required_nodes(&pod.nodes),
                "node(s) didn't match Pod's node affinity/selector",
            );
        }
        match pod.nodes.affinity.as_ref().and_then(named_nodes) {
            Some(names) if names.is_empty() => {
                plan.reject(Rejection::unresolvable("pod affinity terms conflict"));
            }
            Some(names) => plan.only(names),
            None => {}
        }
        self.prepare_score(pod, plan);
    }

    fn events(&self) -> Vec<EventPattern> {
        vec![EventPattern::new(
            Kind::Node,
            Actions::ADD.and(Actions::NODE_LABEL),
        )]
    }

    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        let Changed::Node(change) = &event.changed else {
            return false;
        };
        let matches = |node: &Arc<Node>| {
            let added = self.added.as_ref();
            added.is_none_or(|added| added.matches(&node.spec)) && pod.nodes.matches(&node.spec)
        };
        change.new.as_ref().is_some_and(matches) && !change.old.as_ref().is_some_and(matches)
    }
}

impl NodeAffinity {
    fn prepare_score(&self, pod: &Pod, plan: &mut Plan) {
        let own = pod.preferred_nodes.as_deref();
        if own.is_none() && self.added_preferences.is_none() {
            return;
        }
        let own = own.unwrap_or_default();
        let errors = errors_of(own);
        if !errors.is_empty() {
            plan.fail_scoring(error_list(&errors));
        }
        let added = self.added_preferences.iter().flatten().cloned();
        let preferences = added.chain(effective(own)).collect();
        let weight = plan.fact(Fact::new(Preferences(preferences)));
        plan.score_places(Preferred { weight });
    }
}

/// The only nodes that can match, if every term names nodes.
///
/// Kubernetes accepts a list of names here, although such a term matches no node.
fn named_nodes(required: &NodeSelector) -> Option<Vec<Name>> {
    const NAME: &str = "metadata.name";
    let mut all = Vec::new();
    for term in &required.terms {
        let mut named = term
            .fields
            .iter()
            .filter(|field| *field.key == *NAME && field.operator == Some(Operator::In));
        let mut names = named.next()?.values.clone();
        for field in named {
            names.retain(|name| field.values.contains(name));
        }
        all.extend(names);
    }
    all.sort();
    all.dedup();
    (!required.terms.is_empty()).then_some(all)
}

/// Preferences that can change a score. Weight 0 and empty terms have no effect.
fn effective(preferred: &[PreferredNodeTerm]) -> impl Iterator<Item = PreferredNodeTerm> {
    preferred
        .iter()
        .filter(|preferred| preferred.weight != 0 && !preferred.term.is_empty())
        .cloned()
}

/// Every fault with the place of its term. A term of weight 0 is not checked.
fn errors_of(preferred: &[PreferredNodeTerm]) -> Vec<String> {
    let read = preferred
        .iter()
        .enumerate()
        .filter(|(_, preferred)| preferred.weight != 0);
    read.flat_map(|(i, preferred)| {
        let errors = preferred.term.parsed.as_ref().err().into_iter().flatten();
        errors.map(move |error| format!("[{i}].{error}"))
    })
    .collect()
}

/// The sum of the weights of the terms that match, as the bits of an `i32`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Preferences(Vec<PreferredNodeTerm>);

impl NodeRule for Preferences {
    fn of(&self, node: &NodeSpec) -> u32 {
        let matching = self
            .0
            .iter()
            .filter(|preference| preference.term.matches(NodeMatch::Node(node)));
        matching.map(|preference| preference.weight).sum::<i64>() as u32
    }
}

struct Preferred {
    weight: FactId,
}

impl PlaceScore for Preferred {
    fn score(&self, at: Place) -> i64 {
        i64::from(at.fact(self.weight) as i32)
    }

    fn normalize(&self, _: Feasible, scores: &mut [i64]) {
        default_normalize(scores, Direction::Forward);
    }
}

#[cfg(test)]
mod tests;
