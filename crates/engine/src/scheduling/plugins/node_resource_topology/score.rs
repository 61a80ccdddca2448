//! Scores of nodes by their zones: the lowest score above 0 over the zones, or over the sets of zones of the size that the
//! pod needs. So a node is as good as the worst zones that the pod may get there.

use super::WeightedResource;
use super::choose::{ZoneDemand, count_to};
use crate::model::{Pod, Resource, Zone};
use crate::scheduling::framework::arithmetic::MAX_SCORE;
use crate::scheduling::framework::{NodeZones, ZoneAmounts, ZoneRow, ZoneScore, positions};

/// More sets than this are not compared: zones then score one by one.
const MOST_SETS: usize = 10_000;

#[derive(Debug, Clone, Default)]
pub(super) struct ZoneStrategy {
    kind: Kind,
    weights: Vec<(Resource, i64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    LeastAllocated,
    MostAllocated,
    BalancedAllocation,
}

impl ZoneStrategy {
    pub(super) fn new(kind: &str, resources: &[WeightedResource]) -> Result<Self, String> {
        let kind = match kind {
            "LeastAllocated" => Kind::LeastAllocated,
            "MostAllocated" => Kind::MostAllocated,
            "BalancedAllocation" => Kind::BalancedAllocation,
            "LeastNUMANodes" => return Err("LeastNUMANodes not support yet".to_owned()),
            other => {
                return Err(format!(
                    "Unsupported value: \"{other}\": supported values: \"LeastAllocated\", \"MostAllocated\", \"BalancedAllocation\""
                ));
            }
        };
        let weight = |it: &WeightedResource| Some((Resource::parse(&it.name)?, it.weight));
        Ok(Self {
            kind,
            weights: resources.iter().filter_map(weight).collect(),
        })
    }

    pub(super) fn resources(&self) -> Vec<Resource> {
        self.weights.iter().map(|(it, _)| it.clone()).collect()
    }

    fn weight(&self, resource: &Resource) -> i64 {
        let mut weights = self.weights.iter();
        let found = weights.find(|(known, _)| known == resource);
        found.map_or(1, |(_, weight)| (*weight).max(1))
    }
}

/// A pod whose nodes are scored.
pub(super) struct Scored {
    kind: Kind,
    demand: ZoneDemand,
    is_native: bool,
    /// With weights.
    requested: Vec<(Resource, i64, i64)>,
    /// Only cpu and memory count.
    is_plain: bool,
}

impl Scored {
    /// Only aligned resources count; without them, all do.
    pub(super) fn new(
        strategy: &ZoneStrategy,
        pod: &Pod,
        aligned: Option<&[Resource]>,
        demand: ZoneDemand,
    ) -> Self {
        let counts = |resource: &Resource| aligned.is_none_or(|aligned| aligned.contains(resource));
        let requested = pod.requests.wanted.iter();
        let requested = requested.filter(|(resource, _)| counts(resource));
        let requested = requested.map(|(resource, amount)| {
            let weight = strategy.weight(resource);
            (resource.clone(), amount, weight)
        });
        let requested: Vec<(Resource, i64, i64)> = requested.collect();
        let all = |resources: &[Resource]| {
            let mut resources = resources.iter();
            resources.all(|it| matches!(it, Resource::Cpu | Resource::Memory))
        };
        Self {
            kind: strategy.kind,
            demand,
            is_native: aligned.is_none(),
            is_plain: aligned.is_some_and(all),
            requested,
        }
    }

    /// What the pod could use of one zone.
    fn available(&self, zones: &NodeZones, position: usize, zone: &Zone, of: &Resource) -> i64 {
        if self.demand.is_exclusive() && !zones.is_idle(zone) {
            return 0;
        }
        zones.left(position, of)
    }

