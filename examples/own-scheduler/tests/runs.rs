//! Runs the example as a user would, on a cluster in this process.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use apiserver::{Cluster, ServeOptions};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Killed when the test ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Resource + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn add_node(client: &Client, name: &str, labels: Value, taints: Value) {
    let capacity = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let nodes: Api<Node> = Api::all(client.clone());
    create(
        &nodes,
        json!({
            "metadata": {"name": name, "labels": labels},
            "status": {"capacity": capacity, "allocatable": capacity},
        }),
    )
    .await;
    // New nodes have a taint, which a kubelet would remove.
    let taints = Patch::Merge(json!({"spec": {"taints": taints}}));
    let patched = nodes.patch(name, &PatchParams::default(), &taints).await;
    patched.unwrap();
}

fn pod(name: &str, labels: Value, node_selector: Value) -> Value {
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "schedulerName": "own-scheduler",
            "nodeSelector": node_selector,
            "containers": [{"name": "main", "image": "app:1"}],
        },
    })
}

async fn node_of(pods: &Api<Pod>, name: &str) -> Option<String> {
    pods.get(name).await.unwrap().spec?.node_name
}

async fn placed(pods: &Api<Pod>, name: &str) -> String {
    let start = Instant::now();
    loop {
        if let Some(node) = node_of(pods, name).await {
            return node;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{name} waits");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn pods_in(client: &Client, namespace: &str) -> Api<Pod> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    create(&accounts, json!({"metadata": {"name": "default"}})).await;
    Api::namespaced(client.clone(), namespace)
}

/// A cluster that listens, a client in its process, and a folder with its kubeconfig.
async fn cluster() -> (apiserver::Serving, Client, tempfile::TempDir) {
    let cluster = Cluster::new(apiserver::Options::default());
    let serving = cluster
        .serve(ServeOptions {
            port: 0,
            users: vec!["admin".to_owned()],
            ..ServeOptions::default()
        })
        .await
        .unwrap();
    let client = Client::new(cluster.service(), "default");
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = serving.kubeconfig("admin").unwrap();
    std::fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
    (serving, client, folder)
}

/// Every pod is bound to a node that its kubelet admits it to, and one that no kubelet admits waits.
#[tokio::test(flavor = "multi_thread")]
async fn first_fit_binds_what_kubelets_admit() {
    let (_serving, client, folder) = cluster().await;
    let no_schedule = json!([{"key": "example.com/dedicated", "effect": "NoSchedule"}]);
    add_node(&client, "a-tainted", json!({}), no_schedule).await;
    add_node(&client, "b-first", json!({"disk": "hdd"}), json!([])).await;
    add_node(&client, "c-second", json!({"disk": "ssd"}), json!([])).await;
    let pods = pods_in(&client, "default").await;
    let _scheduler = Process(
        Command::new(env!("CARGO_BIN_EXE_first-fit"))
            .arg("--kubeconfig")
            .arg(folder.path().join("kubeconfig"))
            .spawn()
            .unwrap(),
    );
    let with = |name: &str, cpu: &str, port: Option<u16>, selector: Value| {
        let mut pod = pod(name, json!({}), selector);
        pod["spec"]["schedulerName"] = json!("first-fit");
        let container = &mut pod["spec"]["containers"][0];
        container["resources"] = json!({"requests": {"cpu": cpu}});
        if let Some(port) = port {
            container["ports"] = json!([{"containerPort": port, "hostPort": port}]);
        }
        pod
    };
    // Each node has four cores.
    for (name, cpu, port, selector, want) in [
        ("large", "3", None, json!({}), "b-first"),
        ("too-large-for-the-rest", "2", None, json!({}), "c-second"),
        ("small", "1", Some(80), json!({}), "b-first"),
        ("same-port", "0", Some(80), json!({}), "c-second"),
        ("selects", "0", None, json!({"disk": "ssd"}), "c-second"),
    ] {
        create(&pods, with(name, cpu, port, selector)).await;
        assert_eq!(placed(&pods, name).await, want, "{name}");
    }
    create(&pods, with("giant", "5", None, json!({}))).await;
    create(&pods, with("last", "0", None, json!({}))).await;
    assert_eq!(placed(&pods, "last").await, "b-first");
    assert_eq!(node_of(&pods, "giant").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_and_the_hooks_take_effect() {
    let (_serving, client, folder) = cluster().await;
    let kubeconfig = folder.path().join("kubeconfig");

    let trial = json!([{"key": "example.com/trial", "effect": "NoSchedule"}]);
    add_node(
        &client,
        "clear",
        json!({"example.com/keep-clear": ""}),
        json!([]),
    )
    .await;
    add_node(&client, "trial", json!({"for": "trial"}), trial).await;
    add_node(&client, "plain", json!({}), json!([])).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let paused = json!({"metadata": {"name": "paused", "labels": {"example.com/paused": ""}}});
    create(&namespaces, paused).await;
    let pods = pods_in(&client, "default").await;
    let held = pods_in(&client, "paused").await;
    create(&held, pod("held", json!({}), json!({}))).await;

    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/config.yaml");
    let _scheduler = Process(
        Command::new(env!("CARGO_BIN_EXE_own-scheduler"))
            .args(["--config", config, "--kubeconfig"])
            .arg(&kubeconfig)
            .spawn()
            .unwrap(),
    );
    // The plugin and the taint leave one node.
    create(&pods, pod("usual", json!({}), json!({}))).await;
    assert_eq!(placed(&pods, "usual").await, "plain");
    // The hook allows a node that the spec of this pod does not.
    let on_trial = json!({"example.com/trial": ""});
    create(&pods, pod("new", on_trial, json!({"for": "trial"}))).await;
    assert_eq!(placed(&pods, "new").await, "trial");
    // The scheduler saw the paused pod before it decided about these two.
    assert_eq!(node_of(&held, "held").await, None);
    let goes_on = Patch::Merge(json!({"metadata": {"labels": {"example.com/paused": null}}}));
    namespaces
        .patch("paused", &PatchParams::default(), &goes_on)
        .await
        .unwrap();
    assert_eq!(placed(&held, "held").await, "plain");
}

/// The page shows the code that is compiled and run.
#[test]
fn the_page_shows_this_code() {
    let read = |path: &str| {
        let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    let page = read("../../docs/extend-the-scheduler.md");
    let sources = [
        "src/main.rs",
        "src/keep_clear.rs",
        "src/trial.rs",
        "src/pause.rs",
        "src/bin/first-fit.rs",
        "config.yaml",
    ]
    .map(read)
    .join("\n");
    let blocks = ["```rust\n", "```yaml\n"].into_iter().flat_map(|fence| {
        let rest = page.split(fence).skip(1);
        rest.filter_map(|rest| rest.split("```").next())
    });
    let blocks: Vec<&str> = blocks.collect();
    assert!(blocks.len() >= 5, "{} blocks", blocks.len());
    for block in blocks {
        assert!(sources.contains(block), "not in the sources:\n{block}");
    }
}
