//! Scores nodes for mid and batch pods by the resources of their tier, and keeps Mid+LS pods on nodes that are prepared for
//! them.
//!
//! NodeResourcesFit checks whether the tier has enough left, as for every other resource. Its score sees only cpu and memory,
//! of which a pod of a tier requests nothing.
//!
//! Reclaimed and batch resources can be two names for one idle pool. What is published of each follows the other with a
//! delay, so this plugin bounds the sum of both requests by the pool.

use serde::{Deserialize, Serialize};

use super::node_resources_fit::RequestedToCapacityRatioParam;
use super::resource_strategy::{Fullness, Strategy, WeightedResource, shape};
use crate::model::{NodeSpec, Pod, PodRequests, QosClass, ReclaimedResource, Resource};
use crate::scheduling::framework::{
    Actions, ArgsError, Catalog, Changed, ColumnId, Companion, ConfigRules, Configure, Event,
    EventPattern, Fact, Kind, NodeRule, Part, Plan, Plugin, Point, Points, Reason, RequestedAmount,
    Row, RowFilter, Verdict,
};

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
            before: None,
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
                    "node(s) had no annotation node.koordinator.sh/reservation, which Mid+LS pods need",
                );
            }
            plan.gate(
                Fact::new(RefusesMidLatencySensitive),
                "node(s) did not support Mid+LS pods",
            );
        }
        let pool = Pool::of(&pod.requests, plan);
        if !pool.0.is_empty() {
            plan.filter_rows(pool);
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
                Actions::NODE_CONDITION
                    .and(Actions::DELETE)
                    .and(Actions::NODE_ALLOCATABLE),
            ),
            EventPattern::new(Kind::Pod, Actions::DELETE.and(Actions::POD_SCALE_DOWN)),
        ]
    }

    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        if let Some((change, held)) = event.changed.pod() {
            let gone = change.old.as_ref().filter(|_| held);
            let frees =
                gone.is_some_and(|gone| uses_pool(&gone.requests) || gone.takes_whole_zones());
            return event.changed.is_update_of(pod) || frees && uses_pool(&pod.requests);
        }
        let grows = event.actions == Actions::NODE_ALLOCATABLE
            && matches!(event.changed, Changed::Report { .. });
        !grows || uses_pool(&pod.requests)
    }
}

fn uses_pool(requests: &PodRequests) -> bool {
    ReclaimedResource::ALL
        .into_iter()
        .any(|resource| requests.wanted_of_pool(resource) > 0)
}

/// Bounds what reclaimed and batch pods request together. A node without a pool has no bound.
#[derive(PartialEq)]
struct Pool(Vec<CheckedPool>);

#[derive(PartialEq)]
struct CheckedPool {
    resource: ReclaimedResource,
    amount: i64,
    /// Less [`i64::MAX`].
    pool: ColumnId,
    reclaimed: ColumnId,
    batch: ColumnId,
}

impl Pool {
    fn of(requests: &PodRequests, plan: &mut Plan) -> Self {
        let checked = ReclaimedResource::ALL.into_iter().filter_map(|resource| {
            let amount = requests.wanted_of_pool(resource);
            (amount > 0).then(|| CheckedPool {
                resource,
                amount,
                pool: plan.reclaimed_column(resource, Part::Pool),
                reclaimed: plan.reclaimed_column(resource, Part::Requested),
                batch: plan.column(&resource.batch(), Part::Requested),
            })
        });
        Self(checked.collect())
    }
}

impl CheckedPool {
    fn pool(&self, row: Row) -> i64 {
        row.get(self.pool).wrapping_add(i64::MAX)
    }

    fn free(&self, row: Row) -> i64 {
        let requested = row.get(self.reclaimed).saturating_add(row.get(self.batch));
        self.pool(row).saturating_sub(requested)
    }

    fn is_insufficient(&self, row: Row) -> bool {
        self.pool(row) != i64::MAX && self.amount > self.free(row)
    }
}

const INSUFFICIENT: u8 = 1;

impl RowFilter for Pool {
    fn filter(&self, row: Row) -> Verdict {
        match self.0.iter().any(|it| it.is_insufficient(row)) {
            true => Verdict::unschedulable(INSUFFICIENT),
            false => Verdict::FITS,
        }
    }

    fn reasons(&self, row: Row, each: &mut dyn FnMut(u32)) {
        for (code, it) in (0..).zip(&self.0) {
            if it.is_insufficient(row) {
                each(code);
            }
        }
    }

    fn reason(&self, code: u32) -> Reason {
        let name = match self.0[code as usize].resource {
            ReclaimedResource::Cpu => "cpu",
            ReclaimedResource::Memory => "memory",
        };
        format!("Insufficient idle {name} for reclaimed and batch pods together").into()
    }

