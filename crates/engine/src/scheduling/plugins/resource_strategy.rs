//! Scores by utilization: the three strategies of NodeResourcesFit and of the older scorers.

use serde::{Deserialize, Serialize};

use crate::model::{Pod, Resource};
use crate::scheduling::framework::arithmetic::{BrokenLine, MAX_SCORE};
use crate::scheduling::framework::{ArgsError, BLOCK, Block, ColumnId, Part, Plan, Row, RowScore};

/// A resource with its weight in a score.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct WeightedResource {
    pub name: String,
    pub weight: i64,
}

impl WeightedResource {
    pub fn cpu_and_memory() -> Vec<Self> {
        ["cpu", "memory"]
            .map(|name| Self {
                name: name.to_owned(),
                weight: 1,
            })
            .to_vec()
    }

    /// An empty list means cpu and memory; a weight of 0 means 1.
    pub fn complete(resources: &mut Vec<Self>) {
        if resources.is_empty() {
            *resources = Self::cpu_and_memory();
        }
        for resource in resources.iter_mut().filter(|resource| resource.weight == 0) {
            resource.weight = 1;
        }
    }
}

/// A configured point of the score function: the score is 0..=10.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct UtilizationShapePoint {
    pub utilization: i64,
    pub score: i64,
}

/// Checks the points; scores are scaled to 0..=100.
pub fn shape(
    field: &str,
    points: &[UtilizationShapePoint],
    errors: &mut Vec<ArgsError>,
) -> BrokenLine {
    if points.is_empty() {
        errors.push(ArgsError::new(
            field,
            "Required value: at least one point must be specified",
        ));
    }
    for (i, pair) in points.windows(2).enumerate() {
        let utilization = pair[1].utilization;
        if utilization <= pair[0].utilization {
            let field = format!("{field}[{}].utilization", i + 1);
            let text =
                format!("Invalid value: {utilization}: values must be sorted in increasing order");
            errors.push(ArgsError::new(field, text));
        }
    }
    for (i, point) in points.iter().enumerate() {
        if !(0..=100).contains(&point.utilization) {
            let text = format!(
                "Invalid value: {}: not in valid range [0, 100]",
                point.utilization
            );
            errors.push(ArgsError::new(format!("{field}[{i}].utilization"), text));
        }
        if !(0..=10).contains(&point.score) {
            let text = format!("Invalid value: {}: not in valid range [0, 10]", point.score);
            errors.push(ArgsError::new(format!("{field}[{i}].score"), text));
        }
    }
    BrokenLine::new(
        points
            .iter()
            .map(|point| (point.utilization, point.score.saturating_mul(10)))
            .collect(),
    )
}

/// Checks that weights are 1 to 100; `field` is the path of the resources in the arguments.
pub fn check_weights(resources: &[WeightedResource], field: &str, errors: &mut Vec<ArgsError>) {
    for (i, WeightedResource { name, weight }) in resources.iter().enumerate() {
        let fault = weight_fault(name, *weight);
        errors.extend(fault.map(|fault| ArgsError::new(format!("{field}[{i}].weight"), fault)));
    }
}

pub fn weight_fault(resource: &str, weight: i64) -> Option<String> {
    let text = || {
        format!(
            "Invalid value: {weight}: resource weight of {resource} not in valid range (0, 100]"
        )
    };
    (!(1..=100).contains(&weight)).then(text)
}

/// The error for a name that is no resource and would have no effect.
pub fn resource_name_fault(name: &str) -> Option<String> {
    let text = || {
        format!(
            "Invalid value: \"{name}\": is not the name of a resource: use cpu, memory, ephemeral-storage, or one with a \
             prefix as nvidia.com/gpu"
        )
    };
    Resource::parse(name).is_none().then(text)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strategy {
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio(BrokenLine),
}

/// Scores nodes by their utilization with the pod.
pub struct Fullness {
    strategy: Strategy,
    /// In the order of the configuration; unknown names have no account and do not score.
    resources: Vec<(Resource, i64)>,
}

impl Fullness {
    pub fn new(strategy: Strategy, resources: &[WeightedResource]) -> Self {
        let known = |r: &WeightedResource| Some((Resource::parse(&r.name)?, r.weight));
        Self {
            strategy,
            resources: resources.iter().filter_map(known).collect(),
        }
    }

    pub fn resources(&self) -> Vec<Resource> {
        let names = self.resources.iter().map(|(resource, _)| resource);
        names.cloned().collect()
    }

    pub fn prepare(&self, pod: &Pod, plan: &mut Plan) {
        let usages = self.resources.iter().filter_map(|(resource, weight)| {
            let requested = match resource {
                Resource::Cpu | Resource::Memory => Part::NonZeroRequested,
                Resource::EphemeralStorage | Resource::Scalar(_) => Part::Requested,
                Resource::Pods => return None,
            };
            let added = pod.requests.scored.get(resource);
            if added == 0 && matches!(resource, Resource::Scalar(_)) {
                return None;
            }
            Some(Usage {
                allocatable: plan.column(resource, Part::Allocatable),
                requested: plan.column(resource, requested),
                added,
                weight: *weight,
            })
        });
        let resources = usages.collect();
        plan.score_rows(FullnessOfNode::new(self.strategy.clone(), resources));
    }
}

/// Scores a node by the utilization of these resources.
#[derive(PartialEq)]
pub struct FullnessOfNode {
    strategy: Strategy,
    resources: Vec<Usage>,
}

impl FullnessOfNode {
    pub fn new(strategy: Strategy, resources: Vec<Usage>) -> Self {
        Self {
            strategy,
            resources,
        }
    }
}

impl RowScore for FullnessOfNode {
    fn score(&self, row: Row) -> i64 {
        self.strategy.score(row, &self.resources)
    }

    fn score_block(&self, block: &Block, out: &mut [i64; BLOCK]) {
        match self.strategy {
            Strategy::LeastAllocated => mean(&self.resources, block, out, free_share),
            Strategy::MostAllocated => mean(&self.resources, block, out, used_share),
            Strategy::RequestedToCapacityRatio(_) => {
                for (lane, score) in out.iter_mut().enumerate() {
                    *score = self.score(block.row(lane));
                }
            }
        }
    }
}

/// [`Strategy::score`] of each row, one resource after the other.
fn mean(
    resources: &[Usage],
    block: &Block,
    out: &mut [i64; BLOCK],
    share: impl Fn(i64, i64) -> i64,
) {
    let mut weights = [0_i64; BLOCK];
    out.fill(0);
    for usage in resources {
        let offered = block.column(usage.allocatable);
        let taken = block.column(usage.requested);
        for lane in 0..BLOCK {
            if offered[lane] != 0 {
                let score = share(taken[lane].wrapping_add(usage.added), offered[lane]);
                out[lane] = out[lane].wrapping_add(score.wrapping_mul(usage.weight));
                weights[lane] = weights[lane].wrapping_add(usage.weight);
            }
        }
    }
    for (sum, weights) in out.iter_mut().zip(weights) {
        *sum = if weights == 0 {
            0
        } else {
            sum.wrapping_div(weights)
        };
    }
}

/// One resource of a node: allocatable, requested, and the request of the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub allocatable: ColumnId,
    pub requested: ColumnId,
    pub added: i64,
    pub weight: i64,
}

