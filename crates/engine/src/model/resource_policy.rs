//! What a ResourcePolicy says about pods and nodes: which unit contains a node, which pods count in which group, which of
//! them are above a cap, and what each costs. The plugin and the controller both count with these functions.
//!
//! Everything follows from the policy, the labels of nodes and the pods as they are now; nothing is remembered.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use hashbrown::HashMap;

use super::{Labels, Name, Selector, Timestamp};

/// The annotation by which the ReplicaSet controller chooses the pods to delete: those with the lowest cost first.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The annotation with our [`UnitMark`].
pub const POLICY_UNIT: &str = "tidepool.io/policy-unit";

/// The highest priority of a unit.
pub const HIGHEST_PRIORITY: u16 = 1000;
/// The highest `maxCount` of a unit.
pub const HIGHEST_MAX_COUNT: u32 = 100_000;

/// A valid spec of a ResourcePolicy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PolicySpec {
    pub pods: Selector,
    /// Labels by whose values pods are counted separately.
    pub match_label_keys: Vec<Name>,
    pub ignore_terminating: bool,
    pub strategy: PolicyStrategy,
    pub units: Vec<Unit>,
}

/// What becomes of nodes that are in no unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PolicyStrategy {
    /// Pods do not go there.
    #[default]
    Required,
    /// Pods go there after all others.
    Prefer,
}

/// The nodes that a selector matches now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Unit {
    /// Unique in the policy. A unit without a name is called by its index.
    pub name: Name,
    /// 0 to [`HIGHEST_PRIORITY`]; the highest is filled first.
    pub priority: u16,
    /// At most this many pods of a group; `None` for no limit, 0 for no more pods.
    pub max_count: Option<u32>,
    pub nodes: Selector,
}

impl PolicySpec {
    /// Whether the policy is about a pod with these labels in its namespace.
    pub fn selects(&self, pod: &Labels) -> bool {
        self.pods.matches(pod)
    }

    /// Whether a pod of the namespace counts in its group, if it is on a node and has not ended.
    pub fn counts(&self, pod: &Labels, terminating: bool) -> bool {
        !(terminating && self.ignore_terminating) && self.selects(pod)
    }

    /// The group that a pod with these labels counts its units in.
    pub fn group(&self, pod: &Labels) -> PolicyGroup {
        let values = self.match_label_keys.iter();
        PolicyGroup(
            values
                .map(|key| pod.get_name(key).cloned())
                .collect::<Vec<_>>(),
        )
    }

    /// Whether a pod with these labels is in the group. It is without its own [`PolicyGroup`], because one is asked for many pods.
    pub fn is_in(&self, group: &PolicyGroup, pod: &Labels) -> bool {
        let values = self.match_label_keys.iter().zip(&group.0);
        values.into_iter().all(|(key, value)| match value {
            None => true,
            Some(value) => pod.get(key) == Some(value),
        })
    }

    /// The units that contain a node with these labels, with their indices, in the order of the list.
    pub fn units_of(&self, node: &Labels) -> impl Iterator<Item = (usize, &Unit)> {
        let bits = self.unit_bits(node, &mut 0);
        let units = self.units.iter().enumerate();
        units.filter(move |(index, _)| has_bit(bits, *index))
    }

    /// The units that contain a node with these labels, as bits: there are at most 32. Many nodes are asked about, so a key
    /// that several units ask for is looked up once, and first in the place that it had on the node before.
    pub(crate) fn unit_bits(&self, node: &Labels, hint: &mut usize) -> u32 {
        let mut last: Option<(&str, Option<&str>)> = None;
        let mut bits = 0;
        for (index, unit) in self.units.iter().enumerate() {
            let mut all = !unit.nodes.is_nothing();
            for requirement in unit.nodes.requirements() {
                let value = match last {
                    Some((key, value)) if key == requirement.key() => value,
                    _ => {
                        let position = node.position_near(requirement.key(), hint);
                        position.map(|position| &**node.value_at(position))
                    }
                };
                last = Some((requirement.key(), value));
                all &= requirement.matches_value(value);
            }
            bits |= u32::from(all) << index;
        }
        bits
    }

    /// The unit whose priority a node with these labels has: the highest, and of several the first in the list.
    pub fn unit_of(&self, node: &Labels) -> Option<&Unit> {
        self.best_unit(self.unit_bits(node, &mut 0))
    }

    /// The unit with the highest priority among these, and of several the first in the list.
    pub fn best_unit(&self, bits: u32) -> Option<&Unit> {
        let mut best: Option<&Unit> = None;
        for (index, unit) in self.units.iter().enumerate() {
            let is_better = best.is_none_or(|best| unit.priority > best.priority);
            if is_better && has_bit(bits, index) {
                best = Some(unit);
            }
        }
        best
    }
}

