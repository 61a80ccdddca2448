//! Prefers nodes on which the pod makes the utilization of resources more equal.
//!
//! The score depends on the change: 75 means no change, less means that the balance gets worse.

use serde::{Deserialize, Serialize};

use super::resource_strategy::{Usage, WeightedResource};
use crate::model::{Pod, Resource};
use crate::scheduling::framework::{
    ArgsError, BLOCK, Block, Catalog, Configure, EventPattern, Part, Plan, Plugin, Point, Points,
    Row, RowScore,
};

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeResourcesBalancedAllocationArgs {
    /// cpu and memory when not given. Weights must be 1.
    pub resources: Vec<WeightedResource>,
}

pub struct NodeResourcesBalancedAllocation {
    resources: Vec<Resource>,
}

impl Configure for NodeResourcesBalancedAllocation {
    const NAME: &'static str = "NodeResourcesBalancedAllocation";
    const POINTS: Points = Points::of(&[Point::PreScore, Point::Score]);
    type Args = NodeResourcesBalancedAllocationArgs;

    fn complete(args: &mut Self::Args) {
        WeightedResource::complete(&mut args.resources);
    }

    fn new(args: Self::Args) -> Result<Self, Vec<ArgsError>> {
        let resources = args.resources;
        let mut errors = Vec::new();
        check_equal("resources", &resources, &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        let known = resources.iter().filter_map(|r| Resource::parse(&r.name));
        Ok(Self {
            resources: known.collect(),
        })
    }
}

/// Each resource once, all with the same weight.
pub fn check_equal(field: &str, resources: &[WeightedResource], errors: &mut Vec<ArgsError>) {
    for (i, resource) in resources.iter().enumerate() {
        let name = &resource.name;
        if resource.weight != 1 {
            let text = format!("Invalid value: {}: must be 1", resource.weight);
            errors.push(ArgsError::new(format!("{field}[{i}].weight"), text));
        }
        if resources[..i].iter().any(|known| known.name == *name) {
            let text = format!("Duplicate value: \"{name}\"");
            errors.push(ArgsError::new(format!("{field}[{i}].name"), text));
        }
    }
}

impl Plugin for NodeResourcesBalancedAllocation {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        let wanted = |resource| pod.requests.placed.get(resource);
        if self.resources.iter().all(|resource| wanted(resource) == 0) {
            return;
        }
        let usages = self.resources.iter().filter_map(|resource| {
            let added = wanted(resource);
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
        });
        let check = Balance(usages.collect());
        plan.score_rows(check);
    }

    fn scored_resources(&self) -> Vec<Resource> {
        self.resources.clone()
    }

    fn events(&self) -> Vec<EventPattern> {
        Vec::new()
    }
}

/// How equal the utilization of the resources of a node is.
#[derive(PartialEq)]
pub struct Balance(pub Vec<Usage>);

impl RowScore for Balance {
    fn score(&self, row: Row) -> i64 {
        let before = self.balance(row, |_| 0);
        let after = self.balance(row, |usage| usage.added);
        improvement(before, after)
    }

    fn score_block(&self, block: &Block, out: &mut [i64; BLOCK]) {
        // Cpu and memory, mostly: then there is nothing to collect.
        let [one, other] = &self.0[..] else {
            for (lane, score) in out.iter_mut().enumerate() {
                *score = self.score(block.row(lane));
            }
            return;
        };
        let columns = |usage: &Usage| {
            (
                block.column(usage.allocatable),
                block.column(usage.requested),
            )
        };
        let ((offered, taken), (other_offered, other_taken)) = (columns(one), columns(other));
        for (lane, score) in out.iter_mut().enumerate() {
            let (offered, other_offered) = (offered[lane], other_offered[lane]);
            let balance = |added: i64, other_added: i64| {
                let a = share(taken[lane].wrapping_add(added), offered);
                let b = share(other_taken[lane].wrapping_add(other_added), other_offered);
                let is_alone = offered == 0 || other_offered == 0;
                evenness(if is_alone {
                    0.0
                } else {
                    deviation_of_two(a, b)
                })
            };
            *score = improvement(balance(0, 0), balance(one.added, other.added));
        }
    }
}

/// 75 if nothing changes. Invalid amounts wrap; the framework rejects a score out of range.
fn improvement(before: i64, after: i64) -> i64 {
    50 + after.wrapping_sub(before).wrapping_add(50) / 2
}

fn share(used: i64, offered: i64) -> f64 {
    (used as f64 / offered as f64).min(1.0)
}

fn evenness(deviation: f64) -> i64 {
    ((1.0 - deviation) * 100.0) as i64
}

impl Balance {
    /// 100 when all utilizations are equal, less the more they deviate.
    pub fn balance(&self, row: Row, added: impl Fn(&Usage) -> i64) -> i64 {
        let shares = self.0.iter().filter_map(|usage| {
            let allocatable = row.get(usage.allocatable);
            let used = row.get(usage.requested).wrapping_add(added(usage));
            (allocatable != 0).then(|| share(used, allocatable))
        });
        evenness(deviation(shares))
    }
}

