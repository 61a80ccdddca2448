//! Evicts pods through the Eviction API, which obeys PodDisruptionBudgets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use engine::model::Name;
use engine::node::{EvictionOrder, PodEvent};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use reconcile::{EventRecorder, EventType};
use serde_json::json;
use tokio::sync::mpsc::Receiver;

use crate::control::EvictionAnswer;
use crate::request::{self, RequestError};

/// What became of an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Evicted,
    /// The pod has ended, or another one has its name.
    Gone,
    /// A PodDisruptionBudget forbids it.
    Forbidden(String),
    Failed(String),
}

impl Outcome {
    fn name(&self) -> &'static str {
        match self {
            Self::Evicted => "evicted",
            Self::Gone => "gone",
            Self::Forbidden(_) => "forbidden",
            Self::Failed(_) => "failed",
        }
    }
}

/// Evictions by their outcome.
#[derive(Debug, Clone, Default)]
pub struct EvictionCounts {
    counts: Arc<Mutex<BTreeMap<&'static str, u64>>>,
}

impl EvictionCounts {
    pub fn get(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.clone()
    }

    fn add(&self, outcome: &Outcome) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(outcome.name()).or_default() += 1;
    }
}

/// Carries out orders, one after the other, and returns each answer.
pub(crate) async fn run(
    client: Client,
    dry_run: bool,
    mut orders: Receiver<EvictionOrder>,
    answer: mpsc::Sender<EvictionAnswer>,
    counts: EvictionCounts,
) {
    while let Some(order) = orders.recv().await {
        let outcome = evict(&client, &order, dry_run).await;
        counts.add(&outcome);
        let (namespace, pod, reason) = (&*order.namespace, &*order.name, &order.reason);
        match &outcome {
            Outcome::Evicted if dry_run => {
                tracing::info!(namespace, pod, reason, "would evict pod");
            }
            Outcome::Evicted => {
                tracing::info!(namespace, pod, reason, "evicted pod");
                record_eviction(&client, &order).await;
            }
            Outcome::Gone => {}
            Outcome::Forbidden(why) | Outcome::Failed(why) => {
                tracing::warn!(namespace, pod, reason, why, "cannot evict pod");
            }
        }
        let is_accepted = matches!(outcome, Outcome::Evicted | Outcome::Gone);
        // The receiver ends with the agent.
        let _ = answer.send((order.uid.clone(), is_accepted));
    }
}

/// Writes the event about a pod that was evicted.
pub async fn record_eviction(client: &Client, order: &EvictionOrder) {
    let about = about(&order.namespace, &order.name, &order.uid);
    let recorder = recorder(client);
    let record = recorder.record(about, EventType::Warning, "Evicted", &order.reason);
    record.await;
}

fn recorder(client: &Client) -> EventRecorder {
    EventRecorder::new(client.clone(), "tidepool-agent")
}

/// Writes events about pods.
pub(crate) async fn record_events(client: Client, mut events: Receiver<PodEvent>) {
    let recorder = recorder(&client);
    while let Some(event) = events.recv().await {
        let (namespace, pod, message) = (&*event.namespace, &*event.name, &event.message);
        tracing::warn!(namespace, pod, message, "pod has less than it may use");
        let about = about(&event.namespace, &event.name, &event.uid);
        let record = recorder.record(about, EventType::Warning, event.reason, message);
        record.await;
    }
}

fn about(namespace: &Name, name: &Name, uid: &Name) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.to_string()),
        name: Some(name.to_string()),
        uid: Some(uid.to_string()),
        ..ObjectReference::default()
    }
}

/// Asks the API server once; `dry_run` changes nothing. Another pod of the same name stays.
pub async fn evict(client: &Client, order: &EvictionOrder, dry_run: bool) -> Outcome {
    let (namespace, name) = (&*order.namespace, &*order.name);
    let url = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
    let mut eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": &*order.uid}},
    });
    if dry_run {
        eviction["deleteOptions"]["dryRun"] = json!(["All"]);
    }
    match request::create(client, &url, &eviction).await {
        Ok(_) => Outcome::Evicted,
        Err(RequestError::NotFound | RequestError::Conflict) => Outcome::Gone,
        Err(RequestError::TooMany(why)) => Outcome::Forbidden(why),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}
