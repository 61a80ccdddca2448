//! Create, update, patch, delete, binding and eviction: behaviour that all kinds share.

use serde_json::{Value, json};

use crate::client::{CONFIGMAPS, Client, PODS, configmap, pod};

#[tokio::test]
async fn the_server_sets_its_own_metadata() {
    let client = Client::new();
    let mut object = configmap("a");
    object["metadata"]["uid"] = json!("mine");
    object["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    object["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    let made = client.post(CONFIGMAPS, object).await.expect(201);
    let metadata = &made.body["metadata"];
    assert_eq!(metadata["namespace"], "default");
    assert_eq!(metadata["uid"].as_str().map(str::len), Some(36));
    assert_ne!(metadata["creationTimestamp"], "2001-01-01T00:00:00Z");
    assert!(metadata.get("deletionTimestamp").is_none());
    assert_eq!(made.body["kind"], "ConfigMap");

    let again = client.post(CONFIGMAPS, configmap("a")).await.expect(409);
    assert_eq!(again.body["reason"], "AlreadyExists");
    assert_eq!(again.message(), "configmaps \"a\" already exists");

    let generated = json!({"metadata": {"generateName": "g-"}});
    let name = client.post(CONFIGMAPS, generated).await.expect(201);
    assert_eq!(
        name.body["metadata"]["name"].as_str().map(str::len),
        Some(7)
    );
}

#[tokio::test]
async fn invalid_creates_are_refused() {
    let client = Client::new();
    let cases = [
        (
            "/api/v1/namespaces/nons/configmaps",
            configmap("a"),
            404,
            "namespaces \"nons\" not found",
        ),
        (
            CONFIGMAPS,
            json!({"metadata": {"name": "a", "namespace": "other"}}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            CONFIGMAPS,
            json!({"metadata": {"name": "a", "resourceVersion": "5"}}),
            500,
            "resourceVersion should not be set on objects to be created",
        ),
    ];
    for (path, object, code, message) in cases {
        let refused = client.post(path, object).await.expect(code);
        assert_eq!(refused.message(), message);
    }
    let large = vec![b' '; (3 << 20) + 1];
    client
        .send(&format!("POST {CONFIGMAPS}"), &[], large)
        .await
        .expect(413);
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let client = Client::new();
    let dry = client
        .post(&format!("{CONFIGMAPS}?dryRun=All"), configmap("a"))
        .await
        .expect(201);
    assert!(dry.body["metadata"].get("resourceVersion").is_none());
    client.get(&format!("{CONFIGMAPS}/a")).await.expect(404);
    client.post(CONFIGMAPS, configmap("a")).await.expect(201);
    let path = format!("{CONFIGMAPS}/a?dryRun=All");
    client
        .put(
            &path,
            json!({"metadata": {"name": "a"}, "data": {"k": "other"}}),
        )
        .await
        .expect(200);
    client.delete(&path, json!(null)).await.expect(200);
    let kept = client.get(&format!("{CONFIGMAPS}/a")).await.expect(200);
    assert_eq!(kept.body["data"]["k"], "v");
}

#[tokio::test]
async fn an_update_needs_the_version_it_was_made_from() {
    let client = Client::new();
    let path = format!("{CONFIGMAPS}/a");
    let mut object = client
        .post(CONFIGMAPS, configmap("a"))
        .await
        .expect(201)
        .body;
    object["data"]["k"] = json!("2");
    let second = client.put(&path, object.clone()).await.expect(200);
    let stale = client.put(&path, object.clone()).await.expect(409);
    assert_eq!(
        stale.message(),
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please \
         apply your changes to the latest version and try again"
    );
    let same = client.put(&path, second.body.clone()).await.expect(200);
    assert_eq!(same.revision(), second.revision(), "nothing changed");

    object["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    object["data"]["k"] = json!("3");
    client.put(&path, object.clone()).await.expect(200);
    object["metadata"]["uid"] = json!("other");
    let wrong = client.put(&path, object.clone()).await.expect(409);
    assert!(
        wrong
            .message()
            .contains("Precondition failed: UID in precondition: other")
    );
    object["metadata"]["name"] = json!("zz");
    let wrong = client.put(&path, object).await.expect(400);
    assert_eq!(
        wrong.message(),
        "the name of the object (zz) does not match the name on the URL (a)"
    );
    client
        .put(&format!("{CONFIGMAPS}/nope"), configmap("nope"))
        .await
        .expect(404);
}

#[tokio::test]
async fn finalizers_hold_an_object_until_they_are_gone() {
    let client = Client::new();
    let path = format!("{CONFIGMAPS}/a");
    let mut object = configmap("a");
    object["metadata"]["finalizers"] = json!(["x.y/z"]);
    client.post(CONFIGMAPS, object).await.expect(201);
    let deleting = client.delete(&path, json!(null)).await.expect(200);
    assert_eq!(deleting.body["kind"], "ConfigMap");
    assert!(deleting.body["metadata"]["deletionTimestamp"].is_string());
    let again = client.delete(&path, json!(null)).await.expect(200);
    assert_eq!(again.revision(), deleting.revision());

    let mut more = deleting.body.clone();
    more["metadata"]["finalizers"] = json!(["x.y/z", "x.y/w"]);
    let refused = client.put(&path, more).await.expect(422);
    assert!(
        refused
            .message()
            .contains("found new finalizers []string{\"x.y/w\"}")
    );

    let mut last = deleting.body;
    last["metadata"]["finalizers"] = json!([]);
    client.put(&path, last).await.expect(200);
    client.get(&path).await.expect(404);
}

#[tokio::test]
async fn a_deletion_returns_the_object_and_checks_preconditions() {
    let client = Client::new();
    let path = format!("{CONFIGMAPS}/a");
    let made = client.post(CONFIGMAPS, configmap("a")).await.expect(201);
    let wrong = json!({"preconditions": {"uid": "other"}});
    let refused = client.delete(&path, wrong).await.expect(409);
    assert!(refused.message().starts_with(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (other) does not match"
    ));
    let bad = client
        .delete(&path, json!({"propagationPolicy": "Foo"}))
        .await
        .expect(422);
    assert!(
        bad.message()
            .contains("\"Foreground\", \"Background\", \"Orphan\", \"nil\"")
    );
    let gone = client
        .delete(&path, json!({"propagationPolicy": "Background"}))
        .await
        .expect(200);
    assert_eq!(gone.body["status"], "Success");
    assert_eq!(
        gone.body["details"],
        json!({"name": "a", "kind": "configmaps", "uid": made.body["metadata"]["uid"]})
    );
    client.delete(&path, json!(null)).await.expect(404);
}

#[tokio::test]
async fn propagation_policies_become_finalizers() {
    let client = Client::new();
    for (name, policy, want) in [
        ("f", "Foreground", "foregroundDeletion"),
        ("o", "Orphan", "orphan"),
    ] {
        let path = format!("{CONFIGMAPS}/{name}");
        client.post(CONFIGMAPS, configmap(name)).await.expect(201);
        let kept = client
            .delete(&path, json!({"propagationPolicy": policy}))
            .await
            .expect(200);
        assert_eq!(kept.body["metadata"]["finalizers"], json!([want]));
    }
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let client = Client::new();
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut object = configmap(name);
        object["metadata"]["labels"] = json!({"app": app});
        client.post(CONFIGMAPS, object).await.expect(201);
    }
    let selected = format!("{CONFIGMAPS}?labelSelector=app%3Dx");
    client
        .delete(&format!("{selected}&dryRun=All"), json!(null))
        .await
        .expect(200);
    assert_eq!(client.get(CONFIGMAPS).await.names(), ["a", "b", "c"]);
    let deleted = client.delete(&selected, json!(null)).await.expect(200);
    assert_eq!(deleted.names(), ["a", "c"]);
    assert_eq!(client.get(CONFIGMAPS).await.names(), ["b"]);
}

#[tokio::test]
async fn a_bound_pod_gets_a_grace_period_that_can_be_shortened() {
    let client = Client::new();
    let path = format!("{PODS}/p");
    client.post(PODS, pod("p")).await.expect(201);
    client
        .post(&format!("{path}/binding"), binding("p", "n1"))
        .await
        .expect(201);
    let first = client.delete(&path, json!({})).await.expect(200);
    assert_eq!(first.body["metadata"]["deletionGracePeriodSeconds"], 30);
    let longer = client
        .delete(&path, json!({"gracePeriodSeconds": 60}))
        .await
        .expect(200);
    assert_eq!(longer.revision(), first.revision());
    let shorter = client
        .delete(&path, json!({"gracePeriodSeconds": 5}))
        .await
        .expect(200);
    assert_eq!(shorter.body["metadata"]["deletionGracePeriodSeconds"], 5);
    let gone = client
        .delete(&path, json!({"gracePeriodSeconds": 0}))
        .await
        .expect(200);
    assert_eq!(gone.body["kind"], "Pod");
    client.get(&path).await.expect(404);

    client.post(PODS, pod("unbound")).await.expect(201);
    client
        .delete(&format!("{PODS}/unbound"), json!({}))
        .await
        .expect(200);
    client.get(&format!("{PODS}/unbound")).await.expect(404);
}

fn binding(pod: &str, node: &str) -> Value {
    json!({
        "metadata": {"name": pod, "annotations": {"a": "1"}, "labels": {"l": "2"}},
        "target": {"kind": "Node", "name": node},
    })
}

#[tokio::test]
async fn a_binding_is_one_guarded_update() {
    let client = Client::new();
    let made = client.post(PODS, pod("p")).await.expect(201);
    let path = format!("{PODS}/p/binding");
    let dry = client
        .post(&format!("{path}?dryRun=All"), binding("p", "n1"))
        .await
        .expect(201);
    assert_eq!(dry.body["status"], "Success");
    let mut guarded = binding("p", "n1");
    guarded["metadata"]["uid"] = json!("other");
    let refused = client.post(&path, guarded.clone()).await.expect(409);
    assert!(
        refused.message().contains("UID in precondition: other"),
        "{}",
        refused.text
    );
    guarded["metadata"]["uid"] = made.body["metadata"]["uid"].clone();
    client.post(&path, guarded).await.expect(201);

    let bound = client.get(&format!("{PODS}/p")).await.expect(200);
    assert_eq!(bound.body["spec"]["nodeName"], "n1");
    assert_eq!(bound.body["metadata"]["annotations"]["a"], "1");
    assert_eq!(bound.body["metadata"]["labels"]["l"], "2");
    assert_eq!(
        bound.body["metadata"]["generation"],
        made.body["metadata"]["generation"]
    );
    let scheduled = &bound.body["status"]["conditions"][0];
    assert_eq!(
        (&scheduled["type"], &scheduled["status"]),
        (&json!("PodScheduled"), &json!("True"))
    );

    let twice = client.post(&path, binding("p", "n1")).await.expect(409);
    assert_eq!(
        twice.message(),
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n1\""
    );
    client.post(&path, binding("other", "n1")).await.expect(400);
    client
        .post(&format!("{PODS}/q/binding"), binding("q", "n1"))
        .await
        .expect(404);
    client.post(PODS, pod("old")).await.expect(201);
    let legacy = "/api/v1/namespaces/default/bindings";
    client.post(legacy, binding("old", "n1")).await.expect(201);
    let no_target = json!({"metadata": {"name": "old"}, "target": {}});
    let refused = client.post(legacy, no_target).await.expect(500);
    assert_eq!(refused.message(), "target.name: Required value");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writes_lose_nothing() {
    let client = std::sync::Arc::new(Client::new());
    client.post(CONFIGMAPS, configmap("a")).await.expect(201);
    let writers = (0..8).map(|writer| {
        let client = std::sync::Arc::clone(&client);
        tokio::spawn(async move {
            for at in 0..20 {
                let path = format!("{CONFIGMAPS}/a");
                let change = json!({"data": {format!("w{writer}-{at}"): "x"}});
                client
                    .patch(&path, "merge-patch+json", change)
                    .await
                    .expect(200);
                // All of them want to be the one that makes it.
                let lease = format!("/apis/coordination.k8s.io/v1/namespaces/default/leases/l{at}");
                let body = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": format!("l{at}")}, "spec": {"holderIdentity": "me"},
                });
                let apply = format!("{lease}?fieldManager=m{writer}");
                let made = client.patch(&apply, "apply-patch+yaml", body).await;
                assert!(matches!(made.code, 200 | 201), "{}", made.text);
            }
        })
    });
    for writer in futures::future::join_all(writers).await {
        writer.unwrap();
    }
    let last = client.get(&format!("{CONFIGMAPS}/a")).await;
    assert_eq!(last.body["data"].as_object().unwrap().len(), 1 + 8 * 20);
}

#[tokio::test]
async fn a_deep_object_is_refused_or_can_be_read_again() {
    let client = Client::new();
    let definition = json!({
        "metadata": {"name": "deeps.x.io"},
        "spec": {
            "group": "x.io", "scope": "Cluster", "names": {"plural": "deeps", "kind": "Deep"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.post(definitions, definition).await.expect(201);
    let mut kept = 0;
    for depth in (90..130).step_by(3) {
        let mut object = json!({
            "apiVersion": "x.io/v1", "kind": "Deep", "metadata": {"name": format!("d{depth}")},
        });
        object["spec"] = (0..depth).fold(json!(1), |inner, _| json!({"a": inner}));
        let made = client.post("/apis/x.io/v1/deeps", object).await;
        if made.code == 201 {
            kept += 1;
            let label = json!({"metadata": {"labels": {"a": "b"}}});
            let path = format!("/apis/x.io/v1/deeps/d{depth}");
            client
                .patch(&path, "merge-patch+json", label)
                .await
                .expect(200);
        } else {
            assert_eq!(made.code, 400, "{}", made.text);
        }
    }
    assert!(kept > 3);
    assert_eq!(
        client
            .get("/apis/x.io/v1/deeps")
            .await
            .expect(200)
            .names()
            .len(),
        kept
    );
}

#[tokio::test]
async fn the_largest_numbers_are_kept() {
    let client = Client::new();
    let mut object = configmap("a");
    object["metadata"]["generation"] = json!(i64::MAX);
    object["metadata"]["finalizers"] = json!(["x.io/f"]);
    client.post(CONFIGMAPS, object).await.expect(201);
    let path = format!("{CONFIGMAPS}/a?gracePeriodSeconds={}", i64::MAX);
    let deleting = client.delete(&path, Value::Null).await.expect(200);
    assert_eq!(deleting.body["metadata"]["generation"], i64::MAX);
    let path = format!("{CONFIGMAPS}?watch=true&timeoutSeconds={}", i64::MAX);
    let mut watch = client.watch(&path, &[]).await;
    assert_eq!(watch.next_named().await, "ADDED a");
}

#[tokio::test]
async fn warnings_come_with_success_and_errors() {
    let client = Client::new();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let mut deployment = json!({
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                "containers": [{"name": "c", "image": "i"}],
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
            }},
        },
        "extra": 1,
    });
    let made = client.post(path, deployment.clone()).await.expect(201);
    // First the findings in the body, then those about its values.
    let said: Vec<_> = made.headers.get_all("warning").iter().collect();
    assert_eq!(said.len(), 2);
    assert_eq!(said[0], "299 - \"unknown field \\\"extra\\\"\"");

    let change = format!("{path}/d");
    for (patch, warnings) in [
        (json!({"metadata": {"labels": {"x": "y"}}}), 0),
        (json!({"metadata": {"annotations": {"x": "y"}}}), 1),
        (json!({"spec": {"replicas": 2}}), 1),
        (json!({"spec": {"replicas": 2}}), 0),
    ] {
        let patched = client.patch(&change, "merge-patch+json", patch.clone());
        let patched = patched.await.expect(200);
        let said = patched.headers.get_all("warning").iter().count();
        assert_eq!(said, warnings, "{patch}");
    }

    deployment["spec"]["replicas"] = json!(-1);
    let refused = client.post(path, deployment).await.expect(422);
    assert_eq!(refused.headers.get_all("warning").iter().count(), 1);
}
