//! `SelfSubjectReview` and `SelfSubjectAccessReview`: requests that get a response and are not stored.

use std::sync::Arc;

use serde_json::Value;

use super::kind::{Column, Kind, Rules};
use crate::objects::schema::Schema;

/// The review kinds of authentication and authorization.
pub(crate) fn reviews() -> Vec<Kind> {
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

/// Reviews are not stored, so there is nothing to select or to show.
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
