//! The controller of hot spots: whom it evicts, what it says about it, and dry runs.

use std::net::SocketAddr;
use std::time::Duration;

use control_plane::client::Connect;
use control_plane::controllers::hot_spots::{self, Relief, ReliefSettings};
use control_plane::controllers::{Controllers, ControllersOptions, Settings};
use control_plane::serve::{Port, Serve};
use engine::policies::hot_spots::HotSpotSettings;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::http::send_to;
use crate::reclaimed::define;
use crate::support::{Fixture, NAMESPACE, eventually, object};
use crate::tier_controller::{metrics, system_namespace};

const SETTINGS: ReliefSettings = ReliefSettings {
    relief: Relief::On,
    plan: HotSpotSettings {
        high: engine::policies::hot_spots::Marks {
            cpu: 75,
            memory: 80,
        },
        low: engine::policies::hot_spots::Marks {
            cpu: 45,
            memory: 55,
        },
        rounds: 3,
        per_node: 2,
        workload_pause: Duration::from_millis(100),
        mid_best_effort_pause: Duration::from_millis(100),
        per_minute: 10,
    },
    interval: Duration::from_millis(100),
    scheduler: hot_spots::SchedulerProfiles(None),
};

/// The nodes `hot` and `idle` of ten cores, of which `hot` lends one.
async fn fixture() -> Fixture {
    let fixture = Fixture::new().await;
    define(&fixture).await;
    system_namespace(&fixture).await;
    for (name, lends) in [("hot", "1k"), ("idle", "10k")] {
        let amounts = json!({"cpu": "10", "memory": "10Gi", "pods": "110",
            "kubernetes.io/batch-cpu": lends, "kubernetes.io/batch-memory": "10Gi"});
        let node = json!({"metadata": {"name": name},
            "status": {"capacity": amounts, "allocatable": amounts}});
        let node = object(node);
        let made = fixture.nodes().create(&PostParams::default(), &node).await;
        made.unwrap();
    }
    fixture
}

async fn add_batch_pod(fixture: &Fixture, name: &str) {
    let amounts = json!({"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"});
    let resources = json!({"requests": amounts, "limits": amounts});
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": true});
    let pod = json!({
        "metadata": {"name": name, "ownerReferences": [owner],
            "labels": {"app": name, "koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"}},
        "spec": {"nodeName": "hot", "containers": [{"name": "main", "image": "job:1", "resources": resources}]},
    });
    fixture.create_pod(pod).await;
}

/// Writes the NodeMetrics of both nodes: each of these pods uses a core of `hot`, the rest is of services.
async fn measure(fixture: &Fixture, milli_cpu: u32, pods: &[&str]) {
    measure_at(fixture, jiff::Timestamp::now(), milli_cpu, pods).await;
}

/// Writes the NodeMetrics of both nodes by a clock that shows this time.
async fn measure_at(fixture: &Fixture, at: jiff::Timestamp, milli_cpu: u32, pods: &[&str]) {
    let usage =
        |milli_cpu: u32| json!({"resources": {"cpu": format!("{milli_cpu}m"), "memory": "1Gi"}});
    let metrics = metrics(fixture);
    for (node, milli_cpu, pods) in [("hot", milli_cpu, pods), ("idle", 500, &[][..])] {
        let metric = json!({"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": node}});
        // It may be there already.
        let _ = metrics
            .create(&PostParams::default(), &object(metric))
            .await;
        let pod = |name: &&str| json!({"namespace": NAMESPACE, "name": name, "podUsage": usage(1000), "priority": "koord-batch"});
        let pods: Vec<Value> = pods.iter().map(pod).collect();
        let status = json!({"status": {
            "updateTime": at.to_string(),
            "nodeMetric": {"nodeUsage": usage(milli_cpu), "systemUsage": usage(0)},
            "podsMetric": pods,
        }});
        let (status, none) = (Patch::Merge(status), PatchParams::default());
        metrics.patch_status(node, &none, &status).await.unwrap();
    }
}

struct Running {
    _stop: oneshot::Sender<()>,
    server: SocketAddr,
}

fn run(fixture: &Fixture, relief: Relief) -> Running {
    let options = ControllersOptions {
        controllers: &[hot_spots::CONTROLLER],
        settings: Settings {
            hot_spots: ReliefSettings { relief, ..SETTINGS },
            ..Settings::default()
        },
        election: None,
        serve: Some(Serve {
            port: Port::Exactly(0),
            ..Serve::default()
        }),
    };
    let connect = Connect::Client(fixture.client.clone());
    let controllers = Controllers::new(connect, options).unwrap();
    let server = controllers.server().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(controllers.run(async {
        let _ = stopped.await;
    }));
    Running {
        _stop: stop,
        server,
    }
}

async fn metric_becomes(running: &Running, line: &str) {
    eventually(line, || async {
        let (_, text) = send_to(running.server, "GET", "/metrics", "").await;
        match text.lines().any(|it| it == line) {
            true => Ok(()),
            false => Err(text),
        }
    })
    .await;
}

