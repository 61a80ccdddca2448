//! The reasons to evict, each with the amount to release.

use super::{EvictionCandidate, Evictions, of};
use crate::model::ReclaimedResource::{self, Cpu, Memory};
use crate::model::Timestamp;
use crate::node::interference::Suffering;
use crate::node::settings::Thresholds;
use crate::node::terms::CpuMemory;
use crate::node::usage::ClassUse;

/// What a victim releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Releases {
    Use,
    /// Only suppressed pods count: Mid+LS pods do not run on what suppression grants.
    Request,
}

/// A reason to evict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictionNeed {
    pub resource: ReclaimedResource,
    pub release: i64,
    pub releases: Releases,
    /// The start of a sentence.
    pub reason: String,
}

impl EvictionNeed {
    pub(super) fn released_by(&self, candidate: &EvictionCandidate<'_>) -> i64 {
        match self.releases {
            Releases::Use => of(candidate.used, self.resource),
            Releases::Request if candidate.pod.is_suppressed() => {
                of(candidate.request, self.resource)
            }
            Releases::Request => 0,
        }
    }
}

/// How many milli-cores of requests to release so that the rest is satisfied; 0 if it is satisfied.
pub fn satisfaction_release(request: i64, limit: i64, lower: i64, upper: i64) -> i64 {
    if request <= 0 {
        return 0;
    }
    let rate = limit as f64 / request as f64;
    if rate > lower as f64 / 100.0 || rate >= upper as f64 / 100.0 {
        return 0;
    }
    (request as f64 * (upper as f64 / 100.0 - rate)) as i64
}

/// Whether best-effort pods use what they may: otherwise more CPUs would not help them.
pub fn uses_limit(usage: i64, limit: i64, percent: i64) -> bool {
    match limit {
        ..=0 => false,
        1..1000 => true,
        _ => usage as f64 / limit as f64 >= percent as f64 / 100.0,
    }
}

/// The figures of satisfaction at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Satisfaction {
    pub request: i64,
    pub usage: i64,
    pub limit: i64,
}

impl Satisfaction {
    /// The figures of the pods that are suppressed.
    pub fn of(candidates: &[EvictionCandidate<'_>], limit: i64) -> Self {
        let suppressed = candidates.iter().filter(|it| it.pod.is_suppressed());
        let sum = |of: fn(&EvictionCandidate<'_>) -> CpuMemory| -> CpuMemory {
            suppressed.clone().map(of).sum()
        };
        Self {
            request: sum(|it| it.request).milli_cpu,
            usage: sum(|it| it.used).milli_cpu,
            limit,
        }
    }

    fn release(&self, settings: &Thresholds) -> i64 {
        if !uses_limit(self.usage, self.limit, settings.satisfaction_usage) {
            return 0;
        }
        let (lower, upper) = (settings.satisfaction_lower, settings.satisfaction_upper);
        satisfaction_release(self.request, self.limit, lower, upper)
    }
}

/// What evictions are decided from.
pub(in super::super) struct EvictionInputs<'a> {
    pub candidates: &'a [EvictionCandidate<'a>],
    pub used: &'a ClassUse,
    /// The mean over the window, if samples cover enough of it, and what the threshold of suppression leaves at that use.
    pub mean: Option<&'a (ClassUse, i64)>,
    pub capacity: CpuMemory,
    /// What suppressed pods may use.
    pub limit: i64,
    pub suffering: Option<&'a Suffering>,
}

impl Evictions {
    /// The reasons to evict now, memory first.
    pub(in super::super) fn needs(
        &mut self,
        inputs: &EvictionInputs<'_>,
        settings: &Thresholds,
        now: Timestamp,
    ) -> Vec<EvictionNeed> {
        let mut needs = Vec::new();
        needs.extend(self.memory_need(inputs, settings));
        needs.extend(self.satisfaction_need(inputs, settings, now));
        needs.extend(self.cpu_need(inputs, settings));
        if let Some(suffering) = inputs.suffering
            && suffering.since.plus(settings.cpu_evict_window) <= now
        {
            needs.push(EvictionNeed {
                resource: suffering.resource,
                release: 1,
                releases: Releases::Use,
                reason: format!(
                    "{} of online pod {} is {:.0}% for more than {} s",
                    suffering.signal,
                    suffering.pod,
                    suffering.percent,
                    settings.cpu_evict_window.as_secs()
                ),
            });
        }
        needs
    }

