//! Garbage collection and the deletion of namespaces.

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{ConfigMap, Namespace, Pod, ServiceAccount},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy},
};
use serde_json::json;

use crate::support::{Fixture, cluster, deployment, eventually, gone, object};

async fn delete(fixture: &Fixture, policy: PropagationPolicy) {
    let options = DeleteParams {
        propagation_policy: Some(policy),
        ..DeleteParams::default()
    };
    fixture
        .api::<Deployment>()
        .delete("web", &options)
        .await
        .unwrap();
}

#[tokio::test]
async fn in_the_background_everything_owned_follows() {
    let fixture = cluster(2).await;
    fixture.create::<Deployment>(deployment("web", 3)).await;
    fixture.ready("web", 3).await;
    delete(&fixture, PropagationPolicy::Background).await;
    fixture.ready("web", 0).await;
    let sets = fixture
        .api::<ReplicaSet>()
        .list(&ListParams::default())
        .await
        .unwrap();
    assert!(sets.items.is_empty());
}

#[tokio::test]
async fn in_the_foreground_the_owner_goes_last() {
    let fixture = cluster(2).await;
    fixture.create::<Deployment>(deployment("web", 3)).await;
    fixture.ready("web", 3).await;
    delete(&fixture, PropagationPolicy::Foreground).await;
    gone(&fixture.api::<Deployment>(), "web").await;
    assert!(fixture.pods("web").await.is_empty(), "its pods went first");
}

#[tokio::test]
async fn orphans_stay_and_can_be_adopted() {
    let fixture = cluster(2).await;
    fixture.create::<Deployment>(deployment("web", 3)).await;
    let before: Vec<_> = fixture
        .ready("web", 3)
        .await
        .iter()
        .map(ResourceExt::uid)
        .collect();
    delete(&fixture, PropagationPolicy::Orphan).await;
    gone(&fixture.api::<Deployment>(), "web").await;
    let sets = fixture
        .api::<ReplicaSet>()
        .list(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(sets.items.len(), 1);
    assert!(sets.items[0].owner_references().is_empty());

    fixture.create::<Deployment>(deployment("web", 3)).await;
    eventually("the new owner adopts the old set", || async {
        let sets = fixture
            .api::<ReplicaSet>()
            .list(&ListParams::default())
            .await
            .unwrap();
        let owners: Vec<_> = sets
            .items
            .iter()
            .map(|set| set.owner_references().len())
            .collect();
        if owners == [1] { Ok(()) } else { Err(owners) }
    })
    .await;
    let after: Vec<_> = fixture
        .ready("web", 3)
        .await
        .iter()
        .map(ResourceExt::uid)
        .collect();
    assert_eq!(before, after, "not one pod was replaced");
}

#[tokio::test]
async fn an_object_lives_as_long_as_one_of_its_owners() {
    let fixture = cluster(0).await;
    let mut owners = Vec::new();
    for name in ["a", "b"] {
        let owner = fixture
            .create::<ConfigMap>(json!({"metadata": {"name": name}}))
            .await;
        owners.push(json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner.uid().unwrap()}));
    }
    fixture
        .create::<ConfigMap>(json!({"metadata": {"name": "child", "ownerReferences": owners}}))
        .await;
    let api = fixture.api::<ConfigMap>();
    api.delete("a", &DeleteParams::default()).await.unwrap();
    eventually("it has one owner", || async {
        let left = api.get("child").await.unwrap().owner_references().to_vec();
        if left.len() == 1 { Ok(()) } else { Err(left) }
    })
    .await;
    api.delete("b", &DeleteParams::default()).await.unwrap();
    gone(&api, "child").await;

    let lost = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "never-was"}]);
    fixture
        .create::<ConfigMap>(json!({"metadata": {"name": "stray", "ownerReferences": lost}}))
        .await;
    gone(&api, "stray").await;
}

#[tokio::test]
async fn namespaces_get_their_defaults_and_are_emptied() {
    let fixture = cluster(1).await;
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    let named = |name: &str| object::<Namespace>(json!({"metadata": {"name": name}}));
    namespaces
        .create(&PostParams::default(), &named("team"))
        .await
        .unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(fixture.client.clone(), "team");
    let maps: Api<ConfigMap> = Api::namespaced(fixture.client.clone(), "team");
    eventually("it is furnished", || async {
        let account = accounts.get_opt("default").await.unwrap();
        let bundle = maps
            .get_opt("kube-root-ca.crt")
            .await
            .unwrap()
            .and_then(|map| map.data);
        match (account, bundle) {
            (Some(_), Some(bundle)) if bundle["ca.crt"] == "the root certificate" => Ok(()),
            other => Err(other),
        }
    })
    .await;
    let web: Deployment = object(deployment("web", 3));
    let deployments: Api<Deployment> = Api::namespaced(fixture.client.clone(), "team");
    deployments
        .create(&PostParams::default(), &web)
        .await
        .unwrap();
    let pods: Api<Pod> = Api::namespaced(fixture.client.clone(), "team");
    eventually("pods run", || async {
        let count = pods
            .list(&ListParams::default().fields("status.phase=Running"))
            .await
            .unwrap()
            .items
            .len();
        if count == 3 { Ok(()) } else { Err(count) }
    })
    .await;
    let held: ConfigMap =
        object(json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}));
    maps.create(&PostParams::default(), &held).await.unwrap();

    namespaces
        .delete("team", &DeleteParams::default())
        .await
        .unwrap();
    eventually("it says what holds it up", || async {
        let status = namespaces.get("team").await.unwrap().status.unwrap();
        let told = status.conditions.iter().flatten().any(|c| {
            c.type_ == "NamespaceFinalizersRemaining"
                && c.message.as_deref().unwrap_or("").contains("1 configmaps")
        });
        if told { Ok(()) } else { Err(status) }
    })
    .await;
    eventually("its pods are gone", || async {
        let left = pods.list(&ListParams::default()).await.unwrap().items.len();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &PatchParams::default(), &free)
        .await
        .unwrap();
    gone(&namespaces, "team").await;
}
