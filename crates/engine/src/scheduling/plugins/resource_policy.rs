//! Fills the units of a ResourcePolicy by priority, and no unit beyond its maxCount.
//!
//! A unit is the set of nodes that its selector matches. A pod counts in every unit that contains its node, and a node is
//! rejected as soon as one of its units is full. The order of units is a tier, so it holds at any weight. A full unit alone
//! evicts no pod: its nodes are rejected as unresolvable.

use std::sync::Arc;

use crate::model::{
    DELETION_COST, HIGHEST_PRIORITY, Name, Node, NodeSpec, POLICY_UNIT, Pod, PodKind, PolicyGroup,
    PolicyStrategy, SharedSpec, Unit, UnitMark,
};
use crate::scheduling::framework::ResourcePolicy;
use crate::scheduling::framework::arithmetic::{Direction, default_normalize};
use crate::scheduling::framework::{
    Actions, ArgsError, Catalog, Changed, Configure, Count, CountId, Event, EventPattern, Fact,
    FactId, Feasible, Kind, NoArgs, NodeRule, Place, PlaceFilter, PlaceScore, PlaceTier, Plan,
    Plugin, PodRule, PodSet, Point, Points, Reason, Rejection, Verdict,
};

pub struct ResourcePolicyPlugin;

impl Configure for ResourcePolicyPlugin {
    const NAME: &'static str = "resourcepolicy";
    const POINTS: Points = Points::of(&[
        Point::PreFilter,
        Point::Filter,
        Point::PreScore,
        Point::Score,
        Point::PreBind,
    ]);
    type Args = NoArgs;

    fn new(_: NoArgs) -> Result<Self, Vec<ArgsError>> {
        Ok(Self)
    }
}

impl Plugin for ResourcePolicyPlugin {
    fn prepare(&self, pod: &Pod, catalog: &Catalog, plan: &mut Plan) {
        match &catalog.policies_for(pod.namespace(), pod.labels())[..] {
            [] => {}
            [(policy, spec)] => declare(pod, policy, spec, plan),
            several => {
                let names: Vec<&str> = several.iter().map(|(policy, _)| &*policy.name).collect();
                let names = names.join(", ");
                let text = format!("multiple resourcePolicies match pod: {names}");
                plan.reject(Rejection::unresolvable(text));
            }
        }
    }

    fn events(&self) -> Vec<EventPattern> {
        let node = Actions::ADD.and(Actions::DELETE).and(Actions::NODE_LABEL);
        vec![
            EventPattern::new(Kind::ResourcePolicy, Actions::ALL),
            EventPattern::new(Kind::Node, node),
            // That a pod is terminating is a plain update.
            EventPattern::new(Kind::Pod, Actions::DELETE.and(Actions::UPDATE)),
        ]
    }

    fn helps(&self, pod: &Pod, event: &Event, catalog: &Catalog) -> bool {
        if let Changed::ResourcePolicy(change) = &event.changed {
            let is_ours = |policy: &Arc<ResourcePolicy>| policy.selects(&pod.kind);
            return change.old.iter().chain(&change.new).any(is_ours);
        }
        let policies = catalog.policies_for(pod.namespace(), pod.labels());
        if let Some((change, held)) = event.changed.pod() {
            if event.changed.is_update_of(pod) {
                let labels = |pod: &Option<Arc<Pod>>| Some(pod.as_ref()?.labels().clone());
                return labels(&change.old) != labels(&change.new);
            }
            let [(_, spec)] = &policies[..] else {
                return policies.is_empty();
            };
            let counted = Counted::for_pod(pod, spec);
            let counts = |it: &Arc<Pod>| counted.counts_at_all(&it.kind);
            return held
                && change.old.as_ref().is_some_and(counts)
                && !change.new.as_ref().is_some_and(counts);
        }
        let (Changed::Node(change), [(_, spec)]) = (&event.changed, &policies[..]) else {
            return policies.is_empty();
        };
        node_helps(spec, change.old.as_deref(), change.new.as_deref())
    }

    fn annotations(
        &self,
        pod: &Pod,
        node: &NodeSpec,
        catalog: &Catalog,
    ) -> Vec<(&'static str, String)> {
        let policies = catalog.policies_for(pod.namespace(), pod.labels());
        let [(policy, spec)] = &policies[..] else {
            return Vec::new();
        };
        // Its owner has set the cost.
        if pod.has_deletion_cost {
            return Vec::new();
        }
        // No unit is full before the pod is on the node, so the pod is above no cap.
        let mark = UnitMark::new(&policy.name, spec.unit_of(&node.labels), false);
        vec![
            (DELETION_COST, mark.cost.to_string()),
            (POLICY_UNIT, mark.to_string()),
        ]
    }
}

/// A node that comes helps if pods may go there. One that changes or goes helps if its units change: its pods then leave
/// the counts of those.
fn node_helps(spec: &SharedSpec, old: Option<&Node>, new: Option<&Node>) -> bool {
    let units = |node: &Node| -> Vec<usize> {
        let units = spec.units_of(&node.spec.labels);
        units.map(|(index, _)| index).collect()
    };
    match (old.map(units), new.map(units)) {
        (Some(old), Some(new)) => old != new,
        (None, Some(new)) => spec.strategy == PolicyStrategy::Prefer || !new.is_empty(),
        (Some(old), None) => old.iter().any(|unit| spec.units[*unit].max_count.is_some()),
        (None, None) => false,
    }
}

