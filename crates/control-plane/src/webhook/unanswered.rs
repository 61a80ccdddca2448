//! Reviews that get no answer. The API server then acts by its failure policy, which may admit what was not judged: each one is
//! counted, and logged now and then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// One path and reason is logged once in this time.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Why a review gets no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unanswered {
    #[error("the review has {found} bytes: at most {most} are allowed")]
    TooLarge { found: String, most: usize },
    #[error("too many reviews wait: {most} are allowed")]
    Overload { most: usize },
    #[error("the review did not arrive within {0:?}")]
    Slow(Duration),
    #[error("the review was not answered within {0:?}")]
    Timeout(Duration),
    #[error("{0}")]
    Invalid(String),
    /// This replica cannot answer.
    #[error("{0}")]
    Unable(String),
    #[error("the webhook cannot answer this review")]
    Panic,
    #[error("the connection ended before the answer")]
    Closed,
}

impl Unanswered {
    /// The label of the metric.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::Overload { .. } => "overload",
            Self::Slow(_) => "slow",
            Self::Timeout(_) => "timeout",
            Self::Invalid(_) => "invalid",
            Self::Unable(_) => "unable",
            Self::Panic => "panic",
            Self::Closed => "closed",
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Overload { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Slow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Invalid(_) | Self::Closed => StatusCode::BAD_REQUEST,
            Self::Timeout(_) | Self::Unable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Panic => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Another replica may answer, and API servers keep their connections for long.
    pub(super) fn is_of_this_replica(&self) -> bool {
        matches!(
            self,
            Self::Overload { .. } | Self::Timeout(_) | Self::Unable(_)
        )
    }
}

/// The reviews without an answer, by path and reason.
#[derive(Clone, Default)]
pub(super) struct UnansweredReviews {
    counts: Family<[(&'static str, &'static str); 2], Counter>,
    /// When each was logged, and how many came since.
    logged: Arc<Mutex<LogTimes>>,
}

type LogTimes = BTreeMap<(&'static str, &'static str), (Instant, u64)>;

impl UnansweredReviews {
    pub(super) fn add(&self, path: &'static str, why: &Unanswered) {
        let reason = why.reason();
        let labels = [("path", path), ("reason", reason)];
        self.counts.get_or_create(&labels).inc();
        if let Some(since) = self.count_to_log(path, reason, Instant::now()) {
            tracing::warn!(
                path,
                reason,
                count = since,
                "did not answer a review, so that the failure policy decides: {why}"
            );
        }
    }

    /// How many there were since the last line of the log, if it is time for another one.
    fn count_to_log(&self, path: &'static str, reason: &'static str, now: Instant) -> Option<u64> {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        // Both have few values.
        let Some((at, count)) = logged.get_mut(&(path, reason)) else {
            logged.insert((path, reason), (now, 0));
            return Some(1);
        };
        *count += 1;
        if now.saturating_duration_since(*at) < LOG_EVERY {
            return None;
        }
        *at = now;
        Some(std::mem::take(count))
    }

    /// A review whose answer is not known yet. Dropped without an end, the client has closed the connection.
    pub(super) fn begin(&self, path: &'static str) -> OpenReview {
        OpenReview {
            reviews: Some((self.clone(), path)),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "tidepool_admission_unanswered_reviews",
            "Reviews without an answer by path and reason: the failure policy of the webhook decides about them",
            self.counts.clone(),
        );
    }
}

pub(super) struct OpenReview {
    reviews: Option<(UnansweredReviews, &'static str)>,
}

impl OpenReview {
    /// The review is over, with or without an answer.
    pub(super) fn end(mut self, why: Option<&Unanswered>) {
        if let (Some((reviews, path)), Some(why)) = (self.reviews.take(), why) {
            reviews.add(path, why);
        }
    }
}

impl Drop for OpenReview {
    fn drop(&mut self) {
        if let Some((reviews, path)) = self.reviews.take() {
            reviews.add(path, &Unanswered::Closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reconcile::testing::Log;

    #[test]
    fn each_is_counted_and_some_are_logged() {
        let (reviews, log) = (UnansweredReviews::default(), Log::begin());
        for _ in 0..100 {
            reviews.add("/a", &Unanswered::Panic);
            reviews.begin("/a").end(Some(&Unanswered::Panic));
            reviews.begin("/a").end(None);
            drop(reviews.begin("/a"));
        }
        let count = |reason| {
            let labels = [("path", "/a"), ("reason", reason)];
            reviews.counts.get_or_create(&labels).get()
        };
        assert_eq!((count("panic"), count("closed")), (200, 100));
        let lines = log.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("cannot answer this review") && lines[0].contains("count=1"));
        let later = Instant::now() + LOG_EVERY;
        assert_eq!(reviews.count_to_log("/a", "panic", later), Some(200));
        assert_eq!(reviews.count_to_log("/a", "panic", later), None);
    }
}
