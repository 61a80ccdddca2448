//! Koordinator's `resource-threshold-config`, with fields of our own for interference.

use std::time::Duration;

use engine::model::Labels;
use engine::node::AgentSettings;
use engine::node::settings::{SatisfactionLimit, SuppressPolicy};
use serde::Deserialize;

use super::{Faults, is_for};
use crate::wire::meta::LabelSelector;

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ThresholdConfig {
    cluster_strategy: ThresholdStrategy,
    node_strategies: Vec<ThresholdStrategy>,
}

/// Fields that only evictions by priority or by allocatable use are read and have no effect: own pods are evicted by their class.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ThresholdStrategy {
    name: Option<String>,
    node_selector: Option<LabelSelector>,
    enable: Option<bool>,
    #[serde(rename = "cpuSuppressThresholdPercent")]
    cpu_suppress: Option<i64>,
    #[serde(rename = "cpuSuppressMinPercent")]
    cpu_suppress_min: Option<i64>,
    cpu_suppress_policy: Option<String>,
    #[serde(rename = "memoryEvictThresholdPercent")]
    memory_evict: Option<i64>,
    #[serde(rename = "memoryEvictLowerPercent")]
    memory_evict_lower: Option<i64>,
    cpu_evict_policy: Option<String>,
    #[serde(rename = "cpuEvictBESatisfactionLowerPercent")]
    satisfaction_lower: Option<i64>,
    #[serde(rename = "cpuEvictBESatisfactionUpperPercent")]
    satisfaction_upper: Option<i64>,
    #[serde(rename = "cpuEvictBEUsageThresholdPercent")]
    satisfaction_usage: Option<i64>,
    cpu_evict_time_window_seconds: Option<i64>,
    #[serde(rename = "cpuEvictThresholdPercent")]
    cpu_evict: Option<i64>,
    #[serde(rename = "cpuEvictLowerPercent")]
    cpu_evict_lower: Option<i64>,
    evict_enabled_priority_threshold: Option<i64>,
    cpu_allocatable_evict_threshold_percent: Option<i64>,
    cpu_allocatable_evict_lower_percent: Option<i64>,
    memory_allocatable_evict_threshold_percent: Option<i64>,
    memory_allocatable_evict_lower_percent: Option<i64>,
    allocatable_evict_priority_threshold: Option<i64>,
    cpu_idle: Option<bool>,
    memory_guard: Option<bool>,
    interference_pressure_percent: Option<f64>,
    interference_throttling_percent: Option<f64>,
    interference_period_seconds: Option<i64>,
    interference_periods: Option<i64>,
}

pub(super) fn read(text: &str, labels: &Labels, settings: &mut AgentSettings, faults: &mut Faults) {
    let config: ThresholdConfig = faults.decode(text, true);
    let cluster = &config.cluster_strategy;
    apply(cluster, "clusterStrategy", settings, faults);
    // Every strategy is checked; the first that selects the node applies.
    let mut is_applied = false;
    for (i, strategy) in config.node_strategies.iter().enumerate() {
        let field = format!("nodeStrategies[{i}]");
        let selected = is_for(strategy.node_selector.as_ref(), &field, labels, faults);
        if selected && !is_applied {
            is_applied = true;
            apply(strategy, &field, settings, faults);
        } else {
            apply(strategy, &field, &mut settings.clone(), faults);
        }
    }
}

