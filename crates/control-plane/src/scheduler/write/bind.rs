//! Binds one pod to its node. A binding is sent again only after the pod was read and found unbound.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::parse;
use api::wire::core;
use engine::model::Pod;
use http::{Method, StatusCode};
use serde::Serialize;

use super::requests::{Call, JSON, ObjectReference, Writer, pod_path};
use crate::backoff::Backoff;
use crate::client::{Exchange, Refusal};
use crate::planted::{PlantedFault, is_planted};

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
            Refusal::Refused {
                status: StatusCode::CONFLICT,
                ..
            } => {}
            Refusal::NotLeader => break BindOutcome::NotLeader,
            Refusal::Refused { .. } => break BindOutcome::Refused(refusal.to_string()),
            Refusal::Unknown(_) => answer_lost = true,
        }
        match read_pod(&writer.exchange, pod).await {
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
