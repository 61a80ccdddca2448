//! D: discovery.

use serde_json::{Map, Value, json};

use super::behaviour;
use crate::client::Request;
use crate::session::Session;
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour("D1", "discovery: groups, not aggregated", legacy_groups),
    behaviour("D2", "discovery: aggregated", aggregated),
    behaviour(
        "D3",
        "discovery: resources, not aggregated",
        legacy_resources,
    ),
    behaviour(
        "D4",
        "discovery: unknown groups, versions, resources and paths",
        unknown_paths,
    ),
    behaviour("D5", "discovery: version and health", version_and_health),
    behaviour(
        "D6",
        "discovery: the OpenAPI documents that kubectl reads",
        openapi,
    ),
];

/// What the embedded cluster does not serve, and is not compared.
const NOT_SERVED: &[&str] = &[
    "nodes/proxy",
    "pods/ephemeralcontainers",
    "pods/proxy",
    "serviceaccounts/token",
    "services/proxy",
];

/// What the real server does not serve: custom kinds of other behaviours come and go, and `metrics.k8s.io` belongs to
/// another program of a real cluster.
pub(super) fn is_compared(group: &str) -> bool {
    let builtin = !group.contains('.') || group.ends_with(".k8s.io") && group != "metrics.k8s.io";
    builtin || group == "conformance.tidepool.io"
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// `v1`, `apps/v1`, ...: every version that is compared.
fn versions(s: &mut Session) -> Vec<String> {
    let groups = s.quietly(&Request::get("/apis"));
    let groups = groups.body["groups"].as_array().cloned();
    let mut versions: Vec<String> = groups
        .into_iter()
        .flatten()
        .filter(|group| is_compared(&text(&group["name"])))
        .flat_map(|group| group["versions"].as_array().cloned().unwrap_or_default())
        .map(|version| text(&version["groupVersion"]))
        .collect();
    versions.push("v1".to_owned());
    versions.sort();
    versions
}

fn discovery_path(version: &str) -> String {
    match version {
        "v1" => "/api/v1".to_owned(),
        version => format!("/apis/{version}"),
    }
}

/// The items whose name is wanted, in the order of their names.
fn pick(list: &Value, name: impl Fn(&Value) -> String, wanted: impl Fn(&str) -> bool) -> Value {
    let mut items: Vec<Value> = list.as_array().cloned().unwrap_or_default();
    items.retain(|item| wanted(&name(item)));
    items.sort_by_key(&name);
    Value::from(items)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn legacy_groups(s: &mut Session) {
    let mut answer = s.quietly(&Request::get("/api"));
    // Where the server believes it is, is its own affair.
    if let Some(address) = answer
        .body
        .pointer_mut("/serverAddressByClientCIDRs/0/serverAddress")
    {
        *address = json!("host:port");
    }
    s.record("GET /api".into(), Value::Null, answer.record());

    let mut answer = s.quietly(&Request::get("/apis"));
    let name = |group: &Value| text(&group["name"]);
    answer.body["groups"] = pick(&answer.body["groups"], name, is_compared);
    s.record("GET /apis".into(), Value::Null, answer.record());
    for group in answer.body["groups"].as_array().into_iter().flatten() {
        s.get(format!("/apis/{}", name(group)));
    }
    s.send(Request::get("/apis/apps").accept("application/yaml"));
}

fn aggregated(s: &mut Session) {
    for path in ["/api", "/apis"] {
        for accept in [
            AGGREGATED,
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        ] {
            let mut answer = s.quietly(&Request::get(path).accept(accept));
            answer.body["items"] = only_served(&answer.body["items"]);
            s.record(
                format!("GET {path} [accept: {accept}]"),
                Value::Null,
                answer.record(),
            );
        }
        let answer = s.quietly(&Request::get(path).accept("application/json"));
        s.fact(
            &format!("kind of GET {path} for a client that knows no aggregation"),
            answer.text("/kind"),
        );
    }
}

/// The groups, resources and subresources of an aggregated answer that are compared.
fn only_served(items: &Value) -> Value {
    let group_name = |group: &Value| text(&group["metadata"]["name"]);
    let mut picked = pick(items, group_name, is_compared);
    for group in picked.as_array_mut().into_iter().flatten() {
        // A group made by a custom definition has a creation time, others have none.
        for version in group["versions"].as_array_mut().into_iter().flatten() {
            let resource_name = |resource: &Value| text(&resource["resource"]);
            version["resources"] = pick(&version["resources"], resource_name, |_| true);
            for resource in version["resources"].as_array_mut().into_iter().flatten() {
                let parent = resource_name(resource);
                // None at all is the same as none that are compared.
                resource["subresources"] = pick(
                    &resource["subresources"],
                    |subresource| text(&subresource["subresource"]),
                    |name| !NOT_SERVED.contains(&format!("{parent}/{name}").as_str()),
                );
            }
        }
    }
    picked
}

fn legacy_resources(s: &mut Session) {
    for version in versions(s) {
        let path = discovery_path(&version);
        let mut answer = s.quietly(&Request::get(&path));
        let name = |resource: &Value| text(&resource["name"]);
        answer.body["resources"] = pick(&answer.body["resources"], name, |name| {
            !NOT_SERVED.contains(&name)
        });
        s.record(format!("GET {path}"), Value::Null, answer.record());
    }
}

fn unknown_paths(s: &mut Session) {
    for path in [
        "/nope",
        "/api/v2",
        "/api/v1/foos",
        "/api/v1/foos/x",
        "/api/v1/namespaces/default/foos",
        "/api/v1/namespaces/default/foos/x",
        "/api/v1/namespaces/default/pods/x/nope",
        "/apis/nope",
        "/apis/nope/v1",
        "/apis/nope/v1/x",
        "/apis/apps/v9",
        "/apis/apps/v9/x",
        "/apis/apps/v1/foos",
        "/apis/apps/v1/namespaces/default/foos/x",
        "/apis/conformance.tidepool.io/v9/widgets",
        "/apis/conformance.tidepool.io/v1/gadgets",
        "/apis/conformance.tidepool.io/v1/namespaces/default/gadgets/x",
        "/apis/conformance.tidepool.io/v1/namespaces/default/widgets/x/nope",
    ] {
        s.get(path);
    }
    s.post("/api/v1/namespaces/default/foos", &json!({}));
    s.delete("/apis/nope/v1/x");
}

fn version_and_health(s: &mut Session) {
    let answer = s.quietly(&Request::get("/version"));
    let types: Map<String, Value> = answer
        .body
        .as_object()
        .into_iter()
        .flatten()
        .map(|(field, value)| (field.clone(), Value::from(value.is_string())))
        .collect();
    s.fact("fields of /version that are texts", types);
    s.fact(
        "version served",
        json!([answer.status, answer.at("/major"), answer.at("/minor")]),
    );
    for path in [
        "/readyz",
        "/livez",
        "/healthz",
        "/livez/ping",
        "/readyz/ping",
    ] {
        s.get(path);
    }
    let answer = s.quietly(&Request::get("/version?timeout=32s"));
    s.fact("version with a timeout", answer.status);
}

fn openapi(s: &mut Session) {
    let mut index = s.quietly(&Request::get("/openapi/v3"));
    // The real server does not say that this is JSON.
    if let Some(parsed) = index
        .body
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok())
    {
        index.body = parsed;
    }
    s.fact("the index is answered", index.status);
    for version in versions(s) {
        let key = discovery_path(&version)[1..].to_owned();
        let url = text(&index.body["paths"][&key]["serverRelativeURL"]);
        let (path, query) = url.split_once('?').unwrap_or((&url, ""));
        s.fact(
            &format!("document of {key}"),
            json!([path, query.split('=').next()]),
        );
        let document = s.quietly(&Request::get(&url).accept("application/json"));
        s.fact(
            &format!("{key} is answered"),
            json!([document.status, document.headers.get("content-type")]),
        );
        let resources = s.quietly(&Request::get(discovery_path(&version)));
        let resources = resources.body["resources"].as_array().cloned();
        let mut names: Vec<String> = resources
            .into_iter()
            .flatten()
            .map(|resource| text(&resource["name"]))
            .filter(|name| !name.contains('/') && name != "componentstatuses")
            .collect();
        names.sort();
        for resource in names {
            let operations: Vec<Value> = document.body["paths"]
                .as_object()
                .into_iter()
                .flatten()
                .filter(|(path, _)| {
                    path.ends_with(&format!("/{resource}/{{name}}")) && !path.contains("/watch/")
                })
                .map(|(path, item)| json!([path, patch_operation(item)]))
                .collect();
            s.fact(&format!("PATCH of {resource} in {key}"), operations);
        }
    }
    let unknown = s.quietly(&Request::get("/openapi/v3/apis/nope/v1"));
    s.fact("an unknown document", unknown.status);
}

/// What kubectl looks for before it trusts the server to check fields.
fn patch_operation(item: &Value) -> Value {
    let operation = &item["patch"];
    let names = |list: &Value| -> Vec<String> {
        list.as_array()
            .into_iter()
            .flatten()
            .map(|parameter| text(&parameter["name"]))
            .collect()
    };
    let checks = names(&operation["parameters"]).contains(&"fieldValidation".to_owned());
    json!([operation["x-kubernetes-group-version-kind"], checks])
}