/// Standard deviation over the whole population.
fn deviation(shares: impl Iterator<Item = f64> + Clone) -> f64 {
    let mut first = shares.clone();
    match (first.next(), first.next(), first.next()) {
        (Some(a), Some(b), None) => deviation_of_two(a, b),
        (_, _, None) => 0.0,
        _ => {
            let count = shares.clone().count() as f64;
            let mean = shares.clone().sum::<f64>() / count;
            let squares = shares.map(|share| (share - mean) * (share - mean));
            (squares.sum::<f64>() / count).sqrt()
        }
    }
}

fn deviation_of_two(a: f64, b: f64) -> f64 {
    ((a - b) / 2.0).abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduling::plugins::resource_strategy::tests::blocks_score_as_their_rows_do;
    use crate::testing::{Lab, node, pod};

    fn plugin(args: &str) -> Result<NodeResourcesBalancedAllocation, Vec<ArgsError>> {
        NodeResourcesBalancedAllocation::with(serde_json::from_str(args).unwrap())
    }

    #[test]
    fn worked_examples() {
        const GPU: &str = r#"{"resources":[{"name":"cpu","weight":1},{"name":"memory","weight":1},
            {"name":"example.com/gpu","weight":1}]}"#;
        // (case, arguments, the node offers, pods on it take, the pod takes, score)
        for (case, args, node_has, taken, wanted, want) in [
            (
                "less even",
                "{}",
                "cpu=4000m memory=10000",
                "",
                "cpu=3000m memory=5000",
                68,
            ),
            (
                "as even as before",
                "{}",
                "cpu=6000m memory=10000",
                "",
                "cpu=3000m memory=5000",
                75,
            ),
            (
                "85 to 82",
                "{}",
                "cpu=10000m memory=20000",
                "cpu=3000m",
                "cpu=3000m memory=5000",
                73,
            ),
            (
                "97 to 95",
                "{}",
                "cpu=10000m memory=20000",
                "cpu=3000m memory=5000",
                "cpu=3000m memory=5000",
                74,
            ),
            (
                "90 to 80",
                "{}",
                "cpu=10000m memory=50000",
                "cpu=3000m memory=5000",
                "cpu=3000m memory=5000",
                70,
            ),
            (
                "best",
                "{}",
                "cpu=3000m memory=5000",
                "cpu=3000m",
                "memory=5000",
                100,
            ),
            (
                "worst",
                "{}",
                "cpu=3000m memory=5000",
                "",
                "memory=5000",
                50,
            ),
            (
                "75 to 50",
                "{}",
                "cpu=6000m memory=10000",
                "cpu=3000m",
                "cpu=3000m",
                62,
            ),
            (
                "a third resource",
                GPU,
                "cpu=3500m memory=40000 example.com/gpu=8",
                "cpu=3000m memory=5000 example.com/gpu=3",
                "example.com/gpu=1",
                75,
            ),
            (
                "a third resource, unused before",
                GPU,
                "cpu=3500m memory=40000 example.com/gpu=8",
                "cpu=3000m memory=5000",
                "example.com/gpu=1",
                76,
            ),
            (
                "a third resource that the pod does not want",
                GPU,
                "cpu=3500m memory=40000 example.com/gpu=8",
                "",
                "cpu=3000m memory=5000",
                56,
            ),
            (
                "81 to 95",
                "{}",
                "cpu=4 memory=16Gi",
                "cpu=2 memory=2Gi",
                "cpu=100m memory=8Gi",
                82,
            ),
            (
                "one resource is always even",
                "{}",
                "cpu=8",
                "cpu=1",
                "cpu=1",
                75,
            ),
        ] {
            let lab = Lab::new(plugin(args).unwrap_or_else(|errors| panic!("{errors:?}")))
                .node(node("n").allocatable(node_has))
                .placed(pod("other").container(taken).on("n"));
            let scores = lab.scores(&pod("p").container(wanted));
            assert_eq!(scores, Some(vec![(want, want)]), "{case}");
        }
    }

    #[test]
    fn blocks_are_as_even_as_their_rows() {
        blocks_score_as_their_rows_do(Balance);
    }

    #[test]
    fn a_pod_that_wants_nothing_is_skipped() {
        let lab = Lab::new(plugin("{}").unwrap_or_else(|errors| panic!("{errors:?}")))
            .node(node("n").allocatable("cpu=4 memory=1Gi"));
        assert_eq!(lab.scores(&pod("p")), None);
        assert_eq!(lab.scores(&pod("p").container("example.com/gpu=1")), None);
        assert!(lab.scores(&pod("p").pod_level("cpu=1")).is_some());
    }

    #[test]
    fn arguments() {
        let errors = plugin(
            r#"{"resources":[{"name":"cpu","weight":2},{"name":"memory"},{"name":"memory","weight":1}]}"#,
        );
        assert_eq!(
            errors.err(),
            Some(vec![
                ArgsError::new("resources[0].weight", "Invalid value: 2: must be 1"),
                ArgsError::new("resources[2].name", "Duplicate value: \"memory\""),
            ])
        );
    }
}
