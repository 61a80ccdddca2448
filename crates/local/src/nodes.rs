//! Simulated kubelets: they complete the status of their Nodes, renew their leases, reject bound pods that do not fit, and
//! take the others through their lifecycle. No containers run.

mod addresses;
mod admission;
mod heartbeat;
mod pod_lifecycle;
mod shape;
mod zones;

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    core::PartialObjectMeta,
};
use reconcile::{
    Error, Index, Key, Part, QueueStats, Requeue, WorkQueue, is_already_exists, message_of,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::{
    addresses::{Addresses, NodeNetwork, Range},
    admission::Decision,
    pod_lifecycle::{PodNetwork, Stage, Step},
    shape::Amounts,
    zones::{ReportedZones, ZoneCheck},
};
pub use self::{
    pod_lifecycle::{EXIT_CODE, RUN_FOR},
    shape::Shape,
    zones::NUMA,
};
use crate::{context::Context, events::Events, objects::Pod};

/// Label of a Node: `true` leaves it to `tidepool nodes`.
pub const SIMULATED: &str = "tidepool.io/simulated";
pub(crate) const SIMULATED_SELECTOR: &str = "tidepool.io/simulated=true";
/// Annotation of a Node: with `off` its simulated kubelet does nothing, and the node becomes not ready after a while.
pub const HEARTBEAT: &str = "tidepool.io/heartbeat";

const POD_WORKERS: usize = 32;
const NODE_WORKERS: usize = 32;
const ZONE_WORKERS: usize = 8;
/// A critical pod checks this often whether the pods it preempts are gone.
const PREEMPTION_CHECK: Duration = Duration::from_millis(100);

/// Adds, changes and deletes nodes while the kubelets run.
#[derive(Clone)]
pub struct Nodes {
    kubelets: Arc<Kubelets>,
}

impl Nodes {
    /// Creates a node that is ready at once.
    pub async fn add(&self, shape: &Shape) -> Result<(), kube::Error> {
        let network = self.kubelets.network(&shape.name);
        let mut node = shape.node();
        if self.kubelets.scope == Scope::Labelled {
            let labels = node.metadata.labels.get_or_insert_default();
            labels.insert(SIMULATED.to_owned(), "true".to_owned());
        }
        let node = shape::completed(&node, &network, Timestamp::now());
        let node = serde_json::to_value(&node).map_err(kube::Error::SerdeError)?;
        self.kubelets
            .context
            .requests
            .create::<Node>(None, &node)
            .await
            .map(drop)
    }

    /// As [`Nodes::add`] for many; a node of that name may exist already if the kubelets act for it. Adds the names of the
    /// nodes that it created, also if others fail.
    pub async fn ensure(
        &self,
        shapes: &[Shape],
        created: &mut Vec<String>,
    ) -> Result<(), NodeError> {
        let results = stream::iter(shapes).map(|shape| async move {
            match self.add(shape).await {
                Err(error) if is_already_exists(&error) => {
                    self.reuse(&shape.name).await.map(|()| None)
                }
                result => Ok(result.map(|()| Some(shape.name.clone()))?),
            }
        });
        let mut results = results.buffer_unordered(NODE_WORKERS);
        let mut ensured = Ok(());
        while let Some(result) = results.next().await {
            match result {
                Ok(name) => created.extend(name),
                Err(error) => ensured = ensured.and(Err(error)),
            }
        }
        ensured
    }

    async fn reuse(&self, name: &str) -> Result<(), NodeError> {
        let nodes: Api<Node> = Api::all(self.kubelets.context.client.clone());
        let node = nodes.get_opt(name).await?;
        if node.is_some_and(|node| !self.kubelets.owns(&node)) {
            return Err(NodeError::NotSimulated(name.to_owned()));
        }
        tracing::info!(node = name, "node exists already");
        Ok(())
    }

    /// Deletes those of these nodes that have the label [`SIMULATED`], and returns how many it deleted.
    pub async fn delete_simulated(&self, names: &[String]) -> Result<usize, kube::Error> {
        let context = &self.kubelets.context;
        // Not from the cache, which may not show the newest nodes yet.
        let nodes: Api<Node> = Api::all(context.client.clone());
        let simulated = ListParams::default().labels(SIMULATED_SELECTOR);
        let listed = nodes.list_metadata(&simulated).await?;
        let names: HashSet<&str> = names.iter().map(String::as_str).collect();
        let deleted = listed
            .iter()
            .map(|node| &node.metadata)
            .filter(|meta| meta.name.as_deref().is_some_and(|it| names.contains(it)))
            .map(|meta| {
                let options = DeleteParams::background();
                context.requests.delete::<Node>(meta, options)
            });
        let deleted = stream::iter(deleted).buffer_unordered(NODE_WORKERS);
        deleted.try_collect::<Vec<()>>().await.map(|all| all.len())
    }

    /// The numbers of the kubelets' work queues.
    pub fn queues(&self) -> Vec<QueueStats> {
        let queues = self.kubelets.queues.iter();
        queues.map(|queue| queue.stats()).collect()
    }

    /// How many nodes the kubelets act for.
    pub fn count(&self) -> usize {
        let nodes = self.kubelets.context.nodes.all();
        nodes.iter().filter(|it| self.kubelets.owns(it)).count()
    }

    /// Creates `count` demo nodes.
    pub async fn add_demo(&self, count: usize) -> Result<(), kube::Error> {
        let shapes: Vec<Shape> = (0..count).map(|index| Shape::demo(index, count)).collect();
        self.add_all(&shapes).await
    }

    /// As [`Nodes::add`] for many.
    pub async fn add_all(&self, shapes: &[Shape]) -> Result<(), kube::Error> {
        stream::iter(shapes)
            .map(|shape| self.add(shape))
            .buffer_unordered(NODE_WORKERS)
            .try_collect()
            .await
    }

    /// Deletes a node.
    pub async fn remove(&self, name: &str) -> Result<(), kube::Error> {
        self.api()
            .delete(name, &DeleteParams::background())
            .await
            .map(drop)
    }

    /// Makes a node unschedulable.
    pub async fn cordon(&self, name: &str) -> Result<(), kube::Error> {
        self.patch(name, json!({"spec": {"unschedulable": true}}))
            .await
    }

    /// Makes a node schedulable.
    pub async fn uncordon(&self, name: &str) -> Result<(), kube::Error> {
        self.patch(name, json!({"spec": {"unschedulable": null}}))
            .await
    }

    /// Stops the kubelet of a node: no heartbeats, and its pods stay as they are.
    pub async fn stop_heartbeat(&self, name: &str) -> Result<(), kube::Error> {
        self.patch(
            name,
            json!({"metadata": {"annotations": {HEARTBEAT: "off"}}}),
        )
        .await
    }

    pub async fn resume_heartbeat(&self, name: &str) -> Result<(), kube::Error> {
        self.patch(
            name,
            json!({"metadata": {"annotations": {HEARTBEAT: null}}}),
        )
        .await
    }

    async fn patch(&self, name: &str, fields: Value) -> Result<(), kube::Error> {
        let options = PatchParams::default();
        self.api()
            .patch(name, &options, &Patch::Merge(fields))
            .await
            .map(drop)
    }

    fn api(&self) -> Api<PartialObjectMeta<Node>> {
        Api::all(self.kubelets.context.client.clone())
    }
}

/// Which Nodes the kubelets act for. The two scopes never overlap, so that no Node has two kubelets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those without the label [`SIMULATED`].
    Unlabelled,
    /// Those with the label: other Nodes of the cluster are real.
    Labelled,
}

