//! What of the headroom is reported: decreases at once, increases in smooth steps; and the report by names and NUMA nodes.

use std::time::Duration;

use super::advice::ReclaimedReport;
use super::headroom::Formula;
use super::numa::ZoneOwners;
use super::predict::Checkpoint;
use super::settings::{AgentSettings, Lend, ReclaimSettings};
use super::terms::{CpuMemory, Figure};
use super::window::{SmoothWindow, limited_step};
use super::{LocalPod, NodeSample, zones};
use crate::model::{TierAccount, Timestamp};

/// The report before a restart that took longer does not hold after it.
const LONGEST_RESTART: Duration = Duration::from_secs(600);
/// A started agent has complete samples within this time.
const FIRST_SAMPLES: Duration = Duration::from_secs(60);

/// Keeps what was reported, and the samples of the next increase.
#[derive(Debug, Default)]
pub struct Lender {
    reported: CpuMemory,
    windows: [SmoothWindow; 2],
    last_sample: Option<Timestamp>,
    /// After a restart the report before it holds, as far as the formula allows, without a new window. Until when.
    resumed: Option<(CpuMemory, Timestamp)>,
}

impl Lender {
    /// The pool that was reported last.
    pub fn reported(&self) -> CpuMemory {
        self.reported
    }

    pub(super) fn restore(&mut self, checkpoint: &Checkpoint, wall: Timestamp, now: Timestamp) {
        let saved = Timestamp(checkpoint.saved);
        if saved.plus(LONGEST_RESTART) >= wall {
            let reported = checkpoint.reported.map(CpuMemory::positive);
            self.resumed = reported.map(|reported| (reported, now.plus(FIRST_SAMPLES)));
        }
    }

    /// Lends nothing, and begins anew.
    pub(super) fn stop(&mut self) {
        *self = Self {
            resumed: self.resumed,
            ..Self::default()
        };
    }

    /// The pool to report for these largest amounts: never more, less at once, more in smooth steps.
    pub(super) fn report(
        &mut self,
        most: CpuMemory,
        settings: &ReclaimSettings,
        now: Timestamp,
    ) -> CpuMemory {
        let smoothing = &settings.smoothing;
        if let Some((resumed, until)) = self.resumed.take()
            && now <= until
        {
            self.reported = resumed.min(most);
        }
        let is_due = self
            .last_sample
            .is_none_or(|last| now >= last.plus(smoothing.period) || now < last);
        if is_due {
            self.last_sample = Some(now);
        }
        let [cpu, memory] = &mut self.windows;
        let one = |window: &mut SmoothWindow, last: i64, most: i64, min_step, max_step| {
            if most < last {
                // A small decrease does not delay the next increase.
                if last - most >= min_step {
                    window.clear();
                }
                return most;
            }
            if !is_due {
                return last;
            }
            match window.push(most, now, smoothing) {
                Some(smooth) => {
                    limited_step(Some(last), smooth, min_step, max_step).clamp(last, most)
                }
                None => last,
            }
        };
        let (min, max) = (smoothing.min_step, smoothing.max_step);
        self.reported = CpuMemory {
            milli_cpu: one(
                cpu,
                self.reported.milli_cpu,
                most.milli_cpu,
                min.milli_cpu,
                max.milli_cpu,
            ),
            memory: one(
                memory,
                self.reported.memory,
                most.memory,
                min.memory,
                max.memory,
            ),
        };
        self.reported
    }
}

/// The report of a pool: less the reserve, at least the minimum, and nothing if one resource is negligible.
pub fn published(pool: CpuMemory, settings: &ReclaimSettings) -> CpuMemory {
    let report = pool
        .minus(settings.reserved_for_report)
        .max(settings.min_for_report)
        .positive();
    let ignored = settings.min_ignored_for_report;
    if report.milli_cpu <= ignored.milli_cpu || report.memory <= ignored.memory {
        return CpuMemory::ZERO;
    }
    report
}

/// The report and the sums behind it.
pub(super) fn publish(
    formula: Formula,
    pool: CpuMemory,
    (sample, owners): (&NodeSample, &ZoneOwners),
    pods: &[LocalPod],
    settings: &AgentSettings,
) -> (ReclaimedReport, Vec<Figure>) {
    let reclaim = &settings.reclaim;
    let value = published(pool, reclaim);
    let lent_as_batch = settings.lend == Lend::Batch;
    let finish = |mut figure: Figure, pool: i64, reserve: i64, least: i64, value: i64| {
        figure.limit("increases are smoothed", pool);
        if reserve != 0 {
            figure.add("reserve of the report", -reserve);
        }
        figure.at_least("minimum of the report", least.max(0));
        if figure.value != value {
            figure.add("a negligible amount is not reported", value - figure.value);
        }
        if lent_as_batch && value != 0 {
            figure.add("lent as batch resources", -value);
        }
        figure
    };
    let (reserve, least) = (reclaim.reserved_for_report, reclaim.min_for_report);
    let cpu = finish(
        formula.cpu,
        pool.milli_cpu,
        reserve.milli_cpu,
        least.milli_cpu,
        value.milli_cpu,
    );
    let memory = finish(
        formula.memory,
        pool.memory,
        reserve.memory,
        least.memory,
        value.memory,
    );
    let capacity = CpuMemory::new(cpu.value, memory.value);
    let mut figures = vec![cpu, memory];
    let mut allocatable = capacity;
    if settings.lend == Lend::Shared {
        let batch: CpuMemory = pods
            .iter()
            .filter(|pod| pod.is_active())
            .map(|pod| pod.tier_request(TierAccount::Batch))
            .sum();
        let left = |name: &str, unit: &str, pool: i64, batch: i64| {
            let mut figure = Figure::new(name, unit);
            figure.add("pool", pool);
            figure.add("requests of batch pods", -batch);
            figure.at_least("not below zero", 0);
            figure
        };
        let (cpu, memory) = (
            left(
                "reclaimed cpu allocatable",
                "milli-cores",
                capacity.milli_cpu,
                batch.milli_cpu,
            ),
            left(
                "reclaimed memory allocatable",
                "bytes",
                capacity.memory,
                batch.memory,
            ),
        );
        allocatable = CpuMemory::new(cpu.value, memory.value);
        figures.extend([cpu, memory]);
    }
    let report = ReclaimedReport {
        capacity,
        allocatable,
        numa: zones::divide(allocatable, sample, owners),
    };
    (report, figures)
}

/// The figures of a node that lends nothing.
pub(super) fn nothing(why: &str) -> Vec<Figure> {
    let figure = |name, unit| {
        let mut figure = Figure::new(name, unit);
        figure.add(why, 0);
        figure
    };
    vec![
        figure("reclaimed cpu", "milli-cores"),
        figure("reclaimed memory", "bytes"),
    ]
}
