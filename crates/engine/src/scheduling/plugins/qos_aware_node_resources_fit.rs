//! Rejects nodes without enough reclaimed resources, and scores nodes by their utilization with the pod: reclaimed pods
//! by reclaimed resources, all others by native resources.
//!
//! The name of a resource decides: requests for reclaimed resources are checked for pods of every QoS level. An assumed
//! pod is in the node's account, so Reserve does nothing.

use serde::{Deserialize, Serialize};

use super::node_resources_fit::RequestedToCapacityRatioParam;
use super::reclaimed_resources::{complete, reclaimed_resources, usage};
use super::resource_strategy::{
    Fullness, FullnessOfNode, Strategy, WeightedResource, check_weights, shape,
};
use crate::model::{
    NodeSpec, Pod, PreemptionPolicy, RECLAIMED_GROUPS, Reclaimed, ReclaimedResource, Resource,
};
use crate::scheduling::framework::{
    Actions, AddedArg, ArgsError, Catalog, Changed, ColumnId, Companion, ConfigRules, Configure,
    Event, EventPattern, Fact, FactId, Kind, NodeRule, Part, Place, PlaceFilter, Plan, Plugin,
    Point, Points, Reason, RequestedAmount, Row, RowFilter, Verdict,
};

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct QoSAwareNodeResourcesFitArgs {
    /// LeastAllocated over all resources when not given.
    pub scoring_strategy: Option<QoSAwareScoringStrategy>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct QoSAwareScoringStrategy {
    #[serde(rename = "type")]
    pub kind: String,
    /// cpu and memory when not given.
    pub resources: Vec<WeightedResource>,
    /// All reclaimed resources when not given.
    pub reclaimed_resources: Vec<WeightedResource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_to_capacity_ratio: Option<RequestedToCapacityRatioParam>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaimed_requested_to_capacity_ratio: Option<RequestedToCapacityRatioParam>,
}

pub struct QoSAwareNodeResourcesFit {
    /// For pods that are not reclaimed.
    native: Fullness,
    reclaimed: Strategy,
    /// With weights.
    resources: Vec<(ReclaimedResource, i64)>,
}

impl Configure for QoSAwareNodeResourcesFit {
    const NAME: &'static str = "QoSAwareNodeResourcesFit";
    const POINTS: Points = Points::of(&[
        Point::PreFilter,
        Point::Filter,
        Point::Score,
        Point::Reserve,
    ]);
    const RULES: ConfigRules = ConfigRules {
        companions: &[
            Companion {
                plugin: "QoSAwareTaintToleration",
                points: &[Point::Filter, Point::Score],
                replaces: None,
                before: None,
            },
            Companion {
                plugin: "NodeResourceTopology",
                points: &[Point::Filter, Point::Score, Point::Reserve, Point::PreBind],
                replaces: None,
                // Its reasons say more: where zones are taken, NodeResourcesFit finds too little as well.
                before: Some("NodeResourcesFit"),
            },
            Companion {
                plugin: "QoSAwarePreemption",
                points: &[Point::PreEnqueue, Point::PostFilter],
                replaces: Some(("DefaultPreemption", Point::PostFilter)),
                before: None,
            },
        ],
        // This plugin checks reclaimed resources against the node's report.
        added_args: &[AddedArg {
            plugin: "NodeResourcesFit",
            field: "ignoredResourceGroups",
            values: &RECLAIMED_GROUPS,
        }],
        ..ConfigRules::NONE
    };
    type Args = QoSAwareNodeResourcesFitArgs;

    fn complete(args: &mut Self::Args) {
        let strategy = args
            .scoring_strategy
            .get_or_insert(QoSAwareScoringStrategy {
                kind: "LeastAllocated".to_owned(),
                ..QoSAwareScoringStrategy::default()
            });
        WeightedResource::complete(&mut strategy.resources);
        complete(&mut strategy.reclaimed_resources);
    }

    fn new(args: Self::Args) -> Result<Self, Vec<ArgsError>> {
        let mut errors = Vec::new();
        let given = args.scoring_strategy.unwrap_or_default();
        if !matches!(
            &given.kind[..],
            "LeastAllocated" | "MostAllocated" | "RequestedToCapacityRatio"
        ) {
            let text = format!(
                "Unsupported value: \"{}\": supported values: \"LeastAllocated\", \"MostAllocated\", \"RequestedToCapacityRatio\"",
                given.kind
            );
            errors.push(ArgsError::new("scoringStrategy.type", text));
        }
        let mut strategy = |field: &str, ratio: &Option<RequestedToCapacityRatioParam>| {
            let points = ratio.as_ref().map_or(&[][..], |ratio| &ratio.shape);
            match &given.kind[..] {
                "MostAllocated" => Strategy::MostAllocated,
                "RequestedToCapacityRatio" => {
                    let field = format!("scoringStrategy.{field}.shape");
                    Strategy::RequestedToCapacityRatio(shape(&field, points, &mut errors))
                }
                _ => Strategy::LeastAllocated,
            }
        };
        let native = strategy(
            "requestedToCapacityRatio",
            &given.requested_to_capacity_ratio,
        );
        let reclaimed = strategy(
            "reclaimedRequestedToCapacityRatio",
            &given.reclaimed_requested_to_capacity_ratio,
        );
        check_weights(&given.resources, "scoringStrategy.resources", &mut errors);
        let field = "scoringStrategy.reclaimedResources";
        let resources = reclaimed_resources(&given.reclaimed_resources, field, &mut errors);
        check_weights(&given.reclaimed_resources, field, &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self {
            native: Fullness::new(native, &given.resources),
            reclaimed,
            resources,
        })
    }
}

impl Plugin for QoSAwareNodeResourcesFit {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        let wanted = pod.requests.wanted_reclaimed();
        if !wanted.is_zero() {
            let silent = plan.fact(Fact::new(HasNoReport));
            plan.filter_places(Reporting { silent });
            let wants = ReclaimedResource::ALL.map(|resource| CheckedReclaimed {
                resource,
                amount: wanted.get(resource),
                lent: plan.reclaimed_column(resource, Part::Allocatable),
                borrowed: plan.reclaimed_column(resource, Part::Requested),
            });
            plan.filter_rows(Lending(wants));
        }
        if !pod.is_reclaimed() {
            self.native.prepare(pod, plan);
            return;
        }
        let added = pod.requests.reclaimed.as_ref();
        let added = added.map_or(Reclaimed::default(), |requests| requests.non_zero);
        let usages = self.resources.iter().map(|(resource, weight)| {
            usage(plan, *resource, Part::NonZeroRequested, added, *weight)
        });
        let usages = usages.collect();
        plan.score_rows(FullnessOfNode::new(self.reclaimed.clone(), usages));
    }

    /// Names of reclaimed resources are checked with the arguments.
    fn scored_resources(&self) -> Vec<Resource> {
        self.native.resources()
    }

    fn events(&self) -> Vec<EventPattern> {
        let lends_more = Actions::ADD.and(Actions::NODE_ALLOCATABLE);
        vec![
            EventPattern::new(Kind::Pod, Actions::DELETE.and(Actions::POD_SCALE_DOWN)),
            EventPattern::new(Kind::Node, Actions::ADD),
            EventPattern::new(Kind::CustomNodeResource, lends_more),
        ]
    }

    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        if let Changed::Report {
            change,
            left,
            lowest,
        } = &event.changed
        {
            let wanted = pod.requests.wanted_reclaimed();
            let evicts = lowest.is_some_and(|lowest| lowest < pod.priority)
                && pod.preemption_policy != PreemptionPolicy::Never;
            let lent = change.new.as_ref().map(|report| report.allocatable);
            return fits(wanted, *left) || (evicts && lent.is_some_and(|lent| fits(wanted, lent)));
        }
        if event.changed.is_update_of(pod) {
            return true;
        }
        match event.changed.pod() {
            // Either resource may have been insufficient.
            Some((change, held)) => {
                let gone = change.old.as_ref().filter(|_| held);
                gone.is_some_and(|gone| {
                    gone.requests.reclaimed.is_some() || gone.takes_whole_zones()
                })
            }
            None => matches!(event.changed, Changed::Node(_)),
        }
    }
}

