//! Discovery in both forms, `/version` and the health checks.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::kinds::kind::{Kind, Subresource};
use crate::objects::status::Status;
use crate::protocol::media::{Accept, Offer, accepts, header};
use crate::protocol::request::Request;
use crate::protocol::response::{Body, encode, error_response, finish, text_response};
use crate::resources::registry::Registry;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The version of Kubernetes whose API this is.
const VERSION: &str = "v1.36.4+tidepool";

/// The list of paths at `/`.
pub(crate) fn root(registry: &Registry) -> Response<Body> {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for (group, versions) in registry.groups() {
        if !group.is_empty() {
            paths.push(format!("/apis/{group}"));
            paths.extend(
                versions
                    .iter()
                    .map(|version| format!("/apis/{group}/{version}")),
            );
        }
    }
    for path in [
        "/healthz",
        "/livez",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ] {
        paths.push(path.to_owned());
    }
    let accept = Accept {
        pretty: true,
        ..Accept::PLAIN
    };
    finish(encode(&json!({"paths": paths}), accept))
}

pub(crate) fn version(request: &Request) -> Response<Body> {
    let version = json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": VERSION, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    });
    // The real server always indents it.
    let accept = Accept {
        pretty: true,
        ..Accept::for_errors(&request.headers, &request.query)
    };
    finish(encode(&version, accept))
}

