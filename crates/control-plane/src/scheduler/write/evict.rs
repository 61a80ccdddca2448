//! Evicts the victims of a preemption: each gets a condition and is deleted, the last one after all others.

use std::sync::Arc;

use api::wire::meta::Partial;
use engine::model::{Name, Pod};
use futures::future::join_all;
use http::{Method, StatusCode};
use serde::Serialize;

use super::requests::{Call, JSON, LimitedWriter, Metadata, pod_path};
use super::status;
use crate::client::Refusal;

/// Victims of one pod that are evicted at the same time.
const AT_ONCE: usize = 8;

/// The result of an eviction.
pub(crate) struct Evicted {
    /// With their resource versions.
    pub(crate) victims: Vec<(Arc<Pod>, Name)>,
    /// Why some victims were not evicted.
    pub(crate) failure: Option<String>,
}

pub(crate) async fn evict(
    writer: &LimitedWriter,
    scheduler: &str,
    victims: Vec<Arc<Pod>>,
) -> Evicted {
    let mut evicted = Evicted {
        victims: Vec::new(),
        failure: None,
    };
    let Some((last, others)) = victims.split_last() else {
        return evicted;
    };
    for group in others.chunks(AT_ONCE) {
        let results = join_all(group.iter().map(|victim| one(writer, scheduler, victim))).await;
        for (victim, result) in group.iter().zip(results) {
            evicted.note(victim, result);
        }
    }
    // When the last victim is gone, all of them are.
    if evicted.failure.is_none() {
        let result = one(writer, scheduler, last).await;
        evicted.note(last, result);
    }
    evicted
}

impl Evicted {
    fn note(&mut self, victim: &Arc<Pod>, result: Result<Option<Name>, Refusal>) {
        match result {
            Ok(Some(version)) => self.victims.push((victim.clone(), version)),
            Ok(None) => {}
            Err(refusal) => {
                let name = (victim.namespace(), &victim.name);
                self.failure = Some(format!("pod {}/{}: {refusal}", name.0, name.1));
            }
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeleteOptions<'a> {
    api_version: &'static str,
    kind: &'static str,
    preconditions: Metadata<'a>,
}

/// Returns the pod's resource version, or `None` if another client deleted it.
async fn one(
    writer: &LimitedWriter,
    scheduler: &str,
    victim: &Pod,
) -> Result<Option<Name>, Refusal> {
    let now = jiff::Timestamp::now();
    let body = DeleteOptions {
        api_version: "v1",
        kind: "DeleteOptions",
        preconditions: Metadata {
            uid: &victim.uid,
            ..Metadata::default()
        },
    };
    let is_gone = |refusal: &Refusal| {
        // The pod is gone, or another pod has its name now.
        let gone = [StatusCode::NOT_FOUND, StatusCode::CONFLICT];
        refusal
            .status()
            .is_some_and(|status| gone.contains(&status))
    };
    let marked = status::disruption(victim, scheduler, now);
    let version = match writer.send_retrying(&marked).await {
        Err(refusal) if is_gone(&refusal) => return Ok(None),
        answer => version(&answer?),
    };
    let delete = Call::new(Method::DELETE, pod_path(victim, ""), JSON, &body);
    match writer.send_retrying_tracked(&delete).await {
        // Gone after a response was lost: this process deleted it.
        (Err(refusal), lost) if is_gone(&refusal) => Ok(lost.then_some(version)),
        (result, _) => result.map(|_| Some(version)),
    }
}

/// Only for the event; optional.
fn version(answer: &[u8]) -> Name {
    let pod: Partial = serde_json::from_slice(answer).unwrap_or_default();
    pod.metadata.resource_version.into()
}