    fn amounts(&self, row: Row) -> Vec<RequestedAmount> {
        let bounded = self.0.iter().filter(|it| it.pool(row) != i64::MAX);
        let amounts = bounded.map(|it| RequestedAmount {
            resource: Resource::Scalar(it.resource.name().into()),
            requested: it.amount,
            allocatable: it.pool(row),
            free: it.free(row),
        });
        amounts.collect()
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
        let unreserved =
            "UU node(s) had no annotation node.koordinator.sh/reservation, which Mid+LS pods need";
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
    fn reclaimed_and_batch_pods_share_one_pool() {
        const MIB: i64 = 1 << 20;
        let batch = |name: &str, amount: &str| {
            let container =
                format!("kubernetes.io/batch-cpu={amount} kubernetes.io/batch-memory=100Mi");
            pod(name).class(QosClass::Lent).container(&container)
        };
        let reclaimed = |name: &str, amount: &str| {
            pod(name).reclaimed().container(&format!(
                "resource.katalyst.kubewharf.io/reclaimed_millicpu={amount}"
            ))
        };
        // Each account alone has enough.
        let lab = || {
            let offers = "kubernetes.io/batch-cpu=4000 kubernetes.io/batch-memory=4Gi";
            Lab::new(plugin("LeastAllocated", true))
                .node(node("shared").allocatable(offers))
                .node(node("batch").allocatable(offers))
                .node(node("alone").allocatable(offers))
                .object(
                    report("shared")
                        .lends(4000, 400 * MIB)
                        .pool(4000, 400 * MIB),
                )
                .object(report("batch").pool(0, 0))
                .placed(batch("b", "1000").on("shared"))
                .placed(reclaimed("r", "1000").on("shared"))
        };
        let short = "U Insufficient idle cpu for reclaimed and batch pods together";
        for (case, pod, want) in [
            ("a batch pod fits", batch("p", "2000"), "ok"),
            ("a batch pod", batch("p", "2001"), short),
            ("a reclaimed pod fits", reclaimed("p", "2000"), "ok"),
            ("a reclaimed pod", reclaimed("p", "2001"), short),
            ("a service", pod("p").container("cpu=100"), "ok"),
        ] {
            assert_eq!(lab().filter(&pod), [want, "ok", "ok"], "{case}");
        }
        let waiting = batch("p", "2001");
        let grown = report("shared")
            .lends(4000, 400 * MIB)
            .pool(5000, 400 * MIB);
        let old = report("shared")
            .lends(4000, 400 * MIB)
            .pool(4000, 400 * MIB);
        assert!(lab().helps_report(&waiting, Some(old.clone()), Some(grown.clone())));
        assert!(!lab().helps_report(&pod("web"), Some(old), Some(grown)));
    }

    #[test]
    fn the_pool_has_no_share_of_zones_that_a_pod_has_alone() {
        let batch = |amount: i64| {
            let container = format!("kubernetes.io/batch-cpu={amount}");
            pod("b").class(QosClass::Lent).container(&container)
        };
        let offers = "cpu=8 memory=16Gi kubernetes.io/batch-cpu=8000";
        let zone = "cpu=4 memory=8Gi";
        let zones = report("n").zone("0", 0, zone).zone("0", 1, zone);
        let owner = pod("owner").dedicated(None).container("cpu=1");
        let short = "U Insufficient idle cpu for reclaimed and batch pods together";
        // What is lent as reclaimed resources is a part of the pool.
        for lent in [0, 1000, 4000] {
            let report = || zones.clone().lends(lent, 0).pool(4000, 1 << 30);
            let lab = || {
                Lab::new(plugin("LeastAllocated", true))
                    .node(node("n").allocatable(offers))
                    .object(report())
            };
            assert_eq!(lab().filter(&batch(4000)), ["ok"], "{lent}");
            let owned = || lab().placed(owner.clone().on("n").zones("1"));
            assert_eq!(owned().filter(&batch(2000)), ["ok"], "{lent}");
            assert_eq!(owned().filter(&batch(2001)), [short], "{lent}");
            // A report that comes again changes nothing, and the owner's end gives all back.
            assert_eq!(owned().object(report()).filter(&batch(2001)), [short]);
            let freed = owned().filter_without(&batch(4000), "n", &["owner"]);
            assert_eq!(freed, "ok", "{lent}");
            let waits = batch(2001);
            assert!(lab().helps_pod(&waits, Some(owner.clone().on("n")), None));
        }
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

    #[test]
    fn a_pool_that_is_full_refuses_the_least_request_of_that_resource() {
        let lab = |cpu| {
            let offers = "kubernetes.io/batch-cpu=4000 kubernetes.io/batch-memory=4Gi";
            let taken = "kubernetes.io/batch-cpu=1000 kubernetes.io/batch-memory=100Mi";
            let taken = pod("b").class(QosClass::Lent).container(taken);
            Lab::new(plugin("LeastAllocated", true))
                .node(node("n").allocatable(offers))
                .object(report("n").pool(cpu, 50 << 20))
                .placed(taken.on("n"))
        };
        let asks = |cpu: i64| {
            let container = format!("kubernetes.io/batch-cpu={cpu}");
            pod("p").class(QosClass::Lent).container(&container)
        };
        let short = "U Insufficient idle cpu for reclaimed and batch pods together";
        for (case, cpu, asked, want) in [
            ("full", 1000, 1, short),
            ("room for it, but too much memory is taken", 1001, 1, "ok"),
            ("less than it asks", 1001, 2, short),
        ] {
            assert_eq!(lab(cpu).filter(&asks(asked)), [want], "{case}");
        }
    }

    #[test]
    fn arguments_are_completed() {
        let plugin = TierResourcesFit::with(TierResourcesFitArgs::default());
        let plugin = plugin.ok().unwrap();
        assert!(plugin.require_reservation);
        let offers = "kubernetes.io/mid-cpu=4000 kubernetes.io/mid-memory=4Gi";
        let asks = "kubernetes.io/mid-cpu=1000 kubernetes.io/mid-memory=1Gi";
        let asks = pod("p").class(QosClass::MidBestEffort).container(asks);
        let lab = Lab::new(plugin).node(node("n").allocatable(offers));
        let scores = lab.scores(&asks).unwrap();
        assert_eq!(scores[0].0, 75, "LeastAllocated");
    }
}
