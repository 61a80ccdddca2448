//! Webhooks as only the embedded cluster has them: in process, behind endpoints, and never in the way of other requests.
//! What they have in common with kube-apiserver is in `e2e/tests/conformance`.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use apiserver::{ServiceBackend, ServiceHandler};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::client::{CONFIGMAPS, Client, PODS, configmap, pod};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

fn configuration(kind: &str, change: Value) -> (String, Value) {
    let mut webhook = json!({
        "name": "pods.example.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "default", "name": "hook", "path": "/mutate"}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
    });
    for (key, value) in change.as_object().into_iter().flatten() {
        webhook[key] = value.clone();
    }
    let path = format!("{GROUP}/{}webhookconfigurations", kind.to_lowercase());
    (
        path,
        json!({"metadata": {"name": "c"}, "webhooks": [webhook]}),
    )
}

async fn configure(client: &Client, kind: &str, change: Value) {
    let (path, object) = configuration(kind, change);
    client.post(&path, object).await.expect(201);
}

fn answer(request: &Request<Bytes>, mut response: Value) -> Response<Bytes> {
    let review: Value = serde_json::from_slice(request.body()).unwrap();
    response["uid"] = review["request"]["uid"].clone();
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Response::new(review.to_string().into())
}

fn labels() -> Value {
    let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"by": "webhook"}}]);
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())})
}

fn backend(response: Value, delay: Duration) -> ServiceBackend {
    let handler: ServiceHandler = Arc::new(move |request| {
        let response = response.clone();
        async move {
            tokio::time::sleep(delay).await;
            assert_eq!(request.uri().path(), "/mutate");
            answer(&request, response)
        }
        .boxed()
    });
    ServiceBackend::InProcess(handler)
}

#[tokio::test]
async fn a_webhook_in_this_process_needs_no_socket() {
    let client = Client::new();
    client
        .cluster
        .route_service("default", "hook", backend(labels(), Duration::ZERO));
    configure(&client, "Mutating", json!({})).await;
    let made = client.post(PODS, pod("a")).await.expect(201);
    assert_eq!(made.body["metadata"]["labels"], json!({"by": "webhook"}));
    let other = client.post(CONFIGMAPS, configmap("a")).await.expect(201);
    assert_eq!(other.body["metadata"].get("labels"), None);

    let denied = json!({"allowed": false, "status": {"message": "no", "code": 403}});
    client
        .cluster
        .route_service("default", "hook", backend(denied, Duration::ZERO));
    let refused = client.post(PODS, pod("b")).await.expect(403);
    let message = "admission webhook \"pods.example.io\" denied the request: no";
    assert_eq!(refused.message(), message);
}

#[tokio::test]
async fn a_slow_webhook_delays_only_its_own_requests() {
    let client = Client::new();
    let slow = backend(labels(), Duration::from_secs(60));
    client.cluster.route_service("default", "hook", slow);
    configure(&client, "Mutating", json!({"timeoutSeconds": 2})).await;
    let started = Instant::now();
    let pods: Vec<String> = (0..20).map(|i| format!("p{i}")).collect();
    let first = OnceLock::new();
    let created = futures::future::join_all(pods.iter().map(async |name| {
        let answer = client.post(PODS, pod(name)).await;
        let _ = first.set(started.elapsed());
        answer
    }));
    let others = async {
        let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}});
        let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
        client.post(leases, lease).await.expect(201);
        client.get("/readyz").await.expect(200);
        started.elapsed()
    };
    let (created, others) = tokio::join!(created, others);
    for answer in created {
        let message = "Internal error occurred: failed calling webhook \"pods.example.io\": failed to call webhook: Post \"https://hook.default.svc:443/mutate?timeout=2s\": context deadline exceeded";
        assert_eq!(answer.expect(500).message(), message);
    }
    // All of them waited at the same time, and nothing else waited for them.
    assert!(Some(&others) < first.get(), "{others:?}, {first:?}");
    let all = started.elapsed();
    assert!(all >= Duration::from_secs(2), "{all:?}");
    assert!(all < Duration::from_secs(20), "{all:?}");
}