/// `ok`, or one line per check; the only check is that the server answers.
pub(crate) fn health(segments: &[&str], request: &Request) -> Response<Body> {
    match segments {
        [_] => {}
        [_, "ping"] => return text_response(StatusCode::OK, "ok"),
        _ => return text_response(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
    if request.query.find("verbose").is_none() {
        return text_response(StatusCode::OK, "ok");
    }
    let name = segments[0];
    text_response(StatusCode::OK, format!("[+]ping ok\n{name} check passed\n"))
}

/// `None` if the group does not exist.
pub(crate) fn respond(
    registry: &Registry,
    segments: &[&str],
    request: &Request,
) -> Option<Response<Body>> {
    let wants = [
        ("g", "apidiscovery.k8s.io"),
        ("v", "v2"),
        ("as", "APIGroupDiscoveryList"),
    ];
    let aggregated = segments.len() == 1 && accepts(&request.headers, "application/json", &wants);
    if aggregated {
        let core = segments[0] == "api";
        return Some(aggregated_answer(&aggregate(registry, core), request));
    }
    let offer = Offer::Builtin { streams: false };
    let accept = match Accept::negotiate(&request.headers, &request.query, offer) {
        Ok(accept) => accept,
        Err(status) => {
            let accept = Accept::for_errors(&request.headers, &request.query);
            return Some(error_response(&status, accept));
        }
    };
    let body = match segments {
        ["api"] => {
            let address = header(&request.headers, "host");
            json!({
                "kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs":
                    [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
            })
        }
        ["api", "v1"] => resource_list(registry, "", "v1")?,
        ["apis"] => {
            let groups = registry.groups();
            let groups = groups.iter().filter(|(group, _)| !group.is_empty());
            let groups: Vec<Value> = groups
                .map(|(name, versions)| group(name, versions))
                .collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["apis", name] => {
            let groups = registry.groups();
            let (name, versions) = groups
                .iter()
                .find(|(known, _)| known == name && !known.is_empty())?;
            let mut body = json!({"kind": "APIGroup", "apiVersion": "v1"});
            merge(&mut body, group(name, versions));
            body
        }
        ["apis", group, version] => match resource_list(registry, group, version) {
            Some(list) => list,
            None if registry.groups().iter().any(|(known, _)| known == group) => {
                return Some(error_response(&Status::no_such_resource(), accept));
            }
            None => return None,
        },
        ["api", _] => return Some(error_response(&Status::no_such_resource(), accept)),
        _ => return None,
    };
    Some(finish(encode(&body, accept)))
}

/// A response that clients may cache until its tag changes.
fn aggregated_answer(body: &Value, request: &Request) -> Response<Body> {
    let tag = format!("\"{}\"", hash(&body.to_string()).to_uppercase());
    let unchanged = header(&request.headers, IF_NONE_MATCH.as_str()) == tag;
    let mut response = if unchanged {
        let mut response = text_response(StatusCode::NOT_MODIFIED, "");
        response.headers_mut().remove(CONTENT_TYPE);
        response
    } else {
        let mut response = encode(body, Accept::PLAIN);
        let value = HeaderValue::from_static(AGGREGATED);
        response.headers_mut().insert(CONTENT_TYPE, value);
        response
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    finish(response)
}

/// Hexadecimal SHA-256.
pub(crate) fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn merge(into: &mut Value, from: Value) {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}

fn group(name: &str, versions: &[&str]) -> Value {
    let version = |v: &&str| json!({"groupVersion": format!("{name}/{v}"), "version": v});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn resource_list(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for served in registry.in_version(group, version) {
        let kind = &served.kind;
        resources.push(resource(kind));
        resources.extend(kind.subresources.iter().map(|sub| subresource(kind, sub)));
    }
    if resources.is_empty() {
        return None;
    }
    let mut list = json!({"kind": "APIResourceList"});
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        // The real server leaves it out for the core group alone.
        list["apiVersion"] = json!("v1");
        format!("{group}/{version}")
    };
    list["groupVersion"] = json!(group_version);
    list["resources"] = Value::Array(resources);
    Some(list)
}

fn resource(kind: &Kind) -> Value {
    let mut entry = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
        "kind": kind.kind, "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    // Only what is stored has a version in storage.
    if kind.verbs.contains(&"get") && kind.verbs.contains(&"create") {
        let text = format!("{}/{}/{}", kind.group, kind.version, kind.kind);
        entry["storageVersionHash"] = json!(&hash(&text)[..11]);
    }
    entry
}

fn subresource(kind: &Kind, sub: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", kind.plural, sub.name), "singularName": "",
        "namespaced": kind.namespaced,
    });
    match &sub.body {
        Some((group, version, name)) => {
            if *group != kind.group || *version != kind.version {
                entry["group"] = json!(group);
                entry["version"] = json!(version);
            }
            entry["kind"] = json!(name);
        }
        None => entry["kind"] = json!(kind.kind),
    }
    entry["verbs"] = json!(sub.verbs);
    entry
}

fn aggregate(registry: &Registry, core: bool) -> Value {
    let groups = registry.groups();
    let groups = groups.iter().filter(|(group, _)| group.is_empty() == core);
    let items: Vec<Value> = groups
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources = registry.in_version(group, version);
                    let resources: Vec<Value> = resources
                        .map(|served| aggregated_resource(&served.kind, served.custom))
                        .collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let mut metadata = json!({});
            if !group.is_empty() {
                metadata["name"] = json!(group);
            }
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {}, "items": items,
    })
}

fn aggregated_resource(kind: &Kind, custom: bool) -> Value {
    // Built-in kinds leave the group and version of their own list out.
    let response_kind = |group: &str, version: &str, name: &str| {
        let own = group == kind.group && version == kind.version && !custom;
        if own {
            json!({"group": "", "version": "", "kind": name})
        } else {
            json!({"group": group, "version": version, "kind": name})
        }
    };
    let mut entry = json!({
        "resource": kind.plural,
        "responseKind": response_kind(&kind.group, &kind.version, &kind.kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular, "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    if !kind.subresources.is_empty() {
        let subresource = |sub: &Subresource| {
            let kind = match &sub.body {
                Some((group, version, name)) => response_kind(group, version, name),
                None => response_kind(&kind.group, &kind.version, &kind.kind),
            };
            json!({"subresource": sub.name, "responseKind": kind, "verbs": sub.verbs})
        };
        let list: Vec<Value> = kind.subresources.iter().map(subresource).collect();
        entry["subresources"] = Value::Array(list);
    }
    entry
}
