//! Which pods would have to go so that a pod with a higher priority finds room, looking at every node that it may help.
//!
//! A dry run: nothing is touched. The rules and words are those of kube-scheduler's DefaultPreemption; where it takes
//! any of several equal candidates, the first in the order of nodes is taken.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::{Catalog, Cluster, Placed};
use crate::evaluate::{Diagnosis, Scan, Trial};
use crate::framework::{Reason, Rejection, Status};
use crate::model::{Budget, Name, Pod, PreemptionPolicy, Timestamp};

/// A node on which evicting some pods makes room.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub slot: usize,
    pub node: Name,
    /// Most important first; never empty.
    pub victims: Vec<Arc<Pod>>,
    /// Victims whose disruption budget does not allow it.
    pub violations: usize,
}

/// What a dry run over all nodes found.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// In the order of slots.
    pub candidates: Vec<Candidate>,
    /// Nodes tried in vain, in the order of slots.
    pub unhelpful: Vec<Unhelpful>,
}

/// A node where the pod would not fit even without its lesser pods.
#[derive(Debug, Clone, PartialEq)]
pub struct Unhelpful {
    pub slot: usize,
    /// The plugin that still says no; `None` if there are no lesser pods.
    pub plugin: Option<&'static str>,
    pub rejection: Rejection,
}

const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";

/// Whether the pod may preempt now; else why not.
pub fn eligible(cluster: &Cluster, pod: &Pod, diagnosis: &Diagnosis) -> Result<(), &'static str> {
    if pod.preemption_policy == PreemptionPolicy::Never {
        return Err("not eligible due to preemptionPolicy=Never.");
    }
    let nominated = pod.nominated_node.as_deref();
    let Some(slot) = nominated.and_then(|node| cluster.nodes().slot(node)) else {
        return Ok(());
    };
    let given_up = diagnosis
        .statuses
        .iter()
        .any(|node| node.slot == slot && node.status == Status::Unresolvable);
    // Room is being made there already: wait for it.
    let leaving =
        |other: &Pod| other.priority < pod.priority && other.kind.terminating && other.preempted;
    if !given_up && cluster.pods_on(slot).any(|placed| leaving(&placed.pod)) {
        return Err("not eligible due to a terminating pod on the nominated node.");
    }
    Ok(())
}

/// Looks for victims on every node where removing pods may help.
pub fn search(
    cluster: &Cluster,
    scan: &Scan,
    pod: &Pod,
    diagnosis: &Diagnosis,
    now: Timestamp,
) -> Search {
    let mut found = Search::default();
    let mut trial = Trial::new(scan);
    let mut victims = Vec::new();
    let potential = diagnosis
        .statuses
        .iter()
        .filter(|node| node.status == Status::Unschedulable);
    for slot in potential.map(|node| node.slot) {
        victims.clear();
        let lower = cluster
            .pods_on(slot)
            .filter(|other| other.priority < pod.priority);
        victims.extend(lower);
        match select_victims(&mut trial, slot, &mut victims, cluster.catalog(), now) {
            Err(unhelpful) => found.unhelpful.push(unhelpful),
            Ok((victims, violations)) => {
                let Some(entry) = cluster.nodes().get(slot) else {
                    continue;
                };
                found.candidates.push(Candidate {
                    slot,
                    node: entry.node.spec.name.clone(),
                    victims,
                    violations,
                });
            }
        }
    }
    found
}

