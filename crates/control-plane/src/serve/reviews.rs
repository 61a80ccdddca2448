//! Reviews of callers by the API server, cached for a while and limited in their number.
//!
//! Every client that can connect can cause a TokenReview with any text as its token, so that without a limit the API
//! server would get them all.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use api::http::ErrorCode;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::auth::{Access, Caller};
use crate::client::{self, Exchange};

/// kube-scheduler caches reviews for the same time.
const CACHED_FOR: Duration = Duration::from_secs(10);
/// How long a token that was accepted counts as known.
const KNOWN_FOR: Duration = Duration::from_secs(600);
const MAX_CACHED: usize = 1_000;
/// The timeout of a request to the API server.
pub(super) const LIMIT: Duration = Duration::from_secs(5);
/// TokenReviews in a second, and how many of them are for known tokens only.
const TOKENS_PER_SECOND: usize = 20;
const FOR_KNOWN_TOKENS: usize = 5;
/// SubjectAccessReviews in a second. Only authenticated callers cause them, and each has a share.
const ACCESSES_PER_SECOND: usize = 200;

/// Why there is no result.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReviewError {
    #[error("too many callers are reviewed at the API server: try again in a second")]
    TooMany,
    #[error("{0}")]
    Failed(String),
}

impl ReviewError {
    pub(super) fn code(&self) -> ErrorCode {
        match self {
            Self::TooMany => ErrorCode::TooManyRequests,
            Self::Failed(_) => ErrorCode::Internal,
        }
    }
}

type TokenHash = [u8; 32];

pub(crate) struct Reviews {
    api: Exchange,
    /// `None` for a token that is not accepted.
    callers: Cached<TokenHash, Option<Caller>>,
    known: Cached<TokenHash, ()>,
    decisions: Cached<(Caller, Access), bool>,
    /// Many requests of one caller come at the same time, and one of them asks for all.
    asking: KeyedLocks<(Caller, Access)>,
    tokens: Budget,
    accesses: SharedBudget,
}

impl Reviews {
    pub(crate) fn new(api: Exchange) -> Self {
        Self {
            api,
            callers: Cached::new(CACHED_FOR),
            known: Cached::new(KNOWN_FOR),
            decisions: Cached::new(CACHED_FOR),
            asking: KeyedLocks::default(),
            tokens: Budget::new(TOKENS_PER_SECOND),
            accesses: SharedBudget::new(ACCESSES_PER_SECOND),
        }
    }

    /// The user of a token; `None` if the API server does not accept it.
    pub(super) async fn caller(&self, token: &str) -> Result<Option<Caller>, ReviewError> {
        let hash: TokenHash = Sha256::digest(token).into();
        if let Some(cached) = self.callers.get(&hash) {
            return Ok(cached);
        }
        let kept = match self.known.get(&hash) {
            Some(()) => 0,
            None => FOR_KNOWN_TOKENS,
        };
        self.tokens.spend(kept, Instant::now())?;
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let status = self.send(path, &review).await?;
        let caller: Option<Caller> = match status["authenticated"].as_bool() {
            Some(true) => serde_json::from_value(status["user"].clone()).map_err(|error| {
                ReviewError::Failed(format!("cannot read the user of a TokenReview: {error}"))
            })?,
            _ => None,
        };
        if caller.is_some() {
            self.known.put(hash, ());
        }
        self.callers.put(hash, caller.clone());
        Ok(caller)
    }

    pub(crate) async fn is_allowed(
        &self,
        caller: &Caller,
        access: &Access,
    ) -> Result<bool, ReviewError> {
        let key = (caller.clone(), access.clone());
        if let Some(cached) = self.decisions.get(&key) {
            return Ok(cached);
        }
        let turn = self.asking.of(&key);
        let _turn = turn.lock().await;
        if let Some(cached) = self.decisions.get(&key) {
            return Ok(cached);
        }
        self.accesses.spend(&caller.username, Instant::now())?;
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
            // A resource that exists only for permissions, as `signers` in Kubernetes.
            Access::Bind {
                scheduler,
                namespace,
            } => {
                spec["resourceAttributes"] = json!({
                    "namespace": namespace, "name": scheduler, "verb": "bind",
                    "group": "tidepool.io", "resource": "schedulers",
                });
            }
        }
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let allowed = self.send(path, &review).await?["allowed"] == json!(true);
        self.decisions.put(key, allowed);
        Ok(allowed)
    }

    /// The status of a review.
    async fn send(&self, path: &str, review: &Value) -> Result<Value, ReviewError> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(review.to_string()))
            .map_err(|error| ReviewError::Failed(error.to_string()))?;
        let answer = client::send(&self.api, request, LIMIT).await;
        let answer = answer.map_err(|refusal| {
            ReviewError::Failed(format!(
                "cannot review the request at the API server: {refusal}"
            ))
        })?;
        let mut answer: Value = serde_json::from_slice(&answer).map_err(|error| {
            ReviewError::Failed(format!("cannot read the review of the API server: {error}"))
        })?;
        Ok(answer["status"].take())
    }
}

/// One task after the other, per key.
struct KeyedLocks<K>(Mutex<HashMap<K, Weak<tokio::sync::Mutex<()>>>>);

