//! What is published of the tiers, and when it is written.

use std::time::Duration;

use super::{ColocationStrategy, NodeMetric, TIER_RESOURCES, TierNode, TierPod, capacities};
use crate::model::Timestamp;
use crate::node::{CpuMemory, Figure};

/// The values in the status of the Node, in the order of [`super::TIER_RESOURCES`]; None: the key is not there.
pub type Published = [Option<i64>; 4];

/// Whether the formulas count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TierPhase {
    Current,
    /// There is no NodeMetric, or an old one, or the agent is silent: no new pod fits, and running pods stay.
    Stale,
    /// The settings switch the tiers off.
    Disabled,
}

/// What to do about one node.
#[derive(Debug, Clone, PartialEq)]
pub struct TierPlan {
    pub phase: TierPhase,
    pub values: Published,
    /// What bound pods request; no value is lower.
    pub bound: [i64; 4],
    /// The sum behind each value, in the order of [`super::TIER_RESOURCES`].
    pub figures: Vec<Figure>,
    pub write: bool,
    /// The plan can change at this time although nothing is observed.
    pub again: Option<Timestamp>,
}

/// Plans a node. `last_write` is the time of the last write by this process.
///
/// A kubelet that restarts fails running pods whose requests exceed the published value, so no value is below what bound
/// pods request.
pub fn plan(
    node: &TierNode<'_>,
    strategy: &ColocationStrategy,
    no_overselling: bool,
    published: &Published,
    last_write: Option<Timestamp>,
    now: Timestamp,
) -> TierPlan {
    let bound = bound(node.pods);
    let current = node.metric.filter(|_| !node.agent_silent);
    let current = current.and_then(|metric| {
        let end = metric.updated?.plus(strategy.degrade_time);
        // A metric from the future is that of a node whose clock is wrong: it must not count for ever.
        let is_current = now <= end && metric.updated? <= now.plus(strategy.degrade_time);
        is_current.then_some((metric, end))
    });
    let (phase, values, figures, end) = match current {
        _ if !strategy.enable => (
            TierPhase::Disabled,
            bound.map(above_zero),
            held(bound),
            None,
        ),
        Some((metric, end)) => {
            let (values, figures) = by_formula(node, metric, strategy, no_overselling, bound);
            (TierPhase::Current, values, figures, Some(end))
        }
        None => {
            let mut values = bound.map(above_zero);
            for (value, published) in values.iter_mut().zip(published) {
                // A key that is there stays: a node without it looks like one that never had the tier.
                *value = value.or(published.map(|_| 0));
            }
            (TierPhase::Stale, values, held(bound), None)
        }
    };
    // When the difference is written at the latest.
    let due = last_write.map(|at| {
        let urgency = urgency(
            phase,
            &values,
            published,
            &bound,
            strategy.resource_diff_threshold,
        );
        at.plus(match urgency {
            Urgency::Now => Duration::ZERO,
            Urgency::Soon => LEAST_INTERVAL.min(strategy.update_time_threshold),
            Urgency::Later => strategy.update_time_threshold,
        })
    });
    let differs = values != *published;
    let write = differs && due.is_none_or(|due| due <= now);
    let again = [
        due.filter(|_| differs && !write),
        end.map(|end| end.plus(TICK)),
    ];
    TierPlan {
        phase,
        values,
        bound,
        figures,
        write,
        again: again.into_iter().flatten().min(),
    }
}

/// The smallest step: a metric is stale after its end, not at it.
const TICK: Duration = Duration::from_nanos(1);

fn above_zero(amount: i64) -> Option<i64> {
    (amount > 0).then_some(amount)
}

/// The sums of a node whose formulas do not count.
fn held(bound: [i64; 4]) -> Vec<Figure> {
    let figures = TIER_RESOURCES.iter().zip(bound).map(|(resource, bound)| {
        let mut figure = Figure::new(resource.name(), resource.unit());
        figure.add("requests of bound pods", bound);
        figure
    });
    figures.collect()
}

fn by_formula(
    node: &TierNode<'_>,
    metric: &NodeMetric,
    strategy: &ColocationStrategy,
    no_overselling: bool,
    bound: [i64; 4],
) -> (Published, Vec<Figure>) {
    let mut figures = capacities(node, metric, strategy, no_overselling);
    for (figure, bound) in figures.iter_mut().zip(bound) {
        figure.at_least("never below zero", 0);
        figure.at_least("bound pods request more", bound);
    }
    (figures.each_ref().map(|it| Some(it.value)), figures.into())
}

/// What the pods on the node request of each resource, whatever their class.
fn bound(pods: &[TierPod]) -> [i64; 4] {
    let mid: CpuMemory = pods.iter().map(|pod| pod.mid).sum();
    let batch: CpuMemory = pods.iter().map(|pod| pod.batch).sum();
    [mid.milli_cpu, mid.memory, batch.milli_cpu, batch.memory]
}

/// How long a difference may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Urgency {
    /// A value is below what is bound, or the formulas do not count any more.
    Now,
    /// A key appears, or a value changes by more than the threshold.
    Soon,
    Later,
}

/// Usage is noisy: changes of it are written at most once in this time.
const LEAST_INTERVAL: Duration = Duration::from_secs(10);

fn urgency(
    phase: TierPhase,
    values: &Published,
    published: &Published,
    bound: &[i64; 4],
    threshold: f64,
) -> Urgency {
    let is_below = |(published, bound): (&Option<i64>, &i64)| published.unwrap_or(0) < *bound;
    if phase != TierPhase::Current || published.iter().zip(bound).any(is_below) {
        return Urgency::Now;
    }
    let changes = |(value, published): (&Option<i64>, &Option<i64>)| match (value, published) {
        (Some(value), Some(published)) => {
            // In thousandths as Koordinator calculates it, so that both round alike at the threshold.
            let change = value.abs_diff(*published).saturating_mul(1000) as f64;
            change > published.saturating_mul(1000) as f64 * threshold
        }
        (value, published) => value != published,
    };
    match values.iter().zip(published).any(changes) {
        true => Urgency::Soon,
        false => Urgency::Later,
    }
}
