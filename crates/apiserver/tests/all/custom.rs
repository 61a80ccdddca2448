//! Custom kinds, from their definition to their deletion.

use serde_json::{Value, json};

use crate::client::Client;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/x.io/v1/namespaces/default/widgets";

fn definition() -> Value {
    let spec = json!({"type": "object", "required": ["color"], "properties": {
        "color": {"type": "string", "enum": ["red", "blue"]},
        "replicas": {"type": "integer", "default": 3, "maximum": 10},
    }});
    json!({
        "metadata": {"name": "widgets.x.io"},
        "spec": {
            "group": "x.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
                "selectableFields": [{"jsonPath": ".spec.color"}],
            }],
        },
    })
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn defined() -> Client {
    let client = Client::new();
    client.post(DEFINITIONS, definition()).await.expect(201);
    client
}

#[tokio::test]
async fn a_definition_is_served_at_once() {
    let client = Client::new();
    assert_eq!(
        client.get(WIDGETS).await.expect(404).text,
        "404 page not found\n"
    );
    let made = client.post(DEFINITIONS, definition()).await.expect(201);
    assert_eq!(
        made.body["status"]["conditions"],
        Value::Null,
        "the answer is older than the verdict"
    );
    let path = format!("{DEFINITIONS}/widgets.x.io");
    let judged = client.get(&path).await.expect(200).body;
    let reasons: Vec<_> = judged["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| condition["reason"].as_str().unwrap())
        .collect();
    assert_eq!(reasons, ["NoConflicts", "InitialNamesAccepted"]);
    assert_eq!(
        client.get(WIDGETS).await.expect(200).body["kind"],
        "WidgetList"
    );
    let resources = client.get("/apis/x.io/v1").await.expect(200).body;
    let names: Vec<_> = resources["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
}

#[tokio::test]
async fn objects_are_defaulted_pruned_and_checked() {
    let client = defined().await;
    let made = client
        .post(WIDGETS, widget("w", json!({"color": "red", "unknown": 1})))
        .await
        .expect(201);
    assert_eq!(made.body["spec"], json!({"color": "red", "replicas": 3}));
    let refused = client
        .post(
            WIDGETS,
            widget("x", json!({"color": "green", "replicas": 11})),
        )
        .await
        .expect(422);
    assert_eq!(
        refused.message(),
        "Widget.x.io \"x\" is invalid: [spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\", \
         spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10]"
    );
}

#[tokio::test]
async fn status_and_scale_are_separate_paths() {
    let client = defined().await;
    client
        .post(WIDGETS, widget("w", json!({"color": "red"})))
        .await
        .expect(201);
    let status = json!({"spec": {"color": "blue"}, "status": {"replicas": 2}});
    let path = format!("{WIDGETS}/w");
    let written = client
        .patch(&format!("{path}/status"), "merge-patch+json", status)
        .await
        .expect(200)
        .body;
    assert_eq!(
        (&written["spec"]["color"], &written["status"]["replicas"]),
        (&json!("red"), &json!(2))
    );
    assert_eq!(written["metadata"]["generation"], 1);
    let scaled = client
        .patch(
            &format!("{path}/scale"),
            "merge-patch+json",
            json!({"spec": {"replicas": 5}}),
        )
        .await
        .expect(200)
        .body;
    assert_eq!(
        (&scaled["spec"]["replicas"], &scaled["status"]["replicas"]),
        (&json!(5), &json!(2))
    );
    let parent = client.get(&path).await.expect(200).body;
    assert_eq!(
        (
            &parent["spec"]["replicas"],
            &parent["metadata"]["generation"]
        ),
        (&json!(5), &json!(2))
    );
}

#[tokio::test]
async fn columns_and_selectors_come_from_the_definition() {
    let client = defined().await;
    for (name, color) in [("a", "red"), ("b", "blue")] {
        client
            .post(WIDGETS, widget(name, json!({"color": color})))
            .await
            .expect(201);
    }
    let blue = client
        .get(&format!("{WIDGETS}?fieldSelector=spec.color%3Dblue"))
        .await
        .expect(200);
    assert_eq!(blue.names(), ["b"]);
    let accept = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = client
        .send(&format!("GET {WIDGETS}"), &[accept], "")
        .await
        .expect(200)
        .body;
    let rows: Vec<_> = table["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["cells"].clone())
        .collect();
    assert_eq!(rows, [json!(["a", "red"]), json!(["b", "blue"])]);
}

#[tokio::test]
async fn a_definition_is_deleted_after_its_last_object() {
    let client = defined().await;
    let mut held = widget("held", json!({"color": "red"}));
    held["metadata"]["finalizers"] = json!(["x.io/hold"]);
    client.post(WIDGETS, held).await.expect(201);
    client
        .post(WIDGETS, widget("loose", json!({"color": "red"})))
        .await
        .expect(201);
    let path = format!("{DEFINITIONS}/widgets.x.io");
    let leaving = client.delete(&path, Value::Null).await.expect(200).body;
    assert_eq!(
        leaving["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    assert_eq!(client.get(WIDGETS).await.expect(200).names(), ["held"]);
    client.get(&path).await.expect(200);
    let release = json!({"metadata": {"finalizers": null}});
    client
        .patch(&format!("{WIDGETS}/held"), "merge-patch+json", release)
        .await
        .expect(200);
    client.get(&path).await.expect(404);
    client.get(WIDGETS).await.expect(404);
}

#[tokio::test]
async fn a_taken_name_is_accepted_when_its_owner_is_deleted() {
    let client = defined().await;
    let mut rival = definition();
    rival["metadata"]["name"] = json!("gadgets.x.io");
    rival["spec"]["names"] = json!({"plural": "gadgets", "kind": "Widget"});
    client.post(DEFINITIONS, rival).await.expect(201);
    let path = format!("{DEFINITIONS}/gadgets.x.io");
    let reason = async || client.get(&path).await.body["status"]["conditions"][0]["reason"].clone();
    assert_eq!(reason().await, "ListKindConflict");
    client.get("/apis/x.io/v1/gadgets").await.expect(404);
    client
        .delete(&format!("{DEFINITIONS}/widgets.x.io"), Value::Null)
        .await
        .expect(200);
    assert_eq!(reason().await, "NoConflicts");
    client.get("/apis/x.io/v1/gadgets").await.expect(200);
}
