//! The metrics of the gate beside those of all webhooks.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::webhook::server::ReviewMetrics;

type ByLabel = Family<[(&'static str, &'static str); 1], Counter>;

#[derive(Clone, Default)]
pub(super) struct GateMetrics {
    pub(super) reviews: ReviewMetrics,
    /// By class of the refusal.
    pub(super) refusals: ByLabel,
    /// Pods that were read, by occasion.
    pub(super) reads: ByLabel,
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
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(holds).unwrap_or(i64::MAX));
        registry.register(
            "tidepool_gate_holds",
            "Allowed binds that the watch does not show yet",
            gauge,
        );
    }
}
