//! Binds one pod to its node. A binding is sent again only after the pod was read and found unbound.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::contracts::BIND_REFUSED;
use api::parse;
use api::wire::core;
use engine::model::Pod;
use http::{Method, StatusCode};
use serde::Serialize;

use super::requests::{Call, JSON, ObjectReference, Writer, pod_path};
use crate::client::{Exchange, Refusal};
use crate::scheduler::observe::log::Named;
use reconcile::backoff::Backoff;
use reconcile::planted::{PlantedFault, is_planted};

/// How long a binding is retried while the server answers 429.
const MAX_THROTTLED: Duration = Duration::from_secs(2);
const THROTTLED_WAIT: Duration = Duration::from_millis(500);
/// Sends whose response was lost, each followed by a read that found the pod unbound.
const MAX_SENDS: u32 = 3;

/// The end of a binding.
#[derive(Debug, PartialEq)]
pub(crate) enum BindOutcome {
    Done,
    /// Another client bound the pod to another node.
    Elsewhere(Arc<Pod>),
    /// The pod does not exist any more.
    Gone,
    /// The pod was not bound, for this reason.
    Refused(String),
    /// The gate refused it: the node has not enough left.
    Conflict(String),
    /// The binding was not sent, because this process is not the leader.
    NotLeader,
}

#[derive(Debug, PartialEq)]
pub(crate) struct BindResult {
    pub(crate) bound: BindOutcome,
    /// The server answered 429.
    pub(crate) throttled: bool,
    /// A response was lost.
    pub(crate) answer_lost: bool,
    pub(crate) took: Duration,
}

/// Sends nothing when this process is not the leader.
pub(crate) async fn bind(
    writer: &Writer,
    pod: &Pod,
    node: &str,
    annotations: &[(&str, String)],
) -> BindResult {
    let binding = binding(pod, node, annotations);
    let begun = Instant::now();
    let mut sends = 0;
    let (mut throttled, mut answer_lost) = (false, false);
    let bound = loop {
        sends += 1;
        let refusal = match binding.send(writer).await {
            Ok(_) => break BindOutcome::Done,
            Err(refusal) => refusal,
        };
        match &refusal {
            Refusal::Refused {
                status: StatusCode::TOO_MANY_REQUESTS,
                retry_after,
                ..
            } => {
                // The request was not processed.
                throttled = true;
                let wait = retry_after.unwrap_or(THROTTLED_WAIT);
                if begun.elapsed() + wait > MAX_THROTTLED {
                    break BindOutcome::Refused(refusal.to_string());
                }
                tokio::time::sleep(wait).await;
                sends -= 1;
                continue;
            }
            Refusal::Refused {
                status: StatusCode::NOT_FOUND,
                ..
            } => break BindOutcome::Gone,
            Refusal::Refused { reason, .. } if reason == BIND_REFUSED => {
                break BindOutcome::Conflict(refusal.to_string());
            }
            Refusal::Refused {
                status: StatusCode::CONFLICT,
                ..
            } => {}
            Refusal::NotLeader => break BindOutcome::NotLeader,
            Refusal::Refused { .. } => break BindOutcome::Refused(refusal.to_string()),
            Refusal::Unknown(_) => answer_lost = true,
        }
        let read = match answer_lost {
            // The bind may have been applied: until that is known, the pod must count on its node.
            true => read_until_answered(&writer.exchange, pod).await,
            false => read_pod(&writer.exchange, pod).await,
        };
        match read {
            StoredPod::Gone => break BindOutcome::Gone,
            StoredPod::On(seen) if seen.node.as_deref() == Some(node) => break BindOutcome::Done,
            StoredPod::On(seen) => break BindOutcome::Elsewhere(seen),
            StoredPod::Unbound if answer_lost && sends < MAX_SENDS => {}
            StoredPod::Unbound => break BindOutcome::Refused(refusal.to_string()),
            StoredPod::Unreadable(text) => break BindOutcome::Refused(text),
        }
    };
    BindResult {
        bound,
        throttled,
        answer_lost,
        took: begun.elapsed(),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Binding<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: BindingMetadata<'a>,
    target: ObjectReference<'a>,
}

#[derive(Serialize)]
struct BindingMetadata<'a> {
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'a str, &'a str>,
}

fn binding(pod: &Pod, node: &str, annotations: &[(&str, String)]) -> Call {
    let annotations = annotations.iter();
    let body = Binding {
        api_version: "v1",
        kind: "Binding",
        metadata: BindingMetadata {
            name: &pod.name,
            namespace: pod.namespace(),
            uid: if is_planted(PlantedFault::BindWithoutUid) {
                ""
            } else {
                &pod.uid
            },
            annotations: annotations.map(|(key, value)| (*key, &**value)).collect(),
        },
        target: ObjectReference {
            api_version: "v1",
            kind: "Node",
            name: node,
            ..ObjectReference::default()
        },
    };
    Call::new(Method::POST, pod_path(pod, "/binding"), JSON, &body)
}

