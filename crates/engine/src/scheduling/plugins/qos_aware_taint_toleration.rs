//! QoS taints: a CustomNodeResource has taints that apply only to pods of one QoS level.
//!
//! Kubernetes has no tolerations for such taints; an ordinary toleration with the effect NoSchedule or none is used.

use std::sync::Arc;

use super::taint_toleration::FewerTaints;
use crate::model::{Effect, NodeSpec, Pod, QosLevel, QosTaint, Taint, Toleration, tolerated};
use crate::scheduling::framework::CustomNodeResource;
use crate::scheduling::framework::{
    Actions, ArgsError, Catalog, Changed, Configure, Event, EventPattern, Fact, Kind, NoArgs,
    NodeRule, Plan, Plugin, Point, Points, facts,
};

pub struct QoSAwareTaintToleration;

impl Configure for QoSAwareTaintToleration {
    const NAME: &'static str = "QoSAwareTaintToleration";
    const POINTS: Points = Points::of(&[Point::Filter, Point::PreScore, Point::Score]);
    type Args = NoArgs;

    fn new(_: NoArgs) -> Result<Self, Vec<ArgsError>> {
        Ok(Self)
    }
}

impl Plugin for QoSAwareTaintToleration {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        let untolerated = |strength| {
            Fact::new(Untolerated {
                level: pod.taint_level(),
                tolerations: pod.tolerations.clone(),
                strength,
            })
        };
        plan.gate(
            untolerated(Strength::Forbids),
            "node(s) had untolerated QoS taint(s)",
        );
        let avoided = plan.fact(untolerated(Strength::Discourages));
        plan.score_places(FewerTaints { avoided });
    }

    fn events(&self) -> Vec<EventPattern> {
        let taints = Actions::DELETE.and(Actions::NODE_TAINT);
        vec![
            EventPattern::new(Kind::Node, Actions::ADD),
            EventPattern::new(Kind::CustomNodeResource, taints),
            EventPattern::new(Kind::Pod, Actions::POD_TOLERATION),
        ]
    }

    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        match &event.changed {
            Changed::Report { change, .. } => {
                let forbidden = |report: &Option<Arc<CustomNodeResource>>| {
                    let taints = report.as_ref().map_or(&[][..], |report| &report.taints);
                    forbidden(taints, pod)
                };
                forbidden(&change.old) && !forbidden(&change.new)
            }
            Changed::Node(change) => {
                let new = change.new.as_ref();
                new.is_some_and(|node| !forbidden(&node.spec.qos_taints, pod))
            }
            changed => changed.is_update_of(pod),
        }
    }
}

