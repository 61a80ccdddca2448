//! Who is calling, and may he: the API server is asked both, and its answers hold for a while.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::Full;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::HEALTH;
use crate::client::{self, Exchange};

/// As long as kube-scheduler trusts an answer.
const TRUST: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(10);
/// Answers that are kept.
const MOST: usize = 1_000;
/// No token is this long.
const LONGEST_TOKEN: usize = 16 << 10;
/// The group that may do everything, as everywhere in Kubernetes.
const MASTERS: &str = "system:masters";

/// Somebody, in the API server's words. They are handed back as they came.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
struct Caller {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: std::collections::BTreeMap<String, Vec<String>>,
}

/// What somebody wants to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Wish {
    Path {
        path: String,
        verb: String,
    },
    /// To see a pod.
    Pod {
        namespace: String,
        name: String,
    },
}

pub(crate) struct Guard {
    api: Exchange,
    always_allow: Vec<String>,
    callers: Remembered<String, Option<Caller>>,
    verdicts: Remembered<(Caller, Wish), bool>,
}

impl Guard {
    pub(crate) fn new(api: Exchange, always_allow: Vec<String>) -> Self {
        Self {
            api,
            always_allow,
            callers: Remembered::default(),
            verdicts: Remembered::default(),
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

    /// An error is the answer to give instead.
    pub(super) async fn allow(
        &self,
        headers: &HeaderMap,
        wishes: &[Wish],
    ) -> Result<(), (StatusCode, String)> {
        let unknown = |text: &str| (StatusCode::UNAUTHORIZED, text.to_owned());
        let failed = |text| (StatusCode::INTERNAL_SERVER_ERROR, text);
        let token = headers.get(AUTHORIZATION).and_then(|it| it.to_str().ok());
        let token = token.and_then(|text| text.strip_prefix("Bearer "));
        let token = token.map(str::trim).filter(|it| !it.is_empty());
        let Some(token) = token.filter(|token| token.len() <= LONGEST_TOKEN) else {
            return Err(unknown("give a bearer token that the cluster knows"));
        };
        let Some(caller) = self.caller(token).await.map_err(failed)? else {
            return Err(unknown("the cluster does not know the token"));
        };
        for wish in wishes {
            if !self.may(&caller, wish).await.map_err(failed)? {
                let text = format!("user `{}` may not {wish}", caller.username);
                return Err((StatusCode::FORBIDDEN, text));
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
        let status = self.ask(path, &review).await?;
        let caller = match status["authenticated"].as_bool() {
            Some(true) => serde_json::from_value(status["user"].clone())
                .map_err(|error| format!("the API server names a user oddly: {error}"))?,
            _ => None,
        };
        self.callers.put(token.to_owned(), caller.clone());
        Ok(caller)
    }

    async fn may(&self, caller: &Caller, wish: &Wish) -> Result<bool, String> {
        if caller.groups.iter().any(|group| group == MASTERS) {
            return Ok(true);
        }
        let key = (caller.clone(), wish.clone());
        if let Some(known) = self.verdicts.get(&key) {
            return Ok(known);
        }
        let mut spec = json!({
            "user": caller.username, "uid": caller.uid, "groups": caller.groups, "extra": caller.extra,
        });
        match wish {
            Wish::Path { path, verb } => {
                spec["nonResourceAttributes"] = json!({"path": path, "verb": verb});
            }
            Wish::Pod { namespace, name } => {
                spec["resourceAttributes"] = json!({
                    "namespace": namespace, "name": name, "verb": "get", "version": "v1", "resource": "pods",
                });
            }
        }
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let allowed = self.ask(path, &review).await?["allowed"] == json!(true);
        self.verdicts.put(key, allowed);
        Ok(allowed)
    }

    /// The status of a review.
    async fn ask(&self, path: &str, review: &Value) -> Result<Value, String> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(review.to_string()))
            .map_err(|error| error.to_string())?;
        let answer = client::send(&self.api, request, LIMIT)
            .await
            .map_err(|refusal| format!("the API server cannot be asked: {refusal}"))?;
        let mut answer: Value = serde_json::from_slice(&answer)
            .map_err(|error| format!("the API server answers oddly: {error}"))?;
        Ok(answer["status"].take())
    }
}

impl std::fmt::Display for Wish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path { path, verb } => write!(f, "{verb} {path}"),
            Self::Pod { namespace, name } => write!(f, "get pod {namespace}/{name}"),
        }
    }
}

/// Answers with the time until which they hold.
struct Remembered<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Remembered<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, value) = known.get(key)?;
        (Instant::now() < *until).then(|| value.clone())
    }

    fn put(&self, key: K, value: V) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            let now = Instant::now();
            known.retain(|_, (until, _)| now < *until);
            if known.len() >= MOST {
                // Asking again is cheaper than remembering who comes with ever new tokens.
                known.clear();
            }
        }
        known.insert(key, (Instant::now() + TRUST, value));
    }
}

/// Whether the path is one check of a health path, as `/readyz/watches` is: the whole says as much.
fn is_check_of(open: &str, path: &str) -> bool {
    let check = path.strip_prefix(open);
    HEALTH.contains(&open) && check.is_some_and(|check| check.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded() {
        let remembered = Remembered::default();
        for number in 0..3 * MOST {
            remembered.put(number, ());
        }
        let known = remembered.0.lock().unwrap().len();
        assert!(known <= MOST, "{known}");
    }
}