    /// `available` is by the position of the resource in `requested`.
    fn score_of(&self, available: impl Fn(usize) -> i64) -> i64 {
        if self.kind == Kind::BalancedAllocation {
            return self.balance(available);
        }
        let (mut sum, mut weights) = (0, 0);
        for (at, (resource, requested, weight)) in self.requested.iter().enumerate() {
            let available = available(at);
            let (whole, part) = (value(resource, available), value(resource, *requested));
            let part = match self.kind {
                Kind::MostAllocated => part,
                Kind::LeastAllocated | Kind::BalancedAllocation => whole.saturating_sub(part),
            };
            if whole > 0 && *requested <= available {
                sum += weight * percent(part, whole);
            }
            weights += weight;
        }
        // A pod that requests none of the resources has nothing to compare.
        if weights == 0 { 0 } else { sum / weights }
    }

    fn balance(&self, available: impl Fn(usize) -> i64) -> i64 {
        let requested = self.requested.iter().enumerate();
        let fractions =
            requested.map(
                |(at, (resource, requested, _))| match value(resource, available(at)) {
                    0 => 1.0,
                    whole => value(resource, *requested) as f64 / whole as f64,
                },
            );
        if self.requested.is_empty() || fractions.clone().any(|fraction| fraction > 1.0) {
            return 0;
        }
        ((1.0 - variance(fractions)) * MAX_SCORE as f64) as i64
    }

    /// The score of zones with this much available.
    fn score_of_amounts(&self, available: ZoneAmounts) -> i64 {
        self.score_of(|at| match self.requested[at].0 {
            Resource::Cpu => available.milli_cpu,
            _ => available.memory,
        })
    }

    /// See [`Self::size`].
    fn size_in_row(&self, row: &ZoneRow) -> usize {
        let of_resource = |(resource, wanted): &(Resource, i64)| {
            let mut amounts = [0; u8::BITS as usize];
            let amounts = &mut amounts[..row.len()];
            for (amount, zone) in amounts.iter_mut().zip(row.allocatable()) {
                *amount = match resource {
                    Resource::Cpu => zone.milli_cpu,
                    _ => zone.memory,
                };
            }
            if amounts.iter().any(|amount| amount >= wanted) {
                return 1;
            }
            amounts.sort_unstable_by(|a, b| b.cmp(a));
            count_to(amounts, *wanted)
        };
        let sizes = self.demand.aligned().iter().map(of_resource);
        sizes.max().unwrap_or(1).max(1)
    }

    /// Sets of the size that the pod needs, with their sums.
    fn lowest_of_sets(&self, all: &[Vec<i64>], size: usize) -> i64 {
        let mut lowest = 0;
        let mut chosen: Vec<usize> = (0..size).collect();
        loop {
            let mut sums = vec![0_i64; self.requested.len()];
            for amounts in chosen.iter().map(|zone| &all[*zone]) {
                for (sum, amount) in sums.iter_mut().zip(amounts) {
                    *sum += amount;
                }
            }
            lower(&mut lowest, self.score_of(|at| sums[at]));
            // The last zone that can move to the right moves, and those behind it follow.
            let is_movable = |at: &usize| chosen[*at] < all.len() - size + at;
            let Some(moved) = (0..size).rev().find(is_movable) else {
                return lowest;
            };
            let first = chosen[moved] + 1;
            for (zone, next) in chosen[moved..].iter_mut().zip(first..) {
                *zone = next;
            }
        }
    }

