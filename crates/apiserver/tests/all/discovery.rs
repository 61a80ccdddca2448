//! Discovery, OpenAPI, version and health.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::client::Client;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn find<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
    let list = list.as_array().expect("a list");
    let found = list.iter().find(|entry| entry[key] == name);
    found.unwrap_or_else(|| panic!("no {name}"))
}

#[tokio::test]
async fn plain_discovery_names_groups_and_resources() {
    let client = Client::new();
    let core = client.get("/api").await.expect(200);
    assert_eq!(core.body["kind"], "APIVersions");
    assert!(core.body.get("apiVersion").is_none());
    let groups = client.get("/apis").await.expect(200);
    let leases = find(&groups.body["groups"], "name", "coordination.k8s.io");
    assert_eq!(
        leases["preferredVersion"]["groupVersion"],
        "coordination.k8s.io/v1"
    );
    let one = client.get("/apis/coordination.k8s.io").await.expect(200);
    assert_eq!(
        (&one.body["kind"], &one.body["versions"]),
        (&"APIGroup".into(), &leases["versions"])
    );

    let resources = client.get("/api/v1").await.expect(200);
    assert!(resources.body.get("apiVersion").is_none());
    let pods = find(&resources.body["resources"], "name", "pods");
    assert_eq!(pods["shortNames"], serde_json::json!(["po"]));
    assert_eq!(pods["namespaced"], true);
    let eviction = find(&resources.body["resources"], "name", "pods/eviction");
    assert_eq!(
        (&eviction["group"], &eviction["kind"]),
        (&"policy".into(), &"Eviction".into())
    );
    let other = client.get("/apis/coordination.k8s.io/v1").await.expect(200);
    assert_eq!(other.body["apiVersion"], "v1");

    assert_eq!(
        client.get("/apis/nope").await.expect(404).text,
        "404 page not found\n"
    );
    let unknown = client.get("/apis/coordination.k8s.io/v9").await.expect(404);
    assert_eq!(
        unknown.message(),
        "the server could not find the requested resource"
    );
}

#[tokio::test]
async fn aggregated_discovery_is_one_response_with_a_tag() {
    let client = Client::new();
    let accept = format!("Accept: {AGGREGATED},application/json");
    let answer = client.send("GET /api", &[&accept], "").await.expect(200);
    assert_eq!(answer.headers["content-type"], AGGREGATED);
    let resources = &answer.body["items"][0]["versions"][0]["resources"];
    let pods = find(resources, "resource", "pods");
    assert_eq!(pods["scope"], "Namespaced");
    assert_eq!(pods["responseKind"]["kind"], "Pod");
    assert_eq!(
        find(&pods["subresources"], "subresource", "binding")["responseKind"]["kind"],
        "Binding"
    );

    let tag = answer.headers["etag"].to_str().unwrap();
    let again = format!("If-None-Match: {tag}");
    let unchanged = client
        .send("GET /api", &[&accept, &again], "")
        .await
        .expect(304);
    assert_eq!(unchanged.text, "");
    client
        .send("GET /apis", &[&accept, &again], "")
        .await
        .expect(200);
}

#[tokio::test]
async fn openapi_v3_has_what_kubectl_checks() {
    let client = Client::new();
    let index = client.get("/openapi/v3?timeout=32s").await.expect(200);
    let url = index.body["paths"]["api/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    assert!(url.starts_with("/openapi/v3/api/v1?hash="));
    let document = client.get(&format!("{url}&timeout=32s")).await.expect(200);
    let paths = document.body["paths"].as_object().unwrap();
    let patch = &paths["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Pod");
    let parameter = find(&patch["parameters"], "name", "fieldValidation");
    assert_eq!(parameter["in"], "query");
    client.get("/openapi/v3/apis/nope/v1").await.expect(404);
}

/// kubectl asks for it before it applies a `List`, takes protobuf whatever the content type, and skips kinds without a schema.
#[tokio::test]
async fn openapi_v2_exists_and_is_empty() {
    let client = Client::new();
    let json = client.get("/openapi/v2?timeout=32s").await.expect(200);
    assert_eq!(json.headers["content-type"], "application/json");
    let info = serde_json::json!({"title": "Kubernetes", "version": "v1.36.4"});
    assert_eq!(
        json.body,
        serde_json::json!({"swagger": "2.0", "info": info, "paths": {}})
    );

    let accept = "Accept: application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let protobuf = client
        .send("GET /openapi/v2?timeout=32s", &[accept], "")
        .await
        .expect(200);
    assert_eq!(
        protobuf.headers["content-type"],
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    );
    let document = fields(protobuf.text.as_bytes());
    assert_eq!(document[&1], b"2.0");
    let about = fields(document[&2]);
    assert_eq!(
        (about[&1], about[&2]),
        (&b"Kubernetes"[..], &b"v1.36.4"[..])
    );
    assert_eq!(document[&8], b"", "paths");
    client.get("/openapi/v2/more").await.expect(404);
}

/// The fields of a protobuf message that has short texts and messages only.
fn fields(mut message: &[u8]) -> BTreeMap<u8, &[u8]> {
    let mut fields = BTreeMap::new();
    while let [tag, length, rest @ ..] = message {
        assert_eq!(tag & 7, 2, "a text or message");
        let (content, rest) = rest.split_at(usize::from(*length));
        fields.insert(tag >> 3, content);
        message = rest;
    }
    assert_eq!(message, b"", "a whole message");
    fields
}

#[tokio::test]
async fn version_and_health_are_served() {
    let client = Client::new();
    let version = client.get("/version").await.expect(200);
    for field in [
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ] {
        assert!(version.body[field].is_string(), "{field}");
    }
    assert_eq!(version.body["gitVersion"], "v1.36.4+tidepool");
    for path in ["/readyz", "/livez", "/healthz", "/livez/ping"] {
        let health = client.get(path).await.expect(200);
        assert_eq!(health.text, "ok", "{path}");
    }
    let verbose = client.get("/readyz?verbose").await.expect(200);
    assert_eq!(verbose.text, "[+]ping ok\nreadyz check passed\n");
}
