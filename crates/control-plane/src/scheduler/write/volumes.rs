//! Work before a pod can be bound: volumes for its claims.
//!
//! A volume is offered to a claim, or a claim is told for which node a volume is to be made; the volume controller does
//! the rest, and here it is waited for: the watch of claims says when.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::parse;
use api::wire::storage::{PersistentVolume, PersistentVolumeClaim};
use engine::framework::{Preparation, Step};
use engine::model::Name;
use http::{Method, StatusCode};
use serde_json::json;

use super::requests::{Call, MERGE, Turns};
use crate::client::Refusal;
use crate::scheduler::claim_waits::{Awaited, ClaimState, Told};

/// How often a claim that is waited for is read, should the watch have nothing to tell.
const LOOK: Duration = Duration::from_secs(30);

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// Does the work of one plugin, in the order given.
pub(crate) async fn prepare(
    turns: &Turns,
    awaited: &Arc<Awaited>,
    work: &Preparation,
) -> Result<(), String> {
    let mut volumes = Volumes {
        turns,
        awaited,
        claims: HashMap::new(),
    };
    let all = async {
        for step in &work.steps {
            volumes.carry_out(step).await?;
        }
        Ok(())
    };
    let result = tokio::time::timeout(work.within, all).await;
    let result = result.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
    result.map_err(|text| format!("binding volumes: {text}"))
}

/// The volumes of one pod.
struct Volumes<'a> {
    turns: &'a Turns,
    awaited: &'a Arc<Awaited>,
    /// Those that are to get volumes, by namespace and name.
    claims: HashMap<(&'a Name, &'a Name), Promised<'a>>,
}

struct Promised<'a> {
    told: Told,
    state: ClaimState,
    /// For which a volume is to be made.
    node: Option<&'a Name>,
}

impl<'a> Volumes<'a> {
    async fn carry_out(&mut self, step: &'a Step) -> Result<(), String> {
        let (namespace, claim) = match step {
            Step::BindVolume {
                namespace, claim, ..
            }
            | Step::ProvisionVolume {
                namespace, claim, ..
            }
            | Step::AwaitClaim { namespace, claim } => (namespace, claim),
        };
        // What happens to it from now on is not missed.
        let told = || self.awaited.claim(namespace, claim);
        let promised = match step {
            Step::BindVolume { volume, .. } => Promised {
                told: told(),
                state: self.offer(volume, namespace, claim).await?,
                node: None,
            },
            Step::ProvisionVolume { node, .. } => Promised {
                told: told(),
                state: self.select(namespace, claim, node).await?,
                node: Some(node),
            },
            Step::AwaitClaim { .. } => {
                let promised = match self.claims.remove(&(namespace, claim)) {
                    Some(promised) => promised,
                    None => Promised {
                        told: told(),
                        state: state(&self.claim(namespace, claim).await.map_err(words)?)?,
                        node: None,
                    },
                };
                return self.bound(namespace, claim, promised).await;
            }
        };
        self.claims.insert((namespace, claim), promised);
        Ok(())
    }

    /// Says for which node a volume is to be made.
    async fn select(&self, namespace: &str, claim: &str, node: &str) -> Result<ClaimState, String> {
        let annotations = json!({SELECTED_NODE: node});
        let body = json!({"metadata": {"annotations": annotations}}).to_string();
        let path = claim_path(namespace, claim);
        let call = Call::new(Method::PATCH, path, MERGE, body);
        let answer = self.turns.send_repeatedly(&call).await;
        state(&read(&answer.map_err(words)?)?)
    }

    /// Writes the claim into the volume, unless another claim is there.
    async fn offer(
        &self,
        volume: &str,
        namespace: &str,
        claim: &str,
    ) -> Result<ClaimState, String> {
        let path = format!("/api/v1/persistentvolumes/{volume}");
        let found = self.turns.send_repeatedly(&Call::get(path.clone())).await;
        let found: PersistentVolume = read(&found.map_err(words)?)?;
        if let Some(taken) = &found.spec.claim_ref
            && (&*taken.namespace, &*taken.name) != (namespace, claim)
        {
            return Err(format!(
                "volume \"{volume}\" already bound to a different claim \"{}/{}\"",
                taken.namespace, taken.name
            ));
        }
        let wanted = self.claim(namespace, claim).await.map_err(words)?;
        let body = json!({
            // Somebody else may have been faster.
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
        let call = Call::new(Method::PATCH, path, MERGE, body.to_string());
        self.turns.send(&call).await.map_err(words)?;
        state(&wanted)
    }

    /// Waits until the claim has its volume.
    async fn bound(
        &self,
        namespace: &str,
        claim: &str,
        mut promised: Promised<'_>,
    ) -> Result<(), String> {
        let node = promised.node;
        loop {
            if let Some(end) = end(claim, &promised.state, node) {
                return end;
            }
            let told = tokio::select! {
                told = promised.told.changed() => told,
                () = tokio::time::sleep(LOOK) => None,
            };
            // The watch may be behind what we wrote: its bad news are looked into.
            let is_bad = |state: &ClaimState| matches!(end(claim, state, node), Some(Err(_)));
            if let Some(told) = told.filter(|told| !is_bad(told)) {
                promised.state = told;
                continue;
            }
            match self.claim(namespace, claim).await {
                Ok(found) => promised.state = state(&found)?,
                Err(Refusal::Refused {
                    status: StatusCode::NOT_FOUND,
                    message,
                    ..
                }) => return Err(message),
                // It will answer again, or the time is over.
                Err(_) => {}
            }
        }
    }

    async fn claim(&self, namespace: &str, claim: &str) -> Result<PersistentVolumeClaim, Refusal> {
        let call = Call::get(claim_path(namespace, claim));
        let found = self.turns.send_repeatedly(&call).await?;
        read(&found).map_err(Refusal::Unknown)
    }
}

/// How waiting for the claim ends; `None` while it goes on.
fn end(claim: &str, state: &ClaimState, node: Option<&Name>) -> Option<Result<(), String>> {
    if state.bound {
        return Some(Ok(()));
    }
    if state.deleting {
        return Some(Err(format!("pvc \"{claim}\" is being deleted")));
    }
    // Whoever makes volumes takes the node away when it cannot make one there.
    let failed = node.is_some() && state.selected.as_ref() != node;
    failed.then(|| Err(format!("provisioning failed for PVC \"{claim}\"")))
}

fn state(claim: &PersistentVolumeClaim) -> Result<ClaimState, String> {
    let claim = parse::claim(claim).map_err(|error| error.to_string())?;
    Ok((&claim).into())
}

fn claim_path(namespace: &str, claim: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")
}

fn words(refusal: Refusal) -> String {
    refusal.to_string()
}

fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}
