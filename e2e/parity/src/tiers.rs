//! Tier capacity beside Koordinator's controller of node resources: its own code reads the same settings, calculates the mid and batch
//! resources of the same random nodes, and decides whether a change is written at once.
//!
//! The settings name `lend: batch` and `midFormula: koordinator`, fields that Koordinator ignores. Every difference must be in the
//! list of `known`, with its condition.

mod generate;
mod known;

use std::time::Duration;

use anyhow::{Context, Result};
use api::parse::koordinator;
use engine::model::Timestamp;
use engine::policies::tiers::{
    CalculatePolicy, ColocationStrategy, MidReclaimMode, NodeMetric, Published, TIER_RESOURCES,
    TierNode, TierNodeObject, TierPhase, TierPod, capacities, plan,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::intended::ComparedCases;
use super::oracle::{self, Oracle};
use super::random::Random;
use super::sample::Sample;
use generate::TierCase;

/// What Koordinator's controller answered.
#[derive(Debug, Deserialize)]
struct Theirs {
    valid: bool,
    #[serde(default)]
    strategy: Value,
    enabled: bool,
    /// CPU and memory; absent if the metric is stale.
    mid: Option<[i64; 2]>,
    batch: Option<[i64; 2]>,
    write: bool,
}

/// What ours decided. Settings that are refused leave nothing else to compare.
struct Ours {
    valid: Result<(), String>,
    strategy: ColocationStrategy,
    /// The four amounts of the formulas; None if the metric is stale.
    amounts: Option<[i64; 4]>,
    old: Published,
    new: Published,
    bound: [i64; 4],
    write: bool,
}

/// The time of the case: the oracle calculates ages from its own clock, ours from this one.
const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

/// The last line is `parity koordinator tiers: N cases, D differences`.
pub(super) fn agrees(sample: &Sample) -> Result<bool> {
    let mut oracle = Oracle::start(oracle::TIERS)?;
    let name = "parity koordinator tiers";
    let mut compared = ComparedCases::new(name, sample, &OUTCOMES, known::KNOWN);
    let seed = sample.seed;
    for index in sample.indices() {
        let mut random = Random::for_case(seed, index);
        let case = TierCase::random(&mut random);
        let ours = judge(&case, &mut random).with_context(|| format!("case {index}"))?;
        let mut asked = json!(case);
        asked["old"] = json!(ours.old);
        asked["new"] = json!(ours.new);
        let theirs: Theirs = oracle
            .ask(&asked)
            .with_context(|| format!("case {index} of seed {seed}: {asked}"))?;
        let (outcome, found) = (outcome(&ours, &theirs), differences(&ours, &theirs));
        compared.add(index, (&case, &ours, &theirs), outcome, &found, || {
            println!("    case:   {asked}");
        });
    }
    Ok(compared.agrees())
}

const OUTCOMES: [&str; 4] = [
    "the settings are refused",
    "the metric is stale",
    "the change waits",
    "the change is written",
];

fn outcome(ours: &Ours, theirs: &Theirs) -> &'static str {
    match (&ours.valid, ours.amounts, theirs.write) {
        (Err(_), ..) => OUTCOMES[0],
        (_, None, _) => OUTCOMES[1],
        (_, _, false) => OUTCOMES[2],
        (_, _, true) => OUTCOMES[3],
    }
}

fn judge(case: &TierCase, random: &mut Random) -> Result<Ours> {
    let (config, valid) = match koordinator::colocation_config(&case.config) {
        Ok(config) => (config, Ok(())),
        Err(error) => (Default::default(), Err(error)),
    };
    let (node, _) = koordinator::tier_node(&serde_json::from_value(case.node.clone())?);
    let (metric, _) = koordinator::node_metric(&serde_json::from_value(case.metric.clone())?);
    let metric = NodeMetric {
        updated: case.age.map(|minutes| {
            let age = i64::try_from(Duration::from_secs(60 * minutes).as_nanos());
            Timestamp(NOW.0.saturating_sub(age.unwrap_or(i64::MAX)))
        }),
        ..metric
    };
    let pods = pods(case)?;
    let strategy = config.strategy(&node.labels, node.overrides.as_ref());
    let observed = observed(&node, &pods, &metric);
    // Only a change beyond the threshold is written within the minute.
    let enabled = ColocationStrategy {
        enable: true,
        update_time_threshold: Duration::from_secs(3600),
        ..strategy.clone()
    };
    let last_write = Some(Timestamp(NOW.0 - 60 * Timestamp::SECOND));
    let first = plan(&observed, &enabled, false, &[None; 4], None, NOW);
    let old = published(random, &first.values, enabled.resource_diff_threshold);
    let second = plan(&observed, &enabled, false, &old, last_write, NOW);
    let figures = capacities(&observed, &metric, &strategy, false);
    let is_current = second.phase == TierPhase::Current;
    Ok(Ours {
        valid,
        strategy,
        amounts: is_current.then(|| figures.map(|figure| figure.value)),
        old,
        new: second.values,
        bound: second.bound,
        write: second.write,
    })
}

fn pods(case: &TierCase) -> Result<Vec<TierPod>> {
    let mut found = Vec::new();
    for pod in &case.pods {
        let pod: api::wire::core::Pod = serde_json::from_value(pod.clone())?;
        if !pod.is_finished() {
            found.push(koordinator::tier_pod(&pod)?);
        }
    }
    Ok(found)
}

