//! Whether online pods suffer: pressure or throttling over a threshold in several periods in succession.

use std::collections::BTreeMap;

use super::settings::InterferenceSettings;
use super::usage::by_group;
use super::{Inputs, LocalPod};
use crate::model::{Name, ReclaimedResource, Timestamp};

/// An online pod over a threshold.
#[derive(Debug, Clone, PartialEq)]
pub struct Suffering {
    /// The form of a label value.
    pub signal: &'static str,
    pub resource: ReclaimedResource,
    /// `NAMESPACE/NAME`.
    pub pod: String,
    pub percent: f64,
    /// When the periods in succession were complete.
    pub since: Timestamp,
}

#[derive(Debug, Default)]
pub struct Interference {
    /// The end of the last period.
    evaluated: Option<Timestamp>,
    /// Periods in succession that differ from the present state.
    different: u32,
    active: Option<Suffering>,
    /// Quota periods of online pods since then: all, and those that were throttled.
    throttling: BTreeMap<Name, (u64, u64)>,
    last_sample: Option<Timestamp>,
}

impl Interference {
    /// The online pod that suffers, as of the last period.
    pub(super) fn observe(
        &mut self,
        inputs: &Inputs<'_>,
        settings: &InterferenceSettings,
        now: Timestamp,
    ) -> Option<&Suffering> {
        if !settings.enable {
            *self = Self::default();
            return None;
        }
        self.count_throttling(inputs);
        let last = *self.evaluated.get_or_insert(now);
        if now < last {
            self.evaluated = Some(now);
        }
        if now < last.plus(settings.period) {
            return self.active.as_ref();
        }
        self.evaluated = Some(now);
        let found = self.worst(inputs, settings, now);
        self.throttling.clear();
        match (&mut self.active, found) {
            (Some(active), Some(found)) => {
                self.different = 0;
                *active = Suffering {
                    since: active.since,
                    ..found
                };
            }
            (None, None) => self.different = 0,
            (_, found) => {
                self.different += 1;
                if self.different >= settings.periods.max(1) {
                    self.different = 0;
                    self.active = found;
                }
            }
        }
        self.active.as_ref()
    }

    fn count_throttling(&mut self, inputs: &Inputs<'_>) {
        let (Some(sample), Some(pods)) = (inputs.sample, inputs.pods) else {
            return;
        };
        if self.last_sample == Some(sample.at) {
            return;
        }
        self.last_sample = Some(sample.at);
        for pod in pods.iter().filter(|pod| !pod.is_own()) {
            let used = sample.pods.get(&pod.group);
            let Some(throttling) = used.and_then(|used| used.group.throttling) else {
                continue;
            };
            let (periods, throttled) = self.throttling.entry(pod.group.clone()).or_default();
            *periods = periods.saturating_add(throttling.periods);
            *throttled = throttled.saturating_add(throttling.throttled_periods);
        }
    }

    fn worst(
        &self,
        inputs: &Inputs<'_>,
        settings: &InterferenceSettings,
        now: Timestamp,
    ) -> Option<Suffering> {
        let (sample, pods) = (inputs.sample?, by_group(inputs.pods?));
        let mut worst: Option<Suffering> = None;
        let mut consider = |pod: &LocalPod, signal, resource, percent: f64, threshold: f64| {
            let is_worse = worst.as_ref().is_none_or(|worst| percent > worst.percent);
            if percent >= threshold && is_worse {
                worst = Some(Suffering {
                    signal,
                    resource,
                    pod: format!("{}/{}", pod.namespace, pod.name),
                    percent,
                    since: now,
                });
            }
        };
        for (uid, used) in &sample.pods {
            let Some(pod) = pods.get(uid).filter(|pod| !pod.is_own()) else {
                continue;
            };
            let pressure = &used.group.pressure;
            for (signal, resource, stall) in [
                ("cpu-pressure", ReclaimedResource::Cpu, pressure.cpu),
                (
                    "memory-pressure",
                    ReclaimedResource::Memory,
                    pressure.memory,
                ),
            ] {
                if let Some(stall) = stall {
                    consider(pod, signal, resource, stall.some, settings.pressure);
                }
            }
            if let Some((threshold, (periods, throttled))) =
                settings.throttling.zip(self.throttling.get(uid))
                && *periods > 0
            {
                let percent = *throttled as f64 * 100.0 / *periods as f64;
                consider(
                    pod,
                    "throttling",
                    ReclaimedResource::Cpu,
                    percent,
                    threshold,
                );
            }
        }
        worst
    }
}
