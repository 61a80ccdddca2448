//! Kinds that are only stored, requests about containers that do not run, and the simulated use.

use serde_json::{Value, json};

use crate::client::{Answer, Client, PODS, pod};

const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";

fn warnings(answer: &Answer) -> Vec<&str> {
    let values = answer.headers.get_all("warning").into_iter();
    values.filter_map(|value| value.to_str().ok()).collect()
}

fn ingress(name: &str) -> Value {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    json!({"metadata": {"name": name}, "spec": {"defaultBackend": backend}})
}

#[tokio::test]
async fn a_new_object_without_effect_is_answered_with_a_warning() {
    let client = Client::new();
    let created = client.post(INGRESSES, ingress("a")).await.expect(201);
    assert_eq!(
        warnings(&created),
        ["299 - \"Ingress has no effect in this cluster: no ingress controller runs\""]
    );
    let updated = client.put(&format!("{INGRESSES}/a"), ingress("a")).await;
    assert_eq!(warnings(&updated.expect(200)), Vec::<&str>::new());
    let balanced = json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    let services = "/api/v1/namespaces/default/services";
    let created = client.post(services, balanced).await.expect(201);
    assert!(warnings(&created)[0].contains("no external address"));
}

#[tokio::test]
async fn an_unknown_field_of_a_plain_kind_is_refused() {
    let client = Client::new();
    let mut object = ingress("a");
    object["spec"]["ruels"] = json!([]);
    let path = format!("{INGRESSES}?fieldValidation=Strict");
    let refused = client.post(&path, object.clone()).await.expect(400);
    assert_eq!(
        refused.message(),
        "Ingress in version \"v1\" cannot be handled as a Ingress: strict decoding error: unknown field \"spec.ruels\""
    );
    let warned = client.post(INGRESSES, object).await.expect(201);
    assert!(warnings(&warned)[0].contains("unknown field \\\"spec.ruels\\\""));
}

#[tokio::test]
async fn the_approval_of_a_certificate_request_is_stored() {
    let client = Client::new();
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let mut object = json!({"metadata": {"name": "a"},
        "spec": {"request": "Y3Ny", "signerName": "example.com/signer", "usages": ["client auth"]}});
    client.post(requests, object.clone()).await.expect(201);
    object["status"] = json!({"conditions": [{"type": "Approved", "status": "True", "reason": "Checked", "message": "ok"}]});
    let path = format!("{requests}/a/approval");
    let approved = client.put(&path, object).await.expect(200);
    assert_eq!(approved.body["status"]["conditions"][0]["type"], "Approved");
}

#[tokio::test]
async fn requests_to_containers_say_that_none_run() {
    let client = Client::new();
    client.post(PODS, pod("p")).await.expect(201);
    for (request, says) in [
        ("GET {}/log", "pod \"p\" has no logs"),
        (
            "GET {}/exec?command=ls",
            "pod \"p\" cannot execute commands",
        ),
        ("POST {}/attach", "pod \"p\" has no process to attach to"),
        (
            "POST {}/portforward",
            "pod \"p\" has no ports to forward to",
        ),
    ] {
        let request = request.replace("{}", &format!("{PODS}/p"));
        let refused = client.send(&request, &[], "").await.expect(501);
        let want = format!("no containers run in this cluster: {says}");
        assert_eq!(refused.message(), want, "{request}");
    }
    let missing = client.get(&format!("{PODS}/q/log")).await.expect(404);
    assert_eq!(missing.message(), "pods \"q\" not found");
}

async fn run(client: &Client, name: &str, node: &str, annotations: Value, labels: Value) {
    let mut object = pod(name);
    object["metadata"]["annotations"] = annotations;
    object["metadata"]["labels"] = labels;
    object["spec"]["nodeName"] = json!(node);
    object["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "500m", "memory": "64Mi"}});
    client.post(PODS, object).await.expect(201);
    let status = json!({"status": {"phase": "Running"}});
    let path = format!("{PODS}/{name}/status");
    client
        .patch(&path, "merge-patch+json", status)
        .await
        .expect(200);
}

#[tokio::test]
async fn metrics_show_the_simulated_use() {
    let client = Client::new();
    for name in ["n1", "n2"] {
        let node = json!({"metadata": {"name": name}});
        client.post("/api/v1/nodes", node).await.expect(201);
    }
    let use_ = json!({"tidepool.io/cpu-use": "50m", "tidepool.io/memory-use": "1Gi"});
    run(&client, "says", "n1", use_, json!({"app": "a"})).await;
    run(&client, "requests", "n1", json!({}), json!({})).await;
    run(
        &client,
        "odd",
        "n1",
        json!({"tidepool.io/cpu-use": "lots"}),
        json!({}),
    )
    .await;
    client.post(PODS, pod("waits")).await.expect(201);

    let pods = format!("{METRICS}/namespaces/default/pods");
    let all = client.get(&pods).await.expect(200);
    assert_eq!(all.body["kind"], "PodMetricsList");
    assert_eq!(all.names(), ["odd", "requests", "says"]);
    assert_eq!(
        warnings(&all),
        [
            "299 - \"pod default/odd: annotation tidepool.io/cpu-use is \\\"lots\\\": expected an amount such as 250m or 64Mi; the requests are shown\""
        ]
    );
    let chosen = client.get(&format!("{pods}?labelSelector=app%3Da")).await;
    assert_eq!(chosen.expect(200).names(), ["says"]);
    let one = client.get(&format!("{pods}/says")).await.expect(200);
    assert_eq!(
        one.body["containers"],
        json!([{"name": "c", "usage": {"cpu": "50m", "memory": "1048576Ki"}}])
    );
    client.get(&format!("{pods}/waits")).await.expect(404);

    let nodes = client.get(&format!("{METRICS}/nodes")).await.expect(200);
    let usage = |at: usize| nodes.body["items"][at]["usage"].clone();
    assert_eq!(usage(0), json!({"cpu": "1050m", "memory": "1179648Ki"}));
    assert_eq!(usage(1), json!({"cpu": "0m", "memory": "0Ki"}));
    let table = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io";
    let rows = client
        .send(&format!("GET {METRICS}/nodes/n1"), &[table], "")
        .await;
    let cells = json!(["n1", "1050m", "1179648Ki", "15s"]);
    assert_eq!(rows.expect(200).body["rows"][0]["cells"], cells);
    client
        .delete(&format!("{pods}/says"), Value::Null)
        .await
        .expect(405);
}

#[tokio::test]
async fn a_pod_gets_the_token_of_its_account() {
    let client = Client::new();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"metadata": {"name": "default"}});
    client.post(accounts, account).await.expect(201);
    let created = client.post(PODS, pod("p")).await.expect(201);
    let spec = &created.body["spec"];
    assert_eq!(spec["serviceAccountName"], "default");
    let name = spec["volumes"][0]["name"].as_str().unwrap();
    assert!(
        name.starts_with("kube-api-access-") && name.len() == 21,
        "{name}"
    );
    assert_eq!(spec["containers"][0]["volumeMounts"][0]["name"], name);
    // What the server added does not hinder an update of what the client sent.
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let path = format!("{PODS}/p");
    let patched = client
        .patch(&path, "merge-patch+json", labels)
        .await
        .expect(200);
    assert_eq!(patched.body["spec"]["volumes"], spec["volumes"]);
}
