//! Claims and volumes, as a client sees them.

use std::time::Duration;

use k8s_openapi::api::{
    core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::support::{Fixture, cluster, eventually, gone, object, template};

fn volumes(client: &Client) -> Api<PersistentVolume> {
    Api::all(client.clone())
}

async fn add_volume(fixture: &Fixture, name: &str, spec: Value) {
    let mut volume = json!({"metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}, "hostPath": {"path": "/data"},
    }});
    for (key, value) in spec.as_object().unwrap() {
        volume["spec"][key] = value.clone();
    }
    let options = PostParams::default();
    volumes(&fixture.client)
        .create(&options, &object(volume))
        .await
        .unwrap();
}

async fn add_class(fixture: &Fixture, name: &str, mode: &str) {
    let class = json!({
        "metadata": {"name": name}, "provisioner": "example.com/disk", "volumeBindingMode": mode,
    });
    let classes: Api<StorageClass> = Api::all(fixture.client.clone());
    let options = PostParams::default();
    classes.create(&options, &object(class)).await.unwrap();
}

fn claim(name: &str, class: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "resources": {"requests": {"storage": "5Gi"}},
    }})
}

/// Returns the name of the claim's volume once both are bound.
async fn bound(fixture: &Fixture, name: &str) -> String {
    eventually(&format!("{name} is bound"), || async {
        let claims = fixture.api::<PersistentVolumeClaim>();
        let claim = claims.get(name).await.unwrap();
        let status = claim.status.clone().unwrap_or_default();
        let volume = claim.spec.unwrap().volume_name.unwrap_or_default();
        if status.phase.as_deref() != Some("Bound") || status.capacity.is_none() {
            return Err(status);
        }
        assert_eq!(phase(fixture, &volume).await, "Bound");
        Ok(volume)
    })
    .await
}

async fn phase(fixture: &Fixture, volume: &str) -> String {
    let volume = volumes(&fixture.client).get_opt(volume).await.unwrap();
    let status = volume.and_then(|volume| volume.status);
    status.and_then(|status| status.phase).unwrap_or_default()
}

async fn reported(fixture: &Fixture, claim: &str, reason: &str, message: &str) {
    eventually(message, || async {
        let events = fixture.events_about(claim).await;
        let want = (reason.to_owned(), message.to_owned());
        if events.contains(&want) {
            Ok(())
        } else {
            Err(events)
        }
    })
    .await;
}

#[tokio::test]
async fn a_claim_binds_a_volume_that_exists() {
    let fixture = cluster(0).await;
    let claims = fixture.api::<PersistentVolumeClaim>();
    add_volume(&fixture, "large", json!({"capacity": {"storage": "1Ti"}})).await;
    add_volume(&fixture, "small", json!({})).await;
    fixture
        .create::<PersistentVolumeClaim>(claim("data", ""))
        .await;
    assert_eq!(bound(&fixture, "data").await, "small");

    // The policy of a volume that a user made is Retain.
    claims
        .delete("data", &DeleteParams::default())
        .await
        .unwrap();
    gone(&claims, "data").await;
    eventually("the volume is released", || async {
        match phase(&fixture, "small").await.as_str() {
            "Released" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await;
    volumes(&fixture.client)
        .delete("small", &DeleteParams::default())
        .await
        .unwrap();
    gone(&volumes(&fixture.client), "small").await;

    fixture
        .create::<PersistentVolumeClaim>(claim("odd", "gold"))
        .await;
    let why = "storageclass.storage.k8s.io \"gold\" not found";
    reported(&fixture, "odd", "ProvisioningFailed", why).await;
    let status = claims.get("odd").await.unwrap().status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    add_class(&fixture, "gold", "Immediate").await;
    bound(&fixture, "odd").await;
}

#[tokio::test]
async fn volumes_are_provisioned_at_once_or_for_a_pod() {
    let fixture = cluster(1).await;
    let claims = fixture.api::<PersistentVolumeClaim>();
    add_class(&fixture, "now", "Immediate").await;
    add_class(&fixture, "late", "WaitForFirstConsumer").await;
    for class in ["now", "late"] {
        let claim = claim(class, class);
        fixture.create::<PersistentVolumeClaim>(claim).await;
    }
    let made = bound(&fixture, "now").await;
    let volume = volumes(&fixture.client).get(&made).await.unwrap();
    assert_eq!(
        volume.annotations()["pv.kubernetes.io/provisioned-by"],
        "example.com/disk"
    );
    reported(
        &fixture,
        "late",
        "WaitForFirstConsumer",
        "waiting for first consumer to be created before binding",
    )
    .await;

    let select = |node: &str| {
        let annotations = json!({"volume.kubernetes.io/selected-node": node});
        Patch::Merge(json!({"metadata": {"annotations": annotations}}))
    };
    let options = PatchParams::default();
    claims
        .patch("late", &options, &select("nowhere"))
        .await
        .unwrap();
    let why = "Failed to get target node: node \"nowhere\" not found";
    reported(&fixture, "late", "ProvisioningFailed", why).await;
    claims
        .patch("late", &options, &select("node-001"))
        .await
        .unwrap();
    let made = bound(&fixture, "late").await;
    let spec = volumes(&fixture.client).get(&made).await.unwrap().spec;
    let terms = spec.unwrap().node_affinity.unwrap().required.unwrap();
    let values = terms.node_selector_terms[0].match_expressions.clone();
    assert_eq!(values.unwrap()[0].values, Some(vec!["zone-a".to_owned()]));

    // The policy of a class is Delete.
    claims
        .delete("late", &DeleteParams::default())
        .await
        .unwrap();
    gone(&claims, "late").await;
    gone(&volumes(&fixture.client), &made).await;
}

#[tokio::test]
async fn what_is_in_use_stays_until_it_is_not() {
    let fixture = cluster(1).await;
    let claims = fixture.api::<PersistentVolumeClaim>();
    add_class(&fixture, "now", "Immediate").await;
    fixture
        .create::<PersistentVolumeClaim>(claim("data", "now"))
        .await;
    let volume = bound(&fixture, "data").await;
    let mut pod = template("web", "app:1");
    pod["metadata"]["name"] = "user".into();
    let own = json!({"volumeClaimTemplate": {"spec": claim("", "now")["spec"]}});
    pod["spec"]["volumes"] = json!([
        {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "ephemeral": own},
    ]);
    fixture.create::<Pod>(pod).await;
    fixture.ready("web", 1).await;
    bound(&fixture, "user-scratch").await;

    let options = DeleteParams::default();
    claims.delete("data", &options).await.unwrap();
    let all = volumes(&fixture.client);
    all.delete(&volume, &options).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(claims.get_opt("data").await.unwrap().is_some());
    assert_eq!(phase(&fixture, &volume).await, "Bound");
    fixture.api::<Pod>().delete("user", &options).await.unwrap();
    gone(&claims, "data").await;
    gone(&claims, "user-scratch").await;
    gone(&all, &volume).await;
}

#[tokio::test]
async fn a_namespace_with_a_claim_can_be_deleted() {
    let fixture = cluster(0).await;
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    let options = PostParams::default();
    let team = object(json!({"metadata": {"name": "team"}}));
    namespaces.create(&options, &team).await.unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(fixture.client.clone(), "team");
    let claim = object(claim("data", ""));
    claims.create(&options, &claim).await.unwrap();
    namespaces
        .delete("team", &DeleteParams::default())
        .await
        .unwrap();
    gone(&namespaces, "team").await;
}
