//! HTTP responses in the requested form: JSON, YAML, tables and metadata only.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WARNING};
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::objects::status::Status;
use crate::protocol::media::{Accept, Format, Representation};
use crate::resources::registry::ServedKind;
use crate::store::object::Object;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a response: complete, a long list in pieces, or a watch.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Lists are written in pieces of this size, so that a large one is never in memory twice.
const PIECE: usize = 64 << 10;
/// Objects of a list that take some milliseconds to convert.
const LARGE_LIST: usize = 500;

/// What a handler returns.
pub(crate) struct ApiResponse {
    pub(crate) code: StatusCode,
    pub(crate) content: Content,
    pub(crate) warnings: Vec<String>,
}

pub(crate) enum Content {
    /// A stored object.
    Object(Arc<ServedKind>, Arc<Object>),
    /// An object that is not stored (a dry run, a deleted object), or one without a served kind.
    Value(Option<Arc<ServedKind>>, Value),
    List(ListPage),
    /// A response that is already complete: discovery, watches.
    Raw(Response<Body>),
}

pub(crate) struct ListPage {
    pub(crate) served: Arc<ServedKind>,
    pub(crate) revision: u64,
    /// Empty on the last page.
    pub(crate) continue_token: String,
    pub(crate) remaining: Option<usize>,
    pub(crate) objects: Vec<Arc<Object>>,
}

impl ApiResponse {
    pub(crate) fn new(code: StatusCode, content: Content) -> Self {
        Self {
            code,
            content,
            warnings: Vec::new(),
        }
    }

    pub(crate) fn ok(content: Content) -> Self {
        Self::new(StatusCode::OK, content)
    }

    pub(crate) fn raw(response: Response<Body>) -> Self {
        Self::new(response.status(), Content::Raw(response))
    }

    /// `Status` with `status: Success`.
    pub(crate) fn success(code: StatusCode, details: Option<Value>) -> Self {
        let mut body =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        match details {
            Some(details) => body["details"] = details,
            None => body["code"] = json!(code.as_u16()),
        }
        Self::new(code, Content::Value(None, body))
    }

    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    /// Whether writing the response takes long: a large list that is converted as a whole.
    pub(crate) fn is_slow(&self, accept: Accept) -> bool {
        let is_large = match &self.content {
            Content::List(list) => list.objects.len() > LARGE_LIST,
            Content::Object(..) | Content::Value(..) | Content::Raw(_) => false,
        };
        is_large && !is_plain(accept)
    }

    pub(crate) fn into_response(self, accept: Accept, include: IncludeObject) -> Response<Body> {
        let mut response = match self.content {
            Content::Raw(response) => response,
            content => render(content, accept, include),
        };
        *response.status_mut() = self.code;
        warn(&mut response, &self.warnings);
        finish(response)
    }
}

/// Each warning once.
fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for (at, warning) in warnings.iter().enumerate() {
        if warning.is_empty() || warnings[..at].contains(warning) {
            continue;
        }
        let text = format!("299 - {}", json!(warning));
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// Sets the headers that every response has.
pub(crate) fn finish(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-cache, private"));
    if let Ok(id) = HeaderValue::from_str(&Uuid::new_v4().to_string()) {
        headers.insert("audit-id", id);
    }
    response
}

pub(crate) fn error_response(status: &Status, accept: Accept) -> Response<Body> {
    let mut response = encode(&status.to_json(), accept);
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.status_mut() = code;
    warn(&mut response, &status.warnings);
    let retry = status.details.as_ref().and_then(|d| d.retry_after_seconds);
    if let Some(seconds) = retry {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    finish(response)
}

pub(crate) fn text_response(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = whole("text/plain; charset=utf-8", text);
    *response.status_mut() = code;
    finish(response)
}

/// The object in a table row: `?includeObject=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    Metadata,
    Object,
    None,
}

impl IncludeObject {
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::None),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

/// Objects are written as they are stored.
fn is_plain(accept: Accept) -> bool {
    accept.format == Format::Json
        && !accept.pretty
        && accept.representation == Representation::Whole
}

fn render(content: Content, accept: Accept, include: IncludeObject) -> Response<Body> {
    let plain = is_plain(accept);
    match content {
        Content::Object(served, object) if plain => {
            let mut out = Vec::with_capacity(object.size() + 64);
            served.write_object(&object, &mut out);
            out.push(b'\n');
            whole("application/json", out)
        }
        Content::List(list) if plain => stream_list(list),
        Content::Object(served, object) => {
            let value = served.value(&object);
            encode(
                &transform_object(&served, value, accept.representation, include),
                accept,
            )
        }
        Content::Value(Some(served), value) => encode(
            &transform_object(&served, value, accept.representation, include),
            accept,
        ),
        Content::Value(None, value) => encode(&value, accept),
        Content::List(list) => encode(
            &transform_list(&list, accept.representation, include),
            accept,
        ),
        Content::Raw(response) => response,
    }
}

pub(crate) fn whole(content_type: &'static str, bytes: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(bytes.into()).map_err(|never: Infallible| match never {});
    let mut response = Response::new(body.boxed_unsync());
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A value in the requested format.
pub(crate) fn encode(value: &Value, accept: Accept) -> Response<Body> {
    let mut bytes = match accept.format {
        Format::Yaml => serde_saphyr::to_string(value)
            .unwrap_or_else(|_| value.to_string())
            .into_bytes(),
        Format::Json if accept.pretty => serde_json::to_vec_pretty(value).unwrap_or_default(),
        Format::Json => value.to_string().into_bytes(),
    };
    // The real server ends indented JSON without a line end.
    if bytes.last() != Some(&b'\n') && !accept.pretty {
        bytes.push(b'\n');
    }
    whole(accept.content_type(), bytes)
}

fn transform_object(
    served: &ServedKind,
    value: Value,
    representation: Representation,
    include: IncludeObject,
) -> Value {
    match representation {
        Representation::Whole => value,
        Representation::Metadata | Representation::MetadataList => metadata_only(&value),
        Representation::Table => {
            let version = value["metadata"]["resourceVersion"].clone();
            table(
                served,
                &[value],
                json!({"resourceVersion": version}),
                include,
            )
        }
    }
}

fn list_metadata(list: &ListPage) -> Value {
    let mut metadata = json!({"resourceVersion": list.revision.to_string()});
    if !list.continue_token.is_empty() {
        metadata["continue"] = json!(list.continue_token);
    }
    if let Some(remaining) = list.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    metadata
}

fn transform_list(
    list: &ListPage,
    representation: Representation,
    include: IncludeObject,
) -> Value {
    let served = &list.served;
    let values = list.objects.iter().map(|object| served.value(object));
    match representation {
        Representation::Whole => {
            let mut bytes = list_start(list);
            for (at, object) in list.objects.iter().enumerate() {
                write_item(list, at, object, &mut bytes);
            }
            bytes.extend_from_slice(b"]}");
            serde_json::from_slice(&bytes).unwrap_or_default()
        }
        Representation::Metadata | Representation::MetadataList => json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": list_metadata(list),
            "items": values.map(|value| metadata_only(&value)).collect::<Vec<_>>(),
        }),
        Representation::Table => {
            let values: Vec<Value> = values.collect();
            table(served, &values, list_metadata(list), include)
        }
    }
}

