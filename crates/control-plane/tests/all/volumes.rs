//! Pods whose volumes are made or found for the node that was chosen.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{Fixture, eventually, object, pod};

pub(crate) fn claims(fixture: &Fixture) -> Api<PersistentVolumeClaim> {
    Api::default_namespaced(fixture.client.clone())
}

pub(crate) fn volumes(fixture: &Fixture) -> Api<PersistentVolume> {
    Api::all(fixture.client.clone())
}

/// A claim that waits for its first pod, and that pod.
pub(crate) async fn claim_and_pod(fixture: &Fixture, provisioner: &str) {
    let classes: Api<StorageClass> = Api::all(fixture.client.clone());
    let class = json!({"metadata": {"name": "late"}, "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer"});
    classes
        .create(&PostParams::default(), &object(class))
        .await
        .unwrap();
    let claim = json!({"metadata": {"name": "data"}, "spec": {"storageClassName": "late",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    claims(fixture)
        .create(&PostParams::default(), &object(claim))
        .await
        .unwrap();
    let mut db = pod("db", "1");
    db["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    fixture.create_pod(db).await;
}

pub(crate) fn volume() -> Value {
    json!({"metadata": {"name": "disk"}, "spec": {
        "storageClassName": "late", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/disk"}}})
}

/// What the volume controller does last.
pub(crate) async fn bind_claim(fixture: &Fixture) {
    let bound = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "disk"}});
    let api = claims(fixture);
    let (params, patch) = (PatchParams::default(), Patch::Merge(bound));
    api.patch("data", &params, &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_made_for_the_chosen_node() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    fixture.schedule();
    claim_and_pod(&fixture, "example.com/disks").await;
    eventually("the claim names the node", || async {
        let claim = claims(&fixture).get("data").await.unwrap();
        let annotations = claim.metadata.annotations.unwrap_or_default();
        match annotations.get("volume.kubernetes.io/selected-node") {
            Some(node) if node == "node" => Ok(()),
            _ => Err(annotations),
        }
    })
    .await;
    assert!(fixture.placed().await.is_empty());
    let mut disk = volume();
    disk["spec"]["claimRef"] = json!({"namespace": "default", "name": "data"});
    volumes(&fixture)
        .create(&PostParams::default(), &object(disk))
        .await
        .unwrap();
    bind_claim(&fixture).await;
    assert_eq!(fixture.all_placed(1).await["db"], "node");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_there_is_offered_to_the_claim() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    volumes(&fixture)
        .create(&PostParams::default(), &object(volume()))
        .await
        .unwrap();
    let available = json!({"status": {"phase": "Available"}});
    volumes(&fixture)
        .patch_status("disk", &PatchParams::default(), &Patch::Merge(available))
        .await
        .unwrap();
    fixture.schedule();
    claim_and_pod(&fixture, "kubernetes.io/no-provisioner").await;
    eventually("the volume names the claim", || async {
        let volume = volumes(&fixture).get("disk").await.unwrap();
        let claim = volume.spec.unwrap().claim_ref.unwrap_or_default();
        if claim.name.as_deref() == Some("data") {
            Ok(())
        } else {
            Err(claim)
        }
    })
    .await;
    assert!(fixture.placed().await.is_empty());
    bind_claim(&fixture).await;
    assert_eq!(fixture.all_placed(1).await["db"], "node");
    fixture.stop().await;
}