fn has_bit(bits: u32, index: usize) -> bool {
    bits & (1 << index) != 0
}

/// The values of a pod's `matchLabelKeys`, in their order. `None`, where the pod has no such label, stands for all values:
/// the pod then counts all pods, and only pods without the label count it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PolicyGroup(Vec<Option<Name>>);

/// A pod that counts in a unit, as far as its age matters.
#[derive(Debug, Clone)]
pub struct CountedPod<'a> {
    pub created: Timestamp,
    pub uid: &'a str,
    pub group: PolicyGroup,
}

/// Which of the pods that count in a unit are above its cap: in the group of each, at least `max_count` pods are older. The
/// uid decides between pods of the same second.
pub fn above_cap(pods: &[CountedPod], max_count: u32) -> Vec<bool> {
    let mut by_age: Vec<usize> = (0..pods.len()).collect();
    by_age.sort_by_key(|index| (pods[*index].created, pods[*index].uid));
    // Pods with the same keys missing look at the others alike: at their values of the keys that are left.
    let keys = |group: &PolicyGroup| group.0.iter().map(Option::is_some).collect::<Vec<bool>>();
    let views: BTreeSet<Vec<bool>> = pods.iter().map(|pod| keys(&pod.group)).collect();
    let mut older: HashMap<(&[bool], Vec<Option<&Name>>), u32> = HashMap::new();
    let mut above = vec![false; pods.len()];
    for index in by_age {
        let group = &pods[index].group;
        let own = keys(group);
        for view in &views {
            let seen = group.0.iter().zip(view);
            let seen = seen.map(|(value, kept)| value.as_ref().filter(|_| *kept));
            let seen: Vec<Option<&Name>> = seen.collect();
            let pods = older.entry((view, seen)).or_default();
            if *view == own {
                above[index] = *pods >= max_count;
            }
            *pods += 1;
        }
    }
    above
}

/// The deletion cost of a pod in a unit, or outside of all. Of several units it is the one of [`PolicySpec::unit_of`]; a pod
/// is above a cap if it is in any of them.
pub fn deletion_cost(unit: Option<&Unit>, above_cap: bool) -> i32 {
    match unit {
        None => 0,
        Some(unit) if above_cap => i32::from(unit.priority) - i32::from(HIGHEST_PRIORITY) - 1,
        Some(unit) => i32::from(unit.priority) + 1,
    }
}

/// `POLICY/UNIT=COST`: says which cost of a pod is ours, and why. The unit is `-` outside of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitMark {
    pub policy: Name,
    pub unit: Option<Name>,
    pub cost: i32,
}

impl UnitMark {
    pub fn new(policy: &Name, unit: Option<&Unit>, above_cap: bool) -> Self {
        Self {
            policy: policy.clone(),
            unit: unit.map(|unit| unit.name.clone()),
            cost: deletion_cost(unit, above_cap),
        }
    }

    /// `None` if it is none of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let (policy, rest) = text.split_once('/')?;
        let (unit, cost) = rest.split_once('=')?;
        let mark = Self {
            policy: policy.into(),
            unit: (unit != OUTSIDE).then(|| unit.into()),
            cost: cost.parse().ok()?,
        };
        // Numbers have several forms, and only one is ours.
        (mark.to_string() == text).then_some(mark)
    }
}

const OUTSIDE: &str = "-";

impl fmt::Display for UnitMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.unit.as_deref().unwrap_or(OUTSIDE);
        write!(f, "{}/{unit}={}", self.policy, self.cost)
    }
}

