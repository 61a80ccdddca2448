//! Get and list: pages, revisions, selectors and representations.

use serde_json::json;

use crate::client::{CONFIGMAPS, Client, PODS, configmap, pod};

async fn with_configmaps(count: usize) -> Client {
    let client = Client::new();
    for at in 0..count {
        client
            .post(CONFIGMAPS, configmap(&format!("c{at}")))
            .await
            .expect(201);
    }
    client
}

#[tokio::test]
async fn pages_show_the_state_of_the_first_one() {
    let client = with_configmaps(7).await;
    let first = client
        .get(&format!("{CONFIGMAPS}?limit=3"))
        .await
        .expect(200);
    assert_eq!(first.names(), ["c0", "c1", "c2"]);
    assert_eq!(first.body["metadata"]["remainingItemCount"], 4);

    client
        .delete(&format!("{CONFIGMAPS}/c4"), json!(null))
        .await
        .expect(200);
    client.post(CONFIGMAPS, configmap("c35")).await.expect(201);

    let token = first.body["metadata"]["continue"].as_str().unwrap();
    let second = client
        .get(&format!("{CONFIGMAPS}?limit=3&continue={token}"))
        .await
        .expect(200);
    assert_eq!(second.names(), ["c3", "c4", "c5"]);
    assert_eq!(second.revision(), first.revision());
    let token = second.body["metadata"]["continue"].as_str().unwrap();
    let third = client
        .get(&format!("{CONFIGMAPS}?limit=3&continue={token}"))
        .await
        .expect(200);
    assert_eq!(third.names(), ["c6"]);
    assert!(third.body["metadata"].get("continue").is_none());
}

#[tokio::test]
async fn an_expired_page_offers_an_inconsistent_continuation() {
    let client = with_configmaps(4).await;
    let first = client.get(&format!("{CONFIGMAPS}?limit=2")).await;
    client.post(CONFIGMAPS, configmap("c9")).await.expect(201);
    client.cluster.compact();
    let token = first.body["metadata"]["continue"].as_str().unwrap();
    let gone = client
        .get(&format!("{CONFIGMAPS}?limit=2&continue={token}"))
        .await
        .expect(410);
    assert_eq!(gone.body["reason"], "Expired");
    assert!(
        gone.message()
            .starts_with("The provided continue parameter is too old")
    );
    let token = gone.body["metadata"]["continue"].as_str().unwrap();
    let rest = client
        .get(&format!("{CONFIGMAPS}?continue={token}"))
        .await
        .expect(200);
    assert_eq!(rest.names(), ["c2", "c3", "c9"]);

    let old = first.revision();
    let exact = format!("{CONFIGMAPS}?resourceVersion={old}&resourceVersionMatch=Exact");
    let gone = client.get(&exact).await.expect(410);
    assert_eq!(
        gone.message(),
        "The resourceVersion for the provided list is too old."
    );
}

#[tokio::test]
async fn an_exact_list_shows_the_past_and_revision_zero_ignores_the_limit() {
    let client = with_configmaps(3).await;
    let then = client.get(CONFIGMAPS).await.revision();
    client
        .delete(&format!("{CONFIGMAPS}/c1"), json!(null))
        .await
        .expect(200);
    let exact = format!("{CONFIGMAPS}?resourceVersion={then}&resourceVersionMatch=Exact");
    assert_eq!(
        client.get(&exact).await.expect(200).names(),
        ["c0", "c1", "c2"]
    );
    let newest = client
        .get(&format!("{CONFIGMAPS}?resourceVersion=0&limit=1"))
        .await;
    assert_eq!(newest.names(), ["c0", "c2"]);
}

#[tokio::test]
async fn a_read_of_a_future_revision_waits_and_then_fails() {
    let client = Client::new();
    for path in [
        format!("{CONFIGMAPS}?resourceVersion=99999"),
        format!("{CONFIGMAPS}/x?resourceVersion=99999"),
    ] {
        let late = client.get(&path).await.expect(504);
        assert_eq!(late.body["reason"], "Timeout");
        assert!(
            late.message()
                .starts_with("Timeout: Too large resource version: 99999, current: ")
        );
        assert_eq!(late.body["details"]["retryAfterSeconds"], 1);
    }
}

