//! Rejects nodes with taints that the pod does not tolerate, and prefers nodes with fewer such PreferNoSchedule taints.

use crate::model::{Node, Pod, tolerated};
use crate::scheduling::framework::arithmetic::{Direction, default_normalize};
use crate::scheduling::framework::{
    Actions, Catalog, Changed, Configure, Event, EventPattern, FactId, Feasible, Kind, Place,
    PlaceScore, Plan, Plugin, Point, Points, facts,
};
use crate::scheduling::framework::{ArgsError, NoArgs};

pub struct TaintToleration;

impl Configure for TaintToleration {
    const NAME: &'static str = "TaintToleration";
    const POINTS: Points = Points::of(&[Point::Filter, Point::PreScore, Point::Score]);
    type Args = NoArgs;

    fn new(_: NoArgs) -> Result<Self, Vec<ArgsError>> {
        Ok(Self)
    }
}

impl Plugin for TaintToleration {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        plan.gate(
            facts::forbidding_taint(&pod.tolerations),
            "node(s) had untolerated taint(s)",
        );
        let avoided = plan.fact(facts::avoided_taints(&pod.tolerations));
        plan.score_places(FewerTaints { avoided });
    }

    fn events(&self) -> Vec<EventPattern> {
        vec![
            EventPattern::new(Kind::Node, Actions::ADD.and(Actions::NODE_TAINT)),
            EventPattern::new(Kind::Pod, Actions::POD_TOLERATION),
        ]
    }

    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        match &event.changed {
            Changed::Node(change) => {
                change.old.as_ref().is_none_or(|old| forbidden(old, pod))
                    && change.new.as_ref().is_some_and(|new| !forbidden(new, pod))
            }
            changed => changed.is_update_of(pod),
        }
    }
}

fn forbidden(node: &Node, pod: &Pod) -> bool {
    node.spec
        .taints
        .iter()
        .any(|taint| taint.effect.forbids() && !tolerated(taint, &pod.tolerations))
}

/// Prefers nodes with fewer taints that are not tolerated.
pub(super) struct FewerTaints {
    pub(super) avoided: FactId,
}

impl PlaceScore for FewerTaints {
    fn score(&self, at: Place) -> i64 {
        i64::from(at.fact(self.avoided))
    }

    fn normalize(&self, _: Feasible, scores: &mut [i64]) {
        default_normalize(scores, Direction::Reverse);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, node, pod};

    #[test]
    fn forbidding_taints() {
        let taint = "UU node(s) had untolerated taint(s)";
        for (case, taint_effect, toleration, want) in [
            ("no toleration", "NoSchedule", None, taint),
            (
                "tolerated",
                "NoSchedule",
                Some(("k", "v", "NoSchedule")),
                "ok",
            ),
            (
                "another effect",
                "NoExecute",
                Some(("k", "v", "NoSchedule")),
                taint,
            ),
            ("any effect", "NoExecute", Some(("k", "v", "")), "ok"),
            ("another value", "NoSchedule", Some(("k", "w", "")), taint),
            ("discouraging only", "PreferNoSchedule", None, "ok"),
        ] {
            let lab = Lab::new(TaintToleration).node(node("n").taint("k", "v", taint_effect));
            let pod = toleration
                .into_iter()
                .fold(pod("p"), |pod, (k, v, effect)| pod.tolerates(k, v, effect));
            assert_eq!(lab.filter(&pod), [want], "{case}");
        }
    }

    #[test]
    fn an_explanation_names_the_taints_that_are_not_tolerated() {
        let lab = Lab::new(TaintToleration)
            .node(
                node("n")
                    .taint("k", "v", "NoSchedule")
                    .taint("soft", "", "PreferNoSchedule")
                    .taint("gone", "", "NoExecute"),
            )
            .node(node("m"));
        let told = |pod| lab.explain(&pod).remove(0);
        let taints = "node(s) had untolerated taint(s): ";
        assert_eq!(
            told(pod("p")),
            format!("{taints}k=v:NoSchedule, gone:NoExecute")
        );
        let tolerant = pod("p").tolerates("k", "v", "");
        assert_eq!(told(tolerant), format!("{taints}gone:NoExecute"));
        assert_eq!(lab.explain(&pod("p"))[1], "");
    }

    #[test]
    fn discouraging_taints_are_counted() {
        for (case, taints, want) in [
            (
                "one",
                [
                    vec!["PreferNoSchedule"; 0],
                    vec!["PreferNoSchedule"],
                    vec![],
                ],
                vec![(0, 100), (1, 0), (0, 100)],
            ),
            (
                "two",
                [
                    vec![],
                    vec!["PreferNoSchedule"],
                    vec!["PreferNoSchedule"; 2],
                ],
                vec![(0, 100), (1, 50), (2, 0)],
            ),
            (
                "three",
                [
                    vec![],
                    vec!["PreferNoSchedule"],
                    vec!["PreferNoSchedule"; 3],
                ],
                vec![(0, 100), (1, 67), (3, 0)],
            ),
            (
                "none",
                [vec![], vec![], vec![]],
                vec![(0, 100), (0, 100), (0, 100)],
            ),
        ] {
            let nodes = taints.iter().enumerate().map(|(i, effects)| {
                effects
                    .iter()
                    .enumerate()
                    .fold(node(&format!("n{i}")), |node, (k, effect)| {
                        node.taint(&format!("k{k}"), "v", effect)
                    })
            });
            let lab = nodes.fold(Lab::new(TaintToleration), Lab::node);
            assert_eq!(lab.scores(&pod("p")), Some(want), "{case}");
        }
    }

    #[test]
    fn tolerations_of_other_effects_do_not_help_the_score() {
        let lab = Lab::new(TaintToleration)
            .node(node("a").taint("k", "v", "PreferNoSchedule"))
            .node(node("b"));
        assert_eq!(
            lab.scores(&pod("p").tolerates("k", "v", "NoSchedule")),
            Some(vec![(1, 0), (0, 100)])
        );
        assert_eq!(
            lab.scores(&pod("p").tolerates("k", "v", "")),
            Some(vec![(0, 100), (0, 100)])
        );
    }

    #[test]
    fn hints() {
        let tainted = || node("n").taint("k", "v", "NoSchedule");
        for (case, old, new, want) in [
            ("a clean node came", None, Some(node("n")), true),
            ("a tainted node came", None, Some(tainted()), false),
            ("the taint went", Some(tainted()), Some(node("n")), true),
            (
                "it was clean before",
                Some(node("n")),
                Some(node("n").label("a", "b")),
                false,
            ),
        ] {
            let lab = Lab::new(TaintToleration);
            assert_eq!(lab.helps_node(&pod("p"), old, new), want, "{case}");
        }
    }
}
