//! Making room: victims are told why and deleted, the last one after all others.

use std::sync::Arc;

use api::wire::meta::Partial;
use engine::model::{Name, Pod};
use futures::future::join_all;
use http::{Method, StatusCode};

use super::requests::{Call, JSON, Quoted, Turns, pod_path};
use super::status;
use crate::client::Refusal;

/// Victims of one pod that go at the same time.
const AT_ONCE: usize = 8;

/// What came of it.
pub(crate) struct Evicted {
    /// With their versions.
    pub(crate) victims: Vec<(Arc<Pod>, Name)>,
    /// Why not all of them.
    pub(crate) failure: Option<String>,
}

pub(crate) async fn evict(turns: &Turns, scheduler: &str, victims: Vec<Arc<Pod>>) -> Evicted {
    let mut evicted = Evicted {
        victims: Vec::new(),
        failure: None,
    };
    let Some((last, others)) = victims.split_last() else {
        return evicted;
    };
    for group in others.chunks(AT_ONCE) {
        let results = join_all(group.iter().map(|victim| one(turns, scheduler, victim))).await;
        for (victim, result) in group.iter().zip(results) {
            evicted.note(victim, result);
        }
    }
    // Whoever waits for the last one finds all of them gone.
    if evicted.failure.is_none() {
        let result = one(turns, scheduler, last).await;
        evicted.note(last, result);
    }
    evicted
}

impl Evicted {
    fn note(&mut self, victim: &Arc<Pod>, result: Result<Option<Name>, Refusal>) {
        match result {
            Ok(Some(version)) => self.victims.push((victim.clone(), version)),
            // It was gone already.
            Ok(None) => {}
            Err(refusal) => {
                let name = (victim.namespace(), &victim.name);
                self.failure = Some(format!("pod {}/{}: {refusal}", name.0, name.1));
            }
        }
    }
}

/// Returns the pod's version, or `None` if it is gone without us.
async fn one(turns: &Turns, scheduler: &str, victim: &Pod) -> Result<Option<Name>, Refusal> {
    let now = jiff::Timestamp::now();
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{{"uid":{}}}}}"#,
        Quoted(&victim.uid)
    );
    let is_gone = |refusal: &Refusal| {
        // Another pod has its name now, or none.
        let gone = [StatusCode::NOT_FOUND, StatusCode::CONFLICT];
        refusal
            .status()
            .is_some_and(|status| gone.contains(&status))
    };
    let marked = status::disruption(victim, scheduler, now);
    let version = match turns.send_repeatedly(&marked).await {
        Err(refusal) if is_gone(&refusal) => return Ok(None),
        answer => version(&answer?),
    };
    let delete = Call::new(Method::DELETE, pod_path(victim, ""), JSON, body);
    match turns.send_until_told(&delete).await {
        // Gone after an answer was lost: it was us.
        (Err(refusal), lost) if is_gone(&refusal) => Ok(lost.then_some(version)),
        (result, _) => result.map(|_| Some(version)),
    }
}

/// Only an event names it, and is told without it as well.
fn version(answer: &[u8]) -> Name {
    let pod: Partial = serde_json::from_slice(answer).unwrap_or_default();
    pod.metadata.resource_version.into()
}