fn forbidden(taints: &[QosTaint], pod: &Pod) -> bool {
    taints.iter().any(|taint| {
        taint.level == pod.taint_level()
            && taint.taint.effect.forbids()
            && !tolerated(&taint.taint, &pod.tolerations)
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Strength {
    Forbids,
    Discourages,
}

/// The number of taints for the level that are not tolerated.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Untolerated {
    level: QosLevel,
    tolerations: Vec<Toleration>,
    strength: Strength,
}

impl Untolerated {
    fn taints<'n>(&'n self, node: &'n NodeSpec) -> impl Iterator<Item = &'n Taint> {
        let meant = node.qos_taints.iter().filter(|taint| {
            taint.level == self.level
                && match self.strength {
                    Strength::Forbids => taint.taint.effect.forbids(),
                    Strength::Discourages => taint.taint.effect == Effect::PreferNoSchedule,
                }
        });
        let taints = meant.map(|taint| &taint.taint);
        taints.filter(|taint| !tolerated(taint, &self.tolerations))
    }
}

impl NodeRule for Untolerated {
    fn of(&self, node: &NodeSpec) -> u32 {
        self.taints(node).count() as u32
    }

    fn detail(&self, node: &NodeSpec) -> Option<String> {
        Some(facts::listed(self.taints(node)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, PodBuilder, ReportBuilder, node, pod, report};

    fn tainted(effect: &str, level: QosLevel) -> ReportBuilder {
        report("n").taint("k", "v", effect, level)
    }

    #[test]
    fn a_taint_is_for_one_level() {
        use QosLevel::{Reclaimed, Shared};
        let refused = "UU node(s) had untolerated QoS taint(s)";
        for (case, effect, level, toleration, reclaimed, online) in [
            ("forbids", "NoSchedule", Reclaimed, None, refused, "ok"),
            ("evicts", "NoExecute", Reclaimed, None, refused, "ok"),
            (
                "discourages",
                "PreferNoSchedule",
                Reclaimed,
                None,
                "ok",
                "ok",
            ),
            ("for others", "NoSchedule", Shared, None, "ok", refused),
            (
                "tolerated by effect",
                "NoSchedule",
                Reclaimed,
                Some("NoSchedule"),
                "ok",
                "ok",
            ),
            (
                "tolerated whatever the effect",
                "NoSchedule",
                Reclaimed,
                Some(""),
                "ok",
                "ok",
            ),
            (
                "another effect is tolerated",
                "NoSchedule",
                Reclaimed,
                Some("NoExecute"),
                refused,
                "ok",
            ),
        ] {
            let lab = Lab::new(QoSAwareTaintToleration)
                .node(node("n"))
                .object(tainted(effect, level));
            let with = |pod: &PodBuilder| match toleration {
                Some(effect) => pod.clone().tolerates("k", "v", effect),
                None => pod.clone(),
            };
            let verdict = |pod: &PodBuilder| {
                let verdict = lab.filter(&with(pod)).remove(0);
                let text = lab.explain(&with(pod)).remove(0);
                match &verdict[..] {
                    "ok" => assert_eq!(text, "", "{case}"),
                    _ => assert!(text.ends_with(&format!("taint(s): k=v:{effect}")), "{text}"),
                }
                verdict
            };
            assert_eq!(verdict(&pod("r").reclaimed()), reclaimed, "{case}");
            assert_eq!(verdict(&pod("o")), online, "{case}");
        }
    }

    #[test]
    fn a_native_taint_is_no_matter_of_levels_and_the_reverse() {
        let lab = Lab::new(QoSAwareTaintToleration).node(node("n").taint("k", "v", "NoSchedule"));
        assert_eq!(lab.filter(&pod("p").reclaimed()), ["ok"]);
        let native = crate::scheduling::plugins::taint_toleration::TaintToleration;
        let lab = Lab::new(native)
            .node(node("n"))
            .object(tainted("NoSchedule", QosLevel::Reclaimed));
        assert_eq!(lab.filter(&pod("p").reclaimed()), ["ok"]);
    }

    #[test]
    fn discouraging_taints_are_counted_for_their_level() {
        let lab = Lab::new(QoSAwareTaintToleration)
            .node(node("n"))
            .node(node("m"))
            .object(tainted("PreferNoSchedule", QosLevel::Reclaimed));
        let scores = |pod| lab.scores(&pod);
        assert_eq!(scores(pod("p").reclaimed()), Some(vec![(1, 0), (0, 100)]));
        assert_eq!(scores(pod("p")), Some(vec![(0, 100), (0, 100)]));
    }

    #[test]
    fn hints() {
        let reclaimed = pod("p").reclaimed();
        let lab = Lab::new(QoSAwareTaintToleration);
        let forbids = || tainted("NoSchedule", QosLevel::Reclaimed);
        assert!(lab.helps_report(&reclaimed, Some(forbids()), Some(report("n"))));
        assert!(lab.helps_report(&reclaimed, Some(forbids()), None));
        assert!(!lab.helps_report(&reclaimed, Some(report("n")), Some(forbids())));
        assert!(
            !lab.helps_report(&reclaimed, Some(forbids()), Some(forbids().lends(1, 1))),
            "more to lend, and still forbidden"
        );
        for other in [
            tainted("NoSchedule", QosLevel::Dedicated),
            tainted("PreferNoSchedule", QosLevel::Reclaimed),
        ] {
            assert!(
                !lab.helps_report(&reclaimed, Some(other), Some(report("n"))),
                "a taint that did not forbid the pod"
            );
        }
        assert!(lab.helps_node(&reclaimed, None, Some(node("n"))));
        let online = pod("p").priority(1);
        assert!(
            lab.helps_pod(&reclaimed, Some(reclaimed.clone()), Some(online)),
            "it changed its level"
        );
    }
}
