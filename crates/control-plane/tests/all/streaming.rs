//! Lists are streamed where the server supports it, and read in pages elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apiserver::faults::{Fault, Matching};
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;

use crate::support::{Fixture, NAMESPACE};

const PODS: usize = 60;

/// Three nodes that hold exactly the pods there are, half of them placed before the scheduler starts.
async fn fixture() -> Fixture {
    let fixture = Fixture::new().await;
    for node in ["a", "b", "c"] {
        fixture.add_node(node, "2", 110).await;
    }
    for pod in 0..PODS {
        let mut made = crate::support::pod(&format!("pod-{pod}"), "100m");
        if pod % 2 == 0 {
            made["spec"]["nodeName"] = ["a", "b", "c"][pod / 2 % 3].into();
        }
        fixture.create_pod(made).await;
    }
    fixture
}

/// Each node is full, so one pod that was lost or counted twice would show.
async fn all_fit(fixture: &Fixture) {
    let placed = fixture.all_placed(PODS).await;
    for node in ["a", "b", "c"] {
        let count = placed.values().filter(|its| *its == node).count();
        assert_eq!(count, PODS / 3, "{placed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_streams_is_not_asked_for_pages() {
    let mut fixture = fixture().await;
    let list = Matching::new("list", "");
    fixture.faults.every(1, list, Fault::InternalError);
    fixture.schedule();
    all_fit(&fixture).await;
    assert_eq!(fixture.faults.struck(), 0);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_in_the_middle_loses_and_doubles_nothing() {
    for fault in [
        Fault::TruncateWatch { after_events: 20 },
        Fault::EndWatch { after_events: 20 },
        Fault::Expired { after_events: 20 },
        Fault::LostAnswer,
    ] {
        let mut fixture = fixture().await;
        let watch = Matching::new("watch", "pods");
        fixture.faults.next(3, watch, fault);
        // Nor does it help to ask in pages, at first.
        let list = Matching::new("list", "pods");
        fixture.faults.next(1, list, Fault::InternalError);
        fixture.schedule();
        all_fit(&fixture).await;
        assert!(fixture.faults.struck() >= 1);
        fixture.stop().await;
    }
}

/// Answers requests for streamed lists so, and counts them.
fn without_streams(fixture: &Fixture, status: StatusCode, body: &'static str) -> (Client, Asked) {
    let (inner, asked) = (fixture.client.clone(), Asked::default());
    let count = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, count) = (inner.clone(), count.clone());
        async move {
            let query = request.uri().query().unwrap_or_default();
            if !query.contains("sendInitialEvents") {
                return inner.send(request).await;
            }
            count.0.fetch_add(1, Ordering::Relaxed);
            let mut answer = Response::new(Body::from(body.as_bytes().to_vec()));
            *answer.status_mut() = status;
            Ok(answer)
        }
    });
    (Client::new(service, NAMESPACE), asked)
}

#[derive(Clone, Default)]
struct Asked(Arc<AtomicUsize>);

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_stream_is_asked_once_per_kind() {
    for (case, status, body) in [
        (
            "it knows no such parameter",
            StatusCode::UNPROCESSABLE_ENTITY,
            r#"{"kind":"Status","code":422,"reason":"Invalid","message":"sendInitialEvents is forbidden for watch"}"#,
        ),
        (
            "its etcd is too old",
            StatusCode::OK,
            "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":500,\"reason\":\"InternalError\",\"message\":\"required storage feature RequestWatchProgress is disabled\"}}\n",
        ),
    ] {
        let mut fixture = fixture().await;
        let (client, asked) = without_streams(&fixture, status, body);
        fixture.schedule_with(client);
        all_fit(&fixture).await;
        let asked = asked.0.load(Ordering::Relaxed);
        let kinds = fixture.running().progress().kinds().len();
        assert_eq!(asked, kinds, "{case}");
        fixture.stop().await;
    }
}
