//! The tier controller: what it publishes in the status of nodes, from which settings, and how often.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use control_plane::client::Connect;
use control_plane::controllers::{Controllers, ControllersOptions, Settings, tiers};
use http::{Method, Request};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::agent_controller::events;
use crate::reclaimed::define;
use crate::support::{Fixture, eventually, object, without_permission};

const GIB: i64 = 1 << 30;

pub(crate) async fn system_namespace(fixture: &Fixture) {
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    let namespace = json!({"metadata": {"name": "tidepool-system"}});
    let made = namespaces
        .create(&PostParams::default(), &object(namespace))
        .await;
    made.unwrap();
}

/// A cluster with the node `n1` of 10 cores and 10 GiB.
async fn fixture() -> Fixture {
    let fixture = Fixture::new().await;
    define(&fixture).await;
    system_namespace(&fixture).await;
    let amounts = json!({"cpu": "10", "memory": "10Gi", "pods": "110"});
    let node = json!({"metadata": {"name": "n1"}, "status": {"capacity": amounts, "allocatable": amounts}});
    let nodes = fixture.nodes();
    nodes
        .create(&PostParams::default(), &object(node))
        .await
        .unwrap();
    fixture
}

/// Runs the controller until the sender is dropped, and counts its writes of nodes.
fn start(fixture: &Fixture, no_overselling: bool) -> (oneshot::Sender<()>, Arc<AtomicUsize>) {
    let client = fixture.client.clone();
    start_with(client, no_overselling)
}

fn start_with(client: Client, no_overselling: bool) -> (oneshot::Sender<()>, Arc<AtomicUsize>) {
    let patches = Arc::new(AtomicUsize::new(0));
    let counter = patches.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        if request.method() == Method::PATCH && request.uri().path().contains("/nodes/") {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        let client = client.clone();
        async move { client.send(request).await }
    });
    let options = ControllersOptions {
        controllers: &[tiers::CONTROLLER],
        settings: Settings {
            tiers: tiers::TierSettings {
                no_overselling,
                ..tiers::TierSettings::default()
            },
            ..Settings::default()
        },
        election: None,
        serve: None,
    };
    let client = Client::new(service, "default");
    let controllers = Controllers::new(Connect::Client(client), options).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(controllers.run(async {
        let _ = stopped.await;
    }));
    (stop, patches)
}

pub(crate) fn metrics(fixture: &Fixture) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("slo.koordinator.sh", "v1alpha1", "NodeMetric");
    let resource = ApiResource::from_gvk_with_plural(&kind, "nodemetrics");
    Api::all_with(fixture.client.clone(), &resource)
}

/// Writes the NodeMetric of a node on which nothing is reclaimable, as an agent does now.
pub(crate) async fn metric_now(fixture: &Fixture, node: &str) {
    report_of(fixture, node, "0", 0).await;
}

/// Writes the NodeMetric of `n1`, as an agent does now or did some minutes ago.
async fn report(fixture: &Fixture, reclaimable: &str, minutes_ago: i64) {
    report_of(fixture, "n1", reclaimable, minutes_ago).await;
}

async fn report_of(fixture: &Fixture, node: &str, reclaimable: &str, minutes_ago: i64) {
    let time = jiff::Timestamp::now() - jiff::SignedDuration::from_mins(minutes_ago);
    let usage = json!({"cpu": "1", "memory": "1Gi"});
    let status = json!({
        "updateTime": time.to_string(),
        "nodeMetric": {"nodeUsage": {"resources": usage}, "systemUsage": {"resources": {"cpu": "0", "memory": "0"}}},
        "prodReclaimableMetric": {"resource": {"resources": {"cpu": reclaimable, "memory": "1Gi"}}},
    });
    write_metric(fixture, node, &status).await;
}

async fn write_metric(fixture: &Fixture, node: &str, status: &Value) {
    let metrics = metrics(fixture);
    let metric = json!({"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": node}});
    // It may be there already.
    let _ = metrics
        .create(&PostParams::default(), &object(metric))
        .await;
    let patch = Patch::Merge(json!({"status": status}));
    let patched = metrics
        .patch_status(node, &PatchParams::default(), &patch)
        .await;
    patched.unwrap();
}

async fn configure(fixture: &Fixture, config: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(fixture.client.clone(), "tidepool-system");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tidepool-colocation"},
        "data": {"colocation-config": config}});
    let patch = Patch::Apply(map);
    let force = PatchParams::apply("test").force();
    let applied = maps.patch("tidepool-colocation", &force, &patch).await;
    applied.unwrap();
}