fn apply(
    strategy: &ThresholdStrategy,
    field: &str,
    settings: &mut AgentSettings,
    faults: &mut Faults,
) {
    let path = |name: &str| format!("{field}.{name}");
    let thresholds = &mut settings.thresholds;
    let mut number = |to: &mut i64, found: Option<i64>, name: &str, least: i64, most: i64| {
        let Some(found) = found else { return };
        if (least..=most).contains(&found) {
            *to = found;
        } else {
            faults.invalid(path(name), found, format_args!("{least} to {most}"));
        }
    };
    let it = thresholds;
    if let Some(enable) = strategy.enable {
        it.enable = enable;
    }
    if let Some(idle) = strategy.cpu_idle {
        it.cpu_idle = idle;
    }
    if let Some(guard) = strategy.memory_guard {
        it.memory_guard = guard;
    }
    number(
        &mut it.cpu_suppress,
        strategy.cpu_suppress,
        "cpuSuppressThresholdPercent",
        0,
        100,
    );
    let mut least = it.cpu_suppress_min.unwrap_or(0);
    number(
        &mut least,
        strategy.cpu_suppress_min,
        "cpuSuppressMinPercent",
        0,
        100,
    );
    if strategy.cpu_suppress_min.is_some() {
        it.cpu_suppress_min = Some(least);
    }
    number(
        &mut it.satisfaction_lower,
        strategy.satisfaction_lower,
        "cpuEvictBESatisfactionLowerPercent",
        1,
        60,
    );
    number(
        &mut it.satisfaction_upper,
        strategy.satisfaction_upper,
        "cpuEvictBESatisfactionUpperPercent",
        1,
        99,
    );
    number(
        &mut it.satisfaction_usage,
        strategy.satisfaction_usage,
        "cpuEvictBEUsageThresholdPercent",
        0,
        100,
    );
    number(
        &mut it.cpu_evict,
        strategy.cpu_evict,
        "cpuEvictThresholdPercent",
        1,
        100,
    );
    number(
        &mut it.memory_evict,
        strategy.memory_evict,
        "memoryEvictThresholdPercent",
        1,
        100,
    );
    // As in Koordinator, a threshold without its lower bound has one two percent below it.
    if strategy.cpu_evict.is_some() {
        it.cpu_evict_lower = it.cpu_evict - 2;
    }
    if strategy.memory_evict.is_some() {
        it.memory_evict_lower = it.memory_evict - 2;
    }
    number(
        &mut it.cpu_evict_lower,
        strategy.cpu_evict_lower,
        "cpuEvictLowerPercent",
        0,
        100,
    );
    number(
        &mut it.memory_evict_lower,
        strategy.memory_evict_lower,
        "memoryEvictLowerPercent",
        0,
        100,
    );
    let mut seconds = |to: &mut Duration, found: Option<i64>, name: &str, most: i64| {
        let mut value = i64::try_from(to.as_secs()).unwrap_or(i64::MAX);
        number(&mut value, found, name, 1, most);
        if found.is_some() {
            *to = Duration::from_secs(value.unsigned_abs());
        }
    };
    seconds(
        &mut it.cpu_evict_window,
        strategy.cpu_evict_time_window_seconds,
        "cpuEvictTimeWindowSeconds",
        3600,
    );
    let interference = &mut settings.interference;
    seconds(
        &mut interference.period,
        strategy.interference_period_seconds,
        "interferencePeriodSeconds",
        3600,
    );
    let mut periods = i64::from(interference.periods);
    number(
        &mut periods,
        strategy.interference_periods,
        "interferencePeriods",
        1,
        100,
    );
    interference.periods = u32::try_from(periods).unwrap_or(interference.periods);
    for (to, found, name) in [
        (
            None,
            strategy.interference_pressure_percent,
            "interferencePressurePercent",
        ),
        (
            Some(&mut interference.throttling),
            strategy.interference_throttling_percent,
            "interferenceThrottlingPercent",
        ),
    ] {
        let Some(found) = found else { continue };
        if !(0.0..=100.0).contains(&found) {
            faults.invalid(path(name), found, "0 to 100");
            continue;
        }
        match to {
            Some(to) => *to = Some(found),
            None => interference.pressure = found,
        }
    }
    match strategy.cpu_suppress_policy.as_deref() {
        None => {}
        Some("cpuset") => it.cpu_suppress_policy = SuppressPolicy::Cpuset,
        Some("cfsQuota") => it.cpu_suppress_policy = SuppressPolicy::CfsQuota,
        Some(other) => {
            let found = format_args!("`{other}`");
            faults.invalid(path("cpuSuppressPolicy"), found, "cpuset or cfsQuota");
        }
    }
    match strategy.cpu_evict_policy.as_deref() {
        None => {}
        Some("evictByRealLimit") => it.cpu_evict_policy = SatisfactionLimit::RealLimit,
        Some("evictByAllocatable") => it.cpu_evict_policy = SatisfactionLimit::Allocatable,
        Some(other) => {
            let found = format_args!("`{other}`");
            let allowed = "evictByRealLimit or evictByAllocatable";
            faults.invalid(path("cpuEvictPolicy"), found, allowed);
        }
    }
    for (lower, upper, name, of) in [
        (
            it.memory_evict_lower,
            it.memory_evict - 1,
            "memoryEvictLowerPercent",
            "memoryEvictThresholdPercent",
        ),
        (
            it.cpu_evict_lower,
            it.cpu_evict - 1,
            "cpuEvictLowerPercent",
            "cpuEvictThresholdPercent",
        ),
        (
            it.satisfaction_lower,
            it.satisfaction_upper,
            "cpuEvictBESatisfactionLowerPercent",
            "cpuEvictBESatisfactionUpperPercent",
        ),
    ] {
        if lower > upper {
            faults.invalid(
                path(name),
                lower,
                format_args!("at most {upper}, because of {of}"),
            );
        }
    }
}
