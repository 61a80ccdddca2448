//! Plans what the controller of ResourcePolicies writes: the deletion costs of pods and the status of policies.
//!
//! Counts come from the functions of the model that the plugin uses too, so that both count the same pods.

mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::ResourcePolicy;
use crate::model::{CountedPod, Labels, Name, PolicySpec, Timestamp, Unit, UnitMark, above_cap};
pub use status::{Condition, DELETION_COST_CONFLICT, PolicyStatus, UnitStatus};

/// What the controller knows of one namespace.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// In the order of their names.
    pub policies: &'a [Arc<ResourcePolicy>],
    /// In the order of their names, without those that have ended.
    pub pods: &'a [Arc<PolicyPod>],
    /// The labels of all nodes of the cluster.
    pub nodes: &'a BTreeMap<Name, Labels>,
}

/// A pod, as far as policies are about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyPod {
    pub name: Name,
    pub uid: Name,
    pub labels: Labels,
    pub node: Option<Name>,
    pub created: Timestamp,
    pub terminating: bool,
    /// It has annotations of any kind.
    pub annotated: bool,
    /// The annotation [`crate::model::DELETION_COST`].
    pub cost: Option<Name>,
    /// The annotation [`crate::model::POLICY_UNIT`].
    pub mark: Option<Name>,
}

impl PolicyPod {
    /// What the pod is after the change.
    pub fn apply(&mut self, change: &CostChange) {
        self.mark = None;
        match change {
            CostChange::Set(mark) => {
                self.annotated = true;
                self.cost = Some(mark.cost.to_string().into());
                self.mark = Some(mark.to_string().into());
            }
            CostChange::Remove => self.cost = None,
            CostChange::RemoveMark => {}
        }
    }
}

/// What to write.
#[derive(Debug, Default, PartialEq)]
pub struct PolicyActions {
    /// Pods whose annotations are not as they should be, in the order of their names.
    pub costs: Vec<(Arc<PolicyPod>, CostChange)>,
    /// The status of every policy, in their order.
    pub statuses: Vec<PolicyStatus>,
}

/// How the two annotations of a pod change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CostChange {
    /// To this mark and its cost.
    Set(UnitMark),
    /// Both go.
    Remove,
    /// The mark goes. The cost belongs to another writer and stays.
    RemoveMark,
}

/// The policies that select a pod.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Matching {
    None,
    One,
    Several,
}

pub fn plan(observed: &Observed) -> PolicyActions {
    let policies: Vec<_> = observed.policies.iter().collect();
    let counts: Vec<Option<Counts>> = policies
        .iter()
        .map(|policy| Some(Counts::new(policy, policy.spec.as_ref().ok()?, observed)))
        .collect();
    let mut matching = vec![Matching::None; observed.pods.len()];
    for pod in counts.iter().flatten().flat_map(|it| &it.pods) {
        let matching = &mut matching[pod.index];
        *matching = match matching {
            Matching::None => Matching::One,
            Matching::One | Matching::Several => Matching::Several,
        };
    }
    let mut costs: Vec<(usize, CostChange)> = Vec::new();
    for (index, pod) in observed.pods.iter().enumerate() {
        if matching[index] == Matching::None && is_written(pod) {
            costs.extend(unmatched(pod).map(|change| (index, change)));
        }
    }
    for counts in counts.iter().flatten() {
        for pod in &counts.pods {
            let observed = &observed.pods[pod.index];
            if matching[pod.index] == Matching::One && is_written(observed) {
                let change = matched(observed, counts.mark(pod));
                costs.extend(change.map(|change| (pod.index, change)));
            }
        }
    }
    costs.sort_by_key(|(index, _)| *index);
    let statuses = policies.iter().zip(&counts);
    PolicyActions {
        statuses: statuses
            .map(|(policy, own)| status::status(policy, own.as_ref(), &counts, observed, &matching))
            .collect(),
        costs: costs
            .into_iter()
            .map(|(index, change)| (observed.pods[index].clone(), change))
            .collect(),
    }
}

/// A pod without a node costs nothing yet, and one that is terminating is never chosen for deletion.
fn is_written(pod: &PolicyPod) -> bool {
    pod.node.is_some() && !pod.terminating
}

/// The writer of a pod's cost.
enum CostOwner {
    Unset,
    /// With this mark.
    Us(UnitMark),
    /// A user, a template or another controller.
    Another,
}

