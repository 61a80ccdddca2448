//! Metrics of work queues, under client-go's names.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use reconcile::QueueStats;

type ByName<M> = Family<[(&'static str, &'static str); 1], M>;

/// Registers the current numbers of these queues.
pub fn register_queues(registry: &mut Registry, queues: &[QueueStats]) {
    let depth = ByName::<Gauge>::default();
    let (adds, retries) = (ByName::<Counter>::default(), ByName::<Counter>::default());
    for queue in queues {
        let label = [("name", queue.name)];
        let length = i64::try_from(queue.depth).unwrap_or(i64::MAX);
        depth.get_or_create(&label).set(length);
        adds.get_or_create(&label).inc_by(queue.adds);
        retries.get_or_create(&label).inc_by(queue.retries);
    }
    registry.register("workqueue_depth", "Current depth of workqueue", depth);
    registry.register(
        "workqueue_adds",
        "Total number of adds handled by workqueue",
        adds,
    );
    registry.register(
        "workqueue_retries",
        "Total number of retries handled by workqueue",
        retries,
    );
}
