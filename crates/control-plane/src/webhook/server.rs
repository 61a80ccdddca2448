//! Serves reviews over TLS. Callers are API servers; they need no permission, because an answer changes nothing here.

use std::net::{SocketAddr, TcpListener};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::intake::{Intake, ReviewText, Share};
use super::review::{self, AdmissionReviewError, NoAnswer, Review, ReviewAnswer};
use super::unanswered::{Unanswered, UnansweredReviews};
use crate::serve::{JSON, LastResponse, ServingCertificate, TEXT, accept_tls};

/// API servers wait for 30 s at most.
const ANSWERED_WITHIN: Duration = Duration::from_secs(25);

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
        let intake = Arc::new(Intake::default());
        metrics.follow(&intake);
        let app = paths
            .into_iter()
            .fold(Router::new(), |app, (path, reviewer)| {
                let served = Served {
                    path,
                    reviewer,
                    metrics: metrics.clone(),
                    intake: intake.clone(),
                    answered_within: ANSWERED_WITHIN,
                };
                app.route(path, post(handle).with_state(Arc::new(served)))
            });
        accept_tls(listener, certificate, app)
            .await
            .map_err(std::io::Error::other)
    }
}

/// A path, and what answers it.
struct Served {
    path: &'static str,
    reviewer: Reviewer,
    metrics: ReviewMetrics,
    intake: Arc<Intake>,
    answered_within: Duration,
}

async fn handle(State(served): State<Arc<Served>>, request: Request) -> Response {
    let begun = Instant::now();
    let open = served.metrics.unanswered.begin(served.path);
    let limit = served.answered_within;
    let answer = tokio::time::timeout(limit, answer(&served, request)).await;
    let answer = answer.unwrap_or(Err(Unanswered::Timeout(limit)));
    open.end(answer.as_ref().err());
    served.metrics.count(served.path, outcome(&answer), begun);
    let is_of_this_replica = matches!(&answer, Err(why) if why.is_of_this_replica());
    let (code, kind, body) = response(answer);
    let mut response = (code, [(CONTENT_TYPE, kind)], Body::from(body)).into_response();
    if is_of_this_replica {
        response.extensions_mut().insert(LastResponse);
    }
    response
}

/// Reads a review and answers it.
async fn answer(served: &Arc<Served>, request: Request) -> Result<Answered, Unanswered> {
    let length = request.headers().get(CONTENT_LENGTH);
    let length = length.and_then(|it| it.to_str().ok()?.parse().ok());
    let text = served.intake.read(request.into_body(), length).await?;
    let parsed = served.intake.take_parsed(&text).await?;
    if text.is_small() {
        return judge(served, text, parsed).await;
    }
    // It would occupy a thread of the runtime for too long. It keeps its memory to its end, also if the client has gone.
    let served = served.clone();
    let runtime = tokio::runtime::Handle::current();
    let judged =
        tokio::task::spawn_blocking(move || runtime.block_on(judge(&served, text, parsed)));
    judged.await.unwrap_or(Err(Unanswered::Panic))
}

/// `parsed` is the memory that this takes.
async fn judge(served: &Served, text: ReviewText, parsed: Share) -> Result<Answered, Unanswered> {
    let review = review::read(&text.bytes);
    drop(text);
    let answered = answer_review(&served.reviewer, review).await;
    drop(parsed);
    answered
}

/// The body of an answer, and how it counts.
struct Answered {
    body: Vec<u8>,
    outcome: &'static str,
}

impl Answered {
    fn new(uid: &str, answer: &ReviewAnswer) -> Self {
        let outcome = match answer {
            ReviewAnswer {
                refusal: Some(_), ..
            } => "refused",
            ReviewAnswer { patch, .. } if !patch.is_empty() => "changed",
            _ => "allowed",
        };
        let body = review::write(uid, answer);
        Self { body, outcome }
    }
}

