//! One pod onto its node: a binding is sent once, and its outcome is known before it is ever sent again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::parse;
use api::wire::core;
use engine::model::Pod;
use http::{Method, StatusCode};

use super::requests::{Call, JSON, Quoted, Writer, pod_path};
use crate::backoff::Backoff;
use crate::client::{Exchange, Refusal};

/// How long a pod keeps its room while the server has no time for us.
const LONGEST_PRESS: Duration = Duration::from_secs(2);
const PRESSED_WAIT: Duration = Duration::from_millis(500);
/// Sends whose answers were lost, each followed by a look that found the pod unbound.
const MOST_SENDS: u32 = 3;

/// What became of a binding.
#[derive(Debug, PartialEq)]
pub(crate) enum Bound {
    Done,
    /// Somebody bound it to another node.
    Elsewhere(Arc<Pod>),
    /// The pod does not exist any more.
    Gone,
    /// It was not carried out, for this reason.
    Refused(String),
}

#[derive(Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) bound: Bound,
    /// The server asked for fewer requests.
    pub(crate) pressed: bool,
    /// An answer was lost.
    pub(crate) unknown: bool,
    pub(crate) took: Duration,
}

/// Nothing is sent, and nothing waits to be sent, once the leadership is over.
pub(crate) async fn bind(writer: &Writer, pod: &Pod, node: &str) -> Verdict {
    let binding = binding(pod, node);
    let begun = Instant::now();
    let mut sends = 0;
    let (mut pressed, mut unknown) = (false, false);
    let bound = loop {
        sends += 1;
        let refusal = match binding.send(writer).await {
            Ok(_) => break Bound::Done,
            Err(refusal) => refusal,
        };
        match &refusal {
            Refusal::Refused {
                status: StatusCode::TOO_MANY_REQUESTS,
                retry_after,
                ..
            } => {
                // Surely not carried out.
                pressed = true;
                let wait = retry_after.unwrap_or(PRESSED_WAIT);
                if begun.elapsed() + wait > LONGEST_PRESS {
                    break Bound::Refused(refusal.to_string());
                }
                tokio::time::sleep(wait).await;
                sends -= 1;
                continue;
            }
            Refusal::Refused {
                status: StatusCode::NOT_FOUND,
                ..
            } => break Bound::Gone,
            Refusal::Refused {
                status: StatusCode::CONFLICT,
                ..
            } => {}
            Refusal::Refused { .. } | Refusal::NoMandate => {
                break Bound::Refused(refusal.to_string());
            }
            Refusal::Unknown(_) => unknown = true,
        }
        match look(&writer.exchange, pod).await {
            Seen::Gone => break Bound::Gone,
            Seen::On(seen) if seen.node.as_deref() == Some(node) => break Bound::Done,
            Seen::On(seen) => break Bound::Elsewhere(seen),
            Seen::Unbound if unknown && sends < MOST_SENDS => {}
            Seen::Unbound => break Bound::Refused(refusal.to_string()),
            Seen::Unreadable(text) => break Bound::Refused(text),
        }
    };
    Verdict {
        bound,
        pressed,
        unknown,
        took: begun.elapsed(),
    }
}

fn binding(pod: &Pod, node: &str) -> Call {
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"Binding","metadata":{{"name":{},"namespace":{},"uid":{}}},"target":{{"apiVersion":"v1","kind":"Node","name":{}}}}}"#,
        Quoted(&pod.name),
        Quoted(pod.namespace()),
        Quoted(&pod.uid),
        Quoted(node),
    );
    Call::new(Method::POST, pod_path(pod, "/binding"), JSON, body)
}

enum Seen {
    On(Arc<Pod>),
    Unbound,
    Gone,
    Unreadable(String),
}

/// Whether the pod is there and still waits for a node.
pub(crate) async fn waits(api: &Exchange, pod: &Pod) -> bool {
    matches!(look(api, pod).await, Seen::Unbound)
}

/// The pod as the store has it. Asks until there is an answer.
async fn look(api: &Exchange, pod: &Pod) -> Seen {
    let mut backoff = Backoff::default();
    loop {
        match Call::get(pod_path(pod, "")).send(api).await {
            Ok(bytes) => return seen(pod, &bytes),
            Err(Refusal::Refused {
                status: StatusCode::NOT_FOUND,
                ..
            }) => return Seen::Gone,
            Err(Refusal::Refused {
                status, message, ..
            }) if status != StatusCode::TOO_MANY_REQUESTS => return Seen::Unreadable(message),
            Err(_) => backoff.wait().await,
        }
    }
}

fn seen(pod: &Pod, bytes: &[u8]) -> Seen {
    let read: core::Pod = match serde_json::from_slice(bytes) {
        Ok(read) => read,
        Err(error) => return Seen::Unreadable(error.to_string()),
    };
    if *read.metadata.uid != *pod.uid {
        // Another pod has its name now.
        return Seen::Gone;
    }
    if read.spec.node_name.is_empty() {
        return Seen::Unbound;
    }
    match parse::pod(&read) {
        Ok(read) => Seen::On(Arc::new(read)),
        Err(error) => Seen::Unreadable(error.to_string()),
    }
}
