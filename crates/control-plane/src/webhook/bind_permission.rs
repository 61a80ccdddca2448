//! Who may bind the pods of a scheduler, or create pods on a node: callers with the verb `bind` on the virtual resource
//! `schedulers.tidepool.io` of that name, by plain RBAC.

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::review::{NoAnswer, RefusalReason, Review, ReviewAnswer};
use crate::client::Exchange;
use crate::serve::{Access, Reviews};

/// What follows for a caller without the permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BindAuthorization {
    /// The request is counted and logged.
    #[default]
    Audit,
    /// The request is refused.
    Enforce,
}

impl FromStr for BindAuthorization {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "Audit" => Ok(Self::Audit),
            "Enforce" => Ok(Self::Enforce),
            other => Err(format!("`{other}` is not allowed: use Audit or Enforce")),
        }
    }
}

impl fmt::Display for BindAuthorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl BindAuthorization {
    fn label(self) -> &'static str {
        match self {
            Self::Audit => "Audit",
            Self::Enforce => "Enforce",
        }
    }
}

/// An unauthorized caller is logged once in this time.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// Callers that are remembered for the log.
const MOST_LOGGED: usize = 1_000;

/// Asks the API server for the permission.
pub struct BindPermission {
    mode: BindAuthorization,
    reviews: Reviews,
    unauthorized: Family<[(&'static str, &'static str); 1], Counter>,
    logged: Mutex<Vec<(Instant, String)>>,
}

impl BindPermission {
    pub fn new(mode: BindAuthorization, api: Exchange) -> Self {
        Self {
            mode,
            reviews: Reviews::new(api),
            unauthorized: Family::default(),
            logged: Mutex::default(),
        }
    }

    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "tidepool_unauthorized_binds",
            "Requests of callers that may not bind pods of the scheduler, by mode",
            self.unauthorized.clone(),
        );
    }

    /// `None` if the caller of the review may bind pods of this scheduler, or if that does not matter.
    pub async fn check(
        &self,
        review: &Review,
        pod: &str,
        scheduler: &str,
    ) -> Result<Option<ReviewAnswer>, NoAnswer> {
        let access = Access::Bind {
            scheduler: scheduler.to_owned(),
            namespace: review.namespace.clone(),
        };
        let user = &review.user_info;
        match (self.reviews.is_allowed(user, &access).await, self.mode) {
            (Ok(true), _) => return Ok(None),
            (Ok(false), _) => {}
            (Err(error), BindAuthorization::Enforce) => return Err(NoAnswer(error.to_string())),
            (Err(error), BindAuthorization::Audit) => {
                self.log(&format!("cannot find out who may bind pods: {error}"));
                return Ok(None);
            }
        }
        let label = [("mode", self.mode.label())];
        self.unauthorized.get_or_create(&label).inc();
        let text = format!("user `{}` has no permission to {access}", user.username);
        self.log(&format!(
            "{text}; pod {}/{pod}, mode {}",
            review.namespace, self.mode
        ));
        Ok((self.mode == BindAuthorization::Enforce).then(|| ReviewAnswer {
            reason: RefusalReason::Forbidden,
            ..ReviewAnswer::refuse(format!(
                "{text}: grant the verb bind on schedulers.tidepool.io with the name {scheduler}"
            ))
        }))
    }

    /// Logs a text, but not again and again. The name of the pod does not count.
    fn log(&self, text: &str) {
        let key = text.split("; pod ").next().unwrap_or(text);
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        logged.retain(|(at, _)| now.duration_since(*at) < LOG_EVERY);
        if logged.len() < MOST_LOGGED && !logged.iter().any(|(_, known)| known == key) {
            logged.push((now, key.to_owned()));
            tracing::warn!("{text}");
        }
    }
}
