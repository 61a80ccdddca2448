//! The metrics of the controller of hot spots.

use engine::policies::hot_spots::HotSpotPlan;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// What is counted; the rest is read from the last plan.
#[derive(Debug, Default)]
pub(super) struct HotSpotMetrics {
    pub(super) evictions: Counter,
    pub(super) dry_runs: Counter,
    pub(super) refusals: Counter,
}

impl HotSpotMetrics {
    pub(super) fn register(&self, registry: &mut Registry, plan: &HotSpotPlan) {
        for (name, help, value) in [
            (
                "tidepool_hot_nodes",
                "Nodes whose use is above a high mark",
                plan.hot,
            ),
            (
                "tidepool_cool_nodes",
                "Nodes whose use is below both low marks",
                plan.cool,
            ),
            (
                "tidepool_measured_nodes",
                "Nodes with a current NodeMetric",
                plan.known,
            ),
            (
                "tidepool_hot_spot_unplaceable_pods",
                "Pods that stay on hot nodes, because the scheduler would place them nowhere else below the mark",
                plan.unplaceable,
            ),
        ] {
            let gauge: Gauge = Gauge::default();
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
            registry.register(name, help, gauge);
        }
        for (name, help, counter) in [
            (
                "tidepool_hot_spot_evictions",
                "Pods evicted from hot nodes",
                &self.evictions,
            ),
            (
                "tidepool_hot_spot_dry_runs",
                "Pods that would have been evicted from hot nodes",
                &self.dry_runs,
            ),
            (
                "tidepool_hot_spot_refusals",
                "Pods of hot nodes that the API server did not evict, such as those with a PodDisruptionBudget",
                &self.refusals,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
    }
}
