//! `kubectl auth whoami` and `can-i`: reviews, which are not stored.

use http::StatusCode;
use serde_json::json;

use super::Call;
use super::write::now;
use crate::objects::decode;
use crate::objects::status::Status;
use crate::protocol::options::{WriteOptions, WriteVerb};
use crate::protocol::response::{ApiResponse, Content};

pub(super) fn create(call: &Call) -> Result<ApiResponse, Status> {
    let options = WriteOptions::parse(&call.request.query, WriteVerb::Create)?;
    let decoded = decode::body(
        call.content_type(),
        &call.request.body,
        &call.served.expected(),
        options.field_validation,
    )?;
    let mut review = decoded.object;
    if call.served.kind.group == "authentication.k8s.io" {
        let user = &call.request.user;
        review["metadata"] = json!({"creationTimestamp": now()});
        review["status"] = json!({"userInfo": {"username": user.name, "groups": user.groups}});
    } else {
        // Every known user may do everything here.
        review["status"] = json!({"allowed": true});
    }
    let answer = ApiResponse::new(StatusCode::CREATED, Content::Value(None, review));
    Ok(answer.with_warnings(decoded.warnings))
}