/// Why a node cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(
        "node {0} exists and has no label {SIMULATED}=true: choose other names with --name-prefix"
    )]
    NotSimulated(String),
    #[error(
        "the cluster has no kind CustomNodeResource for NUMA zones: define it with `kubectl apply -f deploy/crds`"
    )]
    NoZones,
    #[error("{}", message_of(.0))]
    Request(#[from] kube::Error),
}

fn is_silent(node: &Node) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    annotations.is_some_and(|a| a.get(HEARTBEAT).is_some_and(|value| value == "off"))
}

fn is_labelled(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.get(SIMULATED).is_some_and(|value| value == "true"))
}

fn pod_cidr(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.pod_cidr.as_deref()
}

struct Kubelets {
    context: Arc<Context>,
    events: Events,
    scope: Scope,
    /// The queues of pods, of nodes and of the zones of nodes.
    queues: [Arc<WorkQueue<Key>>; 3],
    memory: Mutex<Memory>,
}

/// What kubelets know besides the objects.
#[derive(Default)]
struct Memory {
    addresses: Addresses,
    /// The stage of each pod, by uid, and since when: objects only keep whole seconds.
    stages: HashMap<String, (Stage, Instant)>,
    /// The uids of admitted pods, whose status may not show it yet.
    admitted: HashSet<String>,
    /// When each node last renewed its lease.
    renewed: HashMap<String, Instant>,
    /// The extended resources in the capacity of each node, as last reported.
    extended: HashMap<String, Amounts>,
    /// The NUMA zones of each node, as last reported.
    zones: HashMap<String, ReportedZones>,
    zone_check: ZoneCheck,
}

