//! The search for pods to evict so that a pod with a higher priority fits, on every node where evicting can help.
//!
//! A dry run: nothing is changed. The rules and messages are those of kube-scheduler's DefaultPreemption. Where it takes
//! any of several equal candidates, this search takes the first in the order of nodes. One rule is our own: a reclaimed
//! pod can evict only reclaimed pods.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::Budget;
use crate::cluster::{Catalog, Cluster, Placed};
use crate::model::{Name, Pod, PreemptionPolicy, Timestamp};
use crate::scheduling::evaluate::{Diagnosis, Refusal, Refusals, Scan, Trial};
use crate::scheduling::framework::{Reason, Rejection, Status, error_list};

/// A node on which the pod fits after some pods are evicted.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub slot: usize,
    pub node: Name,
    /// Most important first; never empty.
    pub victims: Vec<Arc<Pod>>,
    /// Victims whose disruption budget does not allow it.
    pub violations: usize,
}

/// The result of a dry run over all nodes.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// In the order of slots.
    pub candidates: Vec<Candidate>,
    /// Nodes where evicting does not help, in the order of slots.
    pub unhelpful: Vec<Unhelpful>,
}

impl Search {
    /// The errors of plugins, if there is no candidate and a plugin failed.
    pub fn failure(&self) -> Option<String> {
        if !self.candidates.is_empty() {
            return None;
        }
        let refusals = self
            .unhelpful
            .iter()
            .filter_map(|tried| tried.refusal.as_ref());
        let texts: Vec<String> = refusals.filter_map(Refusal::failure).collect();
        (!texts.is_empty()).then(|| error_list(&texts))
    }
}

/// A node where the pod does not fit even without the pods of lower priority.
#[derive(Debug, Clone, PartialEq)]
pub struct Unhelpful {
    pub slot: usize,
    /// Why it does not fit; `None` if there are no pods of lower priority.
    pub refusal: Option<Refusal>,
}

impl Unhelpful {
    /// The plugin that rejects the node, if there are pods of lower priority, and the rejection. The scan must be that of
    /// the search.
    pub fn rejection(&self, scan: &Scan) -> (Option<&'static str>, Rejection) {
        match &self.refusal {
            None => (None, Rejection::unresolvable(NO_VICTIMS)),
            Some(refusal) => {
                let (plugin, rejection) = refusal.rejection(scan);
                (Some(plugin), rejection)
            }
        }
    }
}

const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";

/// How preemption for a pod ends, for explanations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PreemptionOutcome {
    /// No plugin tried it.
    NotTried,
    /// Some pods can be evicted.
    Found,
    /// Evicting pods helps on no node.
    NoCandidate,
    /// The pod's preemptionPolicy is Never.
    PolicyNever,
    /// Pods that it preempted on its nominated node terminate.
    VictimsTerminate,
    /// Extenders or QoS levels forbid every candidate.
    NoneAllowed,
    /// A plugin or an extender failed.
    Failed,
    /// An outcome of another version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl From<Ineligible> for PreemptionOutcome {
    fn from(why: Ineligible) -> Self {
        match why {
            Ineligible::PolicyNever => Self::PolicyNever,
            Ineligible::VictimsTerminate => Self::VictimsTerminate,
        }
    }
}

/// Why a pod may not preempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ineligible {
    PolicyNever,
    /// Pods that it preempted on its nominated node terminate.
    VictimsTerminate,
}

impl Ineligible {
    /// As in the pod's condition.
    pub fn message(self) -> &'static str {
        match self {
            Self::PolicyNever => "not eligible due to preemptionPolicy=Never.",
            Self::VictimsTerminate => {
                "not eligible due to a terminating pod on the nominated node."
            }
        }
    }
}

/// Whether the pod may preempt now; else why not.
pub fn eligible(cluster: &Cluster, pod: &Pod, diagnosis: &Diagnosis) -> Result<(), Ineligible> {
    if pod.preemption_policy == PreemptionPolicy::Never {
        return Err(Ineligible::PolicyNever);
    }
    let nominated = pod.nominated_node.as_deref();
    let Some(slot) = nominated.and_then(|node| cluster.nodes().slot(node)) else {
        return Ok(());
    };
    let given_up = diagnosis
        .statuses
        .iter()
        .any(|node| node.slot == slot && node.status == Status::Unresolvable);
    // A preemption on that node is in progress: wait for it.
    let leaving =
        |other: &Pod| other.priority < pod.priority && other.kind.terminating && other.preempted;
    if !given_up && cluster.pods_on(slot).any(|placed| leaving(&placed.pod)) {
        return Err(Ineligible::VictimsTerminate);
    }
    Ok(())
}

/// Which candidates a search returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchScope {
    /// Only the candidate with the least harm.
    Best,
    /// All of them, for extenders and explanations.
    All,
}