impl Strategy {
    /// The score of a node. A resource that the node does not have is skipped.
    fn score(&self, row: Row, resources: &[Usage]) -> i64 {
        let (mut sum, mut weights) = (0_i64, 0_i64);
        for usage in resources {
            let allocatable = row.get(usage.allocatable);
            if allocatable == 0 {
                continue;
            }
            let used = row.get(usage.requested).wrapping_add(usage.added);
            let score = self.of_resource(used, allocatable);
            if score <= 0 && matches!(self, Self::RequestedToCapacityRatio(_)) {
                continue;
            }
            sum = sum.wrapping_add(score.wrapping_mul(usage.weight));
            weights = weights.wrapping_add(usage.weight);
        }
        match self {
            _ if weights == 0 => 0,
            Self::RequestedToCapacityRatio(_) => (sum as f64 / weights as f64).round() as i64,
            _ => sum.wrapping_div(weights),
        }
    }

    /// The score of one resource that the node has.
    pub fn of_resource(&self, used: i64, allocatable: i64) -> i64 {
        match self {
            Self::LeastAllocated => free_share(used, allocatable),
            Self::MostAllocated => used_share(used, allocatable),
            Self::RequestedToCapacityRatio(line) if used > allocatable => line.at(MAX_SCORE),
            Self::RequestedToCapacityRatio(line) => line.at(percent(used, allocatable)),
        }
    }
}

fn free_share(used: i64, allocatable: i64) -> i64 {
    if used > allocatable {
        0
    } else {
        percent(allocatable.wrapping_sub(used), allocatable)
    }
}

fn used_share(used: i64, allocatable: i64) -> i64 {
    percent(used.min(allocatable), allocatable)
}

/// Invalid amounts wrap, as in Kubernetes; the framework rejects a score out of range.
fn percent(part: i64, whole: i64) -> i64 {
    part.wrapping_mul(MAX_SCORE).wrapping_div(whole)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Scoring rows one by one and in blocks gives the same results. The numbers are the same in every run.
    pub(in crate::scheduling::plugins) fn blocks_score_as_their_rows_do<C: RowScore>(
        check: impl Fn(Vec<Usage>) -> C,
    ) {
        let mut random = Random(1);
        for round in 0..400 {
            let resources = round % 5;
            let columns = (0..2 * resources).map(|_| std::array::from_fn(|_| random.amount()));
            let (block, columns) = Block::of(columns.collect());
            let usages = columns.chunks(2).map(|pair| Usage {
                allocatable: pair[0],
                requested: pair[1],
                added: random.amount(),
                weight: random.below(100) + 1,
            });
            let check = check(usages.collect());
            let mut scores = [i64::MIN; BLOCK];
            check.score_block(&block, &mut scores);
            let rows: Vec<i64> = (0..BLOCK)
                .map(|lane| check.score(block.row(lane)))
                .collect();
            assert_eq!(scores[..], rows, "round {round}");
        }
    }

    /// SplitMix64.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }

        fn below(&mut self, end: u64) -> i64 {
            (self.next() % end) as i64
        }

        /// Often 0; cores and bytes in different proportions; rarely invalid amounts.
        fn amount(&mut self) -> i64 {
            match self.below(16) {
                0..=2 => 0,
                3..=8 => self.below(20),
                9..=11 => self.below(64_000),
                12..=14 => self.below(1 << 40),
                _ => self.next() as i64,
            }
        }
    }

    #[test]
    fn blocks_are_as_full_as_their_rows() {
        let line = BrokenLine::new(vec![(0, 0), (40, 100), (100, 20)]);
        for strategy in [
            Strategy::LeastAllocated,
            Strategy::MostAllocated,
            Strategy::RequestedToCapacityRatio(line),
        ] {
            blocks_score_as_their_rows_do(|usages| FullnessOfNode::new(strategy.clone(), usages));
        }
    }
}