/// Registers the listeners; the returned future does the work.
pub(crate) fn start(context: Arc<Context>, scope: Scope) -> (Nodes, impl Future<Output = ()>) {
    let (pods, nodes) = (WorkQueue::new("pods"), WorkQueue::new("nodes"));
    let zones = WorkQueue::new("zones");
    let kubelets = Arc::new(Kubelets {
        context: context.clone(),
        events: context.events("kubelet"),
        scope,
        queues: [pods.clone(), nodes.clone(), zones.clone()],
        memory: Mutex::default(),
    });

    let (wake, seen, wake_zones) = (pods.clone(), kubelets.clone(), zones.clone());
    context.pods.listen(move |change| {
        match (change.old, change.new) {
            (Some(old), None) => seen.memory().forget_pod(old.uid()),
            (_, Some(pod)) if pod.is_bound() => {
                seen.memory().note_address(pod);
                wake.add(Key::of(&pod.metadata));
            }
            _ => {}
        }
        for pod in change.sides().filter(|pod| zones::claims_zones(pod)) {
            wake_zones.add(Key::cluster(&pod.spec.node_name));
        }
    });
    let wake_zones = zones.clone();
    let (wake, wake_pods, on_node) = (nodes.clone(), pods.clone(), context.pods.clone());
    context.nodes.listen(move |change| {
        for node in change.sides() {
            wake.add(Key::of(&node.metadata));
        }
        let mut sides = change.sides();
        if let Some(node) = sides.find(|node| zones::annotation(node).is_some()) {
            wake_zones.add(Key::of(&node.metadata));
        }
        // Pods move on when their node appears, gets its podCIDR or sends heartbeats again.
        let waits_for = |node: &Node| {
            let cidr = pod_cidr(node).map(str::to_owned);
            (is_silent(node), is_labelled(node), cidr)
        };
        if let Some(node) = change.new
            && change
                .old
                .is_none_or(|old| waits_for(old) != waits_for(node))
        {
            let name = node.metadata.name.clone().unwrap_or_default();
            for pod in on_node.indexed(&Index::Node(name)) {
                wake_pods.add(Key::of(&pod.metadata));
            }
        }
    });
    let handle = Nodes {
        kubelets: kubelets.clone(),
    };
    let run = async move {
        context.synced().await;
        let cancel = context.cancel.clone();
        let work_on_pod = |key| kubelets.update_pod(key);
        let work_on_node = |key| kubelets.update_node(key);
        let work_on_zones = |key| kubelets.update_zones(key);
        tokio::join!(
            pods.run(POD_WORKERS, cancel.clone(), work_on_pod),
            nodes.run(NODE_WORKERS, cancel.clone(), work_on_node),
            zones.run(ZONE_WORKERS, cancel, work_on_zones),
        );
    };
    (handle, run)
}

