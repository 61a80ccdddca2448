//! Making room: victims are told why and deleted, the last one after all others.

use std::sync::Arc;

use engine::model::Pod;
use futures::future::join_all;
use http::{Method, StatusCode};

use super::requests::{Call, JSON, Quoted, Turns, pod_path};
use super::status;
use crate::client::Refusal;

/// Victims of one pod that go at the same time.
const AT_ONCE: usize = 8;

/// What came of it.
pub(super) struct Evicted {
    pub(super) victims: Vec<Arc<Pod>>,
    /// Why not all of them.
    pub(super) failure: Option<String>,
}

pub(super) async fn evict(turns: &Turns, scheduler: &str, victims: Vec<Arc<Pod>>) -> Evicted {
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
    fn note(&mut self, victim: &Arc<Pod>, result: Result<bool, Refusal>) {
        match result {
            Ok(true) => self.victims.push(victim.clone()),
            // It was gone already.
            Ok(false) => {}
            Err(refusal) => {
                let name = (victim.namespace(), &victim.name);
                self.failure = Some(format!("pod {}/{}: {refusal}", name.0, name.1));
            }
        }
    }
}

/// Returns false if the pod is gone without us.
async fn one(turns: &Turns, scheduler: &str, victim: &Pod) -> Result<bool, Refusal> {
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
    match turns.send_repeatedly(&marked).await {
        Err(refusal) if is_gone(&refusal) => return Ok(false),
        result => drop(result?),
    }
    let delete = Call::new(Method::DELETE, pod_path(victim, ""), JSON, body);
    match turns.send_until_told(&delete).await {
        // Gone after an answer was lost: it was us.
        (Err(refusal), lost) if is_gone(&refusal) => Ok(lost),
        (result, _) => result.map(|_| true),
    }
}
