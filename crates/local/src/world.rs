//! What every part of the local cluster shares: the client, the caches and how long things take.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Node},
    policy::v1::PodDisruptionBudget,
};
use kube::{Api, Client, Resource, api::DeleteParams};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    cache::{Cache, Kind, by_owner},
    events::{Events, Severity},
    objects::{Deployment, Job, Pod, ReplicaSet},
    requests::Requests,
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
    pub(crate) requests: Requests,
    events: Events,
}

impl World {
    pub(crate) fn new(client: Client, timings: Timings) -> Arc<Self> {
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
            requests: Requests::new(client.clone()),
            events: Events::new(client.clone()),
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

    /// Deletes a pod with its own grace period, or with this one.
    pub(crate) async fn delete_pod(
        &self,
        pod: &Pod,
        grace_seconds: Option<u32>,
    ) -> Result<(), kube::Error> {
        let options = DeleteParams {
            grace_period_seconds: grace_seconds,
            ..DeleteParams::background()
        };
        self.requests.delete::<Pod>(&pod.metadata, options).await
    }

    pub(crate) async fn tell(
        &self,
        about: &impl Resource<DynamicType = ()>,
        severity: Severity,
        reason: &str,
        message: &str,
    ) {
        self.events
            .tell(about.object_ref(&()), severity, reason, message)
            .await;
    }
}