fn observed<'a>(
    node: &TierNodeObject,
    pods: &'a [TierPod],
    metric: &'a NodeMetric,
) -> TierNode<'a> {
    TierNode {
        capacity: node.capacity,
        allocatable: node.allocatable,
        reservation: node.reservation,
        pods,
        metric: Some(metric),
        report: None,
        agent_silent: false,
    }
}

/// Values that were published before: near those that are planned, often exactly at the threshold.
fn published(random: &mut Random, planned: &Published, threshold: f64) -> Published {
    planned.map(|value| {
        let value = value.unwrap_or(0);
        match random.below(30) {
            0 => None,
            1 => Some(0),
            2 => Some(value / 2),
            3 => Some((value as f64 / (1.0 + threshold)) as i64),
            4 => Some((value as f64 / (1.0 - threshold)) as i64),
            5 => Some(value + value / 20),
            _ => Some(value),
        }
    })
}

/// What differs, each as `FIELD: ours X, theirs Y`.
fn differences(ours: &Ours, theirs: &Theirs) -> Vec<String> {
    let line =
        |field: &str, ours: Value, theirs: Value| format!("{field}: ours {ours}, theirs {theirs}");
    if ours.valid.is_ok() != theirs.valid {
        let error = ours.valid.as_ref().err().map_or("", String::as_str);
        return vec![line("valid", json!(error), json!(theirs.valid))];
    }
    if !theirs.valid {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut compare = |field: &str, ours: Value, theirs: Value| {
        if ours != theirs {
            found.push(line(field, ours, theirs));
        }
    };
    for (field, value) in strategy_fields(&ours.strategy) {
        compare(field, value, theirs.strategy[field].clone());
    }
    compare(
        "enabled",
        json!(ours.strategy.enable),
        json!(theirs.enabled),
    );
    let their_amounts = theirs.mid.zip(theirs.batch).map(|(mid, batch)| {
        let [mid_cpu, mid_memory] = mid;
        let [batch_cpu, batch_memory] = batch;
        [mid_cpu, mid_memory, batch_cpu, batch_memory]
    });
    match (ours.amounts, their_amounts) {
        (Some(ours), Some(theirs)) => {
            for ((resource, ours), theirs) in TIER_RESOURCES.iter().zip(ours).zip(theirs) {
                compare(resource.name(), json!(ours), json!(theirs));
            }
        }
        (our_amounts, theirs) => {
            let (ours, theirs) = (our_amounts.is_none(), theirs.is_none());
            compare("stale", json!(ours), json!(theirs));
        }
    }
    if ours.amounts.is_some() {
        compare("write", json!(ours.write), json!(theirs.write));
    }
    found
}

/// The settings of a node in Koordinator's names.
fn strategy_fields(strategy: &ColocationStrategy) -> Vec<(&'static str, Value)> {
    let policy = |policy| match policy {
        CalculatePolicy::Usage => "usage",
        CalculatePolicy::Request => "request",
        CalculatePolicy::MaxUsageRequest => "maxUsageRequest",
    };
    let mode = match strategy.mid_reclaim_mode {
        MidReclaimMode::Predicted => Value::Null,
        MidReclaimMode::Static => json!("static"),
    };
    vec![
        (
            "cpuReclaimThresholdPercent",
            json!(strategy.cpu_reclaim_threshold_percent),
        ),
        (
            "memoryReclaimThresholdPercent",
            json!(strategy.memory_reclaim_threshold_percent),
        ),
        (
            "cpuCalculatePolicy",
            json!(policy(strategy.cpu_calculate_policy)),
        ),
        (
            "memoryCalculatePolicy",
            json!(policy(strategy.memory_calculate_policy)),
        ),
        (
            "degradeTimeMinutes",
            json!(strategy.degrade_time.as_secs() / 60),
        ),
        (
            "updateTimeThresholdSeconds",
            json!(strategy.update_time_threshold.as_secs()),
        ),
        (
            "resourceDiffThreshold",
            // JSON does not tell 1 from 1.0.
            match strategy.resource_diff_threshold {
                1.0 => json!(1),
                other => json!(other),
            },
        ),
        (
            "midCPUThresholdPercent",
            json!(strategy.mid_cpu_threshold_percent),
        ),
        (
            "midMemoryThresholdPercent",
            json!(strategy.mid_memory_threshold_percent),
        ),
        (
            "midUnallocatedPercent",
            json!(strategy.mid_unallocated_percent),
        ),
        ("midReclaimMode", mode),
        (
            "midStaticCPUReservedPercent",
            json!(strategy.mid_static_cpu_reserved_percent),
        ),
        (
            "midStaticMemoryReservedPercent",
            json!(strategy.mid_static_memory_reserved_percent),
        ),
        (
            "batchCPUThresholdPercent",
            json!(strategy.batch_cpu_threshold_percent),
        ),
        (
            "batchMemoryThresholdPercent",
            json!(strategy.batch_memory_threshold_percent),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every case can be judged without the oracle, and most settings are valid.
    #[test]
    fn cases_are_generated() {
        let mut valid = 0;
        for index in 0..500 {
            let mut random = Random::for_case(1, index);
            let case = TierCase::random(&mut random);
            let ours = judge(&case, &mut random).unwrap();
            valid += u32::from(ours.valid.is_ok());
        }
        assert!((400..500).contains(&valid), "{valid}");
    }
}