impl<K> Default for KeyedLocks<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone> KeyedLocks<K> {
    /// What a task locks while it has the turn.
    fn of(&self, key: &K) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = locks.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        locks.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        locks.insert(key.clone(), Arc::downgrade(&turn));
        turn
    }
}

/// At most so many in any second.
struct Budget {
    most: usize,
    spent: Mutex<VecDeque<Instant>>,
}

impl Budget {
    fn new(most: usize) -> Self {
        Self {
            most,
            spent: Mutex::default(),
        }
    }

    /// Fails if only `kept` or fewer are left.
    fn spend(&self, kept: usize, now: Instant) -> Result<(), ReviewError> {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        while spent.front().is_some_and(|at| is_over(*at, now)) {
            spent.pop_front();
        }
        if spent.len() + kept >= self.most {
            return Err(ReviewError::TooMany);
        }
        spent.push_back(now);
        Ok(())
    }
}

/// At most so many in any second, shared by the users: each gets half of what the others leave. One alone gets half of all, two get a
/// third each, and a user who comes next finds some.
struct SharedBudget {
    most: usize,
    /// Those of the last second.
    spent: Mutex<VecDeque<(Instant, String)>>,
}

impl SharedBudget {
    fn new(most: usize) -> Self {
        Self {
            most,
            spent: Mutex::default(),
        }
    }

    fn spend(&self, user: &str, now: Instant) -> Result<(), ReviewError> {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        while spent.front().is_some_and(|(at, _)| is_over(*at, now)) {
            spent.pop_front();
        }
        let own = spent.iter().filter(|(_, of)| of == user).count();
        let others = spent.len() - own;
        if own >= (self.most - others) / 2 {
            return Err(ReviewError::TooMany);
        }
        spent.push_back((now, user.to_owned()));
        Ok(())
    }
}

/// Whether a second has passed.
fn is_over(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) >= Duration::from_secs(1)
}

/// Values that expire.
struct Cached<K, V> {
    lifetime: Duration,
    values: Mutex<HashMap<K, (Instant, V)>>,
}

impl<K: Eq + Hash, V: Clone> Cached<K, V> {
    fn new(lifetime: Duration) -> Self {
        Self {
            lifetime,
            values: Mutex::default(),
        }
    }

    fn get(&self, key: &K) -> Option<V> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, value) = values.get(key)?;
        (Instant::now() < *until).then(|| value.clone())
    }

    fn put(&self, key: K, value: V) {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if values.len() >= MAX_CACHED {
            values.retain(|_, (until, _)| now < *until);
            if values.len() >= MAX_CACHED {
                // Callers with ever new requests must not fill the memory.
                values.clear();
            }
        }
        values.insert(key, (now + self.lifetime, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded() {
        let cached = Cached::new(CACHED_FOR);
        for number in 0..3 * MAX_CACHED {
            cached.put(number, ());
        }
        let known = cached.values.lock().unwrap().len();
        assert!(known <= MAX_CACHED, "{known}");
    }

    #[tokio::test]
    async fn tasks_with_one_key_take_turns() {
        let locks = KeyedLocks::default();
        let (one, same, other) = (locks.of(&1), locks.of(&1), locks.of(&2));
        let held = one.lock().await;
        assert!(same.try_lock().is_err());
        assert!(other.try_lock().is_ok());
        drop(held);
        assert!(same.try_lock().is_ok());
        // Keys that no task uses are forgotten.
        drop((one, same, other));
        drop(locks.of(&3));
        assert_eq!(locks.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_user_has_a_share_of_the_budget() {
        let (budget, begun) = (SharedBudget::new(12), Instant::now());
        let spend = |user: &str, count: usize, at: u64| {
            let now = begun + Duration::from_millis(at);
            (0..count)
                .filter(|_| budget.spend(user, now).is_ok())
                .count()
        };
        assert_eq!(spend("greedy", 1_000, 0), 6, "half");
        assert_eq!(spend("other", 1_000, 100), 3, "half of the rest");
        assert_eq!(spend("third", 1_000, 200), 1, "half of that");
        assert_eq!(spend("greedy", 1_000, 999), 0);
        // The reviews of the first moment are over.
        assert_eq!(spend("greedy", 1_000, 1_000), 4);
        assert_eq!(spend("third", 1_000, 1_100), 3);
        assert_eq!(spend("greedy", 1_000, 3_000), 6, "alone again");
    }

    #[test]
    fn a_budget_holds_for_any_second_and_keeps_a_part() {
        let (budget, begun) = (Budget::new(20), Instant::now());
        let spend = |count: usize, kept: usize, at: u64| {
            let now = begun + Duration::from_millis(at);
            (0..count)
                .filter(|_| budget.spend(kept, now).is_ok())
                .count()
        };
        assert_eq!(spend(100, 5, 0), 15);
        assert_eq!(spend(100, 0, 500), 5);
        assert_eq!(spend(100, 0, 999), 0);
        // Those of the first moment are over.
        assert_eq!(spend(100, 0, 1_000), 15);
        assert_eq!(spend(100, 0, 1_499), 0);
        assert_eq!(spend(100, 5, 1_500), 0);
        assert_eq!(spend(100, 0, 1_500), 5);
    }
}
