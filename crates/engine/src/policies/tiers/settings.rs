//! The settings of the tiers: Koordinator's colocation strategy, by cluster, node group and node.

use std::time::Duration;

use serde::Deserialize;

use crate::model::{Labels, Selector};
use crate::node::Lend;

/// How mid resources are calculated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MidFormula {
    /// `min(reclaimable, allocatable * threshold) + unallocated`.
    #[default]
    Proposal,
    /// As Koordinator v1.8 calculates it, for migration.
    Koordinator,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CalculatePolicy {
    Usage,
    Request,
    MaxUsageRequest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MidReclaimMode {
    /// Koordinator writes no name for it.
    #[default]
    #[serde(alias = "")]
    Predicted,
    Static,
}

/// The settings of one node. Percentages are of the node's capacity unless a field says otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct ColocationStrategy {
    pub enable: bool,
    pub lend: Lend,
    pub mid_formula: MidFormula,
    pub cpu_reclaim_threshold_percent: i64,
    pub memory_reclaim_threshold_percent: i64,
    pub cpu_calculate_policy: CalculatePolicy,
    pub memory_calculate_policy: CalculatePolicy,
    /// An older NodeMetric is stale.
    pub degrade_time: Duration,
    /// A status is written again after this time at the latest.
    pub update_time_threshold: Duration,
    /// A relative change beyond this is written at once.
    pub resource_diff_threshold: f64,
    pub mid_cpu_threshold_percent: i64,
    pub mid_memory_threshold_percent: i64,
    /// Only [`MidFormula::Koordinator`] reads these four.
    pub mid_unallocated_percent: i64,
    pub mid_reclaim_mode: MidReclaimMode,
    pub mid_static_cpu_reserved_percent: i64,
    pub mid_static_memory_reserved_percent: i64,
    pub batch_cpu_threshold_percent: Option<i64>,
    pub batch_memory_threshold_percent: Option<i64>,
}

impl Default for ColocationStrategy {
    /// Koordinator's values, except that the tiers are on.
    fn default() -> Self {
        Self {
            enable: true,
            lend: Lend::Shared,
            mid_formula: MidFormula::Proposal,
            cpu_reclaim_threshold_percent: 60,
            memory_reclaim_threshold_percent: 65,
            cpu_calculate_policy: CalculatePolicy::Usage,
            memory_calculate_policy: CalculatePolicy::Usage,
            degrade_time: Duration::from_secs(15 * 60),
            update_time_threshold: Duration::from_secs(300),
            resource_diff_threshold: 0.1,
            mid_cpu_threshold_percent: 100,
            mid_memory_threshold_percent: 100,
            mid_unallocated_percent: 0,
            mid_reclaim_mode: MidReclaimMode::Predicted,
            mid_static_cpu_reserved_percent: 0,
            mid_static_memory_reserved_percent: 0,
            batch_cpu_threshold_percent: None,
            batch_memory_threshold_percent: None,
        }
    }
}

/// Fields of a strategy that a level of the settings sets. The names are those of the JSON.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StrategyOverrides {
    pub enable: Option<bool>,
    pub lend: Option<Lend>,
    pub mid_formula: Option<MidFormula>,
    pub cpu_reclaim_threshold_percent: Option<i64>,
    pub memory_reclaim_threshold_percent: Option<i64>,
    pub cpu_calculate_policy: Option<CalculatePolicy>,
    pub memory_calculate_policy: Option<CalculatePolicy>,
    pub degrade_time_minutes: Option<i64>,
    pub update_time_threshold_seconds: Option<i64>,
    pub resource_diff_threshold: Option<f64>,
    #[serde(rename = "midCPUThresholdPercent")]
    pub mid_cpu_threshold_percent: Option<i64>,
    pub mid_memory_threshold_percent: Option<i64>,
    pub mid_unallocated_percent: Option<i64>,
    pub mid_reclaim_mode: Option<MidReclaimMode>,
    #[serde(rename = "midStaticCPUReservedPercent")]
    pub mid_static_cpu_reserved_percent: Option<i64>,
    pub mid_static_memory_reserved_percent: Option<i64>,
    #[serde(rename = "batchCPUThresholdPercent")]
    pub batch_cpu_threshold_percent: Option<i64>,
    pub batch_memory_threshold_percent: Option<i64>,
}