#[tokio::test]
async fn selectors_select_by_labels_and_fields() {
    let client = Client::new();
    for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
        let mut object = pod(name);
        object["metadata"]["labels"] = json!({"app": app});
        client.post(PODS, object).await.expect(201);
    }
    for (query, want) in [
        ("labelSelector=app%3Dweb", vec!["a", "c"]),
        ("labelSelector=app+notin+(web)", vec!["b"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        (
            "fieldSelector=spec.nodeName%3D,metadata.name!%3Da",
            vec!["b", "c"],
        ),
        ("fieldSelector=status.phase%3DRunning", vec![]),
    ] {
        let list = client.get(&format!("{PODS}?{query}")).await.expect(200);
        assert_eq!(list.names(), want, "{query}");
    }
    let refused = client
        .get(&format!("{PODS}?fieldSelector=spec.foo%3Dx"))
        .await
        .expect(400);
    assert_eq!(refused.message(), "field label not supported: spec.foo");
    assert_eq!(
        client
            .get("/api/v1/namespaces/nowhere/pods")
            .await
            .expect(200)
            .names()
            .len(),
        0
    );
}

#[tokio::test]
async fn the_same_object_comes_in_every_form() {
    let client = with_configmaps(1).await;
    let one = format!("GET {CONFIGMAPS}/c0");
    let json = client.get(&format!("{CONFIGMAPS}/c0")).await.expect(200);
    assert!(
        json.text
            .starts_with(r#"{"kind":"ConfigMap","apiVersion":"v1","#)
    );
    assert_eq!(json.text.lines().count(), 1);
    assert!(json.text.ends_with('\n'));

    let pretty = client.send(&one, &["User-Agent: curl/8"], "").await;
    assert!(pretty.text.lines().count() > 5);
    assert_eq!(pretty.body, json.body);

    let yaml = client
        .send(&one, &["Accept: application/yaml"], "")
        .await
        .expect(200);
    assert_eq!(yaml.headers["content-type"], "application/yaml");
    assert!(yaml.text.contains("kind: ConfigMap\n"), "{}", yaml.text);

    let table = ["Accept: application/json;as=Table;v=v1;g=meta.k8s.io"];
    let table = client
        .send(&format!("GET {CONFIGMAPS}"), &table, "")
        .await
        .expect(200);
    assert_eq!(table.body["kind"], "Table");
    assert_eq!(table.body["rows"][0]["cells"][0], "c0");
    assert_eq!(
        table.body["rows"][0]["object"]["kind"],
        "PartialObjectMetadata"
    );

    let metadata = ["Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"];
    let metadata = client
        .send(&format!("GET {CONFIGMAPS}"), &metadata, "")
        .await
        .expect(200);
    assert_eq!(metadata.body["kind"], "PartialObjectMetadataList");
    assert_eq!(metadata.body["items"][0]["metadata"]["name"], "c0");
    assert!(metadata.body["items"][0].get("data").is_none());

    client
        .send(&one, &["Accept: application/foo"], "")
        .await
        .expect(406);
    let list = client.get(CONFIGMAPS).await;
    assert!(list.body["items"][0].get("kind").is_none());
}

#[tokio::test]
async fn missing_objects_resources_and_paths_get_different_errors() {
    let client = Client::new();
    for (path, text) in [
        ("/nope", "404 page not found\n"),
        ("/apis/nope/v1/x", "404 page not found\n"),
    ] {
        let answer = client.get(path).await.expect(404);
        assert_eq!(answer.text, text);
        assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    }
    let unknown = client.get("/api/v1/foos").await.expect(404);
    assert_eq!(
        unknown.message(),
        "the server could not find the requested resource"
    );
    let missing = client.get(&format!("{CONFIGMAPS}/x")).await.expect(404);
    assert_eq!(missing.message(), "configmaps \"x\" not found");
    for request in [
        format!("PUT {CONFIGMAPS}"),
        format!("POST {CONFIGMAPS}/x"),
        "DELETE /api/v1/pods".to_owned(),
        "POST /api/v1/pods".to_owned(),
        "DELETE /api/v1/namespaces".to_owned(),
        format!("GET {PODS}/x/binding"),
        "POST /api".to_owned(),
    ] {
        let refused = client.send(&request, &[], "{}").await;
        assert_eq!(refused.code, 405, "{request}");
    }
}
