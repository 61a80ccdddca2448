//! Pods whose volumes are provisioned or bound for the chosen node.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use control_plane::scheduler::Options;
use http::{Method, Request};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::http::any_port;
use crate::metrics::{options as metrics_options, under_way};
use crate::support::{Fixture, NAMESPACE, SCHEDULER, condition, eventually, object, pod};

pub(crate) fn claims(fixture: &Fixture) -> Api<PersistentVolumeClaim> {
    Api::default_namespaced(fixture.client.clone())
}

pub(crate) fn volumes(fixture: &Fixture) -> Api<PersistentVolume> {
    Api::all(fixture.client.clone())
}

/// A claim that waits for its first pod, and that pod.
pub(crate) async fn claim_and_pod(fixture: &Fixture, provisioner: &str) {
    class(fixture, provisioner).await;
    claim(fixture, "data").await;
    fixture.create_pod(pod_with("db", "data")).await;
}

/// The class `late`.
async fn class(fixture: &Fixture, provisioner: &str) {
    let classes: Api<StorageClass> = Api::all(fixture.client.clone());
    let class = json!({"metadata": {"name": "late"}, "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer"});
    classes
        .create(&PostParams::default(), &object(class))
        .await
        .unwrap();
}

async fn claim(fixture: &Fixture, name: &str) {
    let claim = json!({"metadata": {"name": name}, "spec": {"storageClassName": "late",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    claims(fixture)
        .create(&PostParams::default(), &object(claim))
        .await
        .unwrap();
}

fn pod_with(name: &str, claim: &str) -> Value {
    let mut pod = pod(name, "10m");
    pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    pod
}

pub(crate) fn volume() -> Value {
    json!({"metadata": {"name": "disk"}, "spec": {
        "storageClassName": "late", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/disk"}}})
}

/// What a provisioner and the volume controller do together.
async fn make_volume(fixture: &Fixture) {
    let mut disk = volume();
    disk["spec"]["claimRef"] = json!({"namespace": "default", "name": "data"});
    volumes(fixture)
        .create(&PostParams::default(), &object(disk))
        .await
        .unwrap();
    bind_claim(fixture).await;
}

/// What the volume controller does last.
pub(crate) async fn bind_claim(fixture: &Fixture) {
    bind_claim_named(fixture, "data").await;
}

async fn bind_claim_named(fixture: &Fixture, claim: &str) {
    let bound = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "disk"}});
    let api = claims(fixture);
    let (params, patch) = (PatchParams::default(), Patch::Merge(bound));
    api.patch(claim, &params, &patch).await.unwrap();
}

/// The scheduler has written the pod's node to its claim.
async fn node_is_selected(fixture: &Fixture) {
    eventually("the claim names the node", || async {
        let claim = claims(fixture).get("data").await.unwrap();
        let annotations = claim.metadata.annotations.unwrap_or_default();
        match annotations.get("volume.kubernetes.io/selected-node") {
            Some(node) if node == "node" => Ok(()),
            _ => Err(annotations),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_made_for_the_chosen_node() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    fixture.schedule();
    claim_and_pod(&fixture, "example.com/disks").await;
    node_is_selected(&fixture).await;
    assert!(fixture.placed().await.is_empty());
    make_volume(&fixture).await;
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

/// Requests about single claims: all reads so far, writes under way, and the most of them at a time.
#[derive(Default)]
struct Requests {
    reads: AtomicUsize,
    writing: AtomicUsize,
    most_writing: AtomicUsize,
}

/// A client whose writes of claims take a while.
fn counting(fixture: &Fixture) -> (Client, Arc<Requests>) {
    let requests = Arc::<Requests>::default();
    let (inner, counts) = (fixture.client.clone(), requests.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, counts) = (inner.clone(), counts.clone());
        async move {
            if !request.uri().path().contains("/persistentvolumeclaims/") {
                return inner.send(request).await;
            }
            if request.method() == Method::GET {
                counts.reads.fetch_add(1, Ordering::SeqCst);
                return inner.send(request).await;
            }
            let writing = counts.writing.fetch_add(1, Ordering::SeqCst) + 1;
            counts.most_writing.fetch_max(writing, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            let answer = inner.send(request).await;
            counts.writing.fetch_sub(1, Ordering::SeqCst);
            answer
        }
    });
    (Client::new(service, NAMESPACE), requests)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_wait_for_volumes_ask_for_nothing() {
    const PODS: usize = 100;
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    class(&fixture, "example.com/disks").await;
    for index in 0..PODS {
        claim(&fixture, &format!("data-{index}")).await;
        let pod = pod_with(&format!("db-{index}"), &format!("data-{index}"));
        fixture.create_pod(pod).await;
    }
    let (client, requests) = counting(&fixture);
    fixture.schedule_by(client, metrics_options());
    eventually("every claim names the node", || async {
        let claims = claims(&fixture).list(&ListParams::default()).await.unwrap();
        let named = claims.iter().filter(|claim| {
            let node = claim
                .annotations()
                .get("volume.kubernetes.io/selected-node");
            node.is_some_and(|node| node == "node")
        });
        match named.count() {
            PODS => Ok(()),
            count => Err(count),
        }
    })
    .await;
    waiting(&fixture, PODS as f64).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    for index in 0..PODS {
        bind_claim_named(&fixture, &format!("data-{index}")).await;
    }
    fixture.all_placed(PODS).await;
    // The watch may be so late that one or the other claim does not seem to name the node yet.
    let reads = requests.reads.load(Ordering::SeqCst);
    assert!(reads <= PODS, "{reads} reads");
    let most = requests.most_writing.load(Ordering::SeqCst);
    assert!((2..=32).contains(&most), "{most} writes at a time");
    fixture.stop().await;
}

/// Returns once so many pods are prepared.
async fn waiting(fixture: &Fixture, count: f64) {
    under_way(fixture, "PreBind", count).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_gone_is_not_waited_for() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    fixture.schedule_with_options(metrics_options());
    claim_and_pod(&fixture, "example.com/disks").await;
    waiting(&fixture, 1.0).await;
    fixture.kill("db").await;
    waiting(&fixture, 0.0).await;
    // Another one of that name is waited for once.
    fixture.create_pod(pod_with("db", "data")).await;
    waiting(&fixture, 1.0).await;
    bind_claim(&fixture).await;
    fixture.all_placed(1).await;
    waiting(&fixture, 0.0).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_loses_its_node_or_is_deleted_fails_the_pod_at_once() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    fixture.schedule_with_options(metrics_options());
    claim_and_pod(&fixture, "example.com/disks").await;
    waiting(&fixture, 1.0).await;
    // The work at PreBind begins before the claim is patched.
    node_is_selected(&fixture).await;
    let failed_with = |message: &'static str| {
        let fixture = &fixture;
        eventually(message, move || async move {
            let events = fixture.events().await;
            let message =
                format!("running PreBind plugin \"VolumeBinding\": binding volumes: {message}");
            let found = events.iter().any(|(_, _, note)| *note == message);
            if found { Ok(()) } else { Err(events) }
        })
    };
    let nothing =
        json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": null}}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(nothing));
    let begun = Instant::now();
    claims(&fixture)
        .patch("data", &params, &patch)
        .await
        .unwrap();
    failed_with("provisioning failed for PVC \"data\"").await;
    // It is tried again.
    waiting(&fixture, 1.0).await;
    let at_once = DeleteParams::default().grace_period(0);
    claims(&fixture).delete("data", &at_once).await.unwrap();
    // It is in use, so it stays until the pod is gone.
    failed_with("pvc \"data\" is being deleted").await;
    assert!(
        begun.elapsed() < Duration::from_secs(25),
        "found by looking again"
    );
    fixture.stop().await;
}

/// Options with so much time for the volumes of a pod.
fn options_within(seconds: u32) -> Options {
    let text = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: {SCHEDULER}\n  pluginConfig: [{{name: VolumeBinding, args: {{bindTimeoutSeconds: {seconds}}}}}]\n"
    );
    let (configuration, _) = api::config::load(&text).unwrap();
    let (mut options, _) =
        Options::new(&configuration, engine::scheduling::plugins::ALL, "host").unwrap();
    options.serve = Some(any_port());
    options
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_never_made_is_waited_for_only_so_long() {
    const LONGEST: Duration = Duration::from_secs(2);
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    fixture.schedule_with_options(options_within(2));
    let begun = Instant::now();
    claim_and_pod(&fixture, "example.com/disks").await;
    waiting(&fixture, 1.0).await;
    let words =
        "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded";
    eventually("the pod is told why it has no node", || async {
        let condition = condition(&fixture.pods().get("db").await.unwrap(), "PodScheduled");
        let want = ("False".into(), "SchedulerError".into(), words.into());
        let events = fixture.events().await;
        let event = ("db".into(), "FailedScheduling".into(), words.into());
        match condition == Some(want) && events.contains(&event) {
            true => Ok(()),
            false => Err((condition, events)),
        }
    })
    .await;
    let took = begun.elapsed();
    assert!(took > LONGEST, "it waited for {took:?}");
    assert!(took < Duration::from_secs(25), "found by looking again");
    assert!(fixture.placed().await.is_empty());
    // It is tried again, and gets what is made at last.
    waiting(&fixture, 1.0).await;
    make_volume(&fixture).await;
    assert_eq!(fixture.all_placed(1).await["db"], "node");
    waiting(&fixture, 0.0).await;
    fixture.stop().await;
}
