//! What the simulated kubelets and the controllers share: the client, the caches and the timings.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Node},
    policy::v1::PodDisruptionBudget,
};
use kube::{Api, Client, api::DeleteParams, runtime::watcher};
use reconcile::{Cache, Object, Requests, Watches, by_owner};
use tokio_util::sync::CancellationToken;

use crate::{
    events::Events,
    nodes::SIMULATED_SELECTOR,
    objects::{
        ControllerRevision, CronJob, DaemonSet, Deployment, Job, Pod, ReplicaSet,
        ReplicationController, StatefulSet,
        storage::{PersistentVolume, PersistentVolumeClaim, StorageClass},
    },
    pod_control::Creations,
};

/// How long simulated actions take, and how long the controllers wait.
#[derive(Debug, Clone)]
pub struct Timings {
    /// From the binding of a pod to its containers running.
    pub pod_start: Duration,
    /// From the deletion of a pod to its end; never longer than its grace period.
    pub pod_stop: Duration,
    /// A node renews its lease this often (the kubelet's 10 s).
    pub lease_renewal: Duration,
    /// A node writes an unchanged status this often (the kubelet's 5 min).
    pub node_status: Duration,
    /// A node without a heartbeat for longer becomes not ready.
    pub node_grace: Duration,
    /// Pods of a deleted node stay this long, in case the node comes back.
    pub lost_pods: Duration,
    /// A Job waits this long after a failed pod, and twice as long after each further one.
    pub job_retry: Duration,
    /// A pod of a Job runs this long, unless its annotation states another time.
    pub job_run: Duration,
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
            job_run: Duration::from_secs(10),
        }
    }
}

/// The namespace of the leases of nodes.
pub(crate) const NODE_LEASES: &str = "kube-node-lease";

pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) timings: Timings,
    pub(crate) pods: Arc<Cache<Pod>>,
    pub(crate) nodes: Arc<Cache<Node>>,
    pub(crate) leases: Arc<Cache<Lease>>,
    pub(crate) namespaces: Arc<Cache<Namespace>>,
    pub(crate) replica_sets: Arc<Cache<ReplicaSet>>,
    pub(crate) replication_controllers: Arc<Cache<ReplicationController>>,
    pub(crate) deployments: Arc<Cache<Deployment>>,
    pub(crate) stateful_sets: Arc<Cache<StatefulSet>>,
    pub(crate) daemon_sets: Arc<Cache<DaemonSet>>,
    pub(crate) revisions: Arc<Cache<ControllerRevision>>,
    pub(crate) cron_jobs: Arc<Cache<CronJob>>,
    pub(crate) jobs: Arc<Cache<Job>>,
    pub(crate) budgets: Arc<Cache<PodDisruptionBudget>>,
    pub(crate) claims: Arc<Cache<PersistentVolumeClaim>>,
    pub(crate) volumes: Arc<Cache<PersistentVolume>>,
    pub(crate) classes: Arc<Cache<StorageClass>>,
    pub(crate) watches: Watches,
    /// Everything stops when this is cancelled.
    pub(crate) cancel: CancellationToken,
    pub(crate) requests: Requests,
    pub(crate) creations: Creations,
}

impl Context {
    pub(crate) fn new(client: Client, timings: Timings) -> Arc<Self> {
        Arc::new(Self {
            timings,
            pods: Cache::new(Pod::index),
            nodes: Cache::new(by_owner),
            leases: Cache::new(by_owner),
            namespaces: Cache::new(by_owner),
            replica_sets: Cache::new(by_owner),
            replication_controllers: Cache::new(by_owner),
            deployments: Cache::new(by_owner),
            stateful_sets: Cache::new(by_owner),
            daemon_sets: Cache::new(by_owner),
            revisions: Cache::new(by_owner),
            cron_jobs: Cache::new(by_owner),
            jobs: Cache::new(by_owner),
            budgets: Cache::new(by_owner),
            claims: Cache::new(by_owner),
            volumes: Cache::new(by_owner),
            classes: Cache::new(by_owner),
            cancel: CancellationToken::new(),
            requests: Requests::new(client.clone()),
            creations: Creations::default(),
            watches: Watches::default(),
            client,
        })
    }

    /// Watches every object of a kind.
    pub(crate) fn watch<K: Object>(&self, cache: &Arc<Cache<K>>) {
        let api = Api::all(self.client.clone());
        self.watches.add(cache, api, watcher::Config::default());
    }

    /// Watches every kind that has a cache here.
    pub(crate) fn watch_all(&self) {
        self.watch(&self.pods);
        self.watch(&self.nodes);
        self.watch(&self.namespaces);
        self.watch(&self.replica_sets);
        self.watch(&self.replication_controllers);
        self.watch(&self.deployments);
        self.watch(&self.stateful_sets);
        self.watch(&self.daemon_sets);
        self.watch(&self.revisions);
        self.watch(&self.cron_jobs);
        self.watch(&self.jobs);
        self.watch(&self.budgets);
        self.watch(&self.claims);
        self.watch(&self.volumes);
        self.watch(&self.classes);
        let leases = Api::namespaced(self.client.clone(), NODE_LEASES);
        self.watches
            .add(&self.leases, leases, watcher::Config::default());
    }

    /// Watches what simulated kubelets need: pods that are bound, and the nodes with the label of simulated ones.
    pub(crate) fn watch_simulated_nodes(&self) {
        let api = || self.client.clone();
        let bound = watcher::Config::default().fields("spec.nodeName!=");
        self.watches.add(&self.pods, Api::all(api()), bound);
        let simulated = watcher::Config::default().labels(SIMULATED_SELECTOR);
        self.watches.add(&self.nodes, Api::all(api()), simulated);
    }

    /// Returns when every first list is complete, or on cancellation.
    pub(crate) async fn synced(&self) {
        self.watches.synced(&self.cancel).await;
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

    /// The events of a component, which has the name of its counterpart in Kubernetes.
    pub(crate) fn events(&self, component: &'static str) -> Events {
        Events::new(self.client.clone(), component)
    }
}
