//! Thresholds and ratios of the agent, with their defaults. `api` reads them from a ConfigMap.
//!
//! Without any setting the node lends, and everything that protects online pods is on.

use std::time::Duration;

use super::CpuMemory;

/// All settings of one node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentSettings {
    /// From `colocation-config`.
    pub lend: Lend,
    pub thresholds: Thresholds,
    pub reclaim: ReclaimSettings,
    pub interference: InterferenceSettings,
    pub prediction: PredictionSettings,
    pub limits: EvictionLimits,
}

/// By which names the idle capacity of the node is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lend {
    Reclaimed,
    Batch,
    /// One pool for both.
    #[default]
    Shared,
}

/// Koordinator's `resource-threshold-config`.
#[derive(Debug, Clone, PartialEq)]
pub struct Thresholds {
    /// `false` switches suppression and eviction off, so nothing is lent either.
    pub enable: bool,
    /// Percent of the node's capacity.
    pub cpu_suppress: i64,
    /// Percent of the node's capacity that best-effort pods keep in any case.
    pub cpu_suppress_min: Option<i64>,
    pub cpu_suppress_policy: SuppressPolicy,
    pub cpu_evict_policy: SatisfactionLimit,
    /// Percent of what best-effort pods request.
    pub satisfaction_lower: i64,
    pub satisfaction_upper: i64,
    /// Best-effort pods must use so many percent of their limit.
    pub satisfaction_usage: i64,
    pub cpu_evict_window: Duration,
    /// Percent of the node's capacity.
    pub cpu_evict: i64,
    pub cpu_evict_lower: i64,
    pub memory_evict: i64,
    pub memory_evict_lower: i64,
    /// `cpu.idle` on batch, reclaimed and free pods.
    pub cpu_idle: bool,
    /// A memory limit on the directory `besteffort`, while every pod in it is an own pod.
    pub memory_guard: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SuppressPolicy {
    /// The cpuset of own pods.
    #[default]
    Cpuset,
    /// The quota of the directory `besteffort`, while every pod in it is an own pod; else the cpuset.
    CfsQuota,
}

/// Against what satisfaction is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SatisfactionLimit {
    /// What suppression grants.
    #[default]
    RealLimit,
    /// What the node publishes.
    Allocatable,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            enable: true,
            cpu_suppress: 65,
            cpu_suppress_min: None,
            cpu_suppress_policy: SuppressPolicy::default(),
            cpu_evict_policy: SatisfactionLimit::default(),
            satisfaction_lower: 60,
            satisfaction_upper: 80,
            satisfaction_usage: 90,
            cpu_evict_window: Duration::from_secs(60),
            cpu_evict: 90,
            cpu_evict_lower: 85,
            memory_evict: 70,
            memory_evict_lower: 68,
            cpu_idle: false,
            memory_guard: true,
        }
    }
}

/// Katalyst's settings of reclaimed resources.
#[derive(Debug, Clone, PartialEq)]
pub struct ReclaimSettings {
    pub enable: bool,
    /// Taken off what is reported.
    pub reserved_for_report: CpuMemory,
    /// The smallest report while lending is on.
    pub min_for_report: CpuMemory,
    /// Reports up to this amount count as nothing.
    pub min_ignored_for_report: CpuMemory,
    /// Kept for pods that are not reclaimed. None: Katalyst's 4 cores and 5Gi, but at most a tenth of the node.
    pub reserved_for_allocate: Option<CpuMemory>,
    pub cpu: CpuUtilization,
    pub memory: MemoryUtilization,
    pub smoothing: Smoothing,
}

/// How headroom follows the use of what was lent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuUtilization {
    pub enable: bool,
    pub target: f64,
    /// 0: off.
    pub max: f64,
    /// 0: no limit.
    pub max_oversold_rate: f64,
    /// 0: no limit.
    pub max_capacity_rate: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryUtilization {
    pub enable: bool,
    pub free_based_ratio: f64,
    pub static_based_capacity: i64,
    pub cache_based_ratio: f64,
    pub max_oversold_rate: f64,
    /// In ten thousandths of the memory; the kernel's `vm.watermark_scale_factor`.
    pub watermark_scale_factor: i64,
}