fn declare(pod: &Pod, policy: &ResourcePolicy, spec: &SharedSpec, plan: &mut Plan) {
    let pods = PodSet::new(Counted::for_pod(pod, spec));
    let bits = Fact::new(UnitBits(spec.clone()));
    let caps = spec.units.iter().enumerate();
    let caps = caps.filter_map(|(index, unit)| Some((index, unit.max_count?)));
    let caps: Vec<Cap> = caps
        .map(|(index, max_count)| {
            let contained = Fact::bit(bits.clone(), index as u32);
            Cap {
                unit: index,
                max_count: i64::from(max_count),
                pods: plan.count(Count::in_domain(pods.clone(), contained, Vec::new())),
            }
        })
        .collect();
    let units = Units {
        spec: spec.clone(),
        bits: plan.fact(bits),
    };
    if !caps.is_empty() || spec.strategy == PolicyStrategy::Required {
        plan.filter_places(UnitFilter {
            policy: format!("{}/{}", policy.namespace, policy.name),
            units: units.clone(),
            caps,
        });
    }
    plan.score_places(units.clone());
    plan.tier(units);
}

/// The units that contain the node, as bits.
#[derive(Debug, PartialEq, Eq, Hash)]
struct UnitBits(SharedSpec);

impl NodeRule for UnitBits {
    fn of(&self, node: &NodeSpec) -> u32 {
        self.of_next(node, &mut 0)
    }

    fn of_next(&self, node: &NodeSpec, hint: &mut usize) -> u32 {
        self.0.unit_bits(&node.labels, hint)
    }
}

/// The pods of a group.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Counted {
    namespace: Name,
    spec: SharedSpec,
    group: PolicyGroup,
}

impl Counted {
    fn for_pod(pod: &Pod, spec: &SharedSpec) -> Self {
        Self {
            namespace: pod.namespace().clone(),
            spec: spec.clone(),
            group: spec.group(pod.labels()),
        }
    }

    fn counts_at_all(&self, pod: &PodKind) -> bool {
        pod.namespace == self.namespace && self.counts(pod) != 0
    }
}

impl PodRule for Counted {
    fn counts(&self, pod: &PodKind) -> i64 {
        let counts = self.spec.counts(&pod.labels, pod.terminating);
        i64::from(counts && self.spec.is_in(&self.group, &pod.labels))
    }

    fn namespace(&self) -> Option<&Name> {
        Some(&self.namespace)
    }
}

struct Cap {
    unit: usize,
    max_count: i64,
    /// In the unit.
    pods: CountId,
}

/// Rejects nodes of full units, and nodes in no unit if units are required.
struct UnitFilter {
    policy: String,
    units: Units,
    caps: Vec<Cap>,
}

const NO_UNIT: u8 = 1;
/// The code of the first unit that can be full.
const FULL: u8 = 2;

impl PlaceFilter for UnitFilter {
    fn filter(&self, at: Place) -> Verdict {
        let required = self.units.spec.strategy == PolicyStrategy::Required;
        if required && at.fact(self.units.bits) == 0 {
            return Verdict::unresolvable(NO_UNIT);
        }
        for cap in &self.caps {
            if at.has_domain(cap.pods) && at.count(cap.pods) >= cap.max_count {
                // There are at most 32 units.
                return Verdict::unresolvable(FULL + cap.unit as u8);
            }
        }
        Verdict::FITS
    }

    fn reason(&self, code: u8) -> Reason {
        let policy = &self.policy;
        let unit = code.checked_sub(FULL);
        let unit = unit.and_then(|unit| self.units.spec.units.get(usize::from(unit)));
        let text = match unit {
            None => format!("ResourcePolicy {policy}: node is in no unit"),
            Some(unit) => {
                let (name, max_count) = (&unit.name, unit.max_count.unwrap_or_default());
                format!("ResourcePolicy {policy}: unit \"{name}\" is full (maxCount {max_count})")
            }
        };
        text.into()
    }
}

/// Orders nodes by the priority of their units.
#[derive(Clone)]
struct Units {
    spec: SharedSpec,
    /// [`UnitBits`].
    bits: FactId,
}

impl Units {
    fn unit(&self, at: Place) -> Option<&Unit> {
        self.spec.best_unit(at.fact(self.bits))
    }
}

impl PlaceTier for Units {
    fn tier(&self, at: Place) -> u32 {
        match self.unit(at) {
            Some(unit) => u32::from(HIGHEST_PRIORITY.saturating_sub(unit.priority)),
            None => u32::from(HIGHEST_PRIORITY) + 1,
        }
    }

    fn name(&self, at: Place) -> Name {
        match self.unit(at) {
            Some(unit) => unit.name.clone(),
            None => "-".into(),
        }
    }
}

impl PlaceScore for Units {
    /// The points of the proposal. They only show the order: the tier makes it.
    fn score(&self, at: Place) -> i64 {
        self.unit(at)
            .map_or(0, |unit| 20 * i64::from(unit.priority))
    }

    fn normalize(&self, _: Feasible, scores: &mut [i64]) {
        default_normalize(scores, Direction::Forward);
    }
}

#[cfg(test)]
mod tests;