async fn answer_review(
    reviewer: &Reviewer,
    review: Result<Review, AdmissionReviewError>,
) -> Result<Answered, Unanswered> {
    let review = match review {
        Ok(review) => review,
        Err(AdmissionReviewError::TooManyValues { uid, text }) => {
            tracing::info!(uid, "refused: {text}");
            return Ok(Answered::new(&uid, &ReviewAnswer::refuse(text)));
        }
        Err(error) => return Err(Unanswered::Invalid(error.to_string())),
    };
    let (uid, namespace) = (review.uid.clone(), review.namespace.clone());
    // A defect must not end the server; the API server then acts by its failure policy.
    let answer = async { reviewer(review).await };
    match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(Ok(answer)) => Ok(Answered::new(&uid, &answer)),
        Ok(Err(NoAnswer(why))) => Err(Unanswered::Unable(why)),
        Err(_) => {
            tracing::error!(uid, namespace, "cannot answer a review: it caused a panic");
            Err(Unanswered::Panic)
        }
    }
}

fn outcome(answer: &Result<Answered, Unanswered>) -> &'static str {
    match answer {
        Ok(answered) => answered.outcome,
        Err(Unanswered::Invalid(_)) => "invalid",
        Err(Unanswered::Panic) => "panic",
        Err(_) => "unanswered",
    }
}

fn response(answer: Result<Answered, Unanswered>) -> (StatusCode, &'static str, Vec<u8>) {
    match answer {
        Ok(answered) => (StatusCode::OK, JSON, answered.body),
        Err(why) => (why.status(), TEXT, why.to_string().into_bytes()),
    }
}

/// The response to a body, for a server in the same process: it has bounds of its own.
pub async fn respond(reviewer: &Reviewer, body: &[u8]) -> (StatusCode, &'static str, Vec<u8>) {
    response(answer_review(reviewer, review::read(body)).await)
}

type ByPath<M> = Family<[(&'static str, &'static str); 1], M, fn() -> M>;
type ByOutcome = Family<[(&'static str, &'static str); 2], Counter>;

/// How many reviews were answered, and in which time.
#[derive(Clone)]
pub struct ReviewMetrics {
    answers: ByOutcome,
    seconds: ByPath<Histogram>,
    unanswered: UnansweredReviews,
    /// Once it serves.
    intake: Arc<OnceLock<Arc<Intake>>>,
}

impl Default for ReviewMetrics {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0001, 2.0, 14));
        Self {
            answers: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            unanswered: UnansweredReviews::default(),
            intake: Arc::default(),
        }
    }
}

