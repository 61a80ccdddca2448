//! `kubectl auth whoami` and `can-i`, and what other servers ask: reviews, which are not stored.

use http::StatusCode;
use serde_json::json;

use super::Call;
use super::write::now;
use crate::objects::decode;
use crate::objects::status::Status;
use crate::protocol::auth::AUTHENTICATED;
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
    review["status"] = match &*call.served.kind.kind {
        "SelfSubjectReview" => {
            let user = &call.request.user;
            review["metadata"] = json!({"creationTimestamp": now()});
            json!({"userInfo": {"username": user.name, "groups": user.groups}})
        }
        "TokenReview" => {
            let token = review["spec"]["token"].as_str().unwrap_or_default();
            match call.server.user_of_token(token) {
                Some(user) => {
                    json!({"authenticated": true, "user": {"username": user, "groups": [AUTHENTICATED]}})
                }
                None => json!({"user": {}, "error": "[invalid bearer token]"}),
            }
        }
        // Every known user may do everything here.
        "SelfSubjectRulesReview" => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        _ => json!({"allowed": true}),
    };
    let answer = ApiResponse::new(StatusCode::CREATED, Content::Value(None, review));
    Ok(answer.with_warnings(decoded.warnings))
}