pub(crate) fn metadata_only(value: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": value["metadata"],
    })
}

pub(crate) fn table(
    served: &ServedKind,
    objects: &[Value],
    metadata: Value,
    include: IncludeObject,
) -> Value {
    let now = jiff::Timestamp::now();
    let rows = objects
        .iter()
        .map(|object| {
            let mut row = json!({
                "cells": served.kind.rules.cells(object, now),
                "object": match include {
                    IncludeObject::Metadata => metadata_only(object),
                    IncludeObject::Object => object.clone(),
                    IncludeObject::None => Value::Null,
                },
            });
            let conditions = served.kind.rules.row_conditions(object);
            if !conditions.is_empty() {
                row["conditions"] = Value::Array(conditions);
            }
            row
        })
        .collect();
    let rows = match objects.is_empty() && !served.kind.rules.has_own_columns() {
        true => Value::Null,
        false => Value::Array(rows),
    };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": column_definitions(served), "rows": rows,
    })
}

fn column_definitions(served: &ServedKind) -> Vec<Value> {
    let columns = served.kind.rules.columns();
    let column = |c: &crate::kinds::kind::Column| {
        json!({
            "name": c.name, "type": c.kind, "format": c.format,
            "description": c.description, "priority": c.priority,
        })
    };
    columns.iter().map(column).collect()
}

/// A list up to its first item.
fn list_start(list: &ListPage) -> Vec<u8> {
    let kind = &list.served.kind;
    let (name, version) = (json!(kind.list_kind), json!(list.served.api_version));
    let mut metadata = list_metadata(list);
    if list.served.custom && list.continue_token.is_empty() {
        // The real server writes custom lists from a struct that always has this field.
        metadata["continue"] = json!("");
    }
    let empty = if list.served.custom {
        json!({"apiVersion": version, "kind": name, "metadata": metadata, "items": []})
    } else {
        json!({"kind": name, "apiVersion": version, "metadata": metadata, "items": []})
    };
    let mut start = empty.to_string().into_bytes();
    start.truncate(start.len() - "]}".len());
    start
}

fn write_item(list: &ListPage, at: usize, object: &Object, out: &mut Vec<u8>) {
    if at > 0 {
        out.push(b',');
    }
    list.served.write_item(object, out);
}

/// Writes the list piece by piece from the shared objects.
fn stream_list(list: ListPage) -> Response<Body> {
    let first = list_start(&list);
    let state = (list, 0, Some(first));
    let pieces = futures::stream::unfold(state, |(list, mut at, start)| async move {
        let mut piece = match start {
            Some(start) => start,
            None if at > list.objects.len() => return None,
            None => Vec::new(),
        };
        piece.reserve(PIECE);
        while piece.len() < PIECE && at < list.objects.len() {
            write_item(&list, at, &list.objects[at], &mut piece);
            at += 1;
        }
        if at == list.objects.len() {
            piece.extend_from_slice(b"]}\n");
            at += 1;
        }
        let frame = Ok(Frame::data(Bytes::from(piece)));
        Some((frame, (list, at, None)))
    });
    let mut response = Response::new(StreamBody::new(pieces).boxed_unsync());
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An endless body: one frame per piece.
pub(crate) fn stream_response(
    pieces: impl futures::Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
) -> Response<Body> {
    use futures::TryStreamExt;
    let body = StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync();
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