impl ReviewMetrics {
    fn follow(&self, intake: &Arc<Intake>) {
        let _ = self.intake.set(intake.clone());
    }

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
            "Reviews by path and outcome",
            self.answers.clone(),
        );
        registry.register(
            "tidepool_admission_review_duration_seconds",
            "Time to answer a review, without the network",
            self.seconds.clone(),
        );
        self.unanswered.register(registry);
        let (now, most) = self.intake.get().map(|it| it.held()).unwrap_or_default();
        for (name, help, bytes) in [
            (
                "tidepool_admission_review_bytes",
                "Memory that is set aside for reviews",
                now,
            ),
            (
                "tidepool_admission_review_bytes_max",
                "The most memory that was set aside for reviews so far",
                most,
            ),
        ] {
            let gauge = Gauge::<i64>::default();
            gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
            registry.register(name, help, gauge);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use serde_json::{Value, json};

    use super::*;

    fn served(reviewer: Reviewer) -> Arc<Served> {
        Arc::new(Served {
            path: "/test",
            reviewer,
            metrics: ReviewMetrics::default(),
            intake: Arc::default(),
            answered_within: Duration::from_secs(120),
        })
    }

    fn review(object: &Value) -> Bytes {
        let request = json!({"uid": "u", "object": object});
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        review.to_string().into()
    }

    fn request(length: usize, body: Body) -> Request {
        let request = http::Request::post("/test").header(CONTENT_LENGTH, length);
        request.body(body).unwrap()
    }

    async fn send(served: &Arc<Served>, body: Bytes) -> u16 {
        let request = request(body.len(), body.into());
        handle(State(served.clone()), request)
            .await
            .status()
            .as_u16()
    }

    fn metrics(served: &Served) -> String {
        let mut registry = Registry::default();
        served.metrics.follow(&served.intake);
        served.metrics.register(&mut registry);
        crate::serve::encode_metrics(&registry)
    }

    /// As many bytes of a pod, in containers with variables.
    fn containers(bytes: usize) -> Bytes {
        let container = json!({"name": "c", "image": "registry.example.com/team/service:v1.2.3", "imagePullPolicy": "IfNotPresent",
            "env": [{"name": "A_VARIABLE", "value": "some ordinary text"}], "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"});
        let count = bytes / container.to_string().len();
        review(&json!({"text": "middle", "spec": {"containers": vec![container; count]}}))
    }

    /// A pod with 3 MiB of `<`, which the API server writes with six bytes each. `--full` has 200 of them, which takes 20 seconds.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_large_reviews_take_bounded_memory_and_others_do_not_wait() {
        let count = match std::env::var_os("TIDEPOOL_FULL").is_some() {
            true => 200,
            false => 40,
        };
        let judged = Arc::new(AtomicUsize::new(0));
        let reviewer = immediate({
            let judged = judged.clone();
            move |review| {
                let text = review.object["text"].as_str().unwrap_or_default();
                if text.len() == 3 << 20 {
                    judged.fetch_add(1, Ordering::Relaxed);
                }
                ReviewAnswer::default()
            }
        });
        let served = served(reviewer);
        let text = r"\u003c".repeat(3 << 20);
        let large = review(&json!({"text": "TEXT"}));
        let large = String::from_utf8(large.to_vec()).unwrap();
        let large = Bytes::from(large.replace("TEXT", &text));
        assert!(large.len() > 18 << 20);
        let all: Vec<_> = (0..count)
            .map(|_| {
                let (served, large) = (served.clone(), large.clone());
                tokio::spawn(async move { send(&served, large).await })
            })
            .collect();
        let others = [
            review(&json!({"text": "small"})),
            containers(40 << 10),
            containers(300 << 10),
        ];
        let mut answered = 0;
        while judged.load(Ordering::Relaxed) < count {
            let other = &others[answered % others.len()];
            assert_eq!(send(&served, other.clone()).await, 200);
            answered += 1;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        for one in all {
            assert_eq!(one.await.unwrap(), 200);
        }
        let (held, most) = served.intake.held();
        assert_eq!(held, 0);
        assert!((150 << 20..=256 << 20).contains(&most), "{most}");
        // Each large one takes a turn of its own; another one is answered in between.
        assert!(answered >= count / 2, "{answered} other reviews");
        assert!(metrics(&served).contains("tidepool_admission_review_bytes 0"));
    }

    /// The large one is judged until the test has seen the answers to the others.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn middle_reviews_do_not_wait_for_a_large_one() {
        let (begun, go_on) = (
            tokio::sync::Semaphore::new(0),
            tokio::sync::Semaphore::new(0),
        );
        let gates = Arc::new((begun, go_on));
        let reviewer: Reviewer = Arc::new({
            let gates = gates.clone();
            move |review: Review| {
                let gates = gates.clone();
                async move {
                    if review.object["text"]
                        .as_str()
                        .is_some_and(|it| it.len() > 1 << 20)
                    {
                        gates.0.add_permits(1);
                        let _ = gates.1.acquire().await;
                    }
                    Ok(ReviewAnswer::default())
                }
                .boxed()
            }
        });
        let served = served(reviewer);
        let spawn = |body: Bytes| {
            let served = served.clone();
            tokio::spawn(async move { send(&served, body).await })
        };
        let large = review(&json!({"text": "x".repeat(2 << 20)}));
        let waits: Vec<_> = (0..4).map(|_| spawn(large.clone())).collect();
        let _ = gates.0.acquire().await;
        for kib in [40, 300, 700] {
            assert_eq!(send(&served, containers(kib << 10)).await, 200, "{kib} KiB");
        }
        // Texts of very many values take turns with the large ones. Few may wait for that: the others have room.
        let dense = review(&json!({"list": vec![json!({}); 50_000]}));
        let dense: Vec<_> = (0..20).map(|_| spawn(dense.clone())).collect();
        while dense.iter().filter(|it| it.is_finished()).count() < 16 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(send(&served, containers(300 << 10)).await, 200);
        gates.1.add_permits(4);
        for one in waits {
            assert_eq!(one.await.unwrap(), 200);
        }
        let mut codes = Vec::new();
        for one in dense {
            codes.push(one.await.unwrap());
        }
        codes.sort_unstable();
        assert_eq!(codes, [vec![200; 4], vec![429; 16]].concat());
        assert_eq!(served.intake.held().0, 0);
    }

    #[tokio::test]
    async fn each_review_without_an_answer_is_counted_by_its_reason() {
        let reviewer: Reviewer = Arc::new(|review: Review| {
            async move {
                match review.object.as_str() {
                    Some("panic") => panic!("as the test wants"),
                    Some("unable") => Err(NoAnswer("no idea".to_owned())),
                    Some("never") => std::future::pending().await,
                    _ => Ok(ReviewAnswer::default()),
                }
            }
            .boxed()
        });
        let mut served = Arc::into_inner(served(reviewer)).unwrap();
        served.answered_within = Duration::from_millis(500);
        let mut intake = Intake::default();
        intake.arrives_within = Duration::from_millis(100);
        served.intake = Arc::new(intake);
        let served = Arc::new(served);
        let slow =
            || Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let broken = || {
            let error = std::io::Error::other("reset");
            Body::from_stream(futures::stream::iter([Err::<Bytes, _>(error)]))
        };
        let answer = |request| handle(State(served.clone()), request);
        for (reason, request, want) in [
            ("too_large", request(33 << 20, slow()), 413),
            ("slow", request(10, slow()), 408),
            ("closed", request(10, broken()), 400),
            ("invalid", request(4, "null".into()), 400),
        ] {
            assert_eq!(answer(request).await.status().as_u16(), want, "{reason}");
        }
        for (reason, want) in [("panic", 500), ("unable", 503), ("never", 503)] {
            let body = review(&json!(reason));
            assert_eq!(send(&served, body).await, want, "{reason}");
        }
        let gone = send(&served, review(&json!("never")));
        let gone = tokio::time::timeout(Duration::from_millis(10), gone).await;
        assert!(gone.is_err(), "the client closes the connection");
        assert_eq!(send(&served, review(&json!("fine"))).await, 200);
        let metrics = metrics(&served);
        for (reason, count) in [
            ("too_large", 1),
            ("slow", 1),
            ("closed", 2),
            ("invalid", 1),
            ("panic", 1),
            ("unable", 1),
            ("timeout", 1),
        ] {
            let line = format!(
                r#"tidepool_admission_unanswered_reviews_total{{path="/test",reason="{reason}"}} {count}"#
            );
            assert!(metrics.contains(&line), "{line}: {metrics}");
        }
    }

    #[tokio::test]
    async fn an_object_with_very_many_values_is_refused() {
        let served = served(immediate(|_| panic!("it is not judged")));
        let body = review(&json!({"list": vec![0; 200_000]}));
        let request = request(body.len(), body.into());
        let response = handle(State(served.clone()), request).await;
        assert_eq!(response.status().as_u16(), 200);
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await;
        let answer: Value = serde_json::from_slice(&body.unwrap()).unwrap();
        let message = answer["response"]["status"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("the object has 200002 values in JSON"),
            "{message}"
        );
    }
}