impl Memory {
    fn forget_pod(&mut self, uid: &str) {
        self.addresses.release(uid);
        self.stages.remove(uid);
        self.admitted.remove(uid);
    }

    fn note_address(&mut self, pod: &Pod) {
        if pod.is_finished() {
            self.addresses.release(pod.uid());
        } else if !pod.spec.host_network
            && let Ok(address) = pod.status.pod_ip.parse::<Ipv4Addr>()
        {
            self.addresses.take(pod.uid(), address);
        }
    }

    /// How long the pod has been in this stage.
    fn time_in(&mut self, pod: &Pod, stage: Stage) -> Duration {
        let now = Instant::now();
        let entry = self
            .stages
            .entry(pod.uid().to_owned())
            .or_insert((stage, now));
        if entry.0 != stage {
            *entry = (stage, now);
        }
        now.duration_since(entry.1)
    }
}

impl Kubelets {
    /// Whether the kubelets act for this node.
    fn owns(&self, node: &Node) -> bool {
        is_labelled(node) == (self.scope == Scope::Labelled)
    }

    /// The addresses of a node. A labelled node gets no podCIDR from us: the controller manager of its cluster assigns
    /// them, and does not start when one is outside its range.
    fn network(&self, node: &str) -> NodeNetwork {
        let mut network = self.memory().addresses.of_node(node);
        if self.scope == Scope::Labelled {
            network.pod_cidr = None;
        }
        network
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("no panic while held")
    }

    async fn update_pod(&self, key: Key) -> Result<Requeue, Error> {
        let Some(pod) = self.context.pods.get(&key).filter(|pod| pod.is_bound()) else {
            return Ok(Requeue::OnChange);
        };
        let node = self.context.nodes.get(&Key::cluster(&pod.spec.node_name));
        let Some(node) = node.filter(|node| self.owns(node) && !is_silent(node)) else {
            return Ok(Requeue::OnChange);
        };
        let stage = pod_lifecycle::stage(&pod);
        let elapsed = self.memory().time_in(&pod, stage);
        let now = Timestamp::now();
        let status = match pod_lifecycle::next(&pod, stage, elapsed, &self.context.timings) {
            Step::Nothing => return Ok(Requeue::OnChange),
            Step::Wait(wait) => return Ok(Requeue::After(wait)),
            Step::Remove => {
                self.context.delete_pod(&pod, Some(0)).await?;
                return Ok(Requeue::OnChange);
            }
            Step::Start => {
                if stage == Stage::Starting
                    && let Some(next) = self.reject_or_preempt(&pod, &node).await?
                {
                    return Ok(next);
                }
                let Some(network) = self.pod_network(&pod, &node) else {
                    return self.report_missing_address(&pod, &node).await;
                };
                for message in pod_lifecycle::annotation_errors(&pod) {
                    self.events
                        .warning(&*pod, "InvalidAnnotation", &message)
                        .await;
                }
                pod_lifecycle::running(&pod, &network, now)
            }
            Step::MarkReady => pod_lifecycle::ready_again(&pod, now),
            Step::Crash { code } => pod_lifecycle::crashed(&pod, code, now),
            Step::End { code } => pod_lifecycle::ended(&pod, code, now),
        };
        self.write(&pod, status).await?;
        // The watch brings the pod back in its next stage.
        Ok(Requeue::OnChange)
    }

