//! The memory of a webhook process under many large reviews at once, with TLS. `TIDEPOOL_FULL` has 200 of them.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use kube::Client;
use kube::client::Body;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::policy_costs::peak_memory;
use crate::shared_cluster::text;
use crate::webhook_fixture::Fixture;

/// MiB that all reviews together may take (docs/tiers.md).
const BOUND: u64 = 256;

/// A client that trusts the CA of the webhook's configuration.
fn caller(fixture: &Fixture, address: SocketAddr) -> Client {
    let path =
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/tidepool-webhook";
    let configuration = fixture.api.get(path).unwrap();
    let bundle = text(&configuration["webhooks"][0]["clientConfig"]["caBundle"]);
    let bundle = BASE64.decode(bundle).unwrap();
    let roots = CertificateDer::pem_slice_iter(&bundle).map(|it| it.unwrap().to_vec());
    let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
    config.root_cert = Some(roots.collect());
    Client::try_from(config).unwrap()
}

/// A review of a new pod. The webhook changes one of the class koord-batch.
fn review(class: &str, containers: &[Value]) -> String {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"priorityClassName": class, "containers": containers}});
    let request = json!({"uid": "u", "operation": "CREATE", "namespace": "default", "object": pod,
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "userInfo": {"username": "alice"}});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
        .to_string()
}

fn container(name: &str) -> Value {
    json!({"name": name, "image": "i", "imagePullPolicy": "IfNotPresent", "env": [{"name": "TEXT", "value": "TEXT"}],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        "securityContext": {"runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}}})
}

/// One of 18 MiB, as the API server sends a pod of 3 MiB, and one with as many values as are judged.
fn large_reviews() -> [Bytes; 2] {
    let escaped = review("koord-batch", &[container("c")]);
    let escaped = escaped.replace(
        r#""value":"TEXT""#,
        &format!(r#""value":"{}""#, r"\u003c".repeat(3 << 20)),
    );
    assert!(escaped.len() > 18 << 20);
    let containers: Vec<Value> = (0..7_000).map(|n| container(&format!("c{n}"))).collect();
    [escaped, review("koord-prod", &containers)].map(Bytes::from)
}

/// Fails if the connection ends before the answer.
async fn send(client: Client, body: Bytes) -> Result<(u16, String), kube::Error> {
    let request = http::Request::post("/mutate-pods").header("content-type", "application/json");
    let request = request.body(Body::from(body)).unwrap();
    let response = client.send(request).await?;
    let code = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body()).await;
    let text = String::from_utf8_lossy(&body.unwrap().to_bytes()).into_owned();
    Ok((code, text.chars().take(200).collect()))
}

#[test]
fn large_reviews_take_bounded_memory_of_the_process() {
    let fixture = Fixture::start(&[], Some(30));
    let (webhook, address) = fixture.webhook("webhook", &[]);
    fixture.proxy.forward_to(&[address]);
    fixture.wait_until_asked();
    let count = match std::env::var_os("TIDEPOOL_FULL").is_some() {
        true => 200,
        false => 20,
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let client = caller(&fixture, address);
    let small = Bytes::from(review("koord-batch", &[container("c")]));
    let answer = runtime.block_on(send(client.clone(), small)).unwrap();
    assert_eq!(answer.0, 200);
    let before = peak_memory(&webhook);
    let bodies = large_reviews();
    let all: Vec<_> = (0..count)
        .map(|index| runtime.spawn(send(client.clone(), bodies[index % 2].clone())))
        .collect();
    let answers = runtime.block_on(futures::future::join_all(all));
    let mut answered = 0;
    for answer in answers {
        match answer.unwrap() {
            Ok((200, text)) => {
                assert!(text.contains(r#""allowed":true"#), "{text}");
                answered += 1;
            }
            // It waited for longer than API servers do. The server ends its connection, which may still send.
            Ok((503, text)) => assert!(text.contains("was not answered within"), "{text}"),
            Err(kube::Error::Service(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    let taken = peak_memory(&webhook) - before;
    println!("{answered} of {count} answered, {taken} MiB beside {before} MiB");
    assert!(answered >= 10, "{answered} of {count}");
    assert!((40..=BOUND).contains(&taken), "{taken} MiB");
}