/// mid-cpu, mid-memory, batch-cpu and batch-memory; `-` for a key that is not there.
async fn published(fixture: &Fixture) -> [String; 4] {
    published_of(fixture, "n1").await
}

async fn published_of(fixture: &Fixture, node: &str) -> [String; 4] {
    let node: Node = fixture.nodes().get(node).await.unwrap();
    let status = node.status.unwrap_or_default();
    assert_eq!(
        status.capacity.as_ref().unwrap().len(),
        status.allocatable.as_ref().unwrap().len()
    );
    let allocatable = status.allocatable.unwrap_or_default();
    ["mid-cpu", "mid-memory", "batch-cpu", "batch-memory"].map(|name| {
        let key = format!("kubernetes.io/{name}");
        allocatable
            .get(&key)
            .map_or("-".to_owned(), |it| it.0.clone())
    })
}

async fn becomes(fixture: &Fixture, case: &str, want: [&str; 4]) {
    eventually(case, || async {
        let found = published(fixture).await;
        if found == want { Ok(()) } else { Err(found) }
    })
    .await;
}

fn bytes(amount: i64) -> String {
    amount.to_string()
}

async fn pod(fixture: &Fixture, name: &str, requests: Value) {
    let pod = json!({
        "metadata": {"name": name},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "app:1",
            "resources": {"requests": requests, "limits": requests}}]},
    });
    fixture.create_pod(pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tiers_follow_the_metric_the_settings_and_bound_pods() {
    let fixture = fixture().await;
    configure(&fixture, r#"{"lend": "batch"}"#).await;
    let (_stop, patches) = start(&fixture, false);
    pod(&fixture, "web", json!({"cpu": "4", "memory": "4Gi"})).await;

    report(&fixture, "2", 0).await;
    let mid_memory = bytes(7 * GIB);
    // 10 cores less a margin of 4 and the request of the service, which has no metric.
    let batch_memory = bytes(10 * GIB - (10.0 * GIB as f64 * 0.35) as i64 - 4 * GIB);
    let full = ["8k", &mid_memory, "2k", &batch_memory];
    becomes(&fixture, "the first metric is published", full).await;
    let writes = patches.load(Ordering::Relaxed);

    // A change of less than a tenth waits.
    report(&fixture, "2100m", 0).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(published(&fixture).await, full);
    assert_eq!(patches.load(Ordering::Relaxed), writes);
    report(&fixture, "4", 0).await;
    let more = ["10k", &mid_memory, "2k", &batch_memory];
    becomes(&fixture, "a larger change is published", more).await;

    let tier = json!({"kubernetes.io/mid-cpu": "3000", "kubernetes.io/mid-memory": "1Gi"});
    pod(&fixture, "job", tier).await;
    configure(
        &fixture,
        r#"{"lend": "batch", "midCPUThresholdPercent": 0, "enable": false}"#,
    )
    .await;
    let bound = bytes(GIB);
    let held = ["3k", &bound, "-", "-"];
    becomes(&fixture, "what bound pods request stays", held).await;

    let before = patches.load(Ordering::Relaxed);
    configure(&fixture, r#"{"midCPUThresholdPercent": 101}"#).await;
    let events: Api<Event> = Api::namespaced(fixture.client.clone(), "tidepool-system");
    let message = "colocation-config: line 1: midCPUThresholdPercent: 101 is not allowed: use 0 to 100; the last valid settings stay in force";
    eventually("an event names the field", || async {
        let events = events.list(&ListParams::default()).await.unwrap();
        let messages: Vec<_> = events.items.into_iter().map(|it| it.message).collect();
        let found = messages.contains(&Some(message.to_owned()));
        if found { Ok(()) } else { Err(messages) }
    })
    .await;
    assert_eq!(patches.load(Ordering::Relaxed), before);

    fixture
        .pods()
        .delete("job", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    becomes(&fixture, "disabled tiers are removed", ["-"; 4]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_metric_keeps_only_what_is_bound() {
    let fixture = fixture().await;
    let (_stop, _) = start(&fixture, true);
    let tier = json!({"kubernetes.io/mid-cpu": "3000", "kubernetes.io/mid-memory": "1Gi"});
    pod(&fixture, "job", tier).await;
    report(&fixture, "2", 0).await;
    let (mid, batch) = (
        bytes(10 * GIB),
        bytes(10 * GIB - (10.0 * GIB as f64 * 0.35) as i64 - GIB),
    );
    let full = ["10k", &mid, "3k", &batch];
    becomes(&fixture, "without overselling", full).await;
    report(&fixture, "2", 20).await;
    let bound = bytes(GIB);
    becomes(&fixture, "only bound pods fit", ["3k", &bound, "0", "0"]).await;
    report(&fixture, "2", 0).await;
    becomes(&fixture, "a new metric counts at once", full).await;
}

/// A node with an invalid part lends nothing, or the invalid part counts as the nearest value. Other nodes do not notice.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_objects_concern_only_their_node() {
    let fixture = fixture().await;
    configure(&fixture, r#"{"lend": "batch"}"#).await;
    let ago = |minutes: i64| {
        let age = jiff::SignedDuration::from_mins(minutes);
        (jiff::Timestamp::now() - age).to_string()
    };
    let usage = |cpu: &str| json!({"resources": {"cpu": cpu, "memory": "1Gi"}});
    let metric =
        |node: &str, system: &str| json!({"nodeUsage": usage(node), "systemUsage": usage(system)});
    let status = |minutes_ago: i64, metric: Value| {
        json!({
            "updateTime": ago(minutes_ago), "nodeMetric": metric,
            "prodReclaimableMetric": {"resource": usage("2")},
        })
    };
    let good = status(0, metric("1", "0"));
    let mut dead = good.clone();
    dead["podsMetric"] = json!([{"namespace": "default", "name": "gone", "priority": "koord-prod", "podUsage": usage("3")}]);
    let reservation = |text: &str| json!({"node.koordinator.sh/reservation": text});
    let large = r#"{"resources": {"cpu": "20", "memory": "20Gi"}}"#;
    let (none, ten) = (json!({}), "10");
    // Name, annotations, cores, status of the NodeMetric; mid-cpu and batch-cpu.
    let nodes = [
        (
            "valid",
            none.clone(),
            ten,
            Some(good.clone()),
            ["12k", "6k"],
        ),
        ("no-metric", none.clone(), ten, None, ["-", "-"]),
        (
            "no-node-metric",
            none.clone(),
            ten,
            Some(json!({"updateTime": ago(0)})),
            ["-", "-"],
        ),
        (
            "negative-use",
            none.clone(),
            ten,
            Some(status(0, metric("-1", "-5"))),
            ["12k", "6k"],
        ),
        (
            "absurd-use",
            none.clone(),
            ten,
            Some(status(0, metric("10E", "10E"))),
            ["12k", "0"],
        ),
        ("dead-pod", none.clone(), ten, Some(dead), ["12k", "3k"]),
        (
            "no-cores",
            none.clone(),
            "0",
            Some(good.clone()),
            ["0", "0"],
        ),
        (
            "no-json",
            reservation("all of it"),
            ten,
            Some(good.clone()),
            ["12k", "6k"],
        ),
        (
            "large-reservation",
            reservation(large),
            ten,
            Some(good),
            ["0", "0"],
        ),
        (
            "hour-behind",
            none.clone(),
            ten,
            Some(status(60, metric("1", "0"))),
            ["-", "-"],
        ),
        (
            "hour-ahead",
            none,
            ten,
            Some(status(-60, metric("1", "0"))),
            ["-", "-"],
        ),
    ];
    for (name, annotations, cores, status, _) in &nodes {
        let amounts = json!({"cpu": cores, "memory": "10Gi", "pods": "110"});
        let node = json!({"metadata": {"name": name, "annotations": annotations},
            "status": {"capacity": amounts, "allocatable": amounts}});
        let params = PostParams::default();
        fixture
            .nodes()
            .create(&params, &object(node))
            .await
            .unwrap();
        if let Some(status) = status {
            write_metric(&fixture, name, status).await;
        }
    }
    // Two controllers believe that they lead.
    let (_first, first) = start(&fixture, false);
    let (_second, second) = start(&fixture, false);
    for (name, .., want) in &nodes {
        eventually(name, || async {
            let [mid, _, batch, _] = published_of(&fixture, name).await;
            let found = [mid, batch];
            if found == *want { Ok(()) } else { Err(found) }
        })
        .await;
    }
    let writes = || first.load(Ordering::Relaxed) + second.load(Ordering::Relaxed);
    let before = writes();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(writes(), before, "they do not write against each other");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_without_permission_names_it() {
    let fixture = fixture().await;
    let message = "nodes \"n1\" is forbidden: User \"c\" cannot patch resource \"nodes/status\"";
    let client = without_permission(&fixture, Method::PATCH, "/nodes/n1/status", message);
    let (_stop, _) = start_with(client, false);
    report(&fixture, "2", 0).await;
    let want = "User \"c\" cannot patch resource \"nodes/status\"";
    eventually("an event names it", || async {
        let found = events(&fixture, "tidepool-system", "MissingPermission").await;
        if found == [want] { Ok(()) } else { Err(found) }
    })
    .await;
    assert_eq!(published(&fixture).await, ["-"; 4]);
}