    /// By the zones with most of each resource.
    fn size(&self, zones: &NodeZones) -> usize {
        let of_resource = |(resource, wanted): &(Resource, i64)| {
            let amounts = zones.topology().zones().iter();
            let mut amounts = amounts.map(|it| it.allocatable.get(resource));
            if amounts.clone().any(|amount| amount >= *wanted) {
                return 1;
            }
            let mut amounts: Vec<i64> = amounts.by_ref().collect();
            amounts.sort_unstable_by(|a, b| b.cmp(a));
            count_to(&amounts, *wanted)
        };
        let sizes = self.demand.aligned().iter().map(of_resource);
        sizes.max().unwrap_or(1).max(1)
    }
}

impl ZoneScore for Scored {
    fn score(&self, node: Option<&NodeZones>) -> i64 {
        let Some(zones) = node else {
            return 0;
        };
        let topology = zones.topology();
        if self.is_native && !topology.policy.is_single() {
            return 0;
        }
        let all = || topology.zones().iter().enumerate();
        let several = self.demand.is_exclusive() && !topology.policy.is_single();
        let size = if several { self.size(zones) } else { 1 };
        if size > 1 && sets(topology.zones().len(), size) <= MOST_SETS {
            let amounts = all().map(|(position, zone)| {
                let requested = self.requested.iter();
                requested
                    .map(|(it, ..)| self.available(zones, position, zone, it))
                    .collect()
            });
            return self.lowest_of_sets(&amounts.collect::<Vec<Vec<i64>>>(), size);
        }
        let mut lowest = 0;
        for (position, zone) in all() {
            let available =
                |at: usize| self.available(zones, position, zone, &self.requested[at].0);
            lower(&mut lowest, self.score_of(available));
        }
        lowest
    }

    fn score_row(&self, row: &ZoneRow) -> Option<i64> {
        if !self.is_plain || !row.is_known() {
            return None;
        }
        let is_exclusive = self.demand.is_exclusive();
        let available = |position: usize| match is_exclusive && row.idle & (1 << position) == 0 {
            true => ZoneAmounts::ZERO,
            false => row.left()[position],
        };
        let several = is_exclusive && !row.is_single;
        let size = if several { self.size_in_row(row) } else { 1 };
        let mut lowest = 0;
        if size > 1 {
            let sets = 1..=row.all();
            for set in sets.filter(|set| set.count_ones() as usize == size) {
                let sum = positions(set).fold(ZoneAmounts::ZERO, |sum, position| {
                    sum.plus(available(position), 1)
                });
                lower(&mut lowest, self.score_of_amounts(sum));
            }
            return Some(lowest);
        }
        let mut previous = None;
        for position in 0..row.len() {
            let available = available(position);
            // Most zones are alike.
            if previous != Some(available) {
                lower(&mut lowest, self.score_of_amounts(available));
            }
            previous = Some(available);
        }
        Some(lowest)
    }
}

/// The lower one, where 0 is none.
fn lower(lowest: &mut i64, score: i64) {
    if *lowest == 0 || (score != 0 && score < *lowest) {
        *lowest = score;
    }
}

/// How many sets of a size there are; no more than one above the limit.
fn sets(of: usize, size: usize) -> usize {
    let mut count = 1_usize;
    for step in 0..size.min(of - size.min(of)) {
        count = count * (of - step) / (step + 1);
        if count > MOST_SETS {
            return MOST_SETS + 1;
        }
    }
    count
}

/// Whole units, as a quantity's `Value()`: cpu is rounded up to cores.
fn value(resource: &Resource, amount: i64) -> i64 {
    match resource {
        Resource::Cpu => amount.div_euclid(1000) + i64::from(amount.rem_euclid(1000) > 0),
        _ => amount,
    }
}

fn percent(part: i64, whole: i64) -> i64 {
    // 128 bits cost several times as much.
    if let Some(hundredfold) = part.checked_mul(MAX_SCORE) {
        return (hundredfold / whole).clamp(0, MAX_SCORE);
    }
    let percent = i128::from(part) * i128::from(MAX_SCORE) / i128::from(whole);
    i64::try_from(percent).unwrap_or(0).clamp(0, MAX_SCORE)
}

/// The variance of a sample, in the order of operations of the library that Katalyst uses; 0 for one value.
fn variance(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count();
    if count < 2 {
        return 0.0;
    }
    let count = count as f64;
    let mean = values.clone().sum::<f64>() / count;
    let (mut squares, mut compensation) = (0.0, 0.0);
    for value in values {
        let deviation = value - mean;
        squares += deviation * deviation;
        compensation += deviation;
    }
    (squares - compensation * compensation / count) / (count - 1.0)
}
