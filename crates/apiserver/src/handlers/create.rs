//! POST on a collection.

use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};
use serde_json::Value;

use super::Call;
use super::write::{Ownership, meta_text};
use crate::answer::{Answer, Content, Include};
use crate::auth::User;
use crate::decode;
use crate::media::Accept;
use crate::options::{WriteOptions, WriteVerb};
use crate::request::{Query, ResourcePath};
use crate::server::{Request, Server};
use crate::status::Status;

pub(super) fn create(call: &Call) -> Result<Answer, Status> {
    let options = WriteOptions::parse(&call.request.query, WriteVerb::Create)?;
    let decoded = decode::body(
        call.content_type(),
        &call.request.body,
        &call.served.expected(),
        options.field_validation,
    )?;
    let ownership = Ownership::Update(call.writer(&options, ""));
    let mut warnings = decoded.warnings;
    warnings.extend(call.served.kind.rules.warnings(&decoded.object));
    let content = call.create(decoded.object, &options, &ownership)?;
    Ok(Answer::new(StatusCode::CREATED, content).with_warnings(warnings))
}

/// Creates an object that exists from the start, through the ordinary rules.
pub(crate) fn create_at_start(server: &Arc<Server>, object: Value) -> Result<(), Status> {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let registry = server.registry();
    let served = registry
        .kinds
        .iter()
        .find(|s| s.api_version == version && s.kind.kind == kind)
        .ok_or_else(Status::no_such_resource)?;
    let path = ResourcePath {
        group: served.kind.group.to_string(),
        version: served.kind.version.to_string(),
        namespace: meta_text(&object, "namespace").to_owned(),
        plural: served.kind.plural.to_string(),
        ..ResourcePath::default()
    };
    let call = Call {
        server: Arc::clone(server),
        served: Arc::clone(served),
        path,
        accept: Accept::PLAIN,
        include: Include::Metadata,
        request: Request {
            method: Method::POST,
            path: String::new(),
            query: Query::default(),
            headers: HeaderMap::new(),
            body: bytes::Bytes::new(),
            user: User::in_process(),
        },
    };
    let options = WriteOptions::parse(&Query::default(), WriteVerb::Create)?;
    call.create(object, &options, &Ownership::Decided)
        .map(|_: Content| ())
}