/// A field whose value is not allowed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field}: {found} is not allowed: use {allowed}")]
pub struct StrategyError {
    pub field: &'static str,
    pub found: String,
    pub allowed: &'static str,
}

const NOT_NEGATIVE: &str = "0 or more";
const PERCENT: &str = "0 to 100";

impl StrategyOverrides {
    /// Refuses the first value that is not allowed.
    pub fn check(&self) -> Result<(), StrategyError> {
        let not_negative = |value: i64| value >= 0;
        let percent = |value: i64| (0..=100).contains(&value);
        let positive = |value: i64| (1..=MOST_SECONDS).contains(&value);
        for (field, value, is_allowed, allowed) in [
            (
                "cpuReclaimThresholdPercent",
                self.cpu_reclaim_threshold_percent,
                &not_negative as &dyn Fn(i64) -> bool,
                NOT_NEGATIVE,
            ),
            (
                "memoryReclaimThresholdPercent",
                self.memory_reclaim_threshold_percent,
                &not_negative,
                NOT_NEGATIVE,
            ),
            (
                "degradeTimeMinutes",
                self.degrade_time_minutes,
                &positive,
                "1 to 31536000",
            ),
            (
                "updateTimeThresholdSeconds",
                self.update_time_threshold_seconds,
                &positive,
                "1 to 31536000",
            ),
            (
                "midCPUThresholdPercent",
                self.mid_cpu_threshold_percent,
                &percent,
                PERCENT,
            ),
            (
                "midMemoryThresholdPercent",
                self.mid_memory_threshold_percent,
                &percent,
                PERCENT,
            ),
            (
                "midUnallocatedPercent",
                self.mid_unallocated_percent,
                &percent,
                PERCENT,
            ),
            (
                "midStaticCPUReservedPercent",
                self.mid_static_cpu_reserved_percent,
                &not_negative,
                NOT_NEGATIVE,
            ),
            (
                "midStaticMemoryReservedPercent",
                self.mid_static_memory_reserved_percent,
                &not_negative,
                NOT_NEGATIVE,
            ),
            (
                "batchCPUThresholdPercent",
                self.batch_cpu_threshold_percent,
                &not_negative,
                NOT_NEGATIVE,
            ),
            (
                "batchMemoryThresholdPercent",
                self.batch_memory_threshold_percent,
                &not_negative,
                NOT_NEGATIVE,
            ),
        ] {
            if let Some(value) = value
                && !is_allowed(value)
            {
                return Err(StrategyError {
                    field,
                    found: value.to_string(),
                    allowed,
                });
            }
        }
        match self.resource_diff_threshold {
            Some(value) if !(value > 0.0 && value <= 1.0) => Err(StrategyError {
                field: "resourceDiffThreshold",
                found: value.to_string(),
                allowed: "more than 0 and at most 1",
            }),
            _ => match self.cpu_calculate_policy {
                Some(CalculatePolicy::Request) => Err(StrategyError {
                    field: "cpuCalculatePolicy",
                    found: "request".to_owned(),
                    allowed: "usage or maxUsageRequest",
                }),
                _ => Ok(()),
            },
        }
    }

