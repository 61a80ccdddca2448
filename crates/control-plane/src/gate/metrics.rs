//! The metrics of the gate beside those of all webhooks.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::webhook::server::ReviewMetrics;

type ByLabel = Family<[(&'static str, &'static str); 1], Counter>;

#[derive(Clone)]
pub(super) struct GateMetrics {
    pub(super) reviews: ReviewMetrics,
    /// By class of the refusal.
    pub(super) refusals: ByLabel,
    /// Pods that were read, by occasion.
    pub(super) reads: ByLabel,
    /// The time to judge a bind, without requests to the API server.
    pub(super) judging: Histogram,
}

impl Default for GateMetrics {
    fn default() -> Self {
        Self {
            reviews: ReviewMetrics::default(),
            refusals: ByLabel::default(),
            reads: ByLabel::default(),
            judging: Histogram::new(exponential_buckets(0.000_031_25, 2.0, 14)),
        }
    }
}

impl GateMetrics {
    pub(super) fn register(&self, holds: usize, registry: &mut Registry) {
        self.reviews.register(registry);
        registry.register(
            "tidepool_gate_refusals",
            "Refused binds by what they exceed",
            self.refusals.clone(),
        );
        registry.register(
            "tidepool_gate_reads",
            "Pods that were read: unknown ones, and those of late binds",
            self.reads.clone(),
        );
        registry.register(
            "tidepool_gate_judge_duration_seconds",
            "Time to judge a bind, without requests to the API server",
            self.judging.clone(),
        );
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(holds).unwrap_or(i64::MAX));
        registry.register(
            "tidepool_gate_holds",
            "Allowed binds that the watch does not show yet",
            gauge,
        );
    }
}
