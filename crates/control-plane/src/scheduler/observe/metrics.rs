//! Metrics: kube-scheduler's stable and beta metrics under their names, and a few of our own.
//!
//! Counters change as pods are processed; gauges (queue lengths, watches) are set when `/metrics` is read.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// `scheduler_name` of a profile, as a label.
pub(crate) type ProfileName = engine::model::Name;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct AttemptLabels {
    pub(crate) result: AttemptResult,
    pub(crate) profile: ProfileName,
}

/// As kube-scheduler counts attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "they are the values of the label")]
pub(crate) enum AttemptResult {
    scheduled,
    unschedulable,
    error,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PointLabels {
    pub(crate) extension_point: &'static str,
    pub(crate) status: &'static str,
    pub(crate) profile: ProfileName,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct EvaluationLabels {
    pub(crate) plugin: &'static str,
    pub(crate) extension_point: &'static str,
    pub(crate) profile: ProfileName,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RejectionLabels {
    pub(crate) plugin: &'static str,
    pub(crate) profile: ProfileName,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct IncomingLabels {
    pub(crate) queue: &'static str,
    pub(crate) event: String,
}

macro_rules! one_label {
    ($($name:ident { $label:ident })*) => {$(
        #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub(crate) struct $name {
            pub(crate) $label: &'static str,
        }
    )*};
}
one_label! {
    QueueLabel { queue }
    OperationLabel { operation }
    AttemptsLabel { attempts }
    ResultLabel { result }
    KindLabel { kind }
    RoleLabel { role }
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) attempts: Family<AttemptLabels, Counter>,
    pub(crate) attempt_duration: Histograms<AttemptLabels>,
    pub(crate) preemption_victims: Histogram,
    pub(crate) preemption_attempts: Counter,
    pub(crate) pending_pods: Family<QueueLabel, Gauge>,
    pub(crate) goroutines: Family<OperationLabel, Gauge>,
    pub(crate) sli_duration: Histograms<AttemptsLabel>,
    pub(crate) pod_attempts: Histogram,
    pub(crate) point_duration: Histograms<PointLabels>,
    pub(crate) evaluations: Family<EvaluationLabels, Counter>,
    pub(crate) incoming: Family<IncomingLabels, Counter>,
    pub(crate) permit_wait: Histograms<ResultLabel>,
    pub(crate) unschedulable_pods: Family<RejectionLabels, Gauge>,
    pub(crate) fence_duration: Histogram,
    pub(crate) binds: Family<ResultLabel, Counter>,
    pub(crate) events: Family<ResultLabel, Counter>,
    pub(crate) watch_silence: Family<KindLabel, Gauge<f64, std::sync::atomic::AtomicU64>>,
    pub(crate) role: Family<RoleLabel, Gauge>,
}

/// 1 ms to 16 s.
fn milliseconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

/// 0.1 ms to 0.2 s.
fn short() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 12))
}

