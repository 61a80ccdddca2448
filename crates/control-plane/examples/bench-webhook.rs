//! Measures the CPU time of the webhook's answers, from the bytes of a review to the bytes of its answer, with 100 profiles. Prints
//! one JSON line per kind of pod, and fails if the 99th percentile is above 5 ms.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop where it stands")]
#![allow(clippy::print_stdout, reason = "its output is its result")]

use std::sync::Arc;
use std::time::Duration;

use apiserver::{Cluster, Options};
use control_plane::webhook::objects::AdmissionObjects;
use control_plane::webhook::pods::{PodAdmission, paths};
use control_plane::webhook::server::respond;
use engine::admission::SystemNamespaces;
use kube::Client;
use reconcile::Watches;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const PROFILES: usize = 100;
const CALLS: usize = 2_000;
const MOST: Duration = Duration::from_millis(5);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let cluster = Cluster::new(Options::default());
    let client = Client::new(cluster.service(), "default");
    for (_, definition) in api::crds::all() {
        post(
            &client,
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            &definition,
        )
        .await;
    }
    let class = json!({"metadata": {"name": "koord-batch"}, "value": 5000, "preemptionPolicy": "PreemptLowerPriority"});
    post(
        &client,
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        &class,
    )
    .await;
    for i in 0..PROFILES {
        // Every tenth profile matches.
        let app = if i % 10 == 0 { "web" } else { "other" };
        let spec = json!({"selector": {"matchLabels": {"app": app}}, "labels": {format!("label-{i}"): "x"},
            "qosClass": "BE", "priorityClassName": "koord-batch", "patch": {"spec": {"nodeSelector": {"disk": "ssd"}}}});
        let profile = json!({"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile",
            "metadata": {"name": format!("profile-{i:03}")}, "spec": spec});
        post(
            &client,
            "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles",
            &profile,
        )
        .await;
    }
    let watches = Watches::default();
    let objects = AdmissionObjects::watch(&client, &watches, SystemNamespaces::default());
    let cancel = CancellationToken::new();
    watches.start(&TaskTracker::new(), &cancel);
    watches.synced(&cancel).await;
    let admission = Arc::new(PodAdmission::new(
        objects,
        "tidepool-system".to_owned(),
        "system:serviceaccount:tidepool-system:tidepool-controllers".to_owned(),
    ));
    let (path, reviewer) = paths(&admission).remove(0);
    let mut is_slow = false;
    for (name, containers, annotation) in [
        ("small", 1, 0),
        ("large", 30, 16 << 10),
        ("huge", 100, 1 << 20),
    ] {
        let body = review(containers, annotation);
        let mut times: Vec<Duration> = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let begun = cpu_time();
            let (status, ..) = respond(&reviewer, &body).await;
            times.push(cpu_time() - begun);
            assert!(status.is_success());
        }
        times.sort();
        let micros = |percent: usize| times[CALLS * percent / 100 - 1].as_micros();
        // A pod of a megabyte is mostly the reading and writing of JSON.
        is_slow |= name != "huge" && times[CALLS * 99 / 100 - 1] > MOST;
        let line = json!({"benchmark": "webhook", "path": path, "pod": name, "bytes": body.len(), "containers": containers,
            "profiles": PROFILES, "calls": CALLS, "p50_us": micros(50) as u64, "p99_us": micros(99) as u64});
        println!("{line}");
    }
    cancel.cancel();
    assert!(
        !is_slow,
        "the 99th percentile is above {MOST:?} of CPU time"
    );
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn review(containers: usize, annotation: usize) -> Vec<u8> {
    let container = |i: usize| {
        json!({"name": format!("c{i}"), "image": "image", "env": [{"name": "A", "value": "b"}, {"name": "C", "value": "d"}],
            "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}})
    };
    let containers: Vec<Value> = (0..containers).map(container).collect();
    let metadata = json!({"generateName": "web-", "namespace": "default", "labels": {"app": "web"},
        "annotations": {"text": "x".repeat(annotation)}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}});
    let request = json!({"uid": "4f1b2c3d-0000-4000-8000-000000000000", "operation": "CREATE", "namespace": "default",
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "object": pod});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
        .to_string()
        .into_bytes()
}

async fn post(client: &Client, path: &str, object: &Value) {
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).unwrap();
    client.request::<Value>(request).await.unwrap();
}
