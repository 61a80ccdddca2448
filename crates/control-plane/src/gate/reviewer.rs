//! The answers to reviews of binds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::binding::gate::{BindRefusal, BindRequest, GatePod, KnownPod};
use engine::model::{NUMA_ZONES, ZoneSet};
use http::StatusCode;
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::kinds::{Judge, read_pod};
use super::metrics::GateMetrics;
use crate::client::{Exchange, Refusal};
use crate::election::leadership::Leadership;
use crate::scheduler::write::requests::Call;
use crate::webhook::bind_permission::BindPermission;
use crate::webhook::review::{NoAnswer, RefusalReason, Review, ReviewAnswer};

/// The API server sends no binds of these namespaces; if one is sent, it passes.
const NEVER: &str = "kube-system";
/// Bytes of a pod: the API server stores 1.5 MiB, and JSON escapes some characters with six bytes.
const LARGEST_POD: usize = 16 << 20;

/// Answers reviews while this process leads.
pub(super) struct Reviewer {
    pub(super) judge: Judge,
    pub(super) api: Exchange,
    pub(super) permission: Arc<BindPermission>,
    pub(super) leadership: Arc<Leadership>,
    /// The watches are up to date, and the process does not stop.
    pub(super) is_open: AtomicBool,
    pub(super) own_namespace: String,
    pub(super) metrics: GateMetrics,
    pub(super) begun: Instant,
    /// Limits how many pods that the watch does not know are read at a time; each takes up to [`LARGEST_POD`] bytes.
    pub(super) reads: Semaphore,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReviewedBinding {
    metadata: ReviewedMetadata,
    target: Target,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReviewedMetadata {
    name: String,
    uid: String,
    annotations: Option<std::collections::BTreeMap<String, String>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Target {
    kind: String,
    name: String,
    uid: String,
}

/// The time of a review without that of requests to the API server.
struct OwnTime {
    begun: Instant,
    elsewhere: Duration,
}

impl OwnTime {
    fn start() -> Self {
        Self {
            begun: Instant::now(),
            elsewhere: Duration::ZERO,
        }
    }

    async fn without<T>(&mut self, request: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let answer = request.await;
        self.elsewhere += begun.elapsed();
        answer
    }

    fn seconds(&self) -> f64 {
        self.begun
            .elapsed()
            .saturating_sub(self.elsewhere)
            .as_secs_f64()
    }
}

/// What is known of a pod that was read.
enum ReviewedPod {
    Known(Arc<GatePod>),
    Gone,
}

impl Reviewer {
    pub(super) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(super) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    pub(super) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
    }

    /// Whether an answer counts: after the Lease is lost, another replica answers, which does not know what this one allowed.
    pub(super) fn leads(&self) -> bool {
        self.is_open.load(Ordering::Acquire) && self.leadership.left().is_some()
    }

    fn check_leads(&self) -> Result<(), NoAnswer> {
        match self.leads() {
            true => Ok(()),
            false => Err(NoAnswer("this replica is not the leader".to_owned())),
        }
    }

    pub(super) async fn answer(&self, review: &Review) -> Result<ReviewAnswer, NoAnswer> {
        if !self.is_bind(review) {
            return Ok(ReviewAnswer::default());
        }
        self.check_leads()?;
        let mut own_time = OwnTime::start();
        let request = match request_of(review) {
            Ok(request) => request,
            Err(text) => return Ok(ReviewAnswer::refuse(text)),
        };
        let known = self.judge.lock().find(&request);
        let pod = match known {
            KnownPod::Bound => return Ok(ReviewAnswer::default()),
            KnownPod::Waiting(pod) => pod,
            KnownPod::Unknown => {
                let read = self.read(&request.namespace, &request.pod);
                match own_time.without(read).await? {
                    ReviewedPod::Known(pod) => pod,
                    ReviewedPod::Gone => return Ok(self.refuse(&request, &BindRefusal::NoPod)),
                }
            }
        };
        let scheduler = &pod.pod.scheduler_name;
        let permitted = self.permission.check(review, &request.pod, scheduler);
        if let Some(refused) = own_time.without(permitted).await? {
            return Ok(refused);
        }
        let judged = self.judge.lock().judge(&pod, &request, self.now());
        self.metrics.judging.observe(own_time.seconds());
        // What was allowed is held in any case; it settles by itself.
        self.check_leads()?;
        Ok(match judged {
            Ok(()) => ReviewAnswer::default(),
            Err(refusal) => self.refuse(&request, &refusal),
        })
    }

    fn is_bind(&self, review: &Review) -> bool {
        let resource = &review.resource;
        let is_binding = matches!(
            (&*resource.resource, review.sub_resource.as_deref()),
            ("pods", Some("binding")) | ("bindings", None | Some(""))
        );
        let is_judged = review.namespace != NEVER && review.namespace != self.own_namespace;
        is_binding && is_judged && resource.group.is_empty() && review.operation == "CREATE"
    }

    fn refuse(&self, request: &BindRequest, refusal: &BindRefusal) -> ReviewAnswer {
        let label = [("exceeds", refusal.class())];
        self.metrics.refusals.get_or_create(&label).inc();
        let (namespace, pod, node) = (&request.namespace, &request.pod, &request.node);
        tracing::info!(pod = format!("{namespace}/{pod}"), %node, "refused bind: {refusal}");
        ReviewAnswer {
            reason: RefusalReason::BindRefused,
            ..ReviewAnswer::refuse(format!("node {node}: {refusal}"))
        }
    }

    async fn read(&self, namespace: &str, name: &str) -> Result<ReviewedPod, NoAnswer> {
        let label = [("occasion", "unknown")];
        self.metrics.reads.get_or_create(&label).inc();
        // It is never closed.
        let _permit = self.reads.acquire().await;
        match get_pod(&self.api, namespace, name).await {
            Ok(Some(pod)) => Ok(ReviewedPod::Known(Arc::new(pod))),
            Ok(None) => Ok(ReviewedPod::Gone),
            Err(why) => Err(NoAnswer(format!(
                "cannot read pod {namespace}/{name}: {why}"
            ))),
        }
    }
}

/// A pod as the API server has it; `None` if it is gone or has ended.
pub(super) async fn get_pod(
    api: &Exchange,
    namespace: &str,
    name: &str,
) -> Result<Option<GatePod>, String> {
    let mut call = Call::get(format!("/api/v1/namespaces/{namespace}/pods/{name}"));
    call.largest = Some(LARGEST_POD);
    match call.send(api).await {
        Ok(bytes) => read_pod(&bytes),
        Err(Refusal::Refused {
            status: StatusCode::NOT_FOUND,
            ..
        }) => Ok(None),
        Err(refusal) => Err(refusal.to_string()),
    }
}

fn request_of(review: &Review) -> Result<BindRequest, String> {
    let binding: ReviewedBinding = serde_json::from_value(review.object.clone())
        .map_err(|error| format!("the object is no Binding: {error}"))?;
    let ReviewedBinding { metadata, target } = binding;
    let name = match metadata.name.is_empty() {
        true => &review.name,
        false => &metadata.name,
    };
    if !engine::model::is_dns_label(&review.namespace) || !is_object_name(name) {
        return Err(format!("`{name}` is not the name of a pod"));
    }
    if !matches!(&*target.kind, "" | "Node") || !is_object_name(&target.name) {
        return Err(format!(
            "target is {} `{}`: it must be the name of a Node",
            target.kind, target.name
        ));
    }
    let annotations = metadata.annotations.unwrap_or_default();
    // Users that may create Bindings may choose zones: RBAC grants that to schedulers only, and the gate checks the zones, too. What is
    // not valid gives the pod none; the scheduler writes an event about it.
    let zones = annotations.get(NUMA_ZONES);
    Ok(BindRequest {
        namespace: review.namespace.as_str().into(),
        pod: name.as_str().into(),
        uid: metadata.uid.into(),
        node: target.name.into(),
        node_uid: target.uid.into(),
        zones: zones.map(|text| ZoneSet::parse(text).unwrap_or_default()),
        dry_run: review.dry_run == Some(true),
    })
}

/// It becomes a part of a path.
fn is_object_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let has_bad_edge = name.starts_with(['-', '.']) || name.ends_with(['-', '.']);
    (1..=253).contains(&name.len()) && name.chars().all(is_allowed) && !has_bad_edge
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_request_of_a_review() {
        let review = |object: serde_json::Value| Review {
            namespace: "shop".to_owned(),
            name: "by-path".to_owned(),
            object,
            dry_run: Some(true),
            ..Review::default()
        };
        let found = request_of(&review(json!({
            "metadata": {"name": "web-0", "uid": "u", "annotations": {"tidepool.io/numa-zones": "0,2"}},
            "target": {"kind": "Node", "name": "n.example.com", "uid": "nu"}})))
        .unwrap();
        assert_eq!(
            (&*found.namespace, &*found.pod, &*found.uid),
            ("shop", "web-0", "u")
        );
        assert_eq!((&*found.node, &*found.node_uid), ("n.example.com", "nu"));
        assert_eq!(found.zones, ZoneSet::parse("0,2").ok());
        assert!(found.dry_run);
        let short = request_of(&review(json!({"target": {"name": "n"}}))).unwrap();
        assert_eq!((&*short.pod, &*short.uid), ("by-path", ""));
        assert_eq!(short.zones, None, "the pod keeps what it has");
        for (written, want) in [("", ""), ("0-3", "")] {
            let annotations = json!({"tidepool.io/numa-zones": written});
            let binding =
                json!({"metadata": {"annotations": annotations}, "target": {"name": "n"}});
            let found = request_of(&review(binding)).unwrap().zones.unwrap();
            assert_eq!(found.to_string(), want, "{written}");
        }
        for (case, object, want) in [
            ("no object", json!(null), "the object is no Binding"),
            ("no target", json!({}), "target is  ``"),
            (
                "a target that is no node",
                json!({"target": {"kind": "Pod", "name": "p"}}),
                "target is Pod `p`",
            ),
            (
                "a path",
                json!({"metadata": {"name": "../secrets"}, "target": {"name": "n"}}),
                "`../secrets` is not the name of a pod",
            ),
            (
                "a number",
                json!({"metadata": {"name": 1}}),
                "the object is no Binding: invalid type",
            ),
        ] {
            let error = request_of(&review(object)).unwrap_err();
            assert!(error.starts_with(want), "{case}: {error}");
        }
    }
}