    fn memory_need(
        &mut self,
        inputs: &EvictionInputs<'_>,
        settings: &Thresholds,
    ) -> Option<EvictionNeed> {
        let (used, capacity) = (inputs.used.node.memory, inputs.capacity.memory);
        let percent = percent(used, capacity)?;
        self.memory_pressure = if self.memory_pressure {
            percent > settings.memory_evict_lower
        } else {
            percent >= settings.memory_evict
        };
        let threshold = settings.memory_evict;
        self.memory_pressure.then(|| EvictionNeed {
            resource: Memory,
            release: memory_release(used, capacity, settings.memory_evict_lower),
            releases: Releases::Use,
            reason: format!(
                "memory use of the node is {percent}%, over the threshold of {threshold}%"
            ),
        })
    }

    fn cpu_need(
        &mut self,
        inputs: &EvictionInputs<'_>,
        settings: &Thresholds,
    ) -> Option<EvictionNeed> {
        let capacity = inputs.capacity.milli_cpu;
        let (mean, left) = inputs.mean?;
        // Use beyond the threshold that only the rounding to whole CPUs allows does not count: it ends when online pods need it.
        let suppressed = mean.lent.plus(mean.mid_be).milli_cpu;
        let beyond = suppressed.saturating_sub((*left).max(0)).max(0);
        let percent = percent(mean.node.milli_cpu - beyond.min(suppressed), capacity)?;
        self.cpu_pressure = if self.cpu_pressure {
            percent > settings.cpu_evict_lower
        } else {
            percent >= settings.cpu_evict
        };
        let threshold = settings.cpu_evict;
        self.cpu_pressure.then(|| EvictionNeed {
            resource: Cpu,
            release: capacity * (percent - settings.cpu_evict_lower) / 100,
            releases: Releases::Use,
            reason: format!(
                "CPU use of the node is {percent}% over the window, and the threshold is {threshold}%"
            ),
        })
    }

    fn satisfaction_need(
        &mut self,
        inputs: &EvictionInputs<'_>,
        settings: &Thresholds,
        now: Timestamp,
    ) -> Option<EvictionNeed> {
        let latest = Satisfaction::of(inputs.candidates, inputs.limit);
        let window = settings.cpu_evict_window;
        self.satisfaction
            .retain(|(at, _)| at.plus(window) > now && *at <= now);
        self.satisfaction.push_back((now, latest));
        let covered = self.satisfaction.front().map_or(0, |(at, _)| now.0 - at.0);
        if covered.saturating_mul(3) < i64::try_from(window.as_nanos()).unwrap_or(i64::MAX) {
            return None;
        }
        let mean = |f: fn(&Satisfaction) -> i64| {
            let values = self.satisfaction.iter().map(|(_, it)| i128::from(f(it)));
            let sum: i128 = values.sum();
            i64::try_from(sum / self.satisfaction.len() as i128).unwrap_or(i64::MAX)
        };
        let average = Satisfaction {
            request: mean(|it| it.request),
            usage: mean(|it| it.usage),
            limit: mean(|it| it.limit),
        };
        // Both must agree: a short drop evicts nothing, nor does one that is over.
        let release = average.release(settings).min(latest.release(settings));
        (release > 0).then(|| EvictionNeed {
            resource: Cpu,
            release,
            releases: Releases::Request,
            reason: format!(
                "best-effort pods request {}m CPU and may use {}m, below {}%",
                latest.request, latest.limit, settings.satisfaction_lower
            ),
        })
    }
}

/// How many bytes to release until the use is at a lower percentage of the capacity.
pub fn memory_release(used: i64, capacity: i64, lower: i64) -> i64 {
    let percent = percent(used, capacity).unwrap_or(0);
    let release = i128::from(capacity) * i128::from(percent - lower) / 100;
    i64::try_from(release).unwrap_or(i64::MAX)
}

fn percent(used: i64, capacity: i64) -> Option<i64> {
    let percent = i128::from(used) * 100 / i128::from(capacity.max(1));
    (capacity > 0).then(|| i64::try_from(percent).unwrap_or(i64::MAX))
}