    /// None when the node admits the pod. Otherwise rejects the pod, or preempts pods for it.
    async fn reject_or_preempt(&self, pod: &Pod, node: &Node) -> Result<Option<Requeue>, Error> {
        let mut decision = self.decide(pod, node);
        if matches!(decision, Decision::Reject { .. }) {
            // The cache may be behind.
            let nodes: Api<Node> = Api::all(self.context.client.clone());
            let node = nodes.get_opt(&pod.spec.node_name).await?;
            let Some(node) = node.filter(|node| self.owns(node)) else {
                return Ok(Some(Requeue::OnChange));
            };
            decision = self.decide(pod, &node);
        }
        let now = Timestamp::now();
        match decision {
            Decision::Admit => Ok(None),
            Decision::Reject { reason, message } => {
                self.events.warning(pod, &reason, &message).await;
                self.write(pod, admission::rejected(&reason, &message, now))
                    .await?;
                Ok(Some(Requeue::OnChange))
            }
            Decision::Preempt(victims) => {
                for victim in victims {
                    self.write(&victim, admission::preempted(&victim, now))
                        .await?;
                }
                Ok(Some(Requeue::After(PREEMPTION_CHECK)))
            }
        }
    }

    async fn write(&self, pod: &Pod, status: Value) -> Result<(), Error> {
        let (requests, fields) = (&self.context.requests, json!({"status": status}));
        requests
            .strategic::<Pod>(&pod.metadata, Part::Status, fields)
            .await?;
        Ok(())
    }

    /// Decides about one pod at a time, so that two pods never get the same capacity.
    fn decide(&self, pod: &Pod, node: &Node) -> Decision {
        let network = self.network(&pod.spec.node_name);
        let node = shape::completed(node, &network, Timestamp::now());
        let mut memory = self.memory();
        if memory.admitted.contains(pod.uid()) {
            return Decision::Admit;
        }
        let mut others = self
            .context
            .pods
            .indexed(&Index::Node(pod.spec.node_name.clone()));
        others.retain(|other| {
            let started = !other.status.container_statuses.is_empty();
            other.uid() != pod.uid()
                && pod_lifecycle::stage(other) != Stage::Ended
                && (started || memory.admitted.contains(other.uid()))
        });
        let decision = admission::decide(pod, &node, others);
        if matches!(decision, Decision::Admit) {
            memory.admitted.insert(pod.uid().to_owned());
        }
        decision
    }

    fn pod_network(&self, pod: &Pod, node: &Node) -> Option<PodNetwork> {
        let addresses = node
            .status
            .as_ref()
            .and_then(|status| status.addresses.as_ref());
        let host_ip = addresses
            .into_iter()
            .flatten()
            .find(|a| a.type_ == "InternalIP");
        let host_ip = host_ip.map(|a| a.address.clone()).unwrap_or_default();
        if pod.spec.host_network {
            return Some(PodNetwork {
                pod_ip: host_ip.clone(),
                host_ip,
            });
        }
        let mut memory = self.memory();
        let mut range = pod_cidr(node).and_then(Range::parse);
        if range.is_none() && self.scope == Scope::Labelled {
            let own = memory.addresses.of_node(&pod.spec.node_name).pod_cidr;
            range = own.as_deref().and_then(Range::parse);
        }
        let address = memory.addresses.give(pod.uid(), range?)?;
        Some(PodNetwork {
            pod_ip: address.to_string(),
            host_ip,
        })
    }

    async fn report_missing_address(&self, pod: &Pod, node: &Node) -> Result<Requeue, Error> {
        let name = &pod.spec.node_name;
        let will_have_one = || self.network(name).pod_cidr.is_some();
        let Some(cidr) = pod_cidr(node).or_else(|| (!will_have_one()).then_some("<none>")) else {
            return Ok(Requeue::OnChange);
        };
        let message = format!("node {name} has no free address for the pod in its podCIDR {cidr}");
        self.events
            .warning(pod, "FailedCreatePodSandBox", &message)
            .await;
        Ok(Requeue::After(Duration::from_secs(10)))
    }
}
