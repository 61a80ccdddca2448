//! The HTTP API of a scheduler, and its authorization.

use std::net::SocketAddr;
use std::time::Duration;

use apiserver::faults::{Fault, Matching};
use control_plane::scheduler::Options;
use control_plane::serve::{Port, Serve, TlsFiles};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Fixture, eventually, options};
use crate::volumes::claim_and_pod;

pub(crate) fn any_port() -> Serve {
    Serve {
        port: Port::Exactly(0),
        ..Serve::default()
    }
}

pub(crate) async fn serving() -> Fixture {
    let mut fixture = Fixture::new().await;
    let mut options = options();
    options.serve = Some(any_port());
    fixture.schedule_with_options(options);
    fixture
}

/// Status and body of a plain request.
pub(crate) async fn get(fixture: &Fixture, path: &str) -> (u16, String) {
    send(fixture, "GET", path, "").await
}

async fn send(fixture: &Fixture, method: &str, path: &str, body: &str) -> (u16, String) {
    send_to(fixture.server(), method, path, body).await
}

pub(crate) async fn send_to(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    // HTTP/1.0 has no answers in chunks.
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    parse(&answer)
}

pub(crate) fn parse(answer: &str) -> (u16, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, body.to_owned())
}

pub(crate) async fn get_json(fixture: &Fixture, path: &str) -> Value {
    let (code, body) = get(fixture, path).await;
    assert_eq!(code, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

pub(crate) async fn ready(fixture: &Fixture) {
    eventually("it is ready", || async {
        let (code, body) = get(fixture, "/readyz").await;
        if code == 200 { Ok(()) } else { Err(body) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_status_and_configuration() {
    let mut fixture = serving().await;
    fixture.add_node("node", "1", 110).await;
    ready(&fixture).await;
    fixture.add_pod("fits", "600m").await;
    fixture.all_placed(1).await;
    fixture.add_pod("waits", "600m").await;
    let status = eventually("one pod waits", || async {
        let status = get_json(&fixture, "/tidepool/v1/status").await;
        if status["queue"]["unschedulable"] == 1 {
            Ok(status)
        } else {
            Err(status)
        }
    })
    .await;
    assert_eq!(status["role"], "alone");
    assert_eq!(status["mode"], "second");
    assert_eq!(status["schedulers"], json!(["tidepool"]));
    assert_eq!(status["deciding"], true);
    assert_eq!(
        status["cluster"],
        json!({"nodes": 1, "placedPods": 1, "assumedPods": 0, "reportsWithoutNode": 0})
    );
    assert_eq!(status["sinceStart"]["bound"], 1);
    assert_eq!(status["lease"], Value::Null);
    let oldest = &status["oldestWaiting"];
    let whose = (&oldest["namespace"], &oldest["name"]);
    assert_eq!(whose, (&json!("default"), &json!("waits")));
    let why = oldest["why"].as_str().unwrap();
    assert!(why.starts_with("0/1 nodes are available: "), "{why}");
    assert!(oldest["waitingSeconds"].as_f64().unwrap() < 120.0);
    let watches = status["watches"].as_array().unwrap();
    let pods = watches
        .iter()
        .find(|watch| watch["kind"] == "pods")
        .unwrap();
    assert_eq!(pods["synced"], true);
    assert!(pods["silentSeconds"].as_f64().unwrap() < 60.0);
    // What is written down for others can be read back.
    let read: api::http::SchedulerStatus = serde_json::from_value(status).unwrap();
    assert_eq!(read.queue.unschedulable, 1);

    let (_, verbose) = get(&fixture, "/readyz?verbose").await;
    let all = "[+]shutdown ok\n[+]sched-handler-sync ok\n[+]watches ok\nreadyz check passed\n";
    assert_eq!(verbose, all);
    for path in ["/livez", "/livez/ping", "/healthz", "/readyz/shutdown"] {
        assert_eq!(get(&fixture, path).await, (200, "ok".to_owned()), "{path}");
    }
    let config = &get_json(&fixture, "/configz").await["componentconfig"];
    assert_eq!(config["kind"], "KubeSchedulerConfiguration");
    assert_eq!(config["profiles"][0]["schedulerName"], "tidepool");
    assert_eq!(get(&fixture, "/nowhere").await.0, 404);
    fixture.stop().await;
}

/// It has no volume yet, so it cannot be bound.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_not_bound_yet_is_on_no_node() {
    let mut fixture = serving().await;
    fixture.add_node("node", "4", 110).await;
    claim_and_pod(&fixture, "example.com/disks").await;
    let status = eventually("a node is decided for the pod", || async {
        let status = get_json(&fixture, "/tidepool/v1/status").await;
        match status["cluster"]["assumedPods"] == 1 {
            true => Ok(status),
            false => Err(status),
        }
    })
    .await;
    assert_eq!(status["cluster"]["placedPods"], 0, "{status}");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_explained() {
    let mut fixture = serving().await;
    fixture.add_node("small", "1", 110).await;
    fixture.add_node("large", "4", 110).await;
    fixture.add_pod("placed", "2").await;
    fixture.all_placed(1).await;
    fixture.add_pod("giant", "9").await;
    let giant = eventually("the pod waits", || async {
        let path = "/tidepool/v1/pods/default/giant/explain";
        match get(&fixture, path).await {
            (200, body) if body.contains("\"unschedulable\"") => Ok(body),
            other => Err(other),
        }
    })
    .await;
    let giant: Value = serde_json::from_str(&giant).unwrap();
    assert_eq!(giant["state"], "unschedulable");
    assert_eq!(giant["rejectedBy"], json!(["NodeResourcesFit"]));
    assert_eq!(giant["nodes"].as_array().unwrap().len(), 2);
    let placed = get_json(&fixture, "/tidepool/v1/pods/default/placed/explain").await;
    assert_eq!(
        (&placed["state"], &placed["node"]),
        (&json!("placed"), &json!("large"))
    );
    let (code, body) = get(&fixture, "/tidepool/v1/pods/default/nobody/explain").await;
    assert_eq!(code, 404);
    assert!(body.contains("unknown pod default/nobody"), "{body}");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_that_knows_too_little_is_not_ready() {
    let mut fixture = Fixture::new().await;
    // Neither in pages nor as a stream.
    for verb in ["list", "watch"] {
        let nodes = Matching::new(verb, "nodes");
        fixture.faults.every(1, nodes, Fault::InternalError);
    }
    let mut options = options();
    options.serve = Some(any_port());
    fixture.schedule_with_options(options);
    let told = eventually("everything else is listed", || async {
        let (code, body) = get(&fixture, "/readyz").await;
        assert_eq!(code, 500);
        if body.contains("not listed yet: nodes\n") {
            Ok(body)
        } else {
            Err(body)
        }
    })
    .await;
    assert!(told.ends_with("readyz check failed\n"), "{told}");
    assert_eq!(get(&fixture, "/livez").await.0, 200);
    fixture.faults.clear();
    ready(&fixture).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_refused_and_silent_clients_are_disconnected() {
    let mut fixture = serving().await;
    let mut stream = TcpStream::connect(fixture.server()).await.unwrap();
    let request = "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 1_000];
    let count = stream.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    // Whoever connects and says nothing is sent away.
    let mut silent = TcpStream::connect(fixture.server()).await.unwrap();
    let mut nothing = [0];
    let end = tokio::time::timeout(Duration::from_secs(30), silent.read(&mut nothing)).await;
    assert!(!matches!(end, Ok(Ok(1..)) | Err(_)), "{end:?}");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_addresses_than_loopback_need_tls_and_a_token() {
    let mut fixture = Fixture::new().await;
    let mut options = options();
    options.serve = Some(Serve {
        address: [0, 0, 0, 0].into(),
        ..any_port()
    });
    fixture.schedule_with_options(options);
    let port = fixture.server().port();
    let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.accept_invalid_certs = true;
    let client = kube::Client::try_from(config).unwrap();
    for (path, want) in [("/livez", 200), ("/metrics", 401)] {
        let request = http::Request::get(path).body(kube::client::Body::empty());
        let answer = client.send(request.unwrap()).await.unwrap();
        assert_eq!(answer.status(), want, "{path}");
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scores_are_switched_on_and_off() {
    let mut fixture = serving().await;
    fixture.add_node("small", "2", 110).await;
    fixture.add_node("large", "4", 110).await;
    fixture.add_pod("unseen", "1").await;
    fixture.all_placed(1).await;
    let nothing = json!({"top": 0, "scores": []});
    assert_eq!(get_json(&fixture, "/debug/scores").await, nothing);

    let on = send(&fixture, "PUT", "/debug/scores?top=1", "").await;
    assert_eq!(on, (200, r#"{"top":1}"#.to_owned()));
    fixture.add_pod("seen", "1").await;
    fixture.all_placed(2).await;
    let shown = get_json(&fixture, "/debug/scores").await;
    assert_eq!(shown["top"], 1);
    let [seen] = &shown["scores"].as_array().unwrap()[..] else {
        panic!("{shown}")
    };
    assert_eq!(
        (&seen["name"], &seen["node"], &seen["feasibleNodes"]),
        (&json!("seen"), &json!("large"), &json!(2))
    );
    assert_eq!(seen["nodes"].as_array().unwrap().len(), 1);
    assert_eq!(seen["nodes"][0]["node"], "large");
    let (code, table) = get(&fixture, "/debug/scores?output=table").await;
    let first = "Top1 scores for Pod: default/seen, feasibleNodes: 2, plugins:[";
    assert!(code == 200 && table.starts_with(first), "{table}");
    assert_eq!(table.lines().count(), 4, "{table}");

    // This is the other name of the switch.
    let off = send(&fixture, "PUT", "/debug/flags/s", "0\n").await;
    let said = "successfully set debugTopNScores to 0\n";
    assert_eq!(off, (200, said.to_owned()));
    let flag = get(&fixture, "/debug/flags/s").await;
    assert_eq!(flag, (200, "0\n".to_owned()));
    fixture.add_pod("unseen-again", "1").await;
    fixture.all_placed(3).await;
    let shown = get_json(&fixture, "/debug/scores").await;
    assert_eq!(shown["scores"].as_array().unwrap().len(), 1);

    for (method, path, body, code, words) in [
        ("PUT", "/debug/scores", "", 400, "?top=10"),
        (
            "PUT",
            "/debug/scores?top=-1",
            "",
            400,
            "`-1`: use a whole number from 0 to 1000",
        ),
        ("PUT", "/debug/scores?top=1001", "", 400, "from 0 to 1000"),
        ("PUT", "/debug/scores?Top=1", "", 400, "`Top`: use top"),
        (
            "GET",
            "/debug/scores?output=xml",
            "",
            400,
            "`xml`: use json or table",
        ),
        (
            "PUT",
            "/debug/flags/s",
            "many",
            400,
            "`many`: use a whole number",
        ),
        ("PUT", "/debug/flags/s", &"1".repeat(99), 400, "too long"),
        ("POST", "/debug/scores?top=1", "", 405, "GET, HEAD, PUT"),
        ("PUT", "/metrics", "", 405, "accepts GET, HEAD only"),
    ] {
        let (found, text) = send(&fixture, method, path, body).await;
        assert_eq!(found, code, "{method} {path}: {text}");
        assert!(text.contains(words), "{method} {path}: {text}");
    }
    assert_eq!(get_json(&fixture, "/debug/scores").await["top"], 0);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_can_ask_for_its_scores_even_with_one_node() {
    let mut fixture = serving().await;
    fixture.add_node("only", "4", 110).await;
    let mut asks = crate::support::pod("asks", "1");
    asks["metadata"]["annotations"] = json!({"tidepool.io/debug-scores": "3"});
    fixture.create_pod(asks).await;
    fixture.add_pod("silent", "1").await;
    fixture.all_placed(2).await;
    let shown = get_json(&fixture, "/debug/scores").await;
    let scores = shown["scores"].as_array().unwrap().iter();
    let told: Vec<_> = scores
        .map(|it| (&it["name"], &it["top"], &it["node"]))
        .collect();
    assert_eq!(told, [(&json!("asks"), &json!(3), &json!("only"))]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_no_node_has_is_in_the_status() {
    let text = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: tidepool
  plugins: {score: {enabled: [{name: ScarceResourceAvoidance}]}}
  pluginConfig: [{name: ScarceResourceAvoidance, args: {resources: [nvidia.com/gpus]}}]
";
    let (configuration, _) = api::config::load(text).unwrap();
    let (mut options, _) =
        Options::new(&configuration, engine::scheduling::plugins::ALL, "host").unwrap();
    options.serve = Some(any_port());
    let mut fixture = Fixture::new().await;
    fixture.schedule_with_options(options);
    ready(&fixture).await;
    // Without nodes nobody can tell.
    let status = get_json(&fixture, "/tidepool/v1/status").await;
    assert_eq!(status["warnings"], json!([]));
    fixture.add_node("node", "4", 110).await;
    let told = eventually("it is told", || async {
        let status = get_json(&fixture, "/tidepool/v1/status").await;
        match status["warnings"] == json!([]) {
            true => Err(status),
            false => Ok(status["warnings"].clone()),
        }
    })
    .await;
    let want = "no node has `nvidia.com/gpus` (scored by ScarceResourceAvoidance); nodes have cpu, memory, \
        ephemeral-storage, pods";
    assert_eq!(told, json!([want]));
    fixture.stop().await;
}

/// TLS on loopback, so that callers are asked who they are; the reviews are answered by the test.
#[tokio::test(flavor = "multi_thread")]
async fn with_tls_the_api_server_authorizes_callers() {
    let directory = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned()];
    let certificate = rcgen::CertificateParams::new(names)
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let files = TlsFiles {
        certificate: directory.path().join("tls.crt"),
        key: directory.path().join("tls.key"),
    };
    std::fs::write(&files.certificate, certificate.pem()).unwrap();
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    let mut fixture = Fixture::new().await;
    let mut options = options();
    options.serve = Some(Serve {
        tls: Some(files),
        ..any_port()
    });
    let reviews = crate::support::Reviews::default();
    fixture.schedule_by(reviews.wrap(&fixture), options);

    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let address = fixture.server();
    let send = async |method: &str, path: &str, token: &str| {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = "localhost".try_into().unwrap();
        let mut stream = connector.connect(name, stream).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A server that closes without a goodbye has still answered.
        let _ = stream.read_to_end(&mut answer).await;
        parse(&String::from_utf8(answer).unwrap())
    };
    for (path, token, want) in [
        ("/livez", "", 200),
        ("/livez/ping", "", 200),
        ("/metrics", "", 401),
        ("/metrics", "stranger", 401),
        ("/metrics", "reader", 200),
        ("/metrics", "master", 200),
        ("/tidepool/v1/status", "reader", 403),
        ("/debug/cache", "", 401),
        ("/debug/cache", "reader", 403),
        ("/debug/cache", "master", 200),
        ("/debug/cache/nobody", "master", 404),
        // The path is allowed, the pod is not.
        ("/tidepool/v1/pods/secret/a/explain", "reader", 403),
        ("/tidepool/v1/pods/default/a/explain", "reader", 404),
        ("/metrics", "reader", 200),
    ] {
        let (code, body) = send("GET", path, token).await;
        assert_eq!(code, want, "{path} as `{token}`: {body}");
    }
    // Seven different wishes and three callers, some of them twice: each was asked for once.
    assert_eq!(reviews.counts(), (3, 7));
    // Who may look may not switch.
    for (wish, token, want) in [
        ("GET /debug/scores", "reader", 200),
        ("PUT /debug/scores?top=5", "reader", 403),
        ("PUT /debug/scores?top=5", "", 401),
        ("PUT /debug/scores?top=5", "master", 200),
    ] {
        let (method, path) = wish.split_once(' ').unwrap();
        let (code, body) = send(method, path, token).await;
        assert_eq!(code, want, "{wish} as `{token}`: {body}");
    }
    fixture.stop().await;
}
