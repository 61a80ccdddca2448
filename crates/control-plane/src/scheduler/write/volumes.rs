//! Prepares the volumes of a pod before it is bound.
//!
//! Binds a volume to a claim, or sets the node that a volume is to be provisioned for, and waits for the volume
//! controller. The watch of claims reports when it is done.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::parse;
use api::wire::storage::{PersistentVolume, PersistentVolumeClaim};
use engine::model::Name;
use engine::scheduling::framework::{Preparation, Step};
use http::{Method, StatusCode};
use serde_json::json;

use super::requests::{Call, LimitedWriter, MERGE};
use crate::client::Refusal;
use crate::scheduler::claim_waits::{ClaimState, ClaimWait, ClaimWaits};

/// How often a claim is read while the watch has no update.
const LOOK: Duration = Duration::from_secs(30);

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// Why volumes are not ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    #[error("binding volumes: {0}")]
    Failed(String),
    #[error("binding volumes: {}", Refusal::NotLeader)]
    NotLeader,
}

impl From<Refusal> for PrepareError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotLeader => Self::NotLeader,
            Refusal::Refused { .. } | Refusal::Unknown(_) => Self::Failed(refusal.to_string()),
        }
    }
}

fn failed(why: impl ToString) -> PrepareError {
    PrepareError::Failed(why.to_string())
}

/// Does the work of one plugin, in the given order.
pub(crate) async fn prepare(
    writer: &LimitedWriter,
    claim_waits: &Arc<ClaimWaits>,
    work: &Preparation,
) -> Result<(), PrepareError> {
    let mut volumes = Volumes {
        writer,
        claim_waits,
        claims: HashMap::new(),
    };
    let all = async {
        for step in &work.steps {
            volumes.executor(step).await?;
        }
        Ok(())
    };
    let result = tokio::time::timeout(work.within, all).await;
    result.unwrap_or_else(|_| Err(failed("context deadline exceeded")))
}

/// The volumes of one pod.
struct Volumes<'a> {
    writer: &'a LimitedWriter,
    claim_waits: &'a Arc<ClaimWaits>,
    /// Claims that wait for a volume, by namespace and name.
    claims: HashMap<(&'a Name, &'a Name), PendingClaim<'a>>,
}

struct PendingClaim<'a> {
    wait: ClaimWait,
    state: ClaimState,
    /// The node that a volume is provisioned for.
    node: Option<&'a Name>,
}

impl<'a> Volumes<'a> {
    async fn executor(&mut self, step: &'a Step) -> Result<(), PrepareError> {
        let (namespace, claim) = match step {
            Step::BindVolume {
                namespace, claim, ..
            }
            | Step::ProvisionVolume {
                namespace, claim, ..
            }
            | Step::AwaitClaim { namespace, claim } => (namespace, claim),
        };
        // Subscribe first, so that no update is missed.
        let wait = || self.claim_waits.claim(namespace, claim);
        let pending = match step {
            Step::BindVolume { volume, .. } => PendingClaim {
                wait: wait(),
                state: self.offer(volume, namespace, claim).await?,
                node: None,
            },
            Step::ProvisionVolume { node, .. } => PendingClaim {
                wait: wait(),
                state: self.select(namespace, claim, node).await?,
                node: Some(node),
            },
            Step::AwaitClaim { .. } => {
                let pending = match self.claims.remove(&(namespace, claim)) {
                    Some(pending) => pending,
                    None => PendingClaim {
                        wait: wait(),
                        state: state(
                            &self
                                .claim(namespace, claim)
                                .await
                                .map_err(PrepareError::from)?,
                        )?,
                        node: None,
                    },
                };
                return self.bound(namespace, claim, pending).await;
            }
        };
        self.claims.insert((namespace, claim), pending);
        Ok(())
    }

    /// Sets the node that a volume is to be provisioned for.
    async fn select(
        &self,
        namespace: &str,
        claim: &str,
        node: &str,
    ) -> Result<ClaimState, PrepareError> {
        let annotations = json!({SELECTED_NODE: node});
        let body = json!({"metadata": {"annotations": annotations}});
        let path = claim_path(namespace, claim);
        let call = Call::new(Method::PATCH, path, MERGE, &body);
        let answer = self.writer.send_retrying(&call).await;
        state(&read(&answer.map_err(PrepareError::from)?)?)
    }

