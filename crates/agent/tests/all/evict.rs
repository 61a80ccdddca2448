//! Evictions through the embedded API server.

use agent::evict::{Outcome, evict};
use engine::model::Name;
use engine::node::EvictionOrder;
use serde_json::{Value, json};

use crate::support::TestCluster;

const POD: &str = "/api/v1/namespaces/default/pods/p";

async fn pod(cluster: &TestCluster) -> EvictionOrder {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "labels": {"app": "p"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "i"}]},
    });
    let pod = cluster
        .create("/api/v1/namespaces/default/pods", &pod)
        .await;
    let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    cluster.patch(&format!("{POD}/status"), &running).await;
    EvictionOrder {
        namespace: Name::from("default"),
        name: Name::from("p"),
        uid: Name::from(pod["metadata"]["uid"].as_str().unwrap()),
        reason: "memory".to_owned(),
    }
}

fn is_ending(pod: Option<Value>) -> bool {
    pod.is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string())
}

#[tokio::test]
async fn only_the_pod_with_the_uid_is_evicted() {
    let cluster = TestCluster::bare().await;
    let order = pod(&cluster).await;
    let other = EvictionOrder {
        uid: Name::from("00000000-0000-4000-8000-000000000000"),
        ..order.clone()
    };
    assert_eq!(evict(&cluster.client, &other, false).await, Outcome::Gone);
    assert!(!is_ending(cluster.get(POD).await));
    assert_eq!(evict(&cluster.client, &order, true).await, Outcome::Evicted);
    assert!(!is_ending(cluster.get(POD).await), "a dry run");
    assert_eq!(
        evict(&cluster.client, &order, false).await,
        Outcome::Evicted
    );
    assert!(is_ending(cluster.get(POD).await));
}

#[tokio::test]
async fn a_disruption_budget_forbids_an_eviction() {
    let cluster = TestCluster::bare().await;
    let order = pod(&cluster).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "p"}}},
    });
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    cluster.create(budgets, &budget).await;
    let outcome = evict(&cluster.client, &order, false).await;
    assert!(matches!(outcome, Outcome::Forbidden(_)), "{outcome:?}");
    assert!(!is_ending(cluster.get(POD).await));
}
