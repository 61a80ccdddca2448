//! Work before a pod can be bound: volumes for its claims.
//!
//! A volume is offered to a claim, or a claim is told for which node a volume is to be made; the volume controller does
//! the rest, and here it is waited for.

use std::time::Duration;

use api::wire::storage::{PersistentVolume, PersistentVolumeClaim};
use engine::framework::{Preparation, Step};
use http::{Method, StatusCode};
use serde_json::json;

use super::requests::{Call, MERGE, Writer};
use crate::client::Refusal;

/// How often a claim that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(500);

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// Does the work of one plugin, in the order given.
pub(super) async fn prepare(writer: &Writer, work: &Preparation) -> Result<(), String> {
    let all = async {
        for step in &work.steps {
            carry_out(writer, step, &work.steps).await?;
        }
        Ok(())
    };
    let result = tokio::time::timeout(work.within, all).await;
    let result = result.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
    result.map_err(|text| format!("binding volumes: {text}"))
}

async fn carry_out(writer: &Writer, step: &Step, steps: &[Step]) -> Result<(), String> {
    match step {
        Step::BindVolume {
            volume,
            namespace,
            claim,
        } => offer(writer, volume, namespace, claim).await,
        Step::ProvisionVolume {
            namespace,
            claim,
            node,
        } => {
            let annotations = json!({SELECTED_NODE: &**node});
            let body = json!({"metadata": {"annotations": annotations}}).to_string();
            let path = claim_path(namespace, claim);
            let call = Call::new(Method::PATCH, path, MERGE, body);
            call.send_repeatedly(writer).await.map_err(words)?;
            Ok(())
        }
        Step::AwaitClaim { namespace, claim } => {
            let node = steps.iter().find_map(|step| match step {
                Step::ProvisionVolume {
                    namespace: n,
                    claim: c,
                    node,
                } if (n, c) == (namespace, claim) => Some(&**node),
                _ => None,
            });
            bound(writer, namespace, claim, node).await
        }
    }
}

fn claim_path(namespace: &str, claim: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")
}

fn words(refusal: Refusal) -> String {
    refusal.to_string()
}

/// Writes the claim into the volume, unless another claim is there.
async fn offer(writer: &Writer, volume: &str, namespace: &str, claim: &str) -> Result<(), String> {
    let path = format!("/api/v1/persistentvolumes/{volume}");
    let found = Call::get(path.clone()).send_repeatedly(writer).await;
    let found: PersistentVolume = read(&found.map_err(words)?)?;
    if let Some(taken) = &found.spec.claim_ref
        && (&*taken.namespace, &*taken.name) != (namespace, claim)
    {
        return Err(format!(
            "volume \"{volume}\" already bound to a different claim \"{}/{}\"",
            taken.namespace, taken.name
        ));
    }
    let wanted = Call::get(claim_path(namespace, claim))
        .send_repeatedly(writer)
        .await;
    let wanted: PersistentVolumeClaim = read(&wanted.map_err(words)?)?;
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
    call.send(writer).await.map_err(words)?;
    Ok(())
}

/// Waits until the claim has its volume.
async fn bound(
    writer: &Writer,
    namespace: &str,
    claim: &str,
    node: Option<&str>,
) -> Result<(), String> {
    loop {
        match Call::get(claim_path(namespace, claim)).send(writer).await {
            Ok(bytes) => {
                let found: PersistentVolumeClaim = read(&bytes)?;
                let annotations = &found.metadata.annotations;
                if !found.spec.volume_name.is_empty() && annotations.contains_key(BIND_COMPLETED) {
                    return Ok(());
                }
                if found.metadata.deletion_timestamp.is_some() {
                    return Err(format!("pvc \"{claim}\" is being deleted"));
                }
                // Whoever makes volumes takes the node away when it cannot make one there.
                let selected = annotations.get(SELECTED_NODE).map(String::as_str);
                if node.is_some() && selected != node {
                    return Err(format!("provisioning failed for PVC \"{claim}\""));
                }
            }
            Err(Refusal::Refused {
                status: StatusCode::NOT_FOUND,
                message,
                ..
            }) => return Err(message),
            // It will answer again, or the time is over.
            Err(_) => {}
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}
