//! Numbers for Prometheus: kube-scheduler's stable and beta metrics under their names, and a few of our own.
//!
//! What happens per pod is counted in place; what merely is (queue lengths, watches) is read when somebody asks.

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
pub(crate) struct Attempt {
    pub(crate) result: AttemptResult,
    pub(crate) profile: ProfileName,
}

/// As kube-scheduler counts attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "they are the words of the label")]
pub(crate) enum AttemptResult {
    scheduled,
    unschedulable,
    error,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct AtPoint {
    pub(crate) extension_point: &'static str,
    pub(crate) status: &'static str,
    pub(crate) profile: ProfileName,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Evaluation {
    pub(crate) plugin: &'static str,
    pub(crate) extension_point: &'static str,
    pub(crate) profile: ProfileName,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Rejector {
    pub(crate) plugin: &'static str,
    pub(crate) profile: ProfileName,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Incoming {
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
    InQueue { queue }
    Operation { operation }
    Attempts { attempts }
    Outcome { result }
    KindLabel { kind }
    RoleLabel { role }
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) attempts: Family<Attempt, Counter>,
    pub(crate) attempt_duration: Histograms<Attempt>,
    pub(crate) preemption_victims: Histogram,
    pub(crate) preemption_attempts: Counter,
    pub(crate) pending_pods: Family<InQueue, Gauge>,
    pub(crate) goroutines: Family<Operation, Gauge>,
    pub(crate) sli_duration: Histograms<Attempts>,
    pub(crate) pod_attempts: Histogram,
    pub(crate) point_duration: Histograms<AtPoint>,
    pub(crate) evaluations: Family<Evaluation, Counter>,
    pub(crate) incoming: Family<Incoming, Counter>,
    pub(crate) permit_wait: Histograms<Outcome>,
    pub(crate) unschedulable_pods: Family<Rejector, Gauge>,
    pub(crate) fence_duration: Histogram,
    pub(crate) binds: Family<Outcome, Counter>,
    pub(crate) events: Family<Outcome, Counter>,
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
        // The suffix `_total` of counters comes by itself.
        macro_rules! register {
            ($name:literal, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register($name, $help, metric.clone());
                metric
            }};
        }
        let attempts = register!(
            "scheduler_schedule_attempts",
            "Attempts to schedule pods, by the result. 'unschedulable' is a pod that no node would take, 'error' a problem of the scheduler",
            Family::default()
        );
        let attempt_duration = register!(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time of an attempt, from its beginning until the pod is bound or waits again",
            Histograms::new_with_constructor(milliseconds)
        );
        let preemption_victims = register!(
            "scheduler_preemption_victims",
            "Pods evicted to make room for one",
            Histogram::new(exponential_buckets(1.0, 2.0, 7))
        );
        let preemption_attempts = register!(
            "scheduler_preemption_attempts",
            "Attempts to make room for a pod so far",
            Counter::default()
        );
        let pending_pods = register!(
            "scheduler_pending_pods",
            "Pods that wait, by the queue: 'active', 'backoff', 'unschedulable' or 'gated'",
            Family::default()
        );
        let goroutines = register!(
            "scheduler_goroutines",
            "Requests under way, by the work they do (kube-scheduler counts goroutines)",
            Family::default()
        );
        let sli_duration = register!(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from when a pod could first be scheduled until it was bound, by attempts",
            Histograms::new_with_constructor(long)
        );
        let pod_attempts = register!(
            "scheduler_pod_scheduling_attempts",
            "Attempts that a bound pod took",
            Histogram::new(exponential_buckets(1.0, 2.0, 5))
        );
        let point_duration = register!(
            "scheduler_framework_extension_point_duration_seconds",
            "Time of all plugins at an extension point",
            Histograms::new_with_constructor(short)
        );
        let evaluations = register!(
            "scheduler_plugin_evaluation",
            "Attempts in which a plugin had its turn at an extension point",
            Family::default()
        );
        let incoming = register!(
            "scheduler_queue_incoming_pods",
            "Pods that came into a queue, by the event that brought them there",
            Family::default()
        );
        let permit_wait = register!(
            "scheduler_permit_wait_duration_seconds",
            "Time that pods waited on permit",
            Histograms::new_with_constructor(milliseconds)
        );
        let unschedulable_pods = register!(
            "scheduler_unschedulable_pods",
            "Pods that wait, by the plugin that rejected them; a pod counts once for each",
            Family::default()
        );
        let fence_duration = register!(
            "tidepool_leader_fence_seconds",
            "Time from winning the Lease until everything the predecessor wrote is known",
            Histogram::new(exponential_buckets(0.01, 2.0, 12))
        );
        let binds = register!(
            "tidepool_binds",
            "Bindings that ended, by the result",
            Family::default()
        );
        let events = register!(
            "tidepool_events",
            "Events about pods, by what became of them",
            Family::default()
        );
        let watch_silence = register!(
            "tidepool_watch_silence_seconds",
            "Time since the last word of a kind",
            Family::default()
        );
        let role = register!(
            "tidepool_role",
            "1 for what this process is",
            Family::default()
        );
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

    /// All of them, as OpenMetrics text.
    pub(crate) fn text(&self) -> String {
        crate::serve::encode_metrics(&self.registry)
    }

    /// An attempt ended so.
    pub(crate) fn attempt(&self, profile: &ProfileName, result: AttemptResult, took: Duration) {
        let labels = Attempt {
            result,
            profile: profile.clone(),
        };
        self.attempts.get_or_create(&labels).inc();
        self.attempt_duration
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    /// A pod was bound after so many attempts, so long after the first was possible.
    pub(crate) fn bound(&self, attempts: u32, waited: Option<Duration>) {
        self.pod_attempts.observe(f64::from(attempts));
        if let Some(waited) = waited {
            let attempts = attempts_label(attempts);
            self.sli_duration
                .get_or_create(&Attempts { attempts })
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
    fn attempts_are_told_apart_up_to_fifteen() {
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
