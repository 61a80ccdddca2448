//! Simulated nodes: every Node of the cluster, whoever made it, behaves as if a kubelet ran there.
//!
//! They complete their status, renew their leases, refuse bound pods that do not fit, and take the others through
//! their lives. No containers run.

mod addresses;
mod admission;
mod heartbeat;
mod life;
mod shape;

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
    api::{DeleteParams, Patch, PatchParams},
    core::PartialObjectMeta,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::{
    addresses::{Addresses, Range},
    admission::Decision,
    life::{Site, Stage, Step},
};
pub use self::{
    life::{EXIT_CODE, RUN_FOR},
    shape::Shape,
};
use crate::{
    cache::{Key, Link},
    events::Severity,
    objects::Pod,
    queue::{Next, Queue},
    requests::{Failure, Part},
    world::World,
};

/// On a Node: `off` makes its kubelet fall silent, and the node not ready after a while.
pub const HEARTBEAT: &str = "tidepool.io/heartbeat";

const POD_WORKERS: usize = 32;
const NODE_WORKERS: usize = 32;
/// A critical pod looks this often whether those who make room for it have gone.
const ROOM_CHECK: Duration = Duration::from_millis(100);

/// Adds, removes and disturbs nodes while the cluster runs.
#[derive(Clone)]
pub struct Nodes {
    kubelets: Arc<Kubelets>,
}

impl Nodes {
    /// Adds a node that is ready at once.
    pub async fn add(&self, shape: &Shape) -> Result<(), kube::Error> {
        let place = self.kubelets.memory().addresses.place(&shape.name);
        let node = shape::completed(&shape.node(), &place, Timestamp::now());
        let node = serde_json::to_value(&node).map_err(kube::Error::SerdeError)?;
        self.kubelets
            .world
            .requests
            .create::<Node>(None, &node)
            .await
            .map(drop)
    }

    /// Adds `count` demo nodes.
    pub async fn add_demo(&self, count: usize) -> Result<(), kube::Error> {
        stream::iter(0..count)
            .map(|index| async move { self.add(&Shape::demo(index, count)).await })
            .buffer_unordered(NODE_WORKERS)
            .try_collect()
            .await
    }

    /// Removes a node; its pods follow after a while.
    pub async fn remove(&self, name: &str) -> Result<(), kube::Error> {
        self.api()
            .delete(name, &DeleteParams::background())
            .await
            .map(drop)
    }

    /// Takes a node out of scheduling.
    pub async fn cordon(&self, name: &str) -> Result<(), kube::Error> {
        self.patch(name, json!({"spec": {"unschedulable": true}}))
            .await
    }

    /// Puts it back.
    pub async fn uncordon(&self, name: &str) -> Result<(), kube::Error> {
        self.patch(name, json!({"spec": {"unschedulable": null}}))
            .await
    }

    /// Makes a node's kubelet fall silent: no heartbeats, and its pods are left as they are.
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
        Api::all(self.kubelets.world.client.clone())
    }
}

fn is_silent(node: &Node) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    annotations.is_some_and(|a| a.get(HEARTBEAT).is_some_and(|value| value == "off"))
}

fn pod_cidr(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.pod_cidr.as_deref()
}

struct Kubelets {
    world: Arc<World>,
    memory: Mutex<Memory>,
}

/// What kubelets know that no object says.
#[derive(Default)]
struct Memory {
    addresses: Addresses,
    /// The stage of each pod, by uid, and since when: objects only keep whole seconds.
    stages: HashMap<String, (Stage, Instant)>,
    /// The uids of pods that their nodes took and that may not show it yet.
    taken: HashSet<String>,
    /// When each node last renewed its lease.
    renewed: HashMap<String, Instant>,
}

/// Registers for changes at once; the work begins when the future runs.
pub(crate) fn start(world: Arc<World>) -> (Nodes, impl Future<Output = ()>) {
    let kubelets = Arc::new(Kubelets {
        world: world.clone(),
        memory: Mutex::default(),
    });
    let (pods, nodes) = (Queue::new(), Queue::new());

    let (wake, seen) = (pods.clone(), kubelets.clone());
    world
        .pods
        .listen(move |change| match (change.old, change.new) {
            (Some(old), None) => seen.memory().forget_pod(old.uid()),
            (_, Some(pod)) if pod.is_bound() => {
                seen.memory().note_address(pod);
                wake.add(Key::of(&pod.metadata));
            }
            _ => {}
        });
    let (wake, wake_pods, on_node) = (nodes.clone(), pods.clone(), world.pods.clone());
    world.nodes.listen(move |change| {
        for node in change.sides() {
            wake.add(Key::of(&node.metadata));
        }
        // Pods move on when their node appears, gets its range of addresses or speaks again.
        let waits_for = |node: &Node| (is_silent(node), pod_cidr(node).map(str::to_owned));
        if let Some(node) = change.new
            && change
                .old
                .is_none_or(|old| waits_for(old) != waits_for(node))
        {
            let name = node.metadata.name.clone().unwrap_or_default();
            for pod in on_node.linked(&Link::Node(name)) {
                wake_pods.add(Key::of(&pod.metadata));
            }
        }
    });
    let handle = Nodes {
        kubelets: kubelets.clone(),
    };
    let run = async move {
        world.synced().await;
        let cancel = world.cancel.clone();
        let work_on_pod = |key| kubelets.update_pod(key);
        let work_on_node = |key| kubelets.update_node(key);
        tokio::join!(
            pods.run("pods on nodes", POD_WORKERS, cancel.clone(), work_on_pod),
            nodes.run("nodes", NODE_WORKERS, cancel, work_on_node),
        );
    };
    (handle, run)
}