fn owner(pod: &PolicyPod) -> CostOwner {
    let mark = pod.mark.as_deref().and_then(UnitMark::parse);
    match (pod.cost.as_deref(), mark) {
        (None, None) => CostOwner::Unset,
        (Some(cost), Some(mark)) if *cost == *mark.cost.to_string() => CostOwner::Us(mark),
        _ => CostOwner::Another,
    }
}

fn matched(pod: &PolicyPod, want: UnitMark) -> Option<CostChange> {
    match owner(pod) {
        CostOwner::Us(mark) if mark == want => None,
        CostOwner::Us(_) | CostOwner::Unset => Some(CostChange::Set(want)),
        CostOwner::Another => None,
    }
}

fn unmatched(pod: &PolicyPod) -> Option<CostChange> {
    pod.mark.as_ref()?;
    Some(match owner(pod) {
        CostOwner::Us(_) => CostChange::Remove,
        CostOwner::Unset | CostOwner::Another => CostChange::RemoveMark,
    })
}

/// The pods and nodes of a policy.
struct Counts<'a> {
    policy: &'a ResourcePolicy,
    spec: &'a PolicySpec,
    units: Vec<UnitCounts>,
    /// Nodes in several units, and the first of them with its units.
    overlapping: usize,
    first_overlapping: Option<(&'a Name, Vec<usize>)>,
    /// All that the policy selects, in their order.
    pods: Vec<SelectedPod<'a>>,
}

#[derive(Default)]
struct UnitCounts {
    nodes: usize,
    pods: usize,
    over_limit: usize,
}

struct SelectedPod<'a> {
    /// In [`Observed::pods`].
    index: usize,
    /// It is on a node and counts.
    counts: bool,
    unit: Option<&'a Unit>,
    above_cap: bool,
}

impl<'a> Counts<'a> {
    fn new(policy: &'a ResourcePolicy, spec: &'a PolicySpec, observed: &Observed<'a>) -> Self {
        let mut counts = Self {
            policy,
            spec,
            units: spec.units.iter().map(|_| UnitCounts::default()).collect(),
            overlapping: 0,
            first_overlapping: None,
            pods: Vec::new(),
        };
        counts.count_nodes(observed.nodes);
        counts.count_pods(observed);
        counts
    }

    fn count_nodes(&mut self, nodes: &'a BTreeMap<Name, Labels>) {
        for (name, labels) in nodes {
            let units: Vec<usize> = self.spec.units_of(labels).map(|(index, _)| index).collect();
            for unit in &units {
                self.units[*unit].nodes += 1;
            }
            if units.len() > 1 {
                self.overlapping += 1;
                self.first_overlapping.get_or_insert((name, units));
            }
        }
    }

    fn count_pods(&mut self, observed: &Observed<'a>) {
        let spec = self.spec;
        // By unit: positions in `self.pods`, and what their ages are compared by.
        let mut capped: Vec<(Vec<usize>, Vec<CountedPod>)> =
            spec.units.iter().map(|_| Default::default()).collect();
        for (index, pod) in observed.pods.iter().enumerate() {
            if !spec.selects(&pod.labels) {
                continue;
            }
            let node = pod.node.as_ref();
            let labels = node.and_then(|node| observed.nodes.get(node));
            let counts = node.is_some() && spec.counts(&pod.labels, pod.terminating);
            let counted_in = labels.filter(|_| counts).into_iter();
            for (unit, _) in counted_in.flat_map(|labels| spec.units_of(labels)) {
                self.units[unit].pods += 1;
                let (positions, pods) = &mut capped[unit];
                positions.push(self.pods.len());
                pods.push(CountedPod {
                    created: pod.created,
                    uid: &pod.uid,
                    group: spec.group(&pod.labels),
                });
            }
            self.pods.push(SelectedPod {
                index,
                counts,
                unit: labels.and_then(|labels| spec.unit_of(labels)),
                above_cap: false,
            });
        }
        for (index, (positions, pods)) in capped.into_iter().enumerate() {
            let Some(max_count) = spec.units[index].max_count else {
                continue;
            };
            let above = above_cap(&pods, max_count);
            for (position, above) in positions.into_iter().zip(above) {
                self.units[index].over_limit += usize::from(above);
                self.pods[position].above_cap |= above;
            }
        }
    }

    fn mark(&self, pod: &SelectedPod) -> UnitMark {
        UnitMark::new(&self.policy.name, pod.unit, pod.above_cap)
    }
}

#[cfg(test)]
mod tests;
