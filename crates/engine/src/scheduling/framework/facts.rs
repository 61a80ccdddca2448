//! Facts that several plugins use; equal facts are evaluated once.

use super::{Fact, NodeRule};
use crate::model::{Effect, Name, NodeSpec, RequiredNodes, Taint, Toleration, tolerated};

/// 0 where every taint that repels pods is tolerated.
pub fn forbidding_taint(tolerations: &[Toleration]) -> Fact {
    Fact::new(ForbiddingTaint(tolerations.to_vec()))
}

/// 0 where the node selector and the required node affinity match.
pub fn required_nodes(required: &RequiredNodes) -> Fact {
    Fact::new(Mismatch(required.clone()))
}

/// 0 where all of these labels are present.
pub fn lacks_labels(keys: impl IntoIterator<Item = Name>) -> Fact {
    Fact::new(LacksLabels(keys.into_iter().collect()))
}

/// The number of PreferNoSchedule taints that are not tolerated.
pub fn avoided_taints(tolerations: &[Toleration]) -> Fact {
    let relevant = |t: &&Toleration| {
        t.effect
            .as_ref()
            .is_none_or(|effect| *effect == Effect::PreferNoSchedule)
    };
    Fact::new(AvoidedTaints(
        tolerations.iter().filter(relevant).cloned().collect(),
    ))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ForbiddingTaint(Vec<Toleration>);

impl ForbiddingTaint {
    fn untolerated<'n>(&'n self, node: &'n NodeSpec) -> impl Iterator<Item = &'n Taint> {
        let forbidding = node.taints.iter().filter(|taint| taint.effect.forbids());
        forbidding.filter(|taint| !tolerated(taint, &self.0))
    }
}

impl NodeRule for ForbiddingTaint {
    fn of(&self, node: &NodeSpec) -> u32 {
        u32::from(self.untolerated(node).next().is_some())
    }

    fn detail(&self, node: &NodeSpec) -> Option<String> {
        Some(listed(self.untolerated(node)))
    }
}

/// Taints in one line.
pub(crate) fn listed<'t>(taints: impl Iterator<Item = &'t Taint>) -> String {
    let texts: Vec<String> = taints.map(ToString::to_string).collect();
    texts.join(", ")
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AvoidedTaints(Vec<Toleration>);

impl NodeRule for AvoidedTaints {
    fn of(&self, node: &NodeSpec) -> u32 {
        let avoided = node
            .taints
            .iter()
            .filter(|taint| taint.effect == Effect::PreferNoSchedule);
        avoided.filter(|taint| !tolerated(taint, &self.0)).count() as u32
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Mismatch(RequiredNodes);

impl NodeRule for Mismatch {
    fn of(&self, node: &NodeSpec) -> u32 {
        u32::from(!self.0.matches(node))
    }

    fn detail(&self, node: &NodeSpec) -> Option<String> {
        Some(self.0.mismatch(node))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct LacksLabels(Vec<Name>);

impl NodeRule for LacksLabels {
    fn of(&self, node: &NodeSpec) -> u32 {
        u32::from(!self.0.iter().all(|key| node.labels.contains(key)))
    }
}
