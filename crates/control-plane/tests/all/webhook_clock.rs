//! Replicas of the webhook whose clocks differ from that of the API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use control_plane::webhook::NAME;
use control_plane::webhook::certificates::CertificateKeeper;
use http::header::DATE;
use http::{HeaderValue, Request};
use k8s_openapi::api::core::v1::Secret;
use kube::client::Body;
use kube::{Api, Client};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::support::{Fixture, NAMESPACE, eventually};
use crate::webhook::{install, managed};

/// A client of an API server whose clock is so many seconds behind ours.
fn behind(fixture: &Fixture, seconds: &Arc<AtomicI64>) -> Client {
    let (inner, seconds) = (fixture.client.clone(), seconds.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, seconds) = (inner.clone(), seconds.clone());
        async move {
            let mut response = inner.send(request).await?;
            let now = jiff::Timestamp::now().as_second() - seconds.load(Ordering::Relaxed);
            let date = jiff::Timestamp::from_second(now).unwrap();
            let date = date.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            let date = HeaderValue::from_str(&date).unwrap();
            response.headers_mut().insert(DATE, date);
            Ok::<_, kube::Error>(response)
        }
    });
    Client::new(service, NAMESPACE)
}

struct Replica {
    keeper: Arc<CertificateKeeper>,
    _stop: DropGuard,
}

fn replica(client: Client) -> Replica {
    let keeper = CertificateKeeper::new(client, managed(None)).unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(keeper.clone().run(stop.clone()));
    Replica {
        keeper,
        _stop: stop.drop_guard(),
    }
}

/// Seconds ahead of the API server's clock, and what the replica says. A `Date` has no parts of a second.
const JUMPS: [(i64, &str); 4] = [
    (
        400 * 24 * 3600,
        "is 576000 minutes ahead of that of the API server",
    ),
    (400, "is 6 minutes ahead of that of the API server"),
    (-400, "is 6 minutes behind that of the API server"),
    (-7230, "is 120 minutes behind that of the API server"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_a_wrong_clock_writes_nothing_and_serves_what_others_write() {
    for (seconds, says) in JUMPS {
        serves_what_others_write(seconds, says).await;
    }
}

async fn serves_what_others_write(seconds: i64, says: &str) {
    let fixture = Fixture::new().await;
    install(&fixture).await;
    let secrets: Api<Secret> = Api::namespaced(fixture.client.clone(), NAMESPACE);
    let ahead = Arc::new(AtomicI64::new(seconds));
    let wrong = replica(behind(&fixture, &ahead));
    let says_so = || async {
        match wrong.keeper.check() {
            Err(why) if why.contains(says) => Ok(()),
            other => Err(other),
        }
    };
    eventually("it says that its clock is wrong", says_so).await;
    // Some rounds later, too.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(secrets.get(NAME).await.unwrap().data, None);

    let right = replica(behind(&fixture, &Arc::default()));
    eventually("the other replica is ready", || async {
        right.keeper.check()
    })
    .await;
    let written = secrets.get(NAME).await.unwrap();
    eventually("both serve the same", || async {
        match wrong.keeper.seconds_left() == right.keeper.seconds_left() {
            true => Ok(()),
            false => Err(wrong.keeper.seconds_left()),
        }
    })
    .await;
    says_so().await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let now = secrets.get(NAME).await.unwrap();
    assert_eq!(
        now.metadata.resource_version,
        written.metadata.resource_version
    );

    ahead.store(0, Ordering::Relaxed);
    eventually("with the right clock it is ready", || async {
        wrong.keeper.check()
    })
    .await;
}
