//! `/openapi/v3`: which kinds support patches and `fieldValidation`, and their schemas without descriptions.
//! `/openapi/v2` exists and is empty: kubectl reads it for kinds that are not in v3, such as `List`,
//! and fails if it is missing.

use std::sync::LazyLock;

use http::Response;
use http::header::ACCEPT;
use serde_json::{Map, Value, json};

use super::discovery::hash;
use crate::kinds::kind::Kind;
use crate::objects::schema::{Schema, openapi};
use crate::protocol::media::{Accept, header};
use crate::protocol::request::Request;
use crate::protocol::response::{Body, encode, finish, whole};
use crate::resources::registry::{Registry, ServedKind};

/// Part of the `Accept` header of clients that request protobuf.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2";
const PROTOBUF_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// gnostic's `Document`: `swagger` (1), `info` (2) with `title` (1) and `version` (2), and `paths` (8), which are none.
const PROTOBUF_DOCUMENT: &[u8] = b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.36.4\x42\x00";

pub(crate) fn v2(request: &Request) -> Response<Body> {
    if header(&request.headers, ACCEPT.as_str()).contains(PROTOBUF) {
        return finish(whole(PROTOBUF_TYPE, PROTOBUF_DOCUMENT));
    }
    let accept = Accept::for_errors(&request.headers, &request.query);
    let document = json!({"swagger": "2.0", "info": info(), "paths": {}});
    finish(encode(&document, accept))
}

/// `None` if the document does not exist.
pub(crate) fn v3(
    registry: &Registry,
    segments: &[&str],
    request: &Request,
) -> Option<Response<Body>> {
    let accept = Accept::for_errors(&request.headers, &request.query);
    let body = match segments {
        [] => index(registry),
        ["api", version] => document(registry, "", version)?,
        ["apis", group, version] => document(registry, group, version)?,
        _ => return None,
    };
    Some(finish(encode(&body, accept)))
}

fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for (group, versions) in registry.groups() {
        for version in versions {
            let path = if group.is_empty() {
                format!("api/{version}")
            } else {
                format!("apis/{group}/{version}")
            };
            let hash = fingerprint(registry, group, version);
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// Makes clients ask again when the document changes. The documents of built-in kinds change only with the program, and
/// are long.
fn fingerprint(registry: &Registry, group: &str, version: &str) -> String {
    static BUILT_IN: LazyLock<String> = LazyLock::new(|| hash(Schema::builtin_text()));
    let content = match registry.in_version(group, version).any(|it| it.custom) {
        true => document(registry, group, version)
            .unwrap_or_default()
            .to_string(),
        false => format!("{group}/{version} {}", *BUILT_IN),
    };
    hash(&content).to_uppercase()
}

fn document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    registry.in_version(group, version).next()?;
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for served in registry.in_version(group, version) {
        if served.allows("patch") {
            paths.extend([path_item(served)]);
        }
        let kind = &served.kind;
        let name = match kind.schema.root().name.as_str() {
            "" => format!("{group}.{version}.{}", kind.kind),
            name => name.to_owned(),
        };
        openapi::add(&kind.schema, &name, &group_version_kind(kind), &mut schemas);
    }
    Some(json!({
        "openapi": "3.0.0", "info": info(),
        "paths": paths, "components": {"schemas": schemas},
    }))
}

fn group_version_kind(kind: &Kind) -> Value {
    json!({"group": kind.group, "kind": kind.kind, "version": kind.version})
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "v1.36.4"})
}

fn path_item(served: &ServedKind) -> (String, Value) {
    let kind = &served.kind;
    let root = if kind.group.is_empty() { "api" } else { "apis" };
    let scope = if kind.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let path = format!(
        "/{root}/{}{scope}/{}/{{name}}",
        served.api_version, kind.plural
    );
    let operation = |action: &str| {
        json!({
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": group_version_kind(kind),
            "parameters": [
                {"name": "dryRun", "in": "query", "schema": {"type": "string"}},
                {"name": "fieldManager", "in": "query", "schema": {"type": "string"}},
                {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}},
            ],
            "responses": {"200": {"description": "OK"}},
        })
    };
    let item = json!({"put": operation("put"), "patch": operation("patch")});
    (path, item)
}