/// A node whose reclaimed resources are overcommitted is rejected, even for a resource that the pod does not request.
fn fits(wanted: Reclaimed, left: Reclaimed) -> bool {
    wanted.milli_cpu <= left.milli_cpu && wanted.memory <= left.memory
}

/// 1 on nodes without a report of an agent.
#[derive(Debug, PartialEq, Eq, Hash)]
struct HasNoReport;

impl NodeRule for HasNoReport {
    fn of(&self, node: &NodeSpec) -> u32 {
        u32::from(!node.reports)
    }
}

struct Reporting {
    silent: FactId,
}

const UNKNOWN: u8 = 1;
const INSUFFICIENT: u8 = 1;

impl PlaceFilter for Reporting {
    fn filter(&self, at: Place) -> Verdict {
        match at.fact(self.silent) {
            0 => Verdict::FITS,
            _ => Verdict::unschedulable(UNKNOWN),
        }
    }

    fn reason(&self, _: u8) -> Reason {
        "node not found in the extended cache".into()
    }

    fn explain(&self, _: u8) -> Option<Reason> {
        Some("no CustomNodeResource for the node".into())
    }
}

#[derive(PartialEq)]
struct Lending([CheckedReclaimed; 2]);

#[derive(PartialEq)]
struct CheckedReclaimed {
    resource: ReclaimedResource,
    amount: i64,
    lent: ColumnId,
    borrowed: ColumnId,
}

impl CheckedReclaimed {
    fn is_insufficient(&self, row: Row) -> bool {
        self.amount > row.get(self.lent).wrapping_sub(row.get(self.borrowed))
    }
}

impl RowFilter for Lending {
    fn filter(&self, row: Row) -> Verdict {
        if self.0.iter().any(|want| want.is_insufficient(row)) {
            Verdict::unschedulable(INSUFFICIENT)
        } else {
            Verdict::FITS
        }
    }

    fn reasons(&self, row: Row, each: &mut dyn FnMut(u32)) {
        for (code, want) in (0..).zip(&self.0) {
            if want.is_insufficient(row) {
                each(code);
            }
        }
    }

    fn reason(&self, code: u32) -> Reason {
        let want = &self.0[code as usize];
        format!("Insufficient {}", want.resource.name()).into()
    }

    fn amounts(&self, row: Row) -> Vec<RequestedAmount> {
        let amounts = self.0.iter().map(|want| RequestedAmount {
            resource: Resource::Scalar(want.resource.name().into()),
            requested: want.amount,
            allocatable: row.get(want.lent),
            free: row.get(want.lent).wrapping_sub(row.get(want.borrowed)),
        });
        amounts.collect()
    }
}

#[cfg(test)]
mod tests;
