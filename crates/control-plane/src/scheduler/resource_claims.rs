//! Warns that devices of ResourceClaims are not allocated, where Tidepool replaces kube-scheduler.

use super::write::requests::Call;
use crate::client::Exchange;

/// Newest first.
const VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1beta1"];

/// Warns once if the cluster has any.
pub(super) async fn warn(api: Exchange) {
    if are_there(&api).await {
        tracing::warn!(
            "this cluster has ResourceClaims: this scheduler does not allocate devices, and pods that need them stay pending"
        );
    }
}

/// False for a cluster without the kind or without permission to list it.
async fn are_there(api: &Exchange) -> bool {
    for version in VERSIONS {
        let path = format!("/apis/resource.k8s.io/{version}/resourceclaims?limit=1");
        if let Ok(answer) = Call::get(path).send(api).await {
            let list: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
            let items = list["items"].as_array();
            return items.is_some_and(|items| !items.is_empty());
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use http::{Request, Response};
    use kube::client::Body;
    use tokio::sync::oneshot;

    use super::*;
    use crate::client::{Connect, through};
    use api::http::Role;

    use crate::election::leadership::Leadership;
    use crate::scheduler::observe::metrics::Metrics;
    use crate::scheduler::pods::PendingPods;
    use crate::scheduler::{Mode, ScoreRecorder, Shared, run_io};
    use reconcile::testing::Log;

    /// A server with the kind in this version, with these objects, and no other kind. Counts requests for it.
    fn server(version: &'static str, items: &'static str) -> (kube::Client, Arc<AtomicUsize>) {
        let asked = Arc::<AtomicUsize>::default();
        let count = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path();
            if path.ends_with("/resourceclaims") {
                count.fetch_add(1, Ordering::Relaxed);
            }
            let known = path.contains(&format!("/resource.k8s.io/{version}/"));
            let (code, body) = match known {
                true => (200, format!(r#"{{"items":{items}}}"#)),
                false => (404, "{}".to_owned()),
            };
            let mut response = Response::new(Body::from(body.into_bytes()));
            *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        (kube::Client::new(service, "default"), asked)
    }

    #[tokio::test]
    async fn claims_of_any_version_are_found() {
        for (version, items, want) in [
            ("v1", "[{}]", true),
            ("v1beta2", "[{}]", true),
            ("v1beta1", "[{}]", true),
            ("v1", "[]", false),
            ("v2", "[{}]", false),
        ] {
            let (client, _) = server(version, items);
            assert_eq!(are_there(&through(client)).await, want, "{version} {items}");
        }
    }

    fn shared() -> Shared {
        Shared {
            channel: Arc::default(),
            pods: Arc::new(PendingPods::new(Vec::new())),
            claim_waits: Arc::default(),
            counters: Arc::default(),
            progress: Arc::new(super::super::kinds::progress()),
            leadership: Arc::new(Leadership::new(Role::Alone)),
            metrics: Arc::new(Metrics::new()),
            scores: ScoreRecorder::new(0).0,
        }
    }

    #[tokio::test]
    async fn only_mode_primary_warns_and_once() {
        for (mode, items, asks, warns) in [
            (Mode::Primary, "[{}]", 1, 1),
            (Mode::Primary, "[]", 1, 0),
            (Mode::Second, "[{}]", 0, 0),
            (Mode::Observe, "[{}]", 0, 0),
        ] {
            let (client, asked) = server("v1", items);
            let (shared, log) = (shared(), Log::begin());
            let progress = shared.progress.clone();
            let (stop, stopped) = oneshot::channel();
            let connect = Connect::Client(client);
            let work = run_io(connect, shared, Vec::new(), "host".into(), mode, stopped);
            let started = async {
                while !progress.unsynced().is_empty() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                // The other requests are answered by now.
                tokio::time::sleep(Duration::from_millis(200)).await;
                drop(stop);
            };
            let (ended, ()) = tokio::join!(work, started);
            ended.unwrap();
            let lines = log.lines();
            let found = lines.iter().filter(|line| {
                line.contains("WARN") && line.contains("this cluster has ResourceClaims")
            });
            assert_eq!(found.count(), warns, "{mode} {items}: {lines:?}");
            assert_eq!(asked.load(Ordering::Relaxed), asks, "{mode} {items}");
        }
    }
}
