//! StatefulSets, as a client sees them.

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, StatefulSet},
    core::v1::{PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::support::{Fixture, cluster, eventually, is_ready, object, template};

fn set(spec: Value) -> Value {
    let mut set = json!({"metadata": {"name": "db"}, "spec": {
        "replicas": 3, "serviceName": "db",
        "selector": {"matchLabels": {"app": "db"}},
        "template": template("db", "app:1"),
    }});
    for (key, value) in spec.as_object().unwrap() {
        set["spec"][key] = value.clone();
    }
    set
}

async fn patch(fixture: &Fixture, spec: Value) {
    let fields = Patch::Strategic(json!({"spec": spec}));
    let api = fixture.api::<StatefulSet>();
    api.patch("db", &PatchParams::default(), &fields)
        .await
        .unwrap();
}

fn image(tag: &str) -> Value {
    json!({"template": {"spec": {"containers": [{"name": "main", "image": tag}]}}})
}

/// The names and images of the pods, once as many as wanted are ready.
async fn ready(fixture: &Fixture, count: usize) -> Vec<(String, String)> {
    fixture.ready("db", count).await.iter().map(seen).collect()
}

fn seen(pod: &Pod) -> (String, String) {
    let image = pod.spec.as_ref().unwrap().containers[0].image.clone();
    (pod.name_any(), image.unwrap())
}

/// Returns once the images of db-0, db-1 and so on are these. `check` sees all states before.
async fn images(fixture: &Fixture, want: &[&str], check: impl Fn(&[Pod])) {
    eventually(&format!("the images are {want:?}"), || async {
        let pods = fixture.pods("db").await;
        check(&pods);
        let images: Vec<String> = pods.iter().map(|pod| seen(pod).1).collect();
        if images == want && pods.iter().all(is_ready) {
            Ok(())
        } else {
            Err(images)
        }
    })
    .await;
}

#[tokio::test]
async fn pods_have_stable_names_and_come_in_order() {
    let fixture = cluster(2).await;
    fixture.create::<StatefulSet>(set(json!({}))).await;
    let pods = fixture.ready("db", 3).await;
    let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["db-0", "db-1", "db-2"]);
    let started = |pod: &Pod| pod.creation_timestamp().unwrap().0;
    assert!(pods.is_sorted_by_key(started), "one after the other");
    let spec = pods[1].spec.as_ref().unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("db-1"));
    assert_eq!(spec.subdomain.as_deref(), Some("db"));
    assert_eq!(pods[1].labels()["apps.kubernetes.io/pod-index"], "1");

    let options = DeleteParams::default();
    let api = fixture.api::<Pod>();
    api.delete("db-1", &options).await.unwrap();
    eventually("another pod has its name", || async {
        let pod = api.get_opt("db-1").await.unwrap();
        let uid = pod.as_ref().and_then(ResourceExt::uid);
        if pod.is_some_and(|pod| is_ready(&pod)) && uid != pods[1].uid() {
            Ok(())
        } else {
            Err(uid)
        }
    })
    .await;
    patch(&fixture, json!({"replicas": 1})).await;
    assert_eq!(ready(&fixture, 1).await[0].0, "db-0");
    eventually("the status follows", || async {
        let set = fixture.api::<StatefulSet>().get("db").await.unwrap();
        let status = set.status.unwrap();
        let counts = [
            Some(status.replicas),
            status.ready_replicas,
            status.updated_replicas,
        ];
        let done = counts == [Some(1); 3] && status.current_revision == status.update_revision;
        if done { Ok(()) } else { Err(status) }
    })
    .await;
    let events = fixture.events_about("db").await;
    let created = "Create Pod db-2 in StatefulSet db successful";
    let found = events.contains(&("SuccessfulCreate".into(), created.into()));
    assert!(found, "{events:?}");
}

#[tokio::test]
async fn a_rollout_stops_at_its_partition_and_can_go_back() {
    let fixture = cluster(2).await;
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
    fixture
        .create::<StatefulSet>(set(json!({"updateStrategy": strategy})))
        .await;
    ready(&fixture, 3).await;
    patch(&fixture, image("app:2")).await;
    images(&fixture, &["app:1", "app:1", "app:2"], |_| {}).await;
    // A pod below the partition comes back as it was.
    let options = DeleteParams::default();
    fixture.api::<Pod>().delete("db-0", &options).await.unwrap();
    images(&fixture, &["app:1", "app:1", "app:2"], |_| {}).await;
    patch(
        &fixture,
        json!({"updateStrategy": {"rollingUpdate": {"partition": 0}}}),
    )
    .await;
    images(&fixture, &["app:2", "app:2", "app:2"], |pods| {
        let missing = 3 - pods.iter().filter(|pod| is_ready(pod)).count();
        assert!(missing <= 1, "one pod at a time, but {missing} are missing");
    })
    .await;
    patch(&fixture, image("app:1")).await;
    images(&fixture, &["app:1", "app:1", "app:1"], |_| {}).await;
    let mut revisions: Vec<i64> = fixture
        .list::<ControllerRevision>()
        .await
        .iter()
        .map(|it| it.revision)
        .collect();
    revisions.sort_unstable();
    assert_eq!(revisions, [2, 3], "the first template is the newest again");
}

#[tokio::test]
async fn claims_stay_or_go_as_the_set_wants() {
    let fixture = cluster(2).await;
    let class = json!({"metadata": {"name": "now"}, "provisioner": "example.com/disk"});
    let classes: Api<StorageClass> = Api::all(fixture.client.clone());
    let options = PostParams::default();
    classes.create(&options, &object(class)).await.unwrap();
    let data = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "now",
        "resources": {"requests": {"storage": "1Gi"}},
    }});
    let retention = json!({"whenScaled": "Delete", "whenDeleted": "Retain"});
    let spec = json!({
        "podManagementPolicy": "Parallel", "volumeClaimTemplates": [data],
        "persistentVolumeClaimRetentionPolicy": retention,
    });
    fixture.create::<StatefulSet>(set(spec)).await;
    ready(&fixture, 3).await;
    let claims = |want: &'static [&'static str]| {
        let fixture = &fixture;
        eventually("the claims are as wanted", move || async move {
            let claims = fixture.list::<PersistentVolumeClaim>().await;
            let phase = |claim: &PersistentVolumeClaim| claim.status.clone().unwrap().phase;
            let bound = claims
                .iter()
                .all(|claim| phase(claim).as_deref() == Some("Bound"));
            let names: Vec<String> = claims.iter().map(ResourceExt::name_any).collect();
            if bound && names == want {
                Ok(())
            } else {
                Err(names)
            }
        })
    };
    claims(&["data-db-0", "data-db-1", "data-db-2"]).await;
    patch(&fixture, json!({"replicas": 1})).await;
    ready(&fixture, 1).await;
    claims(&["data-db-0"]).await;
    let options = DeleteParams::background();
    let sets = fixture.api::<StatefulSet>();
    sets.delete("db", &options).await.unwrap();
    ready(&fixture, 0).await;
    claims(&["data-db-0"]).await;
}
