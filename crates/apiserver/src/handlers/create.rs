//! POST on a collection.

use std::sync::Arc;

use futures::FutureExt as _;
use serde_json::Value;

use super::Call;
use super::write::{Ownership, meta_text, warn};
use crate::objects::decode;
use crate::objects::status::Status;
use crate::protocol::options::{WriteOptions, WriteVerb};
use crate::protocol::request::Query;
use crate::protocol::response::ApiResponse;
use crate::resources::state::ServerState;

pub(super) async fn create(call: &Call) -> Result<ApiResponse, Status> {
    let options = WriteOptions::parse(&call.request.query, WriteVerb::Create)?;
    let decoded = decode::body(
        call.content_type(),
        &call.request.body,
        &call.served.expected(),
        options.field_validation,
    )?;
    let ownership = Ownership::Update(call.writer(&options, ""));
    let created = call.create(decoded.object, &options, &ownership).await;
    warn(created, decoded.warnings)
}

/// Creates an object of a new cluster, with the normal rules.
pub(crate) fn create_at_start(server: &Arc<ServerState>, object: Value) -> Result<(), Status> {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let registry = server.registry();
    let served = registry
        .kinds
        .iter()
        .find(|s| s.api_version == version && s.kind.kind == kind)
        .ok_or_else(Status::no_such_resource)?;
    let call = Call::internal(server, served, meta_text(&object, "namespace"));
    let mut options = WriteOptions::parse(&Query::default(), WriteVerb::Create)?;
    super::SERVER.clone_into(&mut options.field_manager);
    let ownership = Ownership::Update(call.writer(&options, ""));
    // There are no webhooks yet, so nothing waits.
    let created = call.create(object, &options, &ownership).now_or_never();
    let created = created.ok_or_else(|| Status::internal("a new cluster has no webhooks"))?;
    created.map(|_: ApiResponse| ())
}