    /// Writes the claim into the volume, unless another claim is there.
    async fn offer(
        &self,
        volume: &str,
        namespace: &str,
        claim: &str,
    ) -> Result<ClaimState, PrepareError> {
        let path = format!("/api/v1/persistentvolumes/{volume}");
        let found = self.writer.send_retrying(&Call::get(path.clone())).await;
        let found: PersistentVolume = read(&found.map_err(PrepareError::from)?)?;
        if let Some(taken) = &found.spec.claim_ref
            && (&*taken.namespace, &*taken.name) != (namespace, claim)
        {
            return Err(failed(format!(
                "volume \"{volume}\" already bound to a different claim \"{}/{}\"",
                taken.namespace, taken.name
            )));
        }
        let wanted = self
            .claim(namespace, claim)
            .await
            .map_err(PrepareError::from)?;
        let body = json!({
            // Fails if another client changed the volume.
            "metadata": {
                "resourceVersion": found.metadata.resource_version,
                "annotations": {BOUND_BY_CONTROLLER: "yes"},
            },
            "spec": {"claimRef": {
                "kind": "PersistentVolumeClaim", "apiVersion": "v1",
                "namespace": namespace, "name": claim, "uid": wanted.metadata.uid,
                "resourceVersion": wanted.metadata.resource_version,
            }},
        });
        let call = Call::new(Method::PATCH, path, MERGE, &body);
        self.writer.send(&call).await.map_err(PrepareError::from)?;
        state(&wanted)
    }

    /// Waits until the claim has its volume.
    async fn bound(
        &self,
        namespace: &str,
        claim: &str,
        mut pending: PendingClaim<'_>,
    ) -> Result<(), PrepareError> {
        let node = pending.node;
        loop {
            if let Some(end) = end(claim, &pending.state, node) {
                return end;
            }
            let wait = tokio::select! {
                wait = pending.wait.changed() => wait,
                () = tokio::time::sleep(LOOK) => None,
            };
            // The watch may be behind our own write: check a failure by a read.
            let is_bad = |state: &ClaimState| matches!(end(claim, state, node), Some(Err(_)));
            if let Some(wait) = wait.filter(|wait| !is_bad(wait)) {
                pending.state = wait;
                continue;
            }
            match self.claim(namespace, claim).await {
                Ok(found) => pending.state = state(&found)?,
                Err(Refusal::Refused {
                    status: StatusCode::NOT_FOUND,
                    message,
                    ..
                }) => return Err(PrepareError::Failed(message)),
                // Retry until the timeout.
                Err(_) => {}
            }
        }
    }

    async fn claim(&self, namespace: &str, claim: &str) -> Result<PersistentVolumeClaim, Refusal> {
        let call = Call::get(claim_path(namespace, claim));
        let found = self.writer.send_retrying(&call).await?;
        serde_json::from_slice(&found).map_err(|error| Refusal::Unknown(error.to_string()))
    }
}

/// The end of the wait for the claim; `None` while it goes on.
fn end(claim: &str, state: &ClaimState, node: Option<&Name>) -> Option<Result<(), PrepareError>> {
    if state.bound {
        return Some(Ok(()));
    }
    if state.deleting {
        return Some(Err(failed(format!("pvc \"{claim}\" is being deleted"))));
    }
    // A provisioner removes the node when it cannot make a volume there.
    let gave_up = node.is_some() && state.selected.as_ref() != node;
    gave_up.then(|| Err(failed(format!("provisioning failed for PVC \"{claim}\""))))
}

fn state(claim: &PersistentVolumeClaim) -> Result<ClaimState, PrepareError> {
    let claim = parse::claim(claim).map_err(failed)?;
    Ok((&claim).into())
}

fn claim_path(namespace: &str, claim: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")
}

fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, PrepareError> {
    serde_json::from_slice(bytes).map_err(failed)
}
