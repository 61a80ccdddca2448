//! Scores nodes for mid and batch pods by the resources of their tier, and keeps Mid+LS pods on nodes that are prepared for
//! them.
//!
//! NodeResourcesFit checks whether the tier has enough left, as for every other resource. Its score sees only cpu and memory,
//! of which a pod of a tier requests nothing.

use serde::{Deserialize, Serialize};

use super::node_resources_fit::RequestedToCapacityRatioParam;
use super::resource_strategy::{Fullness, Strategy, WeightedResource, shape};
use crate::framework::{
    Actions, ArgsError, Catalog, Companion, ConfigRules, Configure, EventPattern, Fact, Kind,
    NodeRule, Plan, Plugin, Point, Points,
};
use crate::model::{NodeSpec, Pod, QosClass};

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct TierResourcesFitArgs {
    /// LeastAllocated when not given.
    pub scoring_strategy: Option<TierScoringStrategy>,
    /// Whether Mid+LS pods go only to nodes with the annotation `node.koordinator.sh/reservation`; true when not given.
    pub require_reservation: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct TierScoringStrategy {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_to_capacity_ratio: Option<RequestedToCapacityRatioParam>,
}

pub struct TierResourcesFit {
    mid: Fullness,
    batch: Fullness,
    require_reservation: bool,
}

impl Configure for TierResourcesFit {
    const NAME: &'static str = "TierResourcesFit";
    const POINTS: Points = Points::of(&[Point::Filter, Point::PreScore, Point::Score]);
    const RULES: ConfigRules = ConfigRules {
        companions: &[Companion {
            plugin: "QoSAwareTaintToleration",
            points: &[Point::Filter, Point::Score],
            replaces: None,
        }],
        ..ConfigRules::NONE
    };
    type Args = TierResourcesFitArgs;

    fn complete(args: &mut Self::Args) {
        args.scoring_strategy.get_or_insert(TierScoringStrategy {
            kind: "LeastAllocated".to_owned(),
            ..TierScoringStrategy::default()
        });
        args.require_reservation.get_or_insert(true);
    }

    fn new(args: Self::Args) -> Result<Self, Vec<ArgsError>> {
        let mut errors = Vec::new();
        let given = args.scoring_strategy.unwrap_or_default();
        let ratio = given.requested_to_capacity_ratio.as_ref();
        let strategy = match &given.kind[..] {
            "LeastAllocated" => Strategy::LeastAllocated,
            "MostAllocated" => Strategy::MostAllocated,
            "RequestedToCapacityRatio" => {
                let points = ratio.map_or(&[][..], |ratio| &ratio.shape);
                let field = "scoringStrategy.requestedToCapacityRatio.shape";
                Strategy::RequestedToCapacityRatio(shape(field, points, &mut errors))
            }
            other => {
                let text = format!(
                    "Unsupported value: \"{other}\": supported values: \"LeastAllocated\", \"MostAllocated\", \"RequestedToCapacityRatio\""
                );
                errors.push(ArgsError::new("scoringStrategy.type", text));
                Strategy::LeastAllocated
            }
        };
        if !errors.is_empty() {
            return Err(errors);
        }
        let of_tier = |tier: &str| {
            let resource = |kind: &str| WeightedResource {
                name: format!("kubernetes.io/{tier}-{kind}"),
                weight: 1,
            };
            Fullness::new(strategy.clone(), &[resource("cpu"), resource("memory")])
        };
        Ok(Self {
            mid: of_tier("mid"),
            batch: of_tier("batch"),
            require_reservation: args.require_reservation.unwrap_or(true),
        })
    }
}

impl Plugin for TierResourcesFit {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        if pod.qos == QosClass::MidLatencySensitive {
            if self.require_reservation {
                plan.gate(
                    Fact::new(HasNoReservation),
                    "node(s) had no reservation, which Mid+LS pods need",
                );
            }
            plan.gate(
                Fact::new(RefusesMidLatencySensitive),
                "node(s) did not support Mid+LS pods",
            );
        }
        match pod.qos {
            QosClass::MidLatencySensitive | QosClass::MidBestEffort => self.mid.prepare(pod, plan),
            QosClass::Lent if !pod.is_reclaimed() => self.batch.prepare(pod, plan),
            _ => {}
        }
    }

    fn events(&self) -> Vec<EventPattern> {
        vec![
            EventPattern::new(Kind::Node, Actions::ADD.and(Actions::NODE_ANNOTATION)),
            EventPattern::new(
                Kind::CustomNodeResource,
                Actions::NODE_CONDITION.and(Actions::DELETE),
            ),
        ]
    }
}

