//! The status of a policy: numbers of nodes and pods, and conditions for its author.

use std::collections::BTreeSet;

use super::{CostOwner, Counts, Matching, Observed, is_written, owner};
use crate::cluster::ResourcePolicy;
use crate::model::Name;

/// Names in a message, so that it stays readable.
const MOST_NAMES: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyStatus {
    pub observed_generation: i64,
    pub conditions: Vec<Condition>,
    pub matched_pods: usize,
    pub outside_pods: usize,
    pub units: Vec<UnitStatus>,
    /// `reserved 10/10, spot 3/20, outside 0`
    pub summary: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub kind: &'static str,
    pub holds: bool,
    pub reason: &'static str,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitStatus {
    pub name: Name,
    pub nodes: usize,
    pub pods: usize,
    pub over_limit: usize,
}

/// Some pod has a cost that another writer set.
pub const DELETION_COST_CONFLICT: &str = "DeletionCostConflict";

/// The status of a policy with these counts, none if it is invalid, beside the `others` of its namespace.
pub(super) fn status(
    policy: &ResourcePolicy,
    own: Option<&Counts>,
    others: &[Option<Counts>],
    observed: &Observed,
    matching: &[Matching],
) -> PolicyStatus {
    let mut status = PolicyStatus {
        observed_generation: policy.generation,
        ..PolicyStatus::default()
    };
    let own = match (own, &policy.spec) {
        (Some(own), _) => own,
        (None, spec) => {
            let fault = spec.as_ref().err().map(|fault| &**fault);
            let message = format!("{}; the policy has no effect", fault.unwrap_or_default());
            let condition = condition("Accepted", false, "Invalid", message);
            status.conditions.push(condition);
            return status;
        }
    };
    status.conditions = vec![
        accepted(own),
        conflicting(own, others, observed, matching),
        units_overlap(own),
        deletion_cost_conflict(own, observed, matching),
    ];
    let counted = || own.pods.iter().filter(|pod| pod.counts);
    status.matched_pods = counted().count();
    status.outside_pods = counted().filter(|pod| pod.unit.is_none()).count();
    let units = own.spec.units.iter().zip(&own.units);
    let summary = units.clone().map(|(unit, counts)| match unit.max_count {
        Some(max_count) => format!("{} {}/{max_count}, ", unit.name, counts.pods),
        None => format!("{} {}, ", unit.name, counts.pods),
    });
    status.summary = summary.collect();
    status.summary += &format!("outside {}", status.outside_pods);
    status.units = units
        .map(|(unit, counts)| UnitStatus {
            name: unit.name.clone(),
            nodes: counts.nodes,
            pods: counts.pods,
            over_limit: counts.over_limit,
        })
        .collect();
    status
}

fn condition(kind: &'static str, holds: bool, reason: &'static str, message: String) -> Condition {
    Condition {
        kind,
        holds,
        reason,
        message,
    }
}

fn accepted(own: &Counts) -> Condition {
    let message = match own.spec.pods.is_empty() {
        true => format!(
            "podSelector is empty: the policy applies to every pod of namespace {}",
            own.policy.namespace
        ),
        false => "the policy applies to the pods that podSelector matches".to_owned(),
    };
    condition("Accepted", true, "Valid", message)
}

fn conflicting(
    own: &Counts,
    others: &[Option<Counts>],
    observed: &Observed,
    matching: &[Matching],
) -> Condition {
    const KIND: &str = "Conflicting";
    let shared = own.pods.iter().map(|pod| pod.index);
    let shared: Vec<usize> = shared
        .filter(|pod| matching[*pod] == Matching::Several)
        .collect();
    let Some(first) = shared.first() else {
        let message = "no pod matches another policy".to_owned();
        return condition(KIND, false, "NoConflict", message);
    };
    let mut names = BTreeSet::new();
    let rivals = others.iter().flatten();
    for rival in rivals.filter(|rival| rival.policy.name != own.policy.name) {
        let selects = |pod: &usize| rival.spec.selects(&observed.pods[*pod].labels);
        if shared.iter().any(selects) {
            names.insert(&rival.policy.name);
        }
    }
    let text = format!(
        "{} {}, for example pod {}; the scheduler rejects such pods, and the controller does not change their deletion costs",
        match shared.len() {
            1 => "1 pod also matches ResourcePolicy".to_owned(),
            several => format!("{several} pods also match ResourcePolicy"),
        },
        some(&names.into_iter().map(|name| &**name).collect::<Vec<_>>()),
        observed.pods[*first].name,
    );
    condition(KIND, true, "MultiplePolicies", text)
}

fn units_overlap(own: &Counts) -> Condition {
    const KIND: &str = "UnitsOverlap";
    let Some((node, units)) = &own.first_overlapping else {
        let message = "no node is in several units".to_owned();
        return condition(KIND, false, "NoOverlap", message);
    };
    let units = units.iter().map(|unit| &*own.spec.units[*unit].name);
    let nodes = match own.overlapping {
        1 => "1 node is".to_owned(),
        nodes => format!("{nodes} nodes are"),
    };
    let text = format!(
        "{nodes} in several units, for example node {node} in {}; a pod there counts in each of them",
        some(&units.collect::<Vec<_>>()),
    );
    condition(KIND, true, "NodesInSeveralUnits", text)
}

fn deletion_cost_conflict(own: &Counts, observed: &Observed, matching: &[Matching]) -> Condition {
    let ours = own.pods.iter();
    let ours = ours.filter(|pod| matching[pod.index] == Matching::One);
    let foreign = ours.map(|pod| &observed.pods[pod.index]);
    let foreign = foreign.filter(|pod| is_written(pod) && matches!(owner(pod), CostOwner::Another));
    let foreign: Vec<&str> = foreign.map(|pod| &*pod.name).collect();
    let Some(first) = foreign.first() else {
        let message = "no pod has a deletion cost that another component or a user set".to_owned();
        return condition(DELETION_COST_CONFLICT, false, "NoConflict", message);
    };
    let text = format!(
        "{} a deletion cost that another component or a user set, for example pod {first}; the controller does not change it",
        match foreign.len() {
            1 => "1 pod has".to_owned(),
            several => format!("{several} pods have"),
        },
    );
    condition(DELETION_COST_CONFLICT, true, "OtherWriter", text)
}

fn some(names: &[&str]) -> String {
    let shown = names.iter().take(MOST_NAMES).copied();
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if names.len() > MOST_NAMES {
        text += &format!(" and {} more", names.len() - MOST_NAMES);
    }
    text
}
