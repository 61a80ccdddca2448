//! Prefers nodes with equal utilization of resources: of reclaimed resources for reclaimed pods, of native resources for
//! all others.
//!
//! The score depends on the balance with the pod, not on the change that the pod makes.

use serde::{Deserialize, Serialize};

use super::node_resources_balanced_allocation::{Balance, check_equal};
use super::reclaimed_resources::{complete, reclaimed_resources, usage};
use super::resource_strategy::{Usage, WeightedResource};
use crate::model::{Pod, Reclaimed, ReclaimedResource, Resource};
use crate::scheduling::framework::{
    ArgsError, Catalog, Configure, EventPattern, Part, Plan, Plugin, Point, Points, Row, RowScore,
};

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct QoSAwareNodeResourcesBalancedAllocationArgs {
    /// cpu and memory when not given. Weights must be 1.
    pub resources: Vec<WeightedResource>,
    /// All reclaimed resources when not given. Weights must be 1.
    pub reclaimed_resources: Vec<WeightedResource>,
}

pub struct QoSAwareNodeResourcesBalancedAllocation {
    resources: Vec<Resource>,
    reclaimed: Vec<ReclaimedResource>,
}

impl Configure for QoSAwareNodeResourcesBalancedAllocation {
    const NAME: &'static str = "QoSAwareNodeResourcesBalancedAllocation";
    const POINTS: Points = Points::of(&[Point::Score]);
    type Args = QoSAwareNodeResourcesBalancedAllocationArgs;

    fn complete(args: &mut Self::Args) {
        WeightedResource::complete(&mut args.resources);
        complete(&mut args.reclaimed_resources);
    }

    fn new(args: Self::Args) -> Result<Self, Vec<ArgsError>> {
        let mut errors = Vec::new();
        check_equal("resources", &args.resources, &mut errors);
        let field = "reclaimedResources";
        let reclaimed = reclaimed_resources(&args.reclaimed_resources, field, &mut errors);
        check_equal(field, &args.reclaimed_resources, &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        let known = args
            .resources
            .iter()
            .filter_map(|r| Resource::parse(&r.name));
        Ok(Self {
            resources: known.collect(),
            reclaimed: reclaimed
                .into_iter()
                .map(|(resource, _)| resource)
                .collect(),
        })
    }
}

impl Plugin for QoSAwareNodeResourcesBalancedAllocation {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        let usages = if pod.is_reclaimed() {
            let added = pod.requests.reclaimed.as_ref();
            let added = added.map_or(Reclaimed::default(), |requests| requests.placed);
            let reclaimed = self.reclaimed.iter();
            reclaimed
                .map(|resource| usage(plan, *resource, Part::Requested, added, 1))
                .collect()
        } else {
            let native = self.resources.iter();
            native
                .filter_map(|resource| self.native(pod, resource, plan))
                .collect()
        };
        plan.score_rows(BalanceScore(Balance(usages)));
    }

    fn events(&self) -> Vec<EventPattern> {
        Vec::new()
    }
}

impl QoSAwareNodeResourcesBalancedAllocation {
    fn native(&self, pod: &Pod, resource: &Resource, plan: &mut Plan) -> Option<Usage> {
        let added = pod.requests.placed.get(resource);
        match resource {
            Resource::Pods => return None,
            Resource::Scalar(_) if added == 0 => return None,
            _ => {}
        }
        Some(Usage {
            allocatable: plan.column(resource, Part::Allocatable),
            requested: plan.column(resource, Part::Requested),
            added,
            weight: 1,
        })
    }
}

#[derive(PartialEq)]
struct BalanceScore(Balance);

impl RowScore for BalanceScore {
    fn score(&self, row: Row) -> i64 {
        self.0.balance(row, |usage| usage.added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, node, pod, report};

    fn plugin(args: &str) -> Result<QoSAwareNodeResourcesBalancedAllocation, Vec<ArgsError>> {
        QoSAwareNodeResourcesBalancedAllocation::with(serde_json::from_str(args).unwrap())
    }

    #[test]
    fn worked_examples() {
        const CPU: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
        const MEMORY: &str = "resource.katalyst.kubewharf.io/reclaimed_memory";
        // (case, lent cpu and memory, what others borrow, what the pod wants, score)
        for (case, lent, taken, wanted, want) in [
            // 0.25 and 0: plain requests count, without defaults.
            (
                "one is not named",
                (4000, 4 << 30),
                "",
                format!("{CPU}=1k"),
                87,
            ),
            (
                "even",
                (4000, 4 << 30),
                "",
                format!("{CPU}=1k {MEMORY}=1Gi"),
                100,
            ),
            (
                "0.5 and 0.25",
                (4000, 4 << 30),
                &format!("{CPU}=1k")[..],
                format!("{CPU}=1k {MEMORY}=1Gi"),
                87,
            ),
            (
                "more than there is counts as all of it",
                (4000, 4 << 30),
                &format!("{CPU}=9k {MEMORY}=1Gi")[..],
                format!("{MEMORY}=1Gi"),
                75,
            ),
            ("only one is lent", (4000, 0), "", format!("{CPU}=1k"), 100),
            ("nothing is lent", (0, 0), "", String::new(), 100),
        ] {
            let plugin = plugin("{}").unwrap_or_else(|errors| panic!("{errors:?}"));
            let lab = Lab::new(plugin)
                .node(node("n").allocatable("cpu=1 memory=1Gi"))
                .object(report("n").lends(lent.0, lent.1))
                .placed(pod("other").reclaimed().container(taken).on("n"));
            let scores = lab.scores(&pod("p").reclaimed().container(&wanted));
            assert_eq!(scores, Some(vec![(want, want)]), "{case}");
        }
    }

    #[test]
    fn other_pods_are_judged_by_what_nodes_have() {
        let plugin = plugin("{}").unwrap_or_else(|errors| panic!("{errors:?}"));
        let lab = Lab::new(plugin)
            .node(node("n").allocatable("cpu=4 memory=4Gi"))
            .object(report("n").lends(1, 1));
        for (wanted, want) in [
            ("cpu=2 memory=1Gi", 87),
            ("cpu=1 memory=1Gi", 100),
            ("", 100),
        ] {
            let scores = lab.scores(&pod("p").container(wanted));
            assert_eq!(scores, Some(vec![(want, want)]), "{wanted}");
        }
    }

    #[test]
    fn arguments() {
        let errors = plugin(
            r#"{"resources":[{"name":"cpu","weight":2}],
                "reclaimedResources":[{"name":"katalyst.kubewharf.io/reclaimed_memory","weight":3},
                {"name":"resource.katalyst.kubewharf.io/reclaimed_memory"},{"name":"cpu"}]}"#,
        );
        let fields: Vec<String> = errors
            .err()
            .unwrap_or_default()
            .into_iter()
            .map(|error| error.field)
            .collect();
        assert_eq!(
            fields,
            [
                "resources[0].weight",
                "reclaimedResources[1].name",
                "reclaimedResources[2].name",
                "reclaimedResources[0].weight"
            ]
        );
    }
}
