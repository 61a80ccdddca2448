//! The tide of the demo of `up`: pods of the tiers come at low tide, and are suppressed or leave at high tide.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::tiers::{offers, running};
use crate::{Up, client};

/// From one low tide to the next.
const TIDE: Duration = Duration::from_secs(40);

/// Cores that all nodes lend to the batch tier, and pods that run in both tiers.
#[derive(Debug, Clone, Copy)]
struct TierFigures {
    lent: f64,
    batch: f64,
    mid: f64,
}

async fn figures(client: &Client) -> TierFigures {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await.unwrap();
    let lent = nodes.iter().map(|it| offers(it, "kubernetes.io/batch-cpu"));
    let (batch, mid) = tokio::join!(running(client, "render"), running(client, "recommend"));
    TierFigures {
        lent: lent.sum::<i64>() as f64 / 1000.0,
        batch: batch.len() as f64,
        mid: mid.len() as f64,
    }
}

/// The mean of the samples in this part of the time, in tides.
fn mean(samples: &[(Duration, TierFigures)], from: f64, to: f64) -> TierFigures {
    let within = samples.iter().filter(|(at, _)| {
        let tides = at.as_secs_f64() / TIDE.as_secs_f64();
        (from..to).contains(&tides)
    });
    let within: Vec<TierFigures> = within.map(|(_, figures)| *figures).collect();
    let mean =
        |of: fn(&TierFigures) -> f64| within.iter().map(of).sum::<f64>() / within.len() as f64;
    TierFigures {
        lent: mean(|it| it.lent),
        batch: mean(|it| it.batch),
        mid: mean(|it| it.mid),
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
    let begun = Instant::now();
    let client = client(&path).await;
    // The tier controller writes as often as this tide needs.
    let settings: Api<ConfigMap> = Api::namespaced(client.clone(), "tidepool-system");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tidepool-colocation"},
        "data": {"colocation-config": r#"{"updateTimeThresholdSeconds": 1}"#}});
    let (apply, map) = (PatchParams::apply("test"), Patch::Apply(map));
    let applied = settings.patch("tidepool-colocation", &apply, &map).await;
    applied.unwrap();
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
}
