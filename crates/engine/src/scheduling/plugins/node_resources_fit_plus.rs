//! Scores nodes by their utilization with the pod, with a strategy and a weight for each resource: for example, pack GPUs
//! and spread cpu. Only resources that the pod requests count. It does not filter.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::resource_strategy::{Strategy, resource_name_fault, weight_fault};
use crate::model::{Pod, Resource};
use crate::scheduling::framework::arithmetic::MAX_SCORE;
use crate::scheduling::framework::{
    ArgsError, Catalog, ColumnId, ConfigRules, Configure, EventPattern, Part, Plan, Plugin, Point,
    Points, Row, RowScore,
};

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeResourcesFitPlusArgs {
    pub resources: BTreeMap<String, ResourceType>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResourceType {
    /// `MostAllocated` or `LeastAllocated`.
    #[serde(rename = "type")]
    pub kind: String,
    /// 1 to 100.
    pub weight: i64,
}

pub struct NodeResourcesFitPlus {
    resources: Vec<(Resource, Strategy, i64)>,
}

impl Configure for NodeResourcesFitPlus {
    const NAME: &'static str = "NodeResourcesFitPlus";
    const POINTS: Points = Points::of(&[Point::PreScore, Point::Score]);
    const RULES: ConfigRules = ConfigRules {
        args_kind_alias: Some("ResourceTypesArgs"),
        overlaps: &["NodeResourcesFit"],
        ..ConfigRules::NONE
    };
    type Args = NodeResourcesFitPlusArgs;

    fn new(args: NodeResourcesFitPlusArgs) -> Result<Self, Vec<ArgsError>> {
        let mut errors = Vec::new();
        if args.resources.is_empty() {
            let text = "Required value: at least one resource with its type and weight, as `cpu: {type: LeastAllocated, \
                        weight: 1}`";
            errors.push(ArgsError::new("resources", text));
        }
        let mut resources = Vec::new();
        for (name, ResourceType { kind, weight }) in &args.resources {
            let at = |field: &str| format!("resources.{name}{field}");
            let resource = match resource_name_fault(name) {
                None => Resource::parse(name),
                Some(fault) => {
                    errors.push(ArgsError::new(at(""), fault));
                    None
                }
            };
            let strategy = match &kind[..] {
                "MostAllocated" => Some(Strategy::MostAllocated),
                "LeastAllocated" => Some(Strategy::LeastAllocated),
                other => {
                    let text = format!(
                        "Unsupported value: \"{other}\": supported values: \"LeastAllocated\", \"MostAllocated\""
                    );
                    errors.push(ArgsError::new(at(".type"), text));
                    None
                }
            };
            if let Some(fault) = weight_fault(name, *weight) {
                errors.push(ArgsError::new(at(".weight"), fault));
            }
            resources.extend(
                resource
                    .zip(strategy)
                    .map(|(resource, strategy)| (resource, strategy, *weight)),
            );
        }
        if errors.is_empty() {
            Ok(Self { resources })
        } else {
            Err(errors)
        }
    }
}

impl Plugin for NodeResourcesFitPlus {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        let asked = |(resource, _, _): &&(Resource, Strategy, i64)| {
            *resource != Resource::Pods && pod.requests.wanted.get(resource) > 0
        };
        let shares = self.resources.iter().filter(asked);
        let shares = shares.map(|(resource, strategy, weight)| {
            let requested = match resource {
                Resource::Cpu | Resource::Memory => Part::NonZeroRequested,
                _ => Part::Requested,
            };
            ScoredResource {
                allocatable: plan.column(resource, Part::Allocatable),
                requested: plan.column(resource, requested),
                added: pod.requests.scored.get(resource),
                strategy: strategy.clone(),
                weight: *weight,
            }
        });
        let check = ScoredResources(shares.collect());
        plan.score_rows(check);
    }

    fn scored_resources(&self) -> Vec<Resource> {
        let names = self.resources.iter().map(|(resource, ..)| resource);
        names.cloned().collect()
    }

    fn events(&self) -> Vec<EventPattern> {
        Vec::new()
    }
}

#[derive(PartialEq)]
struct ScoredResources(Vec<ScoredResource>);

#[derive(PartialEq)]
struct ScoredResource {
    allocatable: ColumnId,
    requested: ColumnId,
    added: i64,
    strategy: Strategy,
    weight: i64,
}

impl RowScore for ScoredResources {
    /// A resource that the node lacks scores 0. If the pod requests no configured resource, all nodes get the full score.
    fn score(&self, row: Row) -> i64 {
        let (mut sum, mut weights) = (0_i64, 0_i64);
        for share in &self.0 {
            let allocatable = row.get(share.allocatable);
            let used = row.get(share.requested).wrapping_add(share.added);
            let score = match allocatable {
                0 => 0,
                _ => share.strategy.of_resource(used, allocatable),
            };
            sum = sum.wrapping_add(score.wrapping_mul(share.weight));
            weights = weights.wrapping_add(share.weight);
        }
        if weights == 0 {
            MAX_SCORE
        } else {
            sum.wrapping_div(weights)
        }
    }
}

#[cfg(test)]
mod tests;
