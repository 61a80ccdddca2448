//! Simulated kubelets without controllers, on a cluster with nodes of others.

use apiserver::{Cluster, Options};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod, ServiceAccount},
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use local::{Local, NodeError, SIMULATED, Shape};
use serde_json::json;

use crate::support::{NAMESPACE, bind, eventually, gone, is_ready, object, short};

fn shapes(count: usize) -> Vec<Shape> {
    let shape = |index| Shape {
        name: Shape::numbered("fake", index, count),
        zone: "zone".into(),
        cpu: 4,
        memory: 8,
        pods: 10,
        ..Shape::default()
    };
    (0..count).map(shape).collect()
}

async fn start() -> (Client, Local) {
    let cluster = Cluster::new(Options::default());
    let client = Client::new(cluster.service(), NAMESPACE);
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let account = object(json!({"metadata": {"name": "default"}}));
    let options = PostParams::default();
    accounts.create(&options, &account).await.unwrap();
    let local = local::start_nodes(client.clone(), short());
    local.synced().await;
    (client, local)
}

async fn add_node(client: &Client, name: &str, labels: serde_json::Value) -> Node {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = object(json!({"metadata": {"name": name, "labels": labels}}));
    nodes.create(&PostParams::default(), &node).await.unwrap()
}

async fn add_pod(client: &Client, name: &str, node: &str) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = object(json!({"metadata": {"name": name}, "spec": {
        "containers": [{"name": "main", "image": "app:1"}],
    }}));
    let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
    bind(client, &pod, node).await;
}

async fn runs(client: &Client, name: &str) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    eventually(&format!("{name} runs"), || async {
        let pod = pods.get(name).await.unwrap();
        if is_ready(&pod) {
            Ok(())
        } else {
            Err(pod.status)
        }
    })
    .await;
}

#[tokio::test]
async fn only_labelled_nodes_and_their_pods_change() {
    let (client, local) = start().await;
    let (nodes, pods): (Api<Node>, Api<Pod>) = (
        Api::all(client.clone()),
        Api::default_namespaced(client.clone()),
    );
    let foreign = add_node(&client, "real", json!({})).await;
    add_node(&client, "other-value", json!({SIMULATED: "false"})).await;
    local
        .nodes()
        .ensure(&shapes(2), &mut Vec::new())
        .await
        .unwrap();
    for (pod, node) in [
        ("theirs", "real"),
        ("off", "other-value"),
        ("ours", "fake-001"),
    ] {
        add_pod(&client, pod, node).await;
    }
    runs(&client, "ours").await;
    let ours = nodes.get("fake-001").await.unwrap();
    assert_eq!(ours.labels()[SIMULATED], "true");
    // The controller manager of the cluster assigns these.
    assert_eq!(ours.spec.and_then(|spec| spec.pod_cidr), None);
    // A Node that a user labels gets a kubelet.
    add_node(&client, "labelled", json!({SIMULATED: "true"})).await;
    add_pod(&client, "late", "labelled").await;
    runs(&client, "late").await;
    assert_eq!(local.nodes().count(), 3);
    let untouched = nodes.get("real").await.unwrap();
    assert_eq!(untouched.resource_version(), foreign.resource_version());
    for name in ["theirs", "off"] {
        let status = pods.get(name).await.unwrap().status.unwrap();
        assert_eq!(status.start_time, None, "{name}");
    }
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    assert!(leases.get_opt("real").await.unwrap().is_none());

    // Without the label it is left alone from then on.
    let unlabel = json!({"metadata": {"labels": {SIMULATED: null}}});
    let options = PatchParams::default();
    let patch = Patch::Merge(&unlabel);
    nodes.patch("labelled", &options, &patch).await.unwrap();
    eventually("its kubelet has gone", || async {
        match local.nodes().count() {
            2 => Ok(()),
            other => Err(other),
        }
    })
    .await;
    local.stop().await;
}

#[tokio::test]
async fn nodes_of_the_same_name_are_used_again_and_real_ones_refused() {
    let (client, local) = start().await;
    let nodes: Api<Node> = Api::all(client.clone());
    local
        .nodes()
        .ensure(&shapes(2), &mut Vec::new())
        .await
        .unwrap();
    local
        .nodes()
        .ensure(&shapes(2), &mut Vec::new())
        .await
        .unwrap();
    let names = ["fake-001", "fake-002"].map(str::to_owned);
    assert_eq!(local.nodes().delete_simulated(&names).await.unwrap(), 2);
    for name in &names {
        gone(&nodes, name).await;
    }
    add_node(&client, "fake-002", json!({})).await;
    let refused = local
        .nodes()
        .ensure(&shapes(2), &mut Vec::new())
        .await
        .unwrap_err();
    assert!(matches!(&refused, NodeError::NotSimulated(name) if name == "fake-002"));
    assert_eq!(
        refused.to_string(),
        "node fake-002 exists and has no label tidepool.io/simulated=true: choose other names with --name-prefix"
    );
    // Only its own nodes go.
    local.nodes().delete_simulated(&names).await.unwrap();
    assert!(nodes.get_opt("fake-002").await.unwrap().is_some());
    local.stop().await;
}
