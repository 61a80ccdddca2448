//! Serves reviews over TLS. Callers are API servers; they need no permission, because an answer changes nothing here.

use std::net::{SocketAddr, TcpListener};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::review::{self, NoAnswer, Review, ReviewAnswer};
use crate::serve::{JSON, LastResponse, ServingCertificate, TEXT, accept_tls};

/// The API server stores no object above it.
pub const LARGEST_BODY: usize = 3 << 20;

/// Answers the reviews of one path.
pub type Reviewer = Arc<dyn Fn(Review) -> ReviewFuture + Send + Sync>;
pub type ReviewFuture = BoxFuture<'static, Result<ReviewAnswer, NoAnswer>>;

/// A reviewer that waits for nothing.
pub fn immediate(answer: impl Fn(&Review) -> ReviewAnswer + Send + Sync + 'static) -> Reviewer {
    let answer = Arc::new(answer);
    Arc::new(move |review| {
        let answer = answer.clone();
        async move { Ok(answer(&review)) }.boxed()
    })
}

/// A bound address that does not answer yet.
pub struct AdmissionListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl AdmissionListener {
    pub fn bind(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers reviews until the future is dropped.
    pub async fn serve(
        self,
        certificate: Arc<ServingCertificate>,
        paths: Vec<(&'static str, Reviewer)>,
        metrics: ReviewMetrics,
    ) -> std::io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let app = paths
            .into_iter()
            .fold(Router::new(), |app, (path, reviewer)| {
                let state = (path, reviewer, metrics.clone());
                app.route(path, post(handle).with_state(state))
            });
        let app = app.layer(DefaultBodyLimit::max(LARGEST_BODY));
        accept_tls(listener, certificate, app)
            .await
            .map_err(std::io::Error::other)
    }
}

async fn handle(
    State((path, reviewer, metrics)): State<(&'static str, Reviewer, ReviewMetrics)>,
    body: Bytes,
) -> Response {
    let begun = Instant::now();
    let (code, kind, body, outcome) = respond(&reviewer, &body).await;
    metrics.count(path, outcome, begun);
    let mut response = (code, [(CONTENT_TYPE, kind)], Body::from(body)).into_response();
    if outcome == UNANSWERED {
        // Another replica may answer, and API servers keep their connections for long.
        response.extensions_mut().insert(LastResponse);
    }
    response
}

/// The outcome of a review that this replica cannot answer.
const UNANSWERED: &str = "unanswered";

/// The response to a body, and how it counts.
pub async fn respond(
    reviewer: &Reviewer,
    body: &[u8],
) -> (StatusCode, &'static str, Vec<u8>, &'static str) {
    let review = match review::read(body) {
        Ok(review) => review,
        Err(error) => {
            let text = error.to_string().into_bytes();
            return (StatusCode::BAD_REQUEST, TEXT, text, "invalid");
        }
    };
    let (uid, namespace) = (review.uid.clone(), review.namespace.clone());
    // A defect must not end the server; the API server then acts by its failure policy.
    let answer = async { reviewer(review).await };
    match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(Ok(answer)) => {
            let outcome = match &answer {
                ReviewAnswer {
                    refusal: Some(_), ..
                } => "refused",
                ReviewAnswer { patch, .. } if !patch.is_empty() => "changed",
                _ => "allowed",
            };
            let body = review::write(&uid, &answer);
            (StatusCode::OK, JSON, body, outcome)
        }
        Ok(Err(NoAnswer(why))) => (
            StatusCode::SERVICE_UNAVAILABLE,
            TEXT,
            why.into_bytes(),
            UNANSWERED,
        ),
        Err(_) => {
            tracing::error!(uid, namespace, "cannot answer a review: it caused a panic");
            let text = b"the webhook cannot answer this review".to_vec();
            (StatusCode::INTERNAL_SERVER_ERROR, TEXT, text, "panic")
        }
    }
}

type ByPath<M> = Family<[(&'static str, &'static str); 1], M, fn() -> M>;
type ByOutcome = Family<[(&'static str, &'static str); 2], Counter>;

/// How many reviews were answered, and in which time.
#[derive(Clone)]
pub struct ReviewMetrics {
    answers: ByOutcome,
    seconds: ByPath<Histogram>,
}

impl Default for ReviewMetrics {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0001, 2.0, 14));
        Self {
            answers: Family::default(),
            seconds: Family::new_with_constructor(histogram),
        }
    }
}

impl ReviewMetrics {
    fn count(&self, path: &'static str, outcome: &'static str, begun: Instant) {
        let labels = [("path", path), ("outcome", outcome)];
        self.answers.get_or_create(&labels).inc();
        let seconds = begun.elapsed().as_secs_f64();
        self.seconds
            .get_or_create(&[("path", path)])
            .observe(seconds);
    }

    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "tidepool_admission_reviews",
            "Answered reviews by path and outcome",
            self.answers.clone(),
        );
        registry.register(
            "tidepool_admission_review_duration_seconds",
            "Time to answer a review, without the network",
            self.seconds.clone(),
        );
    }
}
