//! What every part of the local cluster shares: the client, the caches and how long things take.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{Namespace, Node, ObjectReference},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Preconditions},
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    cache::{Cache, Key, Kind, by_owner},
    pod::Pod,
};

/// How long simulated things take, and how patient the controllers are.
#[derive(Debug, Clone)]
pub struct Timings {
    /// From the binding of a pod to its containers running.
    pub pod_start: Duration,
    /// From the deletion of a pod to its end; never longer than its grace period.
    pub pod_stop: Duration,
    /// A node renews its lease this often (the kubelet's 10 s).
    pub lease_renewal: Duration,
    /// A node repeats its status this often though nothing changed (the kubelet's 5 min).
    pub node_status: Duration,
    /// A node silent for longer is not ready any more.
    pub node_grace: Duration,
    /// Pods of a removed node stay this long, in case it comes back.
    pub lost_pods: Duration,
    /// A Job waits this long after a failed pod, and twice as long after each further one.
    pub job_retry: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            pod_start: Duration::from_millis(300),
            pod_stop: Duration::from_millis(500),
            lease_renewal: Duration::from_secs(10),
            node_status: Duration::from_secs(300),
            node_grace: Duration::from_secs(40),
            lost_pods: Duration::from_secs(40),
            job_retry: Duration::from_secs(10),
        }
    }
}

/// Where nodes keep their leases.
pub(crate) const NODE_LEASES: &str = "kube-node-lease";

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) timings: Timings,
    pub(crate) pods: Arc<Cache<Pod>>,
    pub(crate) nodes: Arc<Cache<Node>>,
    pub(crate) leases: Arc<Cache<Lease>>,
    pub(crate) namespaces: Arc<Cache<Namespace>>,
    pub(crate) replica_sets: Arc<Cache<ReplicaSet>>,
    pub(crate) deployments: Arc<Cache<Deployment>>,
    pub(crate) jobs: Arc<Cache<Job>>,
    pub(crate) budgets: Arc<Cache<PodDisruptionBudget>>,
    /// Everything stops when this is cancelled.
    pub(crate) cancel: CancellationToken,
    events: Recorder,
}

impl World {
    pub(crate) fn new(client: Client, timings: Timings) -> Arc<Self> {
        let reporter = Reporter {
            controller: "tidepool-local".into(),
            instance: Some("tidepool-local".into()),
        };
        Arc::new(Self {
            timings,
            pods: Cache::new(Pod::links),
            nodes: Cache::new(by_owner),
            leases: Cache::new(by_owner),
            namespaces: Cache::new(by_owner),
            replica_sets: Cache::new(by_owner),
            deployments: Cache::new(by_owner),
            jobs: Cache::new(by_owner),
            budgets: Cache::new(by_owner),
            cancel: CancellationToken::new(),
            events: Recorder::new(client.clone(), reporter),
            client,
        })
    }

    /// Starts to watch. Listeners must be in place before, or they miss the first list.
    pub(crate) fn watch(&self, tasks: &TaskTracker) {
        fn all<K: Kind>(world: &World, cache: &Arc<Cache<K>>, tasks: &TaskTracker) {
            let api = Api::all(world.client.clone());
            tasks.spawn(cache.clone().run(api, world.cancel.clone()));
        }
        all(self, &self.pods, tasks);
        all(self, &self.nodes, tasks);
        all(self, &self.namespaces, tasks);
        all(self, &self.replica_sets, tasks);
        all(self, &self.deployments, tasks);
        all(self, &self.jobs, tasks);
        all(self, &self.budgets, tasks);
        let leases = Api::namespaced(self.client.clone(), NODE_LEASES);
        tasks.spawn(self.leases.clone().run(leases, self.cancel.clone()));
    }

    /// Returns once every first list is complete, because before that absence means nothing, or on cancellation.
    pub(crate) async fn synced(&self) {
        let all = async {
            tokio::join!(
                self.pods.synced(),
                self.nodes.synced(),
                self.leases.synced(),
                self.namespaces.synced(),
                self.replica_sets.synced(),
                self.deployments.synced(),
                self.jobs.synced(),
                self.budgets.synced(),
            )
        };
        self.cancel.run_until_cancelled(all).await;
    }

    pub(crate) fn namespaced<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn cluster<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>,
    {
        Api::all(self.client.clone())
    }

    /// Deletes exactly this pod and none that took its name; one that is gone already is fine.
    pub(crate) async fn delete_pod(
        &self,
        pod: &Pod,
        grace_seconds: Option<u32>,
    ) -> Result<(), kube::Error> {
        let api = self.namespaced::<Pod>(&Key::of(&pod.metadata).namespace);
        let options = DeleteParams {
            grace_period_seconds: grace_seconds,
            preconditions: Some(Preconditions {
                uid: pod.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        match api.delete(pod.name(), &options).await {
            Err(error) if is_gone(&error) => Ok(()),
            result => result.map(drop),
        }
    }

    /// Tells whoever describes the object. Nothing depends on it, so a failure is only logged.
    pub(crate) async fn tell(
        &self,
        about: ObjectReference,
        type_: EventType,
        reason: &str,
        note: String,
    ) {
        let event = Event {
            type_,
            reason: reason.into(),
            note: Some(cut(note)),
            action: reason.into(),
            secondary: None,
        };
        if let Err(error) = self.events.publish(&event, &about).await {
            tracing::debug!(reason, error = %brief(&error), "an event could not be written");
        }
    }
}

/// Longer notes are refused by the API.
fn cut(mut note: String) -> String {
    const LIMIT: usize = 1024;
    if note.len() > LIMIT {
        let end = (0..=LIMIT - 3)
            .rev()
            .find(|&end| note.is_char_boundary(end));
        note.truncate(end.unwrap_or(0));
        note.push_str("...");
    }
    note
}

pub(crate) fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}

pub(crate) fn already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_already_exists())
}

/// The server's own sentence, without the client's wrapping.
pub(crate) fn brief(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// A patch that is refused when the object was replaced by another of the same name.
pub(crate) fn patch_of(uid: Option<&str>, fields: serde_json::Value) -> serde_json::Value {
    let mut patch = fields;
    patch["metadata"]["uid"] = uid.into();
    patch
}

/// Why a key could not be brought up to date; it will be tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{}", brief(.0))]
    Request(#[from] kube::Error),
    #[error("the selector cannot be used: {0}")]
    Selector(#[from] kube::core::ParseExpressionError),
    #[error("an object cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}
