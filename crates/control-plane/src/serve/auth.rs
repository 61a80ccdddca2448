//! Authentication and authorization of callers by TokenReview and SubjectAccessReview, as kube-scheduler does it.
//!
//! The API server's answers are cached for a while.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::http::ErrorCode;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Method, Request};
use http_body_util::Full;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::HEALTH;
use crate::client::{self, Exchange};

/// kube-scheduler caches reviews for the same time.
const CACHED_FOR: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(10);
const MAX_CACHED: usize = 1_000;
const LONGEST_TOKEN: usize = 16 << 10;
/// Kubernetes allows this group everything.
const MASTERS: &str = "system:masters";

/// A user as a TokenReview returns it; a SubjectAccessReview gets the same fields.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
struct Caller {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: std::collections::BTreeMap<String, Vec<String>>,
}

/// One permission that a request needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Access {
    Path {
        path: String,
        verb: String,
    },
    /// To get a pod.
    Pod {
        namespace: String,
        name: String,
    },
}

pub(super) struct Guard {
    api: Exchange,
    always_allow: Vec<String>,
    callers: Cached<String, Option<Caller>>,
    decisions: Cached<(Caller, Access), bool>,
}

impl Guard {
    pub(super) fn new(api: Exchange, always_allow: Vec<String>) -> Self {
        Self {
            api,
            always_allow,
            callers: Cached::default(),
            decisions: Cached::default(),
        }
    }

    pub(super) fn is_open(&self, path: &str) -> bool {
        self.always_allow
            .iter()
            .any(|open| match open.strip_suffix('*') {
                Some(start) => path.starts_with(start),
                None => path == open || is_check_of(open, path),
            })
    }

    /// An error is the response to send.
    pub(super) async fn allow(
        &self,
        headers: &HeaderMap,
        accesses: &[Access],
    ) -> Result<(), (ErrorCode, String)> {
        let unknown = |text: &str| (ErrorCode::Unauthorized, text.to_owned());
        let failed = |text| (ErrorCode::Internal, text);
        let token = headers.get(AUTHORIZATION).and_then(|it| it.to_str().ok());
        let token = token.and_then(|text| text.strip_prefix("Bearer "));
        let token = token.map(str::trim).filter(|it| !it.is_empty());
        let Some(token) = token.filter(|token| token.len() <= LONGEST_TOKEN) else {
            return Err(unknown("the request has no valid bearer token"));
        };
        let Some(caller) = self.caller(token).await.map_err(failed)? else {
            return Err(unknown("the API server does not accept the bearer token"));
        };
        for access in accesses {
            if !self.is_allowed(&caller, access).await.map_err(failed)? {
                let text = format!("user `{}` has no permission to {access}", caller.username);
                return Err((ErrorCode::Forbidden, text));
            }
        }
        Ok(())
    }

    async fn caller(&self, token: &str) -> Result<Option<Caller>, String> {
        if let Some(known) = self.callers.get(&token.to_owned()) {
            return Ok(known);
        }
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let status = self.review(path, &review).await?;
        let caller = match status["authenticated"].as_bool() {
            Some(true) => serde_json::from_value(status["user"].clone())
                .map_err(|error| format!("cannot read the user of a TokenReview: {error}"))?,
            _ => None,
        };
        self.callers.put(token.to_owned(), caller.clone());
        Ok(caller)
    }

    async fn is_allowed(&self, caller: &Caller, access: &Access) -> Result<bool, String> {
        if caller.groups.iter().any(|group| group == MASTERS) {
            return Ok(true);
        }
        let key = (caller.clone(), access.clone());
        if let Some(known) = self.decisions.get(&key) {
            return Ok(known);
        }
        let mut spec = json!({
            "user": caller.username, "uid": caller.uid, "groups": caller.groups, "extra": caller.extra,
        });
        match access {
            Access::Path { path, verb } => {
                spec["nonResourceAttributes"] = json!({"path": path, "verb": verb});
            }
            Access::Pod { namespace, name } => {
                spec["resourceAttributes"] = json!({
                    "namespace": namespace, "name": name, "verb": "get", "version": "v1", "resource": "pods",
                });
            }
        }
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let allowed = self.review(path, &review).await?["allowed"] == json!(true);
        self.decisions.put(key, allowed);
        Ok(allowed)
    }

    /// The status of a review.
    async fn review(&self, path: &str, review: &Value) -> Result<Value, String> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(review.to_string()))
            .map_err(|error| error.to_string())?;
        let answer = client::send(&self.api, request, LIMIT)
            .await
            .map_err(|refusal| format!("cannot review the request at the API server: {refusal}"))?;
        let mut answer: Value = serde_json::from_slice(&answer)
            .map_err(|error| format!("cannot read the review of the API server: {error}"))?;
        Ok(answer["status"].take())
    }
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path { path, verb } => write!(f, "{verb} {path}"),
            Self::Pod { namespace, name } => write!(f, "get pod {namespace}/{name}"),
        }
    }
}

/// Values with their expiry.
struct Cached<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for Cached<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Cached<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, value) = known.get(key)?;
        (Instant::now() < *until).then(|| value.clone())
    }

    fn put(&self, key: K, value: V) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_CACHED {
            let now = Instant::now();
            known.retain(|_, (until, _)| now < *until);
            if known.len() >= MAX_CACHED {
                // Callers with ever new tokens must not fill the memory.
                known.clear();
            }
        }
        known.insert(key, (Instant::now() + CACHED_FOR, value));
    }
}

/// Whether the path is one check of a health path, as `/readyz/watches` is. It shows no more than the health path.
fn is_check_of(open: &str, path: &str) -> bool {
    let check = path.strip_prefix(open);
    HEALTH.contains(&open) && check.is_some_and(|check| check.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded() {
        let cached = Cached::default();
        for number in 0..3 * MAX_CACHED {
            cached.put(number, ());
        }
        let known = cached.0.lock().unwrap().len();
        assert!(known <= MAX_CACHED, "{known}");
    }
}