/// Searches every node where removing pods can help for victims.
pub fn search(scan: &Scan, diagnosis: &Diagnosis, scope: SearchScope, now: Timestamp) -> Search {
    let (cluster, pod) = (scan.cluster(), scan.pod());
    let mut found = Search::default();
    let mut trial = Trial::new(scan);
    let (mut lesser, mut victims) = (Vec::new(), Vec::new());
    let mut least = None;
    let potential = diagnosis
        .statuses
        .iter()
        .filter(|node| node.status == Status::Unschedulable);
    for slot in potential.map(|node| node.slot) {
        lesser.clear();
        let lower = cluster
            .pods_on(slot)
            .filter(|other| other.priority < pod.priority && pod.may_harm(&other.pod));
        lesser.extend(lower);
        let catalog = cluster.catalog();
        let violations =
            match select_victims(&mut trial, slot, &mut lesser, &mut victims, catalog, now) {
                Ok(violations) => violations,
                Err(unhelpful) => {
                    found.unhelpful.push(unhelpful);
                    continue;
                }
            };
        if scope == SearchScope::Best {
            let harm = harm(
                violations,
                victims.iter().map(|v| (v.priority, v.started)),
                now,
            );
            if least.as_ref().is_some_and(|least| harm >= *least) {
                continue;
            }
            least = Some(harm);
            found.candidates.clear();
        }
        let Some(entry) = cluster.nodes().get(slot) else {
            continue;
        };
        found.candidates.push(Candidate {
            slot,
            node: entry.node.spec.name.clone(),
            victims: victims.iter().map(|victim| victim.pod.clone()).collect(),
            violations,
        });
    }
    found
}

/// Puts into `victims` the fewest and least important pods whose removal lets the pod fit. Returns how many of them
/// violate a disruption budget.
fn select_victims<'s>(
    trial: &mut Trial<'s, '_>,
    slot: usize,
    lesser: &mut [&'s Placed],
    victims: &mut Vec<&'s Placed>,
    catalog: &Catalog,
    now: Timestamp,
) -> Result<usize, Unhelpful> {
    if lesser.is_empty() {
        return Err(Unhelpful {
            slot,
            refusal: None,
        });
    }
    let importance = |pod: &&Placed| (Reverse(pod.priority), pod.started.unwrap_or(now));
    lesser.sort_by_key(importance);
    trial.reset_to_node(slot, lesser);
    (0..lesser.len()).for_each(|pod| trial.remove(pod));
    let refused = |refusal| Unhelpful {
        slot,
        refusal: Some(refusal),
    };
    trial.verdict().map_err(refused)?;
    let violating = violating(lesser, catalog);
    victims.clear();
    let mut violations = 0;
    for round in [true, false] {
        for (index, placed) in lesser.iter().enumerate() {
            if violating.get(index).is_some_and(|violates| *violates) != round {
                continue;
            }
            trial.put_back(index);
            if !trial.fits().map_err(refused)? {
                trial.remove(index);
                victims.push(*placed);
                violations += usize::from(round);
            }
        }
    }
    victims.sort_by_key(importance);
    Ok(violations)
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

/// The candidates with the least harm. All are equal; callers take the first.
pub fn best(candidates: &[Candidate], now: Timestamp) -> Vec<&Candidate> {
    let harm_of = |candidate: &Candidate| {
        let victims = candidate.victims.iter();
        harm(
            candidate.violations,
            victims.map(|victim| (victim.priority, victim.started)),
            now,
        )
    };
    let harms: Vec<_> = candidates.iter().map(harm_of).collect();
    let Some(least) = harms.iter().min() else {
        return Vec::new();
    };
    let equals = candidates.iter().zip(&harms);
    equals
        .filter_map(|(candidate, harm)| (harm == least).then_some(candidate))
        .collect()
}

/// The criteria by which candidates are compared, in this order. Victims come with priority and start, most important first.
fn harm(
    violations: usize,
    victims: impl Iterator<Item = (i32, Option<Timestamp>)> + Clone,
    now: Timestamp,
) -> (usize, i32, i64, usize, Reverse<Option<Timestamp>>) {
    let highest = victims.clone().next().map_or(0, |(priority, _)| priority);
    // Priorities are lifted above zero, so that each further victim counts.
    let lifted = victims
        .clone()
        .map(|(priority, _)| i64::from(priority) + (1 << 31));
    let earliest = victims
        .clone()
        .filter(|(priority, _)| *priority == highest)
        .map(|(_, started)| started.unwrap_or(now))
        .min();
    (
        violations,
        highest,
        lifted.sum(),
        victims.count(),
        Reverse(earliest),
    )
}

/// Why no candidate was found.
pub fn message(diagnosis: &Diagnosis, search: &Search, scan: &Scan) -> String {
    let mut refusals = Refusals::default();
    let refused = search
        .unhelpful
        .iter()
        .filter_map(|node| node.refusal.as_ref());
    refused.for_each(|refusal| refusals.add(refusal));
    let mut reasons: BTreeMap<Reason, usize> = BTreeMap::new();
    for (refusal, nodes) in refusals.iter() {
        for reason in refusal.rejection(scan).1.reasons {
            *reasons.entry(reason).or_default() += nodes;
        }
    }
    let empty = search
        .unhelpful
        .iter()
        .filter(|node| node.refusal.is_none());
    let empty = empty.count();
    if empty > 0 {
        *reasons.entry(NO_VICTIMS.into()).or_default() += empty;
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