/// Shared, because every decision about a pod of the policy keeps it.
pub type SharedSpec = Arc<PolicySpec>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Requirement;

    fn labels(text: &str) -> Labels {
        let pairs = text.split_whitespace();
        pairs.filter_map(|pair| pair.split_once('=')).collect()
    }

    fn selector(text: &str) -> Selector {
        Selector::pairs(&labels(text))
    }

    fn unit(name: &str, priority: u16, max_count: Option<u32>, nodes: &str) -> Unit {
        Unit {
            name: name.into(),
            priority,
            max_count,
            nodes: selector(nodes),
        }
    }

    fn spec() -> PolicySpec {
        PolicySpec {
            pods: Selector::all([Requirement::equals("app", "web")]),
            match_label_keys: vec!["hash".into(), "track".into()],
            ignore_terminating: true,
            strategy: PolicyStrategy::Prefer,
            units: vec![
                unit("low", 1, Some(2), "size=any"),
                unit("first", 9, None, "kind=reserved"),
                unit("second", 9, Some(0), "kind=reserved size=any"),
            ],
        }
    }

    #[test]
    fn units_of_a_node_and_its_priority() {
        for (node, units, best) in [
            ("", vec![], None),
            ("size=any", vec![0], Some("low")),
            ("kind=reserved", vec![1], Some("first")),
            ("kind=reserved size=any", vec![0, 1, 2], Some("first")),
        ] {
            let (spec, node) = (spec(), labels(node));
            let found: Vec<usize> = spec.units_of(&node).map(|(index, _)| index).collect();
            assert_eq!(found, units, "{node:?}");
            assert_eq!(
                spec.unit_of(&node).map(|unit| &*unit.name),
                best,
                "{node:?}"
            );
        }
    }

    #[test]
    fn a_missing_key_stands_for_all_values() {
        for (whose, other, counts) in [
            ("app=web hash=1 track=a", "app=web hash=1 track=a", true),
            ("app=web hash=1 track=a", "app=web hash=2 track=a", false),
            ("app=web hash=1 track=a", "app=web hash=1", false),
            ("app=web hash=1", "app=web hash=1 track=a", true),
            ("app=web", "app=web hash=1 track=a", true),
            // Values are compared one by one, not as one text.
            ("app=web hash=a track=bc", "app=web hash=ab track=c", false),
        ] {
            let (spec, whose, other) = (spec(), labels(whose), labels(other));
            let group = spec.group(&whose);
            assert_eq!(spec.is_in(&group, &other), counts, "{whose:?} {other:?}");
        }
        let spec = spec();
        assert!(!spec.counts(&labels("app=db"), false));
        assert!(spec.counts(&labels("app=web"), false));
        assert!(!spec.counts(&labels("app=web"), true), "terminating");
    }

    #[test]
    fn the_youngest_of_each_group_are_above_the_cap() {
        let spec = spec();
        let pod = |uid, created, text: &str| CountedPod {
            created: Timestamp(created),
            uid,
            group: spec.group(&labels(text)),
        };
        let pods = [
            pod("c", 5, "hash=1 track=a"),
            pod("b", 7, "hash=1 track=a"),
            pod("a", 7, "hash=1 track=a"),
            pod("d", 1, "hash=2 track=a"),
            pod("e", 2, "hash=1"),
            pod("f", 3, ""),
        ];
        for (max_count, above) in [
            (0, [true; 6]),
            // The order in hash 1 is c, a, b. For e nothing of hash 1 is older, for f all of d and e.
            (1, [false, true, true, false, false, true]),
            (2, [false, true, false, false, false, true]),
            (3, [false; 6]),
        ] {
            assert_eq!(above_cap(&pods, max_count), above, "{max_count}");
            // The definition gives equal results.
            let older = |index: usize| {
                let of = &pods[index];
                let is_older =
                    |other: &&CountedPod| (other.created, other.uid) < (of.created, of.uid);
                let counts = |other: &&CountedPod| {
                    let pairs = of.group.0.iter().zip(&other.group.0);
                    pairs
                        .into_iter()
                        .all(|(own, its)| own.is_none() || own == its)
                };
                pods.iter().filter(is_older).filter(counts).count()
            };
            let defined: Vec<bool> = (0..6).map(|i| older(i) >= max_count as usize).collect();
            assert_eq!(above_cap(&pods, max_count), defined, "{max_count}");
        }
    }

    #[test]
    fn costs_and_marks() {
        let policy = Name::from("web");
        for (case, priority, above, cost, mark) in [
            ("outside", None, false, 0, "web/-=0"),
            ("the default priority", Some(0), false, 1, "web/u=1"),
            ("the highest", Some(1000), false, 1001, "web/u=1001"),
            ("above the cap", Some(0), true, -1001, "web/u=-1001"),
            ("the highest above it", Some(1000), true, -1, "web/u=-1"),
        ] {
            let unit = priority.map(|priority| unit("u", priority, None, ""));
            assert_eq!(deletion_cost(unit.as_ref(), above), cost, "{case}");
            let found = UnitMark::new(&policy, unit.as_ref(), above);
            assert_eq!(found.to_string(), mark, "{case}");
            assert_eq!(UnitMark::parse(mark), Some(found), "{case}");
        }
        for text in [
            "", "web", "web/u", "web/u=", "web/u=+1", "web/u=01", "web/u=1 ", "web=1",
        ] {
            assert_eq!(UnitMark::parse(text), None, "`{text}`");
        }
    }
}
