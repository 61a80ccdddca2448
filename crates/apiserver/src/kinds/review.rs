//! Reviews of authentication and authorization: requests that get a response and are not stored.

use serde_json::Value;

use super::kind::{Column, Kind, Rules};
use super::{cluster, namespaced};

pub(crate) fn reviews() -> Vec<Kind> {
    let (users, permissions) = ("authentication.k8s.io/v1", "authorization.k8s.io/v1");
    let kinds = [
        cluster(users, "selfsubjectreviews", "SelfSubjectReview", Review),
        cluster(users, "tokenreviews", "TokenReview", Review),
        namespaced(
            permissions,
            "localsubjectaccessreviews",
            "LocalSubjectAccessReview",
            Review,
        ),
        cluster(
            permissions,
            "selfsubjectaccessreviews",
            "SelfSubjectAccessReview",
            Review,
        ),
        cluster(
            permissions,
            "selfsubjectrulesreviews",
            "SelfSubjectRulesReview",
            Review,
        ),
        cluster(
            permissions,
            "subjectaccessreviews",
            "SubjectAccessReview",
            Review,
        ),
    ];
    kinds.map(|kind| kind.only(&["create"])).into()
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