/// Pods and messages of the events with this reason.
async fn events(fixture: &Fixture, reason: &str) -> Vec<(String, String)> {
    let events: Api<Event> = Api::namespaced(fixture.client.clone(), NAMESPACE);
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let of_reason = events
        .into_iter()
        .filter(|it| it.reason.as_deref() == Some(reason));
    of_reason
        .map(|it| {
            assert_eq!(it.type_.as_deref(), Some("Warning"));
            let pod = it.involved_object.name.unwrap();
            (pod, it.message.unwrap())
        })
        .collect()
}

async fn event_about(fixture: &Fixture, reason: &str, pod: &str) -> String {
    eventually(&format!("{reason} of {pod}"), || async {
        let found = events(fixture, reason).await;
        let about = found.iter().find(|(it, _)| it == pod);
        about.map(|(_, message)| message.clone()).ok_or(found)
    })
    .await
}

async fn is_leaving(fixture: &Fixture, name: &str) -> bool {
    let pod = fixture.pods().get_opt(name).await.unwrap();
    pod.is_none_or(|it| it.metadata.deletion_timestamp.is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_leave_a_hot_node_until_it_is_below_the_mark() {
    let fixture = fixture().await;
    for name in ["a", "b", "c"] {
        add_batch_pod(&fixture, name).await;
    }
    measure(&fixture, 8000, &["a", "b", "c"]).await;
    let running = run(&fixture, Relief::On);
    let message = event_about(&fixture, "HotSpot", "a").await;
    let (begin, end) = message.split_once(", and was a hot spot in ").unwrap();
    assert_eq!(
        begin,
        "evicted: node hot uses 80% of its cpu and 10% of its memory (high marks 75% and 80%)"
    );
    let (_, end) = end.split_once(" rounds; ").unwrap();
    assert_eq!(
        end,
        "the pod uses 1000m cpu and 1024Mi memory; the scheduler would place it on node idle, which would use 15% of its \
         cpu and 20% of its memory"
    );
    // The metric still has the pod, which leaves: the node is below the mark.
    assert!(is_leaving(&fixture, "a").await);
    metric_becomes(&running, "tidepool_hot_nodes 0").await;
    measure(&fixture, 7000, &["b", "c"]).await;
    metric_becomes(&running, "tidepool_hot_spot_evictions_total 1").await;
    metric_becomes(&running, "tidepool_measured_nodes 2").await;
    // Time in which a controller that does not stop evicts more.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!is_leaving(&fixture, "b").await && !is_leaving(&fixture, "c").await);
    assert_eq!(events(&fixture, "HotSpot").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_evicts_nothing() {
    let fixture = fixture().await;
    for name in ["a", "b"] {
        add_batch_pod(&fixture, name).await;
    }
    measure(&fixture, 9000, &["a", "b"]).await;
    let running = run(&fixture, Relief::DryRun);
    let message = event_about(&fixture, "HotSpotDryRun", "a").await;
    assert!(
        message.starts_with("would be evicted: node hot uses 90%"),
        "{message}"
    );
    metric_becomes(&running, "tidepool_hot_nodes 1").await;
    metric_becomes(&running, "tidepool_hot_spot_evictions_total 0").await;
    assert!(!is_leaving(&fixture, "a").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_keeps_a_pod_and_the_next_one_leaves() {
    let fixture = fixture().await;
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        Api::namespaced(fixture.client.clone(), NAMESPACE);
    let made = budgets
        .create(&PostParams::default(), &object(budget))
        .await;
    made.unwrap();
    for name in ["a", "b"] {
        add_batch_pod(&fixture, name).await;
        let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
        let none = PatchParams::default();
        let pods = fixture.pods();
        pods.patch_status(name, &none, &running).await.unwrap();
    }
    measure(&fixture, 8000, &["a", "b"]).await;
    let _running = run(&fixture, Relief::On);
    event_about(&fixture, "HotSpot", "b").await;
    assert!(!is_leaving(&fixture, "a").await);
}

/// Two controllers believe that they lead, and the clock of the node is an hour off.
#[tokio::test(flavor = "multi_thread")]
async fn two_leaders_evict_no_more_than_one() {
    let fixture = fixture().await;
    for name in ["a", "b", "c"] {
        add_batch_pod(&fixture, name).await;
    }
    let hour = jiff::SignedDuration::from_hours(1);
    measure_at(
        &fixture,
        jiff::Timestamp::now() + hour,
        8000,
        &["a", "b", "c"],
    )
    .await;
    let running = [run(&fixture, Relief::On), run(&fixture, Relief::On)];
    event_about(&fixture, "HotSpot", "a").await;
    assert!(is_leaving(&fixture, "a").await);
    for leader in &running {
        metric_becomes(leader, "tidepool_hot_nodes 0").await;
    }
    measure_at(&fixture, jiff::Timestamp::now() - hour, 7000, &["b", "c"]).await;
    // Time in which a controller that does not stop evicts more.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!is_leaving(&fixture, "b").await && !is_leaving(&fixture, "c").await);
}
