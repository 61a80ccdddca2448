//! A hot node of `up` is relieved by `tidepool controllers`, while pods of the tiers move to other simulated nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Stdio,
    time::Duration,
};

use engine::model::{Quantity, Resource};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Event, Node, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    },
};
use serde_json::{Value, json};

use crate::{PATIENCE, Up, client, tidepool};

const CPU_USE: &str = "tidepool.io/cpu-use";
const HOT: &str = "node-001";
/// What a pod uses of a node with 16 cores, in thousandths of a core.
const POD_USE: i64 = 1500;

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The agents of all nodes: each pod uses what its annotation says, and services use the rest.
struct Agents {
    client: Client,
    services: BTreeMap<String, i64>,
}

impl Agents {
    /// Writes a NodeMetric for each node, and returns what each node uses, in percent.
    async fn measure(&self) -> BTreeMap<String, i64> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        let pods = pods.list(&ListParams::default()).await.unwrap();
        let mut percents = BTreeMap::new();
        for node in nodes.list(&ListParams::default()).await.unwrap() {
            let name = node.name_any();
            let is_here = |pod: &&Pod| {
                pod.spec.as_ref().unwrap().node_name.as_ref() == Some(&name)
                    && pod.metadata.deletion_timestamp.is_none()
            };
            let here: Vec<(String, i64)> = pods
                .iter()
                .filter(is_here)
                .map(|pod| (pod.name_any(), cpu(&pod.annotations()[CPU_USE])))
                .collect();
            let services = self.services.get(&name).copied().unwrap_or(0);
            let used = services + here.iter().map(|(_, used)| used).sum::<i64>();
            self.write(&name, used, &here).await;
            let allocatable = node.status.unwrap().allocatable.unwrap();
            percents.insert(name, used * 100 / cpu(&allocatable["cpu"].0));
        }
        percents
    }

    async fn write(&self, node: &str, used: i64, pods: &[(String, i64)]) {
        let kind = GroupVersionKind::gvk("slo.koordinator.sh", "v1alpha1", "NodeMetric");
        let resource = ApiResource::from_gvk_with_plural(&kind, "nodemetrics");
        let metrics: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let metric = json!({"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": node}});
        // It may be there already.
        let _ = metrics
            .create(&PostParams::default(), &object(metric))
            .await;
        let usage =
            |milli: i64| json!({"resources": {"cpu": format!("{milli}m"), "memory": "1Gi"}});
        let pod = |(name, used): &(String, i64)| json!({"namespace": "default", "name": name, "priority": "koord-batch", "podUsage": usage(*used)});
        let pods: Vec<Value> = pods.iter().map(pod).collect();
        let status = json!({"status": {
            "updateTime": jiff::Timestamp::now().to_string(),
            "nodeMetric": {"nodeUsage": usage(used), "systemUsage": {"resources": {"cpu": "0", "memory": "0"}}},
            "podsMetric": pods,
        }});
        let (status, none) = (Patch::Merge(status), PatchParams::default());
        metrics.patch_status(node, &none, &status).await.unwrap();
    }
}

fn cpu(text: &str) -> i64 {
    Resource::Cpu.integer(Quantity::parse(text).unwrap())
}

fn deployment(name: &str) -> Deployment {
    let resources = json!({"cpu": "1", "memory": "500Mi"});
    object(json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {
                    "labels": {"app": name, "koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"},
                    "annotations": {CPU_USE: format!("{POD_USE}m")},
                },
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [
                    {"name": "main", "image": "job:1", "resources": {"requests": resources, "limits": resources}},
                ]},
            },
        },
    }))
}

async fn cordon(client: &Client, node: &str, is_cordoned: bool) {
    let nodes: Api<Node> = Api::all(client.clone());
    let spec = Patch::Merge(json!({"spec": {"unschedulable": is_cordoned}}));
    let patched = nodes.patch(node, &PatchParams::default(), &spec).await;
    patched.unwrap();
}

/// The nodes of the pods that are not being deleted, by pod.
async fn placed(client: &Client) -> BTreeMap<String, String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pods = pods.list(&ListParams::default()).await.unwrap();
    let staying = pods
        .into_iter()
        .filter(|it| it.metadata.deletion_timestamp.is_none());
    staying
        .filter_map(|it| Some((it.name_any(), it.spec?.node_name?)))
        .collect()
}

fn start_controllers(kubeconfig: &Path) -> Up {
    let flags = [
        "controllers",
        "--leader-elect=false",
        "--secure-port=0",
        "--hot-spot-interval=500ms",
        "--hot-spot-rounds=3",
        "--hot-spot-workload-pause=1s",
        "--kubeconfig",
    ];
    let mut command = tidepool(&flags);
    let child = command.arg(kubeconfig).stdout(Stdio::null()).spawn();
    Up {
        child: child.unwrap(),
    }
}

#[tokio::test]
async fn a_hot_node_gets_below_its_mark_and_no_pod_moves_twice() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("kubeconfig");
    let _up = Up::start(&[
        "--nodes",
        "3",
        "--no-demo",
        "--kubeconfig-out",
        path.to_str().unwrap(),
    ]);
    let client = client(&path).await;
    let mut agents = Agents {
        client: client.clone(),
        services: BTreeMap::from([(HOT.to_owned(), 2000)]),
    };
    // All pods start on one node.
    for node in ["node-002", "node-003"] {
        cordon(&client, node, true).await;
    }
    let names = ["a", "b", "c", "d"];
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    for name in names {
        let params = PostParams::default();
        deployments
            .create(&params, &deployment(name))
            .await
            .unwrap();
    }
    let started = async {
        loop {
            agents.measure().await;
            let placed = placed(&client).await;
            if placed.len() == names.len() {
                assert!(placed.values().all(|it| it == HOT), "{placed:?}");
                return placed;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let started = tokio::time::timeout(2 * PATIENCE, started).await;
    let first = started.expect("the pods run on the capacity of the batch tier");
    for node in ["node-002", "node-003"] {
        cordon(&client, node, false).await;
    }

    // The tide comes in: with the pods the node uses 14 of 15.6 cores.
    agents.services.insert(HOT.to_owned(), 8000);
    assert!(agents.measure().await[HOT] > 75);
    let _controllers = start_controllers(&path);
    let relieved = async {
        // It stays below, and all pods run.
        let mut quiet = 0;
        while quiet < 20 {
            let percent = agents.measure().await;
            let is_calm = percent.values().all(|it| *it <= 75);
            let all_run = placed(&client).await.len() == names.len();
            quiet = if is_calm && all_run { quiet + 1 } else { 0 };
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        placed(&client).await
    };
    let relieved = tokio::time::timeout(3 * PATIENCE, relieved).await;
    let last = relieved.expect("the node is relieved");
    let left: BTreeSet<&String> = first.keys().filter(|it| !last.contains_key(*it)).collect();
    assert!(!left.is_empty() && left.len() < names.len(), "{last:?}");
    let events: Api<Event> = Api::namespaced(client, "default");
    let events = events.list(&ListParams::default()).await.unwrap();
    let evicted: Vec<String> = events
        .into_iter()
        .filter(|it| it.reason.as_deref() == Some("HotSpot"))
        .map(|it| {
            assert_eq!(it.count, Some(1), "{it:?}");
            it.involved_object.name.unwrap()
        })
        .collect();
    let unique: BTreeSet<&String> = evicted.iter().collect();
    assert_eq!(unique.len(), evicted.len(), "{evicted:?}");
    assert_eq!(
        unique, left,
        "only pods that started there have moved, once"
    );
}