/// 10 ms to 1.5 h.
fn long() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 20))
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        // The library adds the suffix `_total` to counters.
        macro_rules! register {
            ($name:literal, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register($name, $help, metric.clone());
                metric
            }};
        }
        let attempts = register!(
            "scheduler_schedule_attempts",
            "Attempts to schedule pods, by result. 'unschedulable' means that no node fits the pod, 'error' an internal error of the scheduler",
            Family::default()
        );
        let attempt_duration = register!(
            "scheduler_scheduling_attempt_duration_seconds",
            "Duration of a scheduling attempt, until the pod is bound or back in the queue",
            Histograms::new_with_constructor(milliseconds)
        );
        let preemption_victims = register!(
            "scheduler_preemption_victims",
            "Victims per preemption",
            Histogram::new(exponential_buckets(1.0, 2.0, 7))
        );
        let preemption_attempts = register!(
            "scheduler_preemption_attempts",
            "Preemption attempts",
            Counter::default()
        );
        let pending_pods = register!(
            "scheduler_pending_pods",
            "Pending pods, by queue: 'active', 'backoff', 'unschedulable' or 'gated'",
            Family::default()
        );
        let goroutines = register!(
            "scheduler_goroutines",
            "Operations in progress, by type (kube-scheduler counts goroutines)",
            Family::default()
        );
        let sli_duration = register!(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from the first attempt of a pod until it is bound, by number of attempts",
            Histograms::new_with_constructor(long)
        );
        let pod_attempts = register!(
            "scheduler_pod_scheduling_attempts",
            "Attempts per bound pod",
            Histogram::new(exponential_buckets(1.0, 2.0, 5))
        );
        let point_duration = register!(
            "scheduler_framework_extension_point_duration_seconds",
            "Duration of all plugins of an extension point",
            Histograms::new_with_constructor(short)
        );
        let evaluations = register!(
            "scheduler_plugin_evaluation",
            "Evaluations of a plugin at an extension point",
            Family::default()
        );
        let incoming = register!(
            "scheduler_queue_incoming_pods",
            "Pods added to a queue, by queue and event",
            Family::default()
        );
        let permit_wait = register!(
            "scheduler_permit_wait_duration_seconds",
            "Time that pods waited on Permit",
            Histograms::new_with_constructor(milliseconds)
        );
        let unschedulable_pods = register!(
            "scheduler_unschedulable_pods",
            "Pending pods by the plugin that rejected them; a pod counts once for each plugin",
            Family::default()
        );
        let fence_duration = register!(
            "tidepool_leader_fence_seconds",
            "Time from acquiring the Lease until all writes of the previous leader are known",
            Histogram::new(exponential_buckets(0.01, 2.0, 12))
        );
        let binds = register!("tidepool_binds", "Bindings, by result", Family::default());
        let events = register!(
            "tidepool_events",
            "Events, by result: 'written', 'refused' or 'dropped'",
            Family::default()
        );
        let watch_silence = register!(
            "tidepool_watch_silence_seconds",
            "Time since the last update of a watched kind",
            Family::default()
        );
        let role = register!("tidepool_role", "1 for the current role", Family::default());
        Self {
            registry,
            attempts,
            attempt_duration,
            preemption_victims,
            preemption_attempts,
            pending_pods,
            goroutines,
            sli_duration,
            pod_attempts,
            point_duration,
            evaluations,
            incoming,
            permit_wait,
            unschedulable_pods,
            fence_duration,
            binds,
            events,
            watch_silence,
            role,
        }
    }

    /// OpenMetrics text.
    pub(crate) fn text(&self) -> String {
        crate::serve::encode_metrics(&self.registry)
    }

    /// An attempt ended.
    pub(crate) fn attempt(&self, profile: &ProfileName, result: AttemptResult, took: Duration) {
        let labels = AttemptLabels {
            result,
            profile: profile.clone(),
        };
        self.attempts.get_or_create(&labels).inc();
        self.attempt_duration
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    /// A pod was bound after so many attempts and this time.
    pub(crate) fn bound(&self, attempts: u32, waited: Option<Duration>) {
        self.pod_attempts.observe(f64::from(attempts));
        if let Some(waited) = waited {
            let attempts = attempts_label(attempts);
            self.sli_duration
                .get_or_create(&AttemptsLabel { attempts })
                .observe(waited.as_secs_f64());
        }
    }
}

/// `1` to `14`, and `15+`.
fn attempts_label(attempts: u32) -> &'static str {
    const LABELS: [&str; 15] = [
        "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15+",
    ];
    let index = usize::try_from(attempts.max(1) - 1).unwrap_or(usize::MAX);
    LABELS.get(index).copied().unwrap_or("15+")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_up_to_fifteen() {
        for (attempts, want) in [(0, "1"), (1, "1"), (14, "14"), (15, "15+"), (9_999, "15+")] {
            assert_eq!(attempts_label(attempts), want);
        }
    }

    #[test]
    fn names_labels_and_buckets_are_kube_schedulers() {
        let metrics = Metrics::new();
        let profile: ProfileName = "tidepool".into();
        metrics.attempt(&profile, AttemptResult::scheduled, Duration::from_millis(3));
        metrics.bound(2, Some(Duration::from_secs(1)));
        let text = metrics.text();
        for line in [
            r#"scheduler_schedule_attempts_total{result="scheduled",profile="tidepool"} 1"#,
            r#"scheduler_scheduling_attempt_duration_seconds_bucket{le="0.002",result="scheduled",profile="tidepool"} 0"#,
            r#"scheduler_scheduling_attempt_duration_seconds_bucket{le="16.384",result="scheduled",profile="tidepool"} 1"#,
            r#"scheduler_pod_scheduling_sli_duration_seconds_count{attempts="2"} 1"#,
            r#"scheduler_pod_scheduling_sli_duration_seconds_bucket{le="5242.88",attempts="2"} 1"#,
            r#"scheduler_pod_scheduling_attempts_bucket{le="16.0"} 1"#,
            r#"scheduler_preemption_victims_bucket{le="64.0"} 0"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
