//! The tide of the demo of `up`: pods of the tiers come at low tide, and are suppressed or leave at high tide.

use std::time::{Duration, Instant};

use engine::model::Quantity;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::{
    Api, Client,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    },
};
use serde_json::json;

use crate::tiers::{offers, running};
use crate::{Up, client};

/// From one low tide to the next.
const TIDE: Duration = Duration::from_secs(40);
/// The time between these parts of it has more use of services than low tide.
const RISES: f64 = 0.1;
const FALLS: f64 = 0.9;

/// A batch pod that needs more than high tide leaves, and the thousandths of a core that it uses if it is not suppressed.
const HUNGRY: &str = "hungry";
const WANTED: i64 = 3000;

/// Cores that all nodes lend to the batch tier, pods of the demo that run in both tiers, and the use of the hungry pod.
#[derive(Debug, Clone, Copy)]
struct TierFigures {
    lent: f64,
    batch: f64,
    mid: f64,
    /// What the hungry pod used, in thousandths of a core, by the report of the agent; 0 while it does not run.
    hungry: f64,
}

async fn figures(client: &Client) -> TierFigures {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await.unwrap();
    let lent = nodes.iter().map(|it| offers(it, "kubernetes.io/batch-cpu"));
    let (batch, mid, hungry) = tokio::join!(
        running(client, "render"),
        running(client, "recommend"),
        hungry(client)
    );
    TierFigures {
        lent: lent.sum::<i64>() as f64 / 1000.0,
        batch: batch.len() as f64,
        mid: mid.len() as f64,
        hungry: hungry as f64,
    }
}

/// A service that needs most of a node at high tide, and a batch pod beside it that comes before the jobs of the demo. Both run until
/// they are evicted.
async fn create_hungry(client: &Client) {
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": HUNGRY}, "value": 6000});
    let classes: Api<PriorityClass> = Api::all(client.clone());
    let class = serde_json::from_value(class).unwrap();
    classes
        .create(&PostParams::default(), &class)
        .await
        .unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "demo");
    let batch =
        json!({"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"});
    let amounts =
        json!({"kubernetes.io/batch-cpu": WANTED.to_string(), "kubernetes.io/batch-memory": "1Gi"});
    for (name, labels, uses, amounts) in [
        ("service", json!({}), 6000, json!({"cpu": "500m"})),
        (HUNGRY, batch, WANTED, amounts),
    ] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels,
                "annotations": {"tidepool.io/cpu-use": format!("{uses}m")}},
            "spec": {"priorityClassName": HUNGRY, "serviceAccountName": "shop",
                "nodeSelector": {"kubernetes.io/hostname": "node-001"},
                "containers": [{"name": "main", "image": "image", "resources": {"requests": amounts, "limits": amounts}}]}});
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
}

/// What the hungry pod uses.
async fn hungry(client: &Client) -> i64 {
    let kind = GroupVersionKind::gvk("slo.koordinator.sh", "v1alpha1", "NodeMetric");
    let metrics: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let metrics = metrics.list(&ListParams::default()).await.unwrap();
    let mut pods = metrics.iter().flat_map(|it| {
        let pods = it.data["status"]["podsMetric"].as_array();
        pods.into_iter().flatten()
    });
    let used = pods.find(|pod| pod["name"] == HUNGRY);
    let used = used.and_then(|pod| pod["podUsage"]["resources"]["cpu"].as_str());
    used.map_or(0, |used| Quantity::parse(used).unwrap().milli())
}

/// When the hungry pod was evicted, and why.
async fn evictions(client: &Client) -> Vec<(jiff::Timestamp, String)> {
    let events: Api<Event> = Api::namespaced(client.clone(), "demo");
    let of_agents = ListParams::default().fields("reason=Evicted");
    let events = events.list(&of_agents).await.unwrap().items.into_iter();
    let events = events.filter(|event| event.involved_object.name.as_deref() == Some(HUNGRY));
    let eviction = |event: Event| Some((event.first_timestamp?.0, event.message?));
    events.filter_map(eviction).collect()
}