    fn apply(&self, to: &mut ColocationStrategy) {
        fn set<T: Copy>(to: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *to = value;
            }
        }
        let duration = |units: Option<i64>, seconds: u64| {
            let units = u64::try_from(units?).ok()?;
            Some(Duration::from_secs(units.saturating_mul(seconds)))
        };
        set(&mut to.enable, self.enable);
        set(&mut to.lend, self.lend);
        set(&mut to.mid_formula, self.mid_formula);
        set(
            &mut to.cpu_reclaim_threshold_percent,
            self.cpu_reclaim_threshold_percent,
        );
        set(
            &mut to.memory_reclaim_threshold_percent,
            self.memory_reclaim_threshold_percent,
        );
        set(&mut to.cpu_calculate_policy, self.cpu_calculate_policy);
        set(
            &mut to.memory_calculate_policy,
            self.memory_calculate_policy,
        );
        set(
            &mut to.degrade_time,
            duration(self.degrade_time_minutes, 60),
        );
        set(
            &mut to.update_time_threshold,
            duration(self.update_time_threshold_seconds, 1),
        );
        set(
            &mut to.resource_diff_threshold,
            self.resource_diff_threshold,
        );
        set(
            &mut to.mid_cpu_threshold_percent,
            self.mid_cpu_threshold_percent,
        );
        set(
            &mut to.mid_memory_threshold_percent,
            self.mid_memory_threshold_percent,
        );
        set(
            &mut to.mid_unallocated_percent,
            self.mid_unallocated_percent,
        );
        set(&mut to.mid_reclaim_mode, self.mid_reclaim_mode);
        set(
            &mut to.mid_static_cpu_reserved_percent,
            self.mid_static_cpu_reserved_percent,
        );
        set(
            &mut to.mid_static_memory_reserved_percent,
            self.mid_static_memory_reserved_percent,
        );
        set(
            &mut to.batch_cpu_threshold_percent,
            self.batch_cpu_threshold_percent.map(Some),
        );
        set(
            &mut to.batch_memory_threshold_percent,
            self.batch_memory_threshold_percent.map(Some),
        );
    }

    /// What the four labels of a node set. A label that is no ratio sets nothing.
    fn of_labels(labels: &Labels) -> Self {
        let ratio = |name: &str| ratio_percent(labels.get(&format!("node.koordinator.sh/{name}"))?);
        Self {
            cpu_reclaim_threshold_percent: ratio("cpu-reclaim-ratio"),
            memory_reclaim_threshold_percent: ratio("memory-reclaim-ratio"),
            mid_static_cpu_reserved_percent: ratio("mid-static-cpu-reserved-ratio"),
            mid_static_memory_reserved_percent: ratio("mid-static-memory-reserved-ratio"),
            ..Self::default()
        }
    }
}

/// A year: longer times are mistakes, and a sum with them could overflow.
const MOST_SECONDS: i64 = 31_536_000;

/// `0.57` is 57 percent: rounded, because a binary fraction is a little above or below. None for what is no ratio.
pub fn ratio_percent(text: &str) -> Option<i64> {
    let ratio: f64 = text.parse().ok()?;
    let is_ratio = (0.0..=1e6).contains(&ratio);
    is_ratio.then(|| (ratio * 100.0).round() as i64)
}

/// The settings of a cluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ColocationConfig {
    pub cluster: StrategyOverrides,
    /// The first that selects a node counts.
    pub nodes: Vec<NodeStrategy>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct NodeStrategy {
    pub name: String,
    /// None selects no node.
    pub selector: Option<Selector>,
    pub overrides: StrategyOverrides,
}

impl ColocationConfig {
    /// The settings of a node with these labels and this annotation `node.koordinator.sh/colocation-strategy`. An annotation with
    /// a value that is not allowed sets nothing.
    pub fn strategy(
        &self,
        labels: &Labels,
        annotation: Option<&StrategyOverrides>,
    ) -> ColocationStrategy {
        let mut strategy = ColocationStrategy::default();
        self.cluster.apply(&mut strategy);
        let enabled = strategy.enable;
        let group = self.nodes.iter().find(|group| {
            let selector = group.selector.as_ref();
            selector.is_some_and(|selector| selector.matches(labels))
        });
        if let Some(group) = group {
            group.overrides.apply(&mut strategy);
        }
        if let Some(annotation) = annotation.filter(|it| it.check().is_ok()) {
            annotation.apply(&mut strategy);
        }
        StrategyOverrides::of_labels(labels).apply(&mut strategy);
        // A node cannot switch on what the cluster switched off.
        strategy.enable &= enabled;
        strategy
    }
}