/// The fewest and least important pods whose removal lets the pod fit, and how many of them break a budget.
fn select_victims<'s>(
    trial: &mut Trial<'s, '_>,
    slot: usize,
    potential: &mut [&'s Placed],
    catalog: &Catalog,
    now: Timestamp,
) -> Result<(Vec<Arc<Pod>>, usize), Unhelpful> {
    if potential.is_empty() {
        return Err(Unhelpful {
            slot,
            plugin: None,
            rejection: Rejection::unresolvable(NO_VICTIMS),
        });
    }
    potential.sort_by_key(|placed| (Reverse(placed.priority), placed.started.unwrap_or(now)));
    trial.turn_to(slot, potential);
    (0..potential.len()).for_each(|pod| trial.remove(pod));
    trial.verdict().map_err(|(plugin, rejection)| Unhelpful {
        slot,
        plugin: Some(plugin),
        rejection,
    })?;
    let violating = violating(potential, catalog);
    let mut victims: Vec<Arc<Pod>> = Vec::new();
    let mut violations = 0;
    for round in [true, false] {
        for (index, placed) in potential.iter().enumerate() {
            if violating.get(index).is_some_and(|violates| *violates) != round {
                continue;
            }
            trial.put_back(index);
            if !trial.fits() {
                trial.remove(index);
                victims.push(placed.pod.clone());
                violations += usize::from(round);
            }
        }
    }
    victims.sort_by_key(|pod| (Reverse(pod.priority), pod.started.unwrap_or(now)));
    Ok((victims, violations))
}

/// For each pod, most important first, whether evicting it and those before it exceeds a disruption budget. Empty if
/// there are no budgets.
fn violating(pods: &[&Placed], catalog: &Catalog) -> Vec<bool> {
    if !catalog.has_budgets() {
        return Vec::new();
    }
    let mut allowed: BTreeMap<(&Name, &Name), i32> = BTreeMap::new();
    let violates = |placed: &&Placed| {
        let pod = &placed.pod;
        let mut violates = false;
        for budget in catalog.budgets(pod.namespace()).filter(|b| covers(b, pod)) {
            let left = allowed
                .entry((&budget.namespace, &budget.name))
                .or_insert(budget.disruptions_allowed);
            *left = left.saturating_sub(1);
            violates |= *left < 0;
        }
        violates
    };
    pods.iter().map(violates).collect()
}

/// An empty selector covers nothing, and neither pods without labels nor those already counted are covered.
fn covers(budget: &Budget, pod: &Pod) -> bool {
    !pod.labels().is_empty()
        && !budget.selector.is_empty()
        && budget.selector.matches(pod.labels())
        && !budget
            .disrupted_pods
            .iter()
            .any(|(name, _)| *name == pod.name)
}

/// The candidates that hurt least: all equal, the first is taken.
pub fn best(candidates: &[Candidate], now: Timestamp) -> Vec<&Candidate> {
    let harms: Vec<_> = candidates.iter().map(|c| harm(c, now)).collect();
    let Some(least) = harms.iter().min() else {
        return Vec::new();
    };
    let equals = candidates.iter().zip(&harms);
    equals
        .filter_map(|(c, harm)| (harm == least).then_some(c))
        .collect()
}

/// What candidates are compared by, in this order.
fn harm(candidate: &Candidate, now: Timestamp) -> impl Ord + use<> {
    let victims = &candidate.victims;
    let highest = victims.first().map_or(0, |victim| victim.priority);
    // Priorities are lifted above zero, so that each further victim counts.
    let sum: i64 = victims
        .iter()
        .map(|victim| i64::from(victim.priority) + (1 << 31))
        .sum();
    let earliest = victims
        .iter()
        .filter(|victim| victim.priority == highest)
        .map(|victim| victim.started.unwrap_or(now))
        .min();
    (
        candidate.violations,
        highest,
        sum,
        victims.len(),
        Reverse(earliest),
    )
}

/// Why no candidate was found.
pub fn message(diagnosis: &Diagnosis, search: &Search) -> String {
    let mut reasons: BTreeMap<Reason, usize> = BTreeMap::new();
    for reason in search
        .unhelpful
        .iter()
        .flat_map(|node| &node.rejection.reasons)
    {
        *reasons.entry(reason.clone()).or_default() += 1;
    }
    let others = diagnosis.nodes.saturating_sub(search.unhelpful.len());
    if others > 0 {
        *reasons.entry(NOT_HELPFUL.into()).or_default() += others;
    }
    Diagnosis {
        nodes: diagnosis.nodes,
        reasons: reasons.into_iter().collect(),
        ..Diagnosis::default()
    }
    .message("")
}
