//! Simulated nodes: every Node of the cluster, whoever made it, behaves as if a kubelet ran there.
//!
//! One engine serves all nodes: it completes their status, renews their leases, and takes bound pods through
//! their lives. No containers run. Pods are not refused yet: the kubelet's admission checks are a module of
//! the engine crate, and come with it. Extended resources that a node does not have are ignored.

mod addresses;
mod life;
mod shape;

use std::{
    collections::HashMap,
    future::Future,
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::Node,
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference},
};
use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::events::EventType,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::{
    addresses::{Addresses, Range},
    life::{Site, Stage, Step},
};
pub use self::{
    life::{EXIT_CODE, RUN_FOR},
    shape::Shape,
};
use crate::{
    cache::{Key, Link},
    pod::Pod,
    queue::{Next, Queue},
    world::{Failure, NODE_LEASES, World, already_exists, is_gone, patch_of},
};

/// On a Node: `off` makes its kubelet fall silent, and the node not ready after a while.
pub const HEARTBEAT: &str = "tidepool.io/heartbeat";

const POD_WORKERS: usize = 32;
const NODE_WORKERS: usize = 32;

/// Adds, removes and disturbs nodes while the cluster runs.
#[derive(Clone)]
pub struct Nodes {
    engine: Arc<Engine>,
}

impl Nodes {
    /// Adds a node that is ready at once.
    pub async fn add(&self, shape: &Shape) -> Result<(), kube::Error> {
        let place = self.engine.memory().addresses.place(&shape.name);
        let node = shape::completed(&shape.node(), &place, Timestamp::now());
        let api: Api<Node> = self.engine.world.cluster();
        api.create(&PostParams::default(), &node).await.map(drop)
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
        let api: Api<Node> = self.engine.world.cluster();
        api.delete(name, &DeleteParams::background())
            .await
            .map(drop)
    }

    /// Takes a node out of scheduling, or puts it back.
    pub async fn cordon(&self, name: &str, cordoned: bool) -> Result<(), kube::Error> {
        self.patch(
            name,
            json!({"spec": {"unschedulable": cordoned.then_some(true)}}),
        )
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
        let api: Api<Node> = self.engine.world.cluster();
        api.patch(name, &PatchParams::default(), &Patch::Merge(fields))
            .await
            .map(drop)
    }
}

fn is_silent(node: &Node) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    annotations.is_some_and(|a| a.get(HEARTBEAT).is_some_and(|value| value == "off"))
}

struct Engine {
    world: Arc<World>,
    memory: Mutex<Memory>,
}

/// What the engine knows that no object says.
#[derive(Default)]
struct Memory {
    addresses: Addresses,
    /// The stage of each pod, by uid, and since when: objects only keep whole seconds.
    stages: HashMap<String, (Stage, Instant)>,
    /// When each node last renewed its lease.
    renewed: HashMap<String, Instant>,
}