/// How reported increases are smoothed. Decreases are not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Smoothing {
    pub period: Duration,
    /// How many samples an increase needs.
    pub samples: usize,
    /// A sample older than this is not used.
    pub ttl: Duration,
    pub aggregation: Aggregation,
    pub min_step: CpuMemory,
    pub max_step: CpuMemory,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aggregation {
    Average,
    /// By nearest rank, from 0 to 100.
    Percentile(f64),
}

impl Default for ReclaimSettings {
    fn default() -> Self {
        Self {
            enable: true,
            reserved_for_report: CpuMemory::ZERO,
            min_for_report: CpuMemory::ZERO,
            min_ignored_for_report: CpuMemory::new(100, 100 << 20),
            reserved_for_allocate: None,
            cpu: CpuUtilization {
                enable: false,
                target: 0.6,
                max: 0.0,
                max_oversold_rate: 1.2,
                max_capacity_rate: 1.0,
            },
            memory: MemoryUtilization {
                enable: false,
                free_based_ratio: 0.6,
                static_based_capacity: 20 << 30,
                cache_based_ratio: 0.0,
                max_oversold_rate: 2.0,
                watermark_scale_factor: 10,
            },
            smoothing: Smoothing {
                period: Duration::from_secs(30),
                samples: 4,
                ttl: Duration::from_secs(240),
                aggregation: Aggregation::Average,
                min_step: CpuMemory::new(300, 300 << 20),
                max_step: CpuMemory::new(4000, 5 << 30),
            },
        }
    }
}

impl ReclaimSettings {
    /// Kept for pods that are not reclaimed, on a node of this capacity.
    pub fn reserve(&self, capacity: CpuMemory) -> CpuMemory {
        let most = CpuMemory::new(4000, 5 << 30);
        let tenth = CpuMemory::new(capacity.milli_cpu / 10, capacity.memory / 10);
        self.reserved_for_allocate.unwrap_or(most.min(tenth))
    }
}

/// When online pods suffer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InterferenceSettings {
    pub enable: bool,
    /// Percent of the last 10 s in which some tasks of a pod waited for cpu or memory.
    pub pressure: f64,
    /// Percent of the quota periods in which a pod was throttled; none: not used.
    pub throttling: Option<f64>,
    pub period: Duration,
    /// So many periods in succession set the taint, or remove it.
    pub periods: u32,
}

impl Default for InterferenceSettings {
    fn default() -> Self {
        Self {
            enable: true,
            pressure: 20.0,
            throttling: None,
            period: Duration::from_secs(10),
            periods: 3,
        }
    }
}

/// Flags of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PredictionSettings {
    /// A younger pod needs all that it requests.
    pub cold_start: Duration,
    pub safety_margin_percent: i64,
    pub training_interval: Duration,
    /// A model without an update for this long is removed.
    pub expiration: Duration,
}

impl Default for PredictionSettings {
    fn default() -> Self {
        Self {
            cold_start: Duration::from_secs(24 * 3600),
            safety_margin_percent: 10,
            training_interval: Duration::from_secs(60),
            expiration: Duration::from_secs(30 * 60),
        }
    }
}

/// How fast pods are evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvictionLimits {
    pub per_minute: usize,
    pub cpu_cooldown: Duration,
    pub memory_cooldown: Duration,
    /// A workload of Mid+BE pods loses one pod in this time.
    pub mid_workload_interval: Duration,
    /// After a refusal of the Eviction API the pod is not tried again for this long.
    pub refused_backoff: Duration,
}

impl Default for EvictionLimits {
    fn default() -> Self {
        Self {
            per_minute: 6,
            cpu_cooldown: Duration::from_secs(20),
            memory_cooldown: Duration::from_secs(4),
            mid_workload_interval: Duration::from_secs(600),
            refused_backoff: Duration::from_secs(30),
        }
    }
}
