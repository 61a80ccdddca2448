//! Prefers nodes without scarce resources that the pod does not request.
//!
//! The score depends on the resources that a node has and the pod does not request: the larger the share of scarce ones
//! among them, the lower the score. Amounts do not count.

use serde::{Deserialize, Serialize};

use super::resource_strategy::resource_name_fault;
use crate::model::{Pod, Resource};
use crate::scheduling::framework::arithmetic::MAX_SCORE;
use crate::scheduling::framework::{
    ArgsError, Catalog, ColumnId, ConfigRules, Configure, EventPattern, Part, Plan, Plugin, Point,
    Points, Row, RowScore,
};

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScarceResourceAvoidanceArgs {
    pub resources: Vec<String>,
}

pub struct ScarceResourceAvoidance {
    scarce: Vec<Resource>,
}

impl Configure for ScarceResourceAvoidance {
    const NAME: &'static str = "ScarceResourceAvoidance";
    const POINTS: Points = Points::of(&[Point::PreScore, Point::Score]);
    const RULES: ConfigRules = ConfigRules {
        args_kind_alias: Some("ResourceTypesArgs"),
        ..ConfigRules::NONE
    };
    type Args = ScarceResourceAvoidanceArgs;

    fn new(args: ScarceResourceAvoidanceArgs) -> Result<Self, Vec<ArgsError>> {
        let mut errors = Vec::new();
        if args.resources.is_empty() {
            let text =
                "Required value: the name of at least one scarce resource, as nvidia.com/gpu";
            errors.push(ArgsError::new("resources", text));
        }
        for (i, name) in args.resources.iter().enumerate() {
            let fault = resource_name_fault(name);
            errors.extend(fault.map(|fault| ArgsError::new(format!("resources[{i}]"), fault)));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let scarce = args.resources.iter();
        let scarce = scarce.filter_map(|name| Resource::parse(name));
        Ok(Self {
            scarce: scarce.collect(),
        })
    }
}

impl Plugin for ScarceResourceAvoidance {
    fn prepare(&self, pod: &Pod, catalog: &Catalog, plan: &mut Plan) {
        let unwanted = catalog.offered().into_iter();
        let unwanted = unwanted.filter(|resource| {
            *resource != Resource::Pods && pod.requests.wanted.get(resource) <= 0
        });
        let check = Unwanted(
            unwanted
                .map(|resource| {
                    let column = plan.column(&resource, Part::Allocatable);
                    (column, self.scarce.contains(&resource))
                })
                .collect(),
        );
        plan.score_rows(check);
    }

    fn scored_resources(&self) -> Vec<Resource> {
        self.scarce.clone()
    }

    fn events(&self) -> Vec<EventPattern> {
        Vec::new()
    }
}

/// The resources that the pod does not request, and whether each is scarce.
#[derive(PartialEq)]
struct Unwanted(Vec<(ColumnId, bool)>);

impl RowScore for Unwanted {
    fn score(&self, row: Row) -> i64 {
        let (mut kinds, mut scarce) = (0_i64, 0_i64);
        for (column, is_scarce) in &self.0 {
            let is_there = row.get(*column) > 0;
            kinds += i64::from(is_there);
            scarce += i64::from(is_there && *is_scarce);
        }
        if kinds == 0 {
            MAX_SCORE
        } else {
            (kinds - scarce) * MAX_SCORE / kinds
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, node, pod};

    fn avoiding(resources: &[&str]) -> Result<ScarceResourceAvoidance, Vec<String>> {
        let resources = resources.iter().map(|name| (*name).to_owned()).collect();
        ScarceResourceAvoidance::new(ScarceResourceAvoidanceArgs { resources })
            .map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    fn scores(lab: &Lab, request: &str) -> Vec<i64> {
        let scores = lab.scores(&pod("p").container(request)).unwrap();
        scores.iter().map(|(raw, _)| *raw).collect()
    }

    /// By the number of kinds that are not asked for: 1, 2, 6, and none that is scarce.
    #[test]
    fn the_share_of_scarce_kinds() {
        let rest = "ephemeral-storage=1 kubernetes.io/batch-cpu=1 kubernetes.io/batch-memory=1 \
                    kubernetes.io/mid-cpu=1 kubernetes.io/mid-memory=1";
        let lab = Lab::new(avoiding(&["nvidia.com/gpu"]).unwrap())
            .node(node("one").allocatable("cpu=4 memory=4Gi pods=9 nvidia.com/gpu=8"))
            .node(node("two").allocatable("cpu=4 memory=4Gi ephemeral-storage=1 nvidia.com/gpu=1"))
            .node(node("six").allocatable(&format!("cpu=4 memory=4Gi nvidia.com/gpu=8 {rest}")))
            .node(node("plain").allocatable("cpu=4 memory=4Gi ephemeral-storage=1"))
            .node(node("bare").allocatable("cpu=4 memory=4Gi"))
            .node(node("zero").allocatable("cpu=4 memory=4Gi nvidia.com/gpu=0"));
        assert_eq!(scores(&lab, "cpu=1 memory=1"), [0, 50, 83, 100, 100, 100]);
        assert_eq!(
            scores(&lab, "cpu=1 memory=1 nvidia.com/gpu=1"),
            [100; 6],
            "who asks for it is welcome, also where it is not"
        );
        assert_eq!(
            scores(&lab, ""),
            [66, 75, 87, 100, 100, 100],
            "nothing is asked for"
        );
    }

    #[test]
    fn arguments() {
        assert_eq!(
            avoiding(&[]).err().unwrap(),
            [
                "resources: Required value: the name of at least one scarce resource, as nvidia.com/gpu"
            ]
        );
        assert_eq!(
            avoiding(&["cpu", "gpu"]).err().unwrap(),
            [
                "resources[1]: Invalid value: \"gpu\": is not the name of a resource: use cpu, memory, ephemeral-storage, or \
                 one with a prefix as nvidia.com/gpu"
            ]
        );
    }
}
