//! The answers to reviews of Evictions that agents create: an agent evicts only pods of its own node.
//!
//! The configuration sends the Evictions of agents only; every Eviction that is sent is judged as one of an agent.

use std::sync::Arc;
use std::time::Duration;

use engine::admission::{AgentEviction, EvictedPod};
use engine::model::{is_dns_label, is_dns_subdomain};
use futures::FutureExt;
use http::StatusCode;
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::review::{NoAnswer, RefusalReason, Review, ReviewAnswer};
use super::server::Reviewer;
use crate::client::{Exchange, Refusal};
use crate::scheduler::write::requests::Call;

pub const VALIDATE_EVICTIONS: &str = "/validate-evictions";

/// The key under which the API server names the node that a token is bound to. It may be believed: only who may impersonate
/// service accounts can set it.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// Pods that are read at the same time: an agent evicts few pods in a minute.
const READS: usize = 4;
/// Bytes of a pod: the API server stores 1.5 MiB, and writes some characters as six bytes.
const LARGEST_POD: usize = 12 << 20;
/// The API server waits 2 s for the answer.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Reads the pods that agents want to evict.
pub struct EvictionReviewer {
    api: Exchange,
    reads: Semaphore,
}

/// The path for Evictions of agents.
pub fn path(api: Exchange) -> (&'static str, Reviewer) {
    let evictions = Arc::new(EvictionReviewer {
        api,
        reads: Semaphore::new(READS),
    });
    let reviewer: Reviewer = Arc::new(move |review| {
        let evictions = evictions.clone();
        async move { evictions.answer(&review).await }.boxed()
    });
    (VALIDATE_EVICTIONS, reviewer)
}

impl EvictionReviewer {
    async fn answer(&self, review: &Review) -> Result<ReviewAnswer, NoAnswer> {
        let is_eviction = review.resource.group.is_empty()
            && review.resource.resource == "pods"
            && review.sub_resource.as_deref() == Some("eviction")
            && review.operation == "CREATE";
        if !is_eviction {
            return Ok(ReviewAnswer::default());
        }
        let nodes = review.user_info.extra.get(NODE_NAME);
        let preconditions = &review.object["deleteOptions"]["preconditions"];
        let eviction = AgentEviction {
            node: nodes.and_then(|it| it.first()).map(String::as_str),
            uid: preconditions["uid"].as_str(),
        };
        if let Err(why) = eviction.check_caller() {
            return Ok(refuse(review, &why));
        }
        let pod = self.read(&review.namespace, &review.name).await?;
        Ok(match eviction.check_pod(pod.as_ref()) {
            Ok(()) => ReviewAnswer::default(),
            Err(why) => refuse(review, &why),
        })
    }

    /// The pod as the API server has it now; none if there is none.
    async fn read(&self, namespace: &str, name: &str) -> Result<Option<EvictedPod>, NoAnswer> {
        // The names become parts of a path.
        if !is_dns_label(namespace) || name.len() > 253 || !is_dns_subdomain(name) {
            return Err(NoAnswer(format!(
                "`{namespace}/{name}` is not the name of a pod"
            )));
        }
        let read = async {
            // It is never closed.
            let _permit = self.reads.acquire().await;
            let mut call = Call::get(format!("/api/v1/namespaces/{namespace}/pods/{name}"));
            call.largest = Some(LARGEST_POD);
            match call.send(&self.api).await {
                Ok(bytes) => pod_of(&bytes).map(Some),
                Err(Refusal::Refused {
                    status: StatusCode::NOT_FOUND,
                    ..
                }) => Ok(None),
                Err(refusal) => Err(refusal.to_string()),
            }
        };
        let read = tokio::time::timeout(PATIENCE, read).await;
        let read = read.unwrap_or_else(|_| Err(format!("no response within {PATIENCE:?}")));
        read.map_err(|why| {
            let why = format!("cannot read pod {namespace}/{name}: {why}");
            tracing::warn!("an agent's Eviction is not judged: {why}");
            NoAnswer(why)
        })
    }
}

fn refuse(review: &Review, why: &str) -> ReviewAnswer {
    let (namespace, name) = (&review.namespace, &review.name);
    tracing::info!(
        pod = format!("{namespace}/{name}"),
        user = review.user_info.username,
        "refused eviction: {why}"
    );
    ReviewAnswer {
        reason: RefusalReason::Forbidden,
        ..ReviewAnswer::refuse(why)
    }
}

fn pod_of(bytes: &[u8]) -> Result<EvictedPod, String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Pod {
        metadata: Metadata,
        spec: Spec,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        uid: String,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Spec {
        node_name: String,
    }
    let pod: Pod = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    Ok(EvictedPod {
        uid: pod.metadata.uid.into(),
        node: pod.spec.node_name.into(),
    })
}