/// The samples in this part of the time, in tides.
fn part(
    samples: &[(Duration, TierFigures)],
    from: f64,
    to: f64,
) -> impl Iterator<Item = TierFigures> {
    let within = samples.iter().filter(move |(at, _)| {
        let tides = at.as_secs_f64() / TIDE.as_secs_f64();
        (from..to).contains(&tides)
    });
    within.map(|(_, figures)| *figures)
}

/// The mean of the samples in this part of the time, in tides.
fn mean(samples: &[(Duration, TierFigures)], from: f64, to: f64) -> TierFigures {
    let within: Vec<TierFigures> = part(samples, from, to).collect();
    let mean =
        |of: fn(&TierFigures) -> f64| within.iter().map(of).sum::<f64>() / within.len() as f64;
    TierFigures {
        lent: mean(|it| it.lent),
        batch: mean(|it| it.batch),
        mid: mean(|it| it.mid),
        hungry: mean(|it| it.hungry),
    }
}

#[tokio::test]
async fn pods_of_the_tiers_follow_the_tide() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("kubeconfig");
    let tide = format!("{}s", TIDE.as_secs());
    let _up = Up::start(&[
        "--nodes",
        "3",
        "--tide",
        &tide,
        "--kubeconfig-out",
        path.to_str().unwrap(),
    ]);
    let (begun, began) = (Instant::now(), jiff::Timestamp::now());
    let client = client(&path).await;
    // The tier controller writes as often as this tide needs.
    let settings: Api<ConfigMap> = Api::namespaced(client.clone(), "tidepool-system");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tidepool-colocation"},
        "data": {"colocation-config": r#"{"updateTimeThresholdSeconds": 1}"#}});
    let (apply, map) = (PatchParams::apply("test"), Patch::Apply(map));
    let applied = settings.patch("tidepool-colocation", &apply, &map).await;
    applied.unwrap();
    create_hungry(&client).await;
    let mut samples = Vec::new();
    while begun.elapsed() < TIDE * 9 / 8 {
        samples.push((begun.elapsed(), figures(&client).await));
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    for (at, figures) in samples.iter().step_by(8) {
        println!("{:>4.1} s {figures:?}", at.as_secs_f64());
    }
    let (low, high, low_again) = (
        mean(&samples, 0.15, 0.3),
        mean(&samples, 0.5, 0.7),
        mean(&samples, 0.95, 1.13),
    );
    println!("low {low:?}, high {high:?}, then {low_again:?}");
    for low in [low, low_again] {
        assert!(low.batch >= 3.0 && low.mid >= 1.0, "{low:?}");
        assert!(high.lent < 0.7 * low.lent, "{high:?} after {low:?}");
        assert!(high.batch < 0.7 * low.batch, "{high:?} after {low:?}");
    }
    check_hungry(&client, &samples, began).await;
}

/// It is suppressed when the tide rises, and then evicted.
#[expect(clippy::print_stdout, reason = "shown when the test fails")]
async fn check_hungry(
    client: &Client,
    samples: &[(Duration, TierFigures)],
    began: jiff::Timestamp,
) {
    let uses = samples.iter().map(|(_, figures)| figures.hungry as i64);
    let mut uses: Vec<i64> = uses.filter(|used| *used > 0).collect();
    uses.dedup();
    println!("the hungry pod used {uses:?}");
    assert_eq!(uses.iter().max(), Some(&WANTED), "{uses:?}");
    assert!(uses.last() < Some(&WANTED), "{uses:?}");
    let evictions = evictions(client).await;
    assert_eq!(evictions.len(), 1, "{evictions:?}");
    let (at, reason) = &evictions[0];
    let tides = at.duration_since(began).as_secs_f64() / TIDE.as_secs_f64();
    println!("evicted after {tides:.2} tides: {reason}");
    assert!((RISES..FALLS).contains(&tides), "{tides}: {reason}");
    let words = "best-effort pods request";
    assert!(reason.starts_with(words), "{reason}");
}