/// Registers for changes at once; the work begins when the future runs.
pub(crate) fn start(world: Arc<World>) -> (Nodes, impl Future<Output = ()>) {
    let engine = Arc::new(Engine {
        world: world.clone(),
        memory: Mutex::default(),
    });
    let (pods, nodes) = (Queue::new(), Queue::new());

    let (wake, seen) = (pods.clone(), engine.clone());
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
        // Pods move on when their node appears or speaks again.
        if let Some(node) = change.new
            && change
                .old
                .is_none_or(|old| is_silent(old) != is_silent(node))
        {
            let name = node.metadata.name.clone().unwrap_or_default();
            for pod in on_node.linked(&Link::Node(name)) {
                wake_pods.add(Key::of(&pod.metadata));
            }
        }
    });
    let handle = Nodes {
        engine: engine.clone(),
    };
    let run = async move {
        world.synced().await;
        let cancel = world.cancel.clone();
        let work_on_pod = |key| engine.update_pod(key);
        let work_on_node = |key| engine.update_node(key);
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

impl Engine {
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
                let Some(site) = self.site(&pod, &node) else {
                    return self.complain_about_address(&pod, &node).await;
                };
                for note in life::complaints(&pod) {
                    let about = pod.object_ref(&());
                    self.world
                        .tell(about, EventType::Warning, "InvalidAnnotation", note)
                        .await;
                }
                life::running(&pod, &site, now)
            }
            Step::MarkReady => life::ready_again(&pod, now),
            Step::Crash { code } => life::crashed(&pod, code, now),
            Step::End { code } => life::ended(&pod, code, now),
        };
        let patch = Patch::Strategic(patch_of(
            pod.metadata.uid.as_deref(),
            json!({"status": status}),
        ));
        let api: Api<Pod> = self.world.namespaced(&key.namespace);
        match api
            .patch_status(&key.name, &PatchParams::default(), &patch)
            .await
        {
            Err(error) if is_gone(&error) => {}
            result => drop(result?),
        }
        // The watch brings the pod back in its next stage.
        Ok(Next::Idle)
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
        let range = Range::parse(node.spec.as_ref()?.pod_cidr.as_deref()?)?;
        let address = self.memory().addresses.give(pod.uid(), range)?;
        Some(Site {
            pod_ip: address.to_string(),
            host_ip,
        })
    }

    async fn complain_about_address(&self, pod: &Pod, node: &Node) -> Result<Next, Failure> {
        let cidr = node
            .spec
            .as_ref()
            .and_then(|spec| spec.pod_cidr.as_deref())
            .unwrap_or("<none>");
        let note = format!(
            "node {} has no free address for the pod in its podCIDR {cidr}",
            pod.spec.node_name
        );
        self.world
            .tell(
                pod.object_ref(&()),
                EventType::Warning,
                "FailedCreatePodSandBox",
                note,
            )
            .await;
        Ok(Next::After(Duration::from_secs(10)))
    }

    async fn update_node(&self, key: Key) -> Result<Next, Failure> {
        let Some(node) = self.world.nodes.get(&key) else {
            let mut memory = self.memory();
            memory.addresses.forget_node(&key.name);
            memory.renewed.remove(&key.name);
            return Ok(Next::Idle);
        };
        if is_silent(&node) || node.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Idle);
        }
        // The lease first: a status that says ready, next to an old lease, would be doubted at once.
        let wait = self.renew_lease(&node, &key.name).await?;
        self.report(&node, &key.name).await?;
        Ok(Next::After(wait))
    }

    /// Renews the node's lease if it is time, and returns how long it then has.
    async fn renew_lease(&self, node: &Node, name: &str) -> Result<Duration, Failure> {
        let interval = self.world.timings.lease_renewal;
        let last = self.memory().renewed.get(name).copied();
        if let Some(last) = last
            && let left = interval.saturating_sub(last.elapsed())
            && !left.is_zero()
        {
            return Ok(left);
        }
        let now = MicroTime(Timestamp::now());
        let api: Api<Lease> = self.world.namespaced(NODE_LEASES);
        let patch = Patch::Merge(json!({"spec": {"renewTime": now}}));
        match api.patch(name, &PatchParams::default(), &patch).await {
            Err(error) if is_gone(&error) => self.create_lease(&api, node, name, now).await?,
            result => drop(result?),
        }
        // Nodes that appeared together are spread over the interval from the second renewal on.
        let head_start = if last.is_none() {
            interval.mul_f64(fraction(name))
        } else {
            Duration::ZERO
        };
        let renewed = Instant::now()
            .checked_sub(head_start)
            .unwrap_or_else(Instant::now);
        self.memory().renewed.insert(name.to_owned(), renewed);
        Ok(interval.saturating_sub(head_start))
    }

    async fn create_lease(
        &self,
        api: &Api<Lease>,
        node: &Node,
        name: &str,
        now: MicroTime,
    ) -> Result<(), Failure> {
        let seconds = self.world.timings.node_grace.as_secs().max(1);
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                owner_references: node.owner_ref(&()).map(|owner| {
                    vec![OwnerReference {
                        controller: None,
                        ..owner
                    }]
                }),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(name.to_owned()),
                lease_duration_seconds: i32::try_from(seconds).ok(),
                renew_time: Some(now),
                ..LeaseSpec::default()
            }),
        };
        match api.create(&PostParams::default(), &lease).await {
            Err(error) if already_exists(&error) => Ok(()),
            result => Ok(result.map(drop)?),
        }
    }

    /// Writes what the node has to say that is not written yet, and now and then all of it.
    async fn report(&self, node: &Node, name: &str) -> Result<(), Failure> {
        let now = Timestamp::now();
        let place = self.memory().addresses.place(name);
        let mut wanted = shape::completed(node, &place, now);
        let api: Api<Node> = self.world.cluster();
        if wanted.spec != node.spec {
            let patch = patch_of(
                node.metadata.uid.as_deref(),
                json!({"spec": {
                    "podCIDR": wanted.spec.as_ref().and_then(|spec| spec.pod_cidr.clone()),
                    "podCIDRs": wanted.spec.as_ref().and_then(|spec| spec.pod_cidrs.clone()),
                }}),
            );
            gone_is_fine(
                api.patch(name, &PatchParams::default(), &Patch::Strategic(patch))
                    .await,
            )?;
        }
        let last = shape::last_report(node);
        let silent_for = last.and_then(|last| Duration::try_from(now.duration_since(last)).ok());
        if silent_for.is_none_or(|silence| silence >= self.world.timings.node_status) {
            wanted = shape::with_heartbeat(wanted, now);
        }
        if wanted.status != node.status {
            let patch = patch_of(
                node.metadata.uid.as_deref(),
                json!({"status": wanted.status}),
            );
            gone_is_fine(
                api.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch))
                    .await,
            )?;
        }
        Ok(())
    }
}

fn gone_is_fine<K>(result: Result<K, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(error) if is_gone(&error) => Ok(()),
        result => result.map(drop),
    }
}

/// A number from 0 to 1 that belongs to the name.
fn fraction(name: &str) -> f64 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    f64::from(hash) / f64::from(u32::MAX)
}