#[tokio::test]
async fn expressions_are_refused() {
    let client = Client::new();
    let conditions = json!({"matchConditions": [{"name": "a", "expression": "true"}]});
    for kind in ["Mutating", "Validating"] {
        let (path, object) = configuration(kind, conditions.clone());
        let refused = client.post(&path, object).await.expect(422);
        let why = "webhooks[0].matchConditions: Forbidden: this cluster does not evaluate CEL expressions; use rules and selectors instead";
        assert!(refused.message().ends_with(why), "{}", refused.message());
    }
}

/// A server that answers every request with these bytes; its CA, as in a caBundle.
async fn serve(
    answer: &'static (dyn Fn(&Request<Bytes>) -> Vec<u8> + Sync),
) -> (SocketAddr, String) {
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let bundle = STANDARD.encode(authority.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["hook.default.svc".to_owned()];
    let certificate = CertificateParams::new(names).unwrap();
    let certificate = certificate.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut read = Vec::new();
            let body = loop {
                let mut piece = [0; 4096];
                let count = stream.read(&mut piece).await.unwrap();
                read.extend_from_slice(&piece[..count]);
                let text = String::from_utf8_lossy(&read);
                // A review is one JSON document.
                if let Some((_, body)) = text.split_once("\r\n\r\n")
                    && serde_json::from_str::<Value>(body).is_ok()
                {
                    break body.to_owned();
                }
            };
            let body = answer(&Request::new(body.into()));
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).await.unwrap();
            // The client may have read enough.
            let _ = stream.write_all(&body).await;
            let _ = stream.shutdown().await;
        }
    });
    (address, bundle)
}

#[tokio::test]
async fn a_service_leads_to_its_endpoints() {
    let client = Client::new();
    let (address, bundle) = serve(&|request| answer(request, labels()).into_body().to_vec()).await;
    let service = json!({"caBundle": bundle, "service": {"namespace": "default", "name": "hook"}});
    configure(&client, "Mutating", json!({"clientConfig": service})).await;
    let failed = |why: &str| {
        format!(
            "Internal error occurred: failed calling webhook \"pods.example.io\": failed to call webhook: Post \"https://hook.default.svc:443/?timeout=10s\": {why}"
        )
    };
    let refused = client.post(PODS, pod("a")).await.expect(500);
    assert_eq!(refused.message(), failed("service \"hook\" not found"));

    let services = "/api/v1/namespaces/default/services";
    let port = json!({"name": "https", "port": 443});
    let object = json!({"metadata": {"name": "hook"}, "spec": {"ports": [port]}});
    client.post(services, object).await.expect(201);
    let refused = client.post(PODS, pod("a")).await.expect(500);
    let why = failed("no endpoints available for service \"hook\"");
    assert_eq!(refused.message(), why);

    let port = json!({"name": "https", "port": address.port()});
    let slice = json!({
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4", "ports": [port], "endpoints": [{"addresses": ["127.0.0.1"]}],
    });
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    client.post(slices, slice).await.expect(201);
    let made = client.post(PODS, pod("a")).await.expect(201);
    assert_eq!(made.body["metadata"]["labels"], json!({"by": "webhook"}));
}

#[tokio::test]
async fn a_huge_answer_is_not_read() {
    let client = Client::new();
    let (address, bundle) = serve(&|_| vec![b' '; 9 << 20]).await;
    let backend = ServiceBackend::Address(address);
    client.cluster.route_service("default", "hook", backend);
    let service = json!({"caBundle": bundle, "service": {"namespace": "default", "name": "hook"}});
    configure(&client, "Validating", json!({"clientConfig": service})).await;
    let refused = client.post(PODS, pod("a")).await.expect(500);
    let why = "the answer is larger than 8388608 bytes";
    assert!(refused.message().ends_with(why), "{}", refused.message());
}