impl Memory {
    fn forget_pod(&mut self, uid: &str) {
        self.addresses.release(uid);
        self.stages.remove(uid);
        self.taken.remove(uid);
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

    /// How long the pod has been where it is.
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
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("no panic while held")
    }

    async fn update_pod(&self, key: Key) -> Result<Next, Failure> {
        let Some(pod) = self.world.pods.get(&key).filter(|pod| pod.is_bound()) else {
            return Ok(Next::Idle);
        };
        let node = self.world.nodes.get(&Key::cluster(&pod.spec.node_name));
        let Some(node) = node.filter(|node| !is_silent(node)) else {
            return Ok(Next::Idle);
        };
        let stage = life::stage(&pod);
        let elapsed = self.memory().time_in(&pod, stage);
        let now = Timestamp::now();
        let status = match life::next(&pod, stage, elapsed, &self.world.timings) {
            Step::Nothing => return Ok(Next::Idle),
            Step::Wait(wait) => return Ok(Next::After(wait)),
            Step::Remove => {
                self.world.delete_pod(&pod, Some(0)).await?;
                return Ok(Next::Idle);
            }
            Step::Start => {
                if stage == Stage::Starting
                    && let Some(next) = self.turned_away(&pod, &node).await?
                {
                    return Ok(next);
                }
                let Some(site) = self.site(&pod, &node) else {
                    return self.complain_about_address(&pod, &node).await;
                };
                for message in life::complaints(&pod) {
                    self.world
                        .tell(&*pod, Severity::Warning, "InvalidAnnotation", &message)
                        .await;
                }
                life::running(&pod, &site, now)
            }
            Step::MarkReady => life::ready_again(&pod, now),
            Step::Crash { code } => life::crashed(&pod, code, now),
            Step::End { code } => life::ended(&pod, code, now),
        };
        self.write(&pod, status).await?;
        // The watch brings the pod back in its next stage.
        Ok(Next::Idle)
    }

    /// None when the node takes the pod. If not, the pod is refused, or whoever must go first is told to.
    async fn turned_away(&self, pod: &Pod, node: &Node) -> Result<Option<Next>, Failure> {
        let mut decision = self.decide(pod, node);
        if matches!(decision, Decision::Refuse { .. }) {
            // The node may have become another since the cache saw it.
            let nodes: Api<Node> = Api::all(self.world.client.clone());
            let Some(node) = nodes.get_opt(&pod.spec.node_name).await? else {
                return Ok(Some(Next::Idle));
            };
            decision = self.decide(pod, &node);
        }
        let now = Timestamp::now();
        match decision {
            Decision::Take => Ok(None),
            Decision::Refuse { reason, message } => {
                self.world
                    .tell(pod, Severity::Warning, &reason, &message)
                    .await;
                self.write(pod, admission::refused(&reason, &message, now))
                    .await?;
                Ok(Some(Next::Idle))
            }
            Decision::Evict(victims) => {
                for victim in victims {
                    self.write(&victim, admission::evicted(&victim, now))
                        .await?;
                }
                Ok(Some(Next::After(ROOM_CHECK)))
            }
        }
    }

    async fn write(&self, pod: &Pod, status: Value) -> Result<(), Failure> {
        let (requests, fields) = (&self.world.requests, json!({"status": status}));
        requests
            .strategic::<Pod>(&pod.metadata, Part::Status, fields)
            .await?;
        Ok(())
    }

    /// Decides about one pod at a time, so that two never take the same room.
    fn decide(&self, pod: &Pod, node: &Node) -> Decision {
        let mut memory = self.memory();
        if memory.taken.contains(pod.uid()) {
            return Decision::Take;
        }
        let place = memory.addresses.place(&pod.spec.node_name);
        let node = shape::completed(node, &place, Timestamp::now());
        let mut others = self
            .world
            .pods
            .linked(&Link::Node(pod.spec.node_name.clone()));
        others.retain(|other| {
            let started = !other.status.container_statuses.is_empty();
            other.uid() != pod.uid()
                && life::stage(other) != Stage::Ended
                && (started || memory.taken.contains(other.uid()))
        });
        let decision = admission::decide(pod, &node, others);
        if matches!(decision, Decision::Take) {
            memory.taken.insert(pod.uid().to_owned());
        }
        decision
    }

    fn site(&self, pod: &Pod, node: &Node) -> Option<Site> {
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
            return Some(Site {
                pod_ip: host_ip.clone(),
                host_ip,
            });
        }
        let range = Range::parse(pod_cidr(node)?)?;
        let address = self.memory().addresses.give(pod.uid(), range)?;
        Some(Site {
            pod_ip: address.to_string(),
            host_ip,
        })
    }

    async fn complain_about_address(&self, pod: &Pod, node: &Node) -> Result<Next, Failure> {
        let name = &pod.spec.node_name;
        let will_have_one = || self.memory().addresses.place(name).pod_cidr.is_some();
        let Some(cidr) = pod_cidr(node).or_else(|| (!will_have_one()).then_some("<none>")) else {
            return Ok(Next::Idle);
        };
        let message = format!("node {name} has no free address for the pod in its podCIDR {cidr}");
        self.world
            .tell(pod, Severity::Warning, "FailedCreatePodSandBox", &message)
            .await;
        Ok(Next::After(Duration::from_secs(10)))
    }
}