/// 1 on nodes that keep nothing for processes outside of pods.
#[derive(Debug, PartialEq, Eq, Hash)]
struct HasNoReservation;

impl NodeRule for HasNoReservation {
    fn of(&self, node: &NodeSpec) -> u32 {
        u32::from(!node.has_reservation)
    }
}

/// 1 on nodes whose agent says so.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RefusesMidLatencySensitive;

impl NodeRule for RefusesMidLatencySensitive {
    fn of(&self, node: &NodeSpec) -> u32 {
        u32::from(node.refuses_mid_latency_sensitive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, node, pod, report};

    fn plugin(kind: &str, require_reservation: bool) -> TierResourcesFit {
        let args = TierResourcesFitArgs {
            scoring_strategy: Some(TierScoringStrategy {
                kind: kind.to_owned(),
                ..TierScoringStrategy::default()
            }),
            require_reservation: Some(require_reservation),
        };
        TierResourcesFit::new(args).ok().unwrap()
    }

    #[test]
    fn mid_ls_pods_need_a_prepared_node() {
        let lab = |required| {
            Lab::new(plugin("LeastAllocated", required))
                .node(node("plain"))
                .node(node("ready").with_reservation())
                .node(node("limited").with_reservation())
                .object(report("limited").refuses_mid_latency_sensitive())
        };
        let unreserved = "UU node(s) had no reservation, which Mid+LS pods need";
        let unsupported = "UU node(s) did not support Mid+LS pods";
        for (class, required, want) in [
            (
                QosClass::MidLatencySensitive,
                true,
                [unreserved, "ok", unsupported],
            ),
            (
                QosClass::MidLatencySensitive,
                false,
                ["ok", "ok", unsupported],
            ),
            (QosClass::MidBestEffort, true, ["ok"; 3]),
            (QosClass::Online, true, ["ok"; 3]),
        ] {
            let found = lab(required).filter(&pod("p").class(class));
            assert_eq!(found, want, "{class:?} {required}");
        }
        let waiting = pod("p").class(QosClass::MidLatencySensitive);
        let lab = Lab::new(plugin("LeastAllocated", true));
        let refuses = report("n").refuses_mid_latency_sensitive();
        assert!(lab.helps_report(&waiting, Some(refuses), Some(report("n"))));
        assert!(lab.helps_node(&waiting, None, Some(node("n").with_reservation())));
    }

    #[test]
    fn a_pod_is_scored_by_its_tier() {
        let half = "kubernetes.io/mid-cpu=2000 kubernetes.io/mid-memory=2Gi";
        let lab = |kind| {
            Lab::new(plugin(kind, true))
                .node(node("a").allocatable(
                    "kubernetes.io/mid-cpu=4000 kubernetes.io/mid-memory=4Gi kubernetes.io/batch-cpu=8000 kubernetes.io/batch-memory=8Gi",
                ))
                .node(node("b").allocatable(
                    "kubernetes.io/mid-cpu=8000 kubernetes.io/mid-memory=8Gi kubernetes.io/batch-cpu=4000 kubernetes.io/batch-memory=4Gi",
                ))
        };
        let mid = pod("p").class(QosClass::MidBestEffort).container(half);
        let batch = pod("p")
            .class(QosClass::Lent)
            .container("kubernetes.io/batch-cpu=2000 kubernetes.io/batch-memory=2Gi");
        for (kind, pod, want) in [
            ("LeastAllocated", &mid, [50, 75]),
            ("MostAllocated", &mid, [50, 25]),
            ("LeastAllocated", &batch, [75, 50]),
        ] {
            let scores = lab(kind).scores(pod).unwrap();
            let found: Vec<i64> = scores.iter().map(|(score, _)| *score).collect();
            assert_eq!(found, want, "{kind}");
        }
        assert_eq!(lab("LeastAllocated").scores(&pod("web")), None);
    }

    #[test]
    fn an_unknown_strategy_is_refused() {
        let args = TierResourcesFitArgs {
            scoring_strategy: Some(TierScoringStrategy {
                kind: "Random".to_owned(),
                ..TierScoringStrategy::default()
            }),
            ..TierResourcesFitArgs::default()
        };
        let errors = TierResourcesFit::new(args).err().unwrap();
        assert!(
            errors[0].text.starts_with("Unsupported value: \"Random\""),
            "{errors:?}"
        );
    }
}
