//! `kubectl auth whoami` and `can-i`: questions that are answered and not stored.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::Call;
use super::write::now;
use crate::answer::{Answer, Content};
use crate::decode;
use crate::kind::{Column, Kind, Rules};
use crate::options::{WriteOptions, WriteVerb};
use crate::schema::Schema;
use crate::status::Status;

/// The kinds of this file.
pub(crate) fn kinds() -> Vec<Kind> {
    let names = [
        (
            "authentication.k8s.io",
            "selfsubjectreviews",
            "selfsubjectreview",
            "SelfSubjectReview",
        ),
        (
            "authorization.k8s.io",
            "selfsubjectaccessreviews",
            "selfsubjectaccessreview",
            "SelfSubjectAccessReview",
        ),
    ];
    let kind = |(group, plural, singular, kind): (
        &'static str,
        &'static str,
        &'static str,
        &'static str,
    )| {
        let schema = Schema::builtin(&format!("{group}/v1"), kind)?;
        Some(Kind {
            group: group.into(),
            version: "v1".into(),
            plural: plural.into(),
            singular: singular.into(),
            kind: kind.into(),
            list_kind: format!("{kind}List").into(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: false,
            verbs: vec!["create"],
            subresources: Vec::new(),
            schema,
            rules: Arc::new(Review),
            scale: None,
            alias: None,
        })
    };
    names.into_iter().filter_map(kind).collect()
}

/// Nothing is stored, so there is nothing to select or to show.
struct Review;

impl Rules for Review {
    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn columns(&self) -> Vec<Column> {
        Vec::new()
    }

    fn cells(&self, _object: &Value, _now: jiff::Timestamp) -> Vec<Value> {
        Vec::new()
    }
}

pub(super) fn create(call: &Call) -> Result<Answer, Status> {
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
    let answer = Answer::new(StatusCode::CREATED, Content::Value(None, review));
    Ok(answer.with_warnings(decoded.warnings))
}
