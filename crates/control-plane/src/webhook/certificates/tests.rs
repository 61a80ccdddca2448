//! What the keeper logs.

use http::Response;
use kube::Client;
use serde_json::json;
use tower::service_fn;

use super::*;
use reconcile::testing::Log;

fn managed() -> ManagedCertificate {
    ManagedCertificate {
        namespace: "ns".to_owned(),
        name: "secret".to_owned(),
        configurations: &[],
        hosts: vec!["127.0.0.1".to_owned()],
        periods: CertificatePeriods {
            check: Duration::from_millis(1),
            ..CertificatePeriods::default()
        },
    }
}

fn keeper(client: Client) -> Arc<CertificateKeeper> {
    CertificateKeeper::new(client, CertificateOptions::Managed(managed())).unwrap()
}

/// Runs the keeper until so many lines of its log have these words.
async fn wait_for_lines(keeper: &CertificateKeeper, log: &Log, words: &str, wanted: usize) {
    let count = || log.lines().iter().filter(|it| it.contains(words)).count();
    let managed = managed();
    let limit = Duration::from_millis(20);
    let outage = Outage::logged_every(Duration::from_millis(50));
    let logged = async {
        while count() < wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = keeper.manage(&managed, limit, outage) => panic!("it ended"),
        () = tokio::time::sleep(Duration::from_secs(60)) => panic!("{:?}", log.lines()),
        () = logged => {}
    }
}

#[tokio::test]
async fn a_silent_api_server_is_logged_again_and_again() {
    let silent = service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<Response<Body>, kube::Error>>()
    });
    let keeper = keeper(Client::new(silent, "ns"));
    let log = Log::begin();
    let words = "cannot keep the certificate up to date: the API server did not answer within 20ms";
    wait_for_lines(&keeper, &log, words, 4).await;
    assert!(keeper.check().unwrap_err().contains(words));
}

#[tokio::test]
async fn answers_without_a_date_are_logged_once() {
    // Each write of the Secret fails, so that there are many rounds.
    let without_date = service_fn(|request: http::Request<Body>| {
        let (code, answer) = match request.method() {
            &http::Method::GET => (200, json!({"metadata": {"name": "secret"}})),
            _ => (
                500,
                json!({"kind": "Status", "code": 500, "message": "the disk is full"}),
            ),
        };
        let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        std::future::ready(Ok::<_, kube::Error>(response))
    });
    let keeper = keeper(Client::new(without_date, "ns"));
    let log = Log::begin();
    wait_for_lines(&keeper, &log, "the disk is full", 3).await;
    let lines = log.lines();
    let of_clock = lines
        .iter()
        .filter(|it| it.contains("no valid Date header"));
    assert_eq!(of_clock.count(), 1, "{lines:?}");
}