enum StoredPod {
    On(Arc<Pod>),
    Unbound,
    Gone,
    Unreadable(String),
}

/// Whether the pod exists and has no node.
pub(crate) async fn is_unbound(api: &Exchange, pod: &Pod) -> bool {
    matches!(read_pod(api, pod).await, StoredPod::Unbound)
}

/// Reads the pod. Retries until there is an answer.
async fn read_pod(api: &Exchange, pod: &Pod) -> StoredPod {
    let mut backoff = Backoff::default();
    loop {
        match Call::get(pod_path(pod, "")).send(api).await {
            Ok(bytes) => return parse_pod(pod, &bytes),
            Err(Refusal::Refused {
                status: StatusCode::NOT_FOUND,
                ..
            }) => return StoredPod::Gone,
            Err(Refusal::Refused {
                status, message, ..
            }) if status != StatusCode::TOO_MANY_REQUESTS => return StoredPod::Unreadable(message),
            Err(_) => backoff.wait().await,
        }
    }
}

/// Reads the pod. Retries also when the server refuses, such as with an expired token.
async fn read_until_answered(api: &Exchange, pod: &Pod) -> StoredPod {
    let (mut backoff, mut logged) = (Backoff::default(), None);
    loop {
        match read_pod(api, pod).await {
            StoredPod::Unreadable(why) => {
                if logged.as_ref() != Some(&why) {
                    tracing::warn!(
                        pod = %Named(pod),
                        "cannot read whether the pod is bound; retrying: {why}"
                    );
                    logged = Some(why);
                }
                backoff.wait().await;
            }
            read => return read,
        }
    }
}

fn parse_pod(pod: &Pod, bytes: &[u8]) -> StoredPod {
    let read: core::Pod = match serde_json::from_slice(bytes) {
        Ok(read) => read,
        Err(error) => return StoredPod::Unreadable(error.to_string()),
    };
    if *read.metadata.uid != *pod.uid {
        // Another pod has this name now.
        return StoredPod::Gone;
    }
    if read.spec.node_name.is_empty() {
        return StoredPod::Unbound;
    }
    match parse::pod(&read) {
        Ok(read) => StoredPod::On(Arc::new(read)),
        Err(error) => StoredPod::Unreadable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use api::http::Role;
    use bytes::Bytes;
    use engine::model::PodKind;
    use http::{Request, Response};
    use http_body_util::Full;
    use serde_json::{Value, json};

    use super::*;
    use crate::election::leadership::Leadership;

    /// Gives these answers one after the other; the methods of the requests must be as they are here.
    fn server(answers: Vec<(Method, u16, Value)>) -> Exchange {
        let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
        Exchange::new(tower::service_fn(move |request: Request<Full<Bytes>>| {
            let answers = answers.clone();
            async move {
                let next = answers.lock().unwrap().pop_front();
                let (method, status, body) = next.expect("one request more");
                assert_eq!(*request.method(), method);
                let body = Bytes::from(body.to_string());
                Ok(Response::builder().status(status).body(body)?)
            }
        }))
    }

    async fn outcome(answers: Vec<(Method, u16, Value)>) -> BindOutcome {
        let writer = Writer {
            exchange: server(answers),
            leadership: Arc::new(Leadership::new(Role::Alone)),
        };
        let kind = PodKind {
            namespace: "default".into(),
            ..PodKind::default()
        };
        let pod = Pod {
            kind: Arc::new(kind),
            name: "web".into(),
            uid: "1".into(),
            ..Pod::default()
        };
        bind(&writer, &pod, "a", &[]).await.bound
    }

    fn status(code: u16) -> Value {
        json!({"kind": "Status", "status": "Failure", "code": code, "message": "no"})
    }

    fn pod_on(node: &str) -> Value {
        json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "1"},
            "spec": {"nodeName": node, "containers": []},
        })
    }

    #[tokio::test]
    async fn a_lost_answer_counts_as_a_bind_until_the_pod_could_be_read() {
        let answers = vec![
            (Method::POST, 504, status(504)),
            (Method::GET, 401, status(401)),
            (Method::GET, 403, status(403)),
            (Method::GET, 200, pod_on("a")),
        ];
        assert_eq!(outcome(answers).await, BindOutcome::Done);
    }

    #[tokio::test]
    async fn a_conflict_with_a_pod_that_cannot_be_read_is_a_refusal() {
        let answers = vec![
            (Method::POST, 409, status(409)),
            (Method::GET, 403, status(403)),
        ];
        let refused = outcome(answers).await;
        assert!(matches!(refused, BindOutcome::Refused(_)), "{refused:?}");
    }
}
