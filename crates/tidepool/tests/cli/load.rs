//! What happens under load, and afterwards: a flood of objects, memory after a peak, a scheduler that ends by itself.

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use apiserver::{Cluster, ServeOptions, Serving};
use futures::StreamExt;
use k8s_openapi::api::{
    apps::v1::Deployment,
    coordination::v1::Lease,
    core::v1::{Node, Pod, ServiceAccount},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::{PATIENCE, Up, tidepool};

/// Requests at a time.
const AT_A_TIME: usize = 32;

fn is_full() -> bool {
    std::env::var_os("TIDEPOOL_FULL").is_some()
}

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

fn object<K: DeserializeOwned + Serialize>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// The scheduler's Lease, once it is held.
async fn held_lease(client: &Client) -> Lease {
    let leases: Api<Lease> = Api::all(client.clone());
    let begun = Instant::now();
    loop {
        let all = leases.list(&ListParams::default()).await.unwrap();
        let scheduler = all.into_iter().find(|lease| {
            let names = lease.metadata.annotations.as_ref();
            names.is_some_and(|names| names.contains_key("tidepool.io/scheduler-names"))
        });
        if let Some(lease) = scheduler {
            return lease;
        }
        assert!(begun.elapsed() < PATIENCE, "the Lease is not held");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn up_ends_cleanly_when_its_scheduler_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let mut command = tidepool(&["up", "--empty", "--port", "0", "--kubeconfig-out"]);
    command.arg(&path).stdout(Stdio::null());
    let mut up = Up {
        child: command.stderr(Stdio::piped()).spawn().unwrap(),
    };
    let beside = directory.path().join("config.scheduler.yaml");
    let begun = Instant::now();
    while !beside.exists() {
        assert!(begun.elapsed() < PATIENCE, "it does not start");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let client = client(&path).await;
    let lease = held_lease(&client).await;
    let namespace = lease.metadata.namespace.unwrap();
    let leases: Api<Lease> = Api::namespaced(client, &namespace);
    let taken = json!({"spec": {
        "holderIdentity": "another",
        "renewTime": "2100-01-01T00:00:00.000000Z",
    }});
    let name = lease.metadata.name.unwrap();
    let (params, patch) = (PatchParams::default(), Patch::Merge(taken));
    leases.patch(&name, &params, &patch).await.unwrap();
    let status = up.ended();
    let mut log = String::new();
    let mut stderr = up.child.stderr.take().unwrap();
    stderr.read_to_string(&mut log).unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
    let last = log.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("tidepool: ") && last.contains("Lease"),
        "{log}"
    );
    assert!(!log.contains("panicked"), "{log}");
    assert!(!beside.exists(), "it did not clean up");
}

/// Deployments with more replicas than anyone can run: the API server still answers, and the scheduler keeps its Lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_pods_delays_no_small_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let up = Up::start(&[
        "--nodes",
        "10",
        "--no-demo",
        "--kubeconfig-out",
        path.to_str().unwrap(),
    ]);
    let client = client(&path).await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    for index in 0..20 {
        let labels = json!({"app": format!("flood-{index}")});
        let flood = json!({
            "metadata": {"name": format!("flood-{index}")},
            "spec": {
                "replicas": i32::MAX,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
                },
            },
        });
        let (params, flood) = (PostParams::default(), object(flood));
        deployments.create(&params, &flood).await.unwrap();
    }
    let lease = held_lease(&client).await;
    let name = lease.metadata.name.clone().unwrap();
    let leases: Api<Lease> =
        Api::namespaced(client.clone(), lease.metadata.namespace.as_deref().unwrap());
    let lasts = Duration::from_secs(if is_full() { 120 } else { 10 });
    let mut found = Vec::new();
    for _ in 0..WINDOWS {
        let (begun, mut times) = (Instant::now(), Vec::new());
        let (mut renewed, mut unchanged, mut longest) = (None, Instant::now(), Duration::ZERO);
        while begun.elapsed() < lasts {
            let asked = Instant::now();
            let lease = leases.get(&name).await.unwrap();
            times.push(asked.elapsed());
            let asked = Instant::now();
            let health = http::Request::get("/readyz").body(Vec::new()).unwrap();
            client.request_text(health).await.unwrap();
            times.push(asked.elapsed());
            let asked = Instant::now();
            deployments.get("flood-0").await.unwrap();
            times.push(asked.elapsed());
            let time = lease.spec.and_then(|spec| spec.renew_time);
            if renewed != time {
                (renewed, unchanged) = (time, Instant::now());
            }
            longest = longest.max(unchanged.elapsed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        times.sort();
        found.push((times[(times.len() * 99).div_ceil(100) - 1], longest));
        if found.last().is_some_and(is_prompt) {
            break;
        }
    }
    let pods: Api<Pod> = Api::default_namespaced(client);
    let one = pods.list(&ListParams::default().limit(1)).await.unwrap();
    let created = one.metadata.remaining_item_count.unwrap_or(0) + 1;
    println!("{created} pods; p99, and the longest time between renewals of the Lease: {found:?}");
    assert!(created > 500, "it is no flood: {created} pods");
    assert!(found.iter().any(is_prompt), "{found:?}");
    drop(up);
}

/// How often the flood is measured at most: a machine that stands still for seconds spoils a time.
const WINDOWS: usize = 3;

/// Whether requests were answered, and the Lease was renewed, in time.
fn is_prompt((p99, longest): &(Duration, Duration)) -> bool {
    *p99 < Duration::from_secs(1) && *longest < Duration::from_secs(5)
}

/// A process of a component, killed when the test ends.
struct ComponentProcess {
    child: Child,
    log: NamedTempFile,
}

impl Drop for ComponentProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ComponentProcess {
    fn start(kubeconfig: &Path, arguments: &[&str]) -> Self {
        let mut command = tidepool(arguments);
        command.args(["--secure-port=0", "--leader-elect=false"]);
        command.arg("--kubeconfig").arg(kubeconfig);
        let log = NamedTempFile::new().unwrap();
        let child = command.stderr(log.reopen().unwrap()).spawn().unwrap();
        Self { child, log }
    }

    /// Returns once its log has these words.
    async fn await_log(&self, words: &str) {
        let begun = Instant::now();
        loop {
            let log = std::fs::read_to_string(self.log.path()).unwrap();
            if log.contains(words) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "no `{words}` in {log}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The resident set once everything is read: then it stays the same.
    async fn settled_kib(&self) -> u64 {
        let mut before = 0;
        while before == 0 || self.kib() > before + 256 {
            before = self.kib();
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        before
    }

    /// The resident set in KiB.
    /// Its own memory. The code of a binary for tests is larger than that of a release.
    fn kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let size = line.unwrap().split_whitespace().nth(1).unwrap();
        size.parse().unwrap()
    }
}

/// A process that saw thousands of pods come and go keeps little of what they took, and is hardly larger than a new one with the
/// same nodes.
#[tokio::test(flavor = "multi_thread")]
async fn memory_comes_back_after_a_peak() {
    let (nodes, pods) = if is_full() {
        (10_000, 50_000)
    } else {
        (1_000, 10_000)
    };
    let served = ServedCluster::start().await;
    let (client, path) = (&served.client, &served.kubeconfig);
    each(nodes, |index| add_node(client.clone(), index)).await;

    let used = ComponentProcess::start(path, &["scheduler"]);
    place(client, "first", 1).await;
    each(pods, |index| add_pod(client.clone(), format!("p{index}"))).await;
    placed(client, pods + 1).await;
    let peak = used.kib();
    each(pods, |index| {
        delete_pod(client.clone(), format!("p{index}"))
    })
    .await;

    let fresh = ComponentProcess::start(path, &["scheduler"]);
    // On a busy machine it takes a while until it reads anything.
    fresh.await_log("listed all objects of the cluster").await;
    let begun = Instant::now();
    let new = fresh.settled_kib().await;
    drop(fresh);
    // It may bind pods, so it ends before there are new ones.
    place(client, "second", 2).await;
    loop {
        let now = used.kib();
        println!("{nodes} nodes, {pods} pods: peak {peak} KiB, now {now} KiB, new {new} KiB");
        if now.saturating_sub(new) * 4 <= peak.saturating_sub(new) {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{now} KiB, and {new} KiB when new"
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// An embedded API server on a socket, with the service account of pods.
struct ServedCluster {
    client: Client,
    kubeconfig: PathBuf,
    _directory: tempfile::TempDir,
    _serving: Serving,
}

impl ServedCluster {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("config");
        let cluster = Cluster::new(apiserver::Options::default());
        let serving = cluster.serve(ServeOptions::default()).await.unwrap();
        let user = ServeOptions::default().users[0].clone();
        std::fs::write(&kubeconfig, serving.kubeconfig(&user).unwrap()).unwrap();
        let client = Client::new(cluster.service(), "default");
        let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
        let account = object(json!({"metadata": {"name": "default"}}));
        let params = PostParams::default();
        accounts.create(&params, &account).await.unwrap();
        Self {
            client,
            kubeconfig,
            _directory: directory,
            _serving: serving,
        }
    }
}

/// Each controller has its own view of pods and nodes; that of hot spots is the scheduler's.
#[tokio::test(flavor = "multi_thread")]
async fn the_controllers_need_little_memory() {
    let nodes = if is_full() { 5_000 } else { 500 };
    let pods = 4 * nodes;
    let served = ServedCluster::start().await;
    let client = &served.client;
    for (_, definition) in api::crds::all() {
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let (params, definition) = (PostParams::default(), object(definition));
        definitions.create(&params, &definition).await.unwrap();
    }
    each(nodes, |index| add_node(client.clone(), index)).await;
    each(pods, |index| add_bound_pod(client.clone(), index, nodes)).await;
    let mut sizes = Vec::new();
    for controllers in ["tiers", "hot-spots", "*,-hot-spots", "*"] {
        let flag = format!("--controllers={controllers}");
        let process = ComponentProcess::start(&served.kubeconfig, &["controllers", &flag]);
        sizes.push((controllers, process.settled_kib().await));
    }
    println!("{nodes} nodes, {pods} pods, KiB: {sizes:?}");
    let (_, all) = sizes[sizes.len() - 1];
    let most = 7_000 + 5 * u64::try_from(nodes + pods).unwrap();
    assert!(all < most, "{all} KiB, at most {most} KiB");
}

async fn add_bound_pod(client: Client, index: usize, nodes: usize) {
    let pods: Api<Pod> = Api::default_namespaced(client);
    let pod = json!({
        "metadata": {"name": format!("p{index}"), "labels": {"app": "web", "tier": "front"}},
        "spec": {
            "nodeName": format!("node-{}", index % nodes),
            "containers": [{"name": "main", "image": "app:1", "resources": {
                "requests": {"cpu": "100m", "memory": "128Mi"},
            }}],
        },
    });
    let pod = object(pod);
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

async fn each<F: Future<Output = ()>>(count: usize, work: impl Fn(usize) -> F) {
    let all = futures::stream::iter(0..count).map(work);
    all.buffer_unordered(AT_A_TIME).collect::<Vec<()>>().await;
}

async fn add_node(client: Client, index: usize) {
    let nodes: Api<Node> = Api::all(client);
    let capacity = json!({"cpu": "64", "memory": "256Gi", "pods": "110"});
    let node = json!({
        "metadata": {"name": format!("node-{index}"), "labels": {
            "kubernetes.io/hostname": format!("node-{index}"),
            "topology.kubernetes.io/zone": format!("zone-{}", index % 3),
        }},
        "status": {"capacity": capacity, "allocatable": capacity},
    });
    let mut made = nodes
        .create(&PostParams::default(), &object(node))
        .await
        .unwrap();
    // The server taints new nodes.
    made.spec.get_or_insert_default().taints = None;
    let name = made.metadata.name.clone().unwrap();
    let (params, made) = (PostParams::default(), made);
    nodes.replace(&name, &params, &made).await.unwrap();
}

async fn add_pod(client: Client, name: String) {
    let pods: Api<Pod> = Api::default_namespaced(client);
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": "web", "tier": "front"}},
        "spec": {
            "schedulerName": "tidepool",
            "containers": [{"name": "main", "image": "app:1", "resources": {
                "requests": {"cpu": "100m", "memory": "128Mi"},
            }}],
        },
    });
    let pod = object(pod);
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

async fn delete_pod(client: Client, name: String) {
    let pods: Api<Pod> = Api::default_namespaced(client);
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete(&name, &at_once).await.unwrap();
}

/// Creates one pod and returns when it has a node: then the scheduler knows everything.
async fn place(client: &Client, name: &str, count: usize) {
    add_pod(client.clone(), name.to_owned()).await;
    placed(client, count).await;
}

/// Returns when so many pods have nodes.
async fn placed(client: &Client, count: usize) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let begun = Instant::now();
    loop {
        let waiting = ListParams::default().fields("spec.nodeName=").limit(1);
        let waits = pods.list_metadata(&waiting).await.unwrap();
        if waits.items.is_empty() {
            return;
        }
        let patience = PATIENCE + Duration::from_millis(10 * count as u64);
        assert!(
            begun.elapsed() < patience,
            "not all of {count} pods are placed"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
