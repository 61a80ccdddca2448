//! The agent with an API server: names of pods in metrics, checks.

use agent::agent::Agent;
use apiserver::Cluster;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use crate::fake::{FakeNode, UID};
use crate::support::{eventually, text};

/// A static pod: its cgroup has the hash of its file as uid, so that the test can choose it.
async fn create_pod(client: &Client, name: &str, node: &str, hash: &str) {
    let pod = json!({
        "metadata": {"name": name, "annotations": {"kubernetes.io/config.hash": hash, "kubernetes.io/config.mirror": hash}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "i"}]},
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let id = "c".repeat(64);
    let status = json!({"status": {"containerStatuses": [{
        "name": "main", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "containerID": format!("containerd://{id}"),
    }]}});
    let patch = Patch::Merge(status);
    pods.patch_status(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[tokio::test]
async fn metrics_have_the_names_of_the_pods_of_this_node() {
    let node = FakeNode::new();
    node.write("cgroup/cgroup.controllers", "");
    node.set_group_v2("kubepods", 1, 5000);
    node.set_group_v2(&format!("kubepods/pod{UID}"), 1, 5000);
    node.set_group_v2(&format!("kubepods/pod{UID}/{}", "c".repeat(64)), 1, 3000);
    let cluster = Cluster::new(apiserver::Options::default());
    let client = Client::new(cluster.service(), "default");
    node.show_static_pod("ours", UID);
    create_pod(&client, "ours", "n1", UID).await;
    create_pod(&client, "other", "n2", UID).await;
    let agent = Agent::start(client, node.options("n1")).unwrap();
    eventually("the agent is ready", || {
        agent.check_objects().is_ok() && agent.check_samples().is_ok()
    })
    .await;
    let pod = format!(r#"namespace="default",pod="ours",uid="{UID}""#);
    eventually("the pod is in the metrics", || text(&agent).contains(&pod)).await;
    let text = text(&agent);
    assert!(!text.contains("other"), "{text}");
    for line in [
        format!("tidepool_agent_pod_memory_working_set_bytes{{{pod}}} 4000.0\n"),
        format!(
            "tidepool_agent_container_memory_working_set_bytes{{{pod},container=\"main\",id=\"{}\"}} 2000.0\n",
            "c".repeat(64)
        ),
        "tidepool_agent_machine_load{minutes=\"5\"} 1.25\n".to_owned(),
        "tidepool_agent_group_pressure_ratio{group=\"kubepods\",resource=\"cpu\",tasks=\"some\"} 0.125\n".to_owned(),
        "tidepool_agent_unreadable_files{} 0.0\n".to_owned(),
    ] {
        assert!(text.contains(&line), "no line {line} in\n{text}");
    }
}

#[tokio::test]
async fn an_agent_without_cgroups_is_not_ready_and_recovers() {
    let node = FakeNode::new();
    let cluster = Cluster::new(apiserver::Options::default());
    let client = Client::new(cluster.service(), "default");
    let agent = Agent::start(client, node.options("n1")).unwrap();
    eventually("the problem is counted", || {
        text(&agent).contains("tidepool_agent_unreadable_files{} 1.0\n")
    })
    .await;
    assert_eq!(agent.check_samples(), Err("no sample yet".to_owned()));
    node.write("cgroup/cgroup.controllers", "");
    node.set_group_v2("kubepods", 1, 5000);
    eventually("samples arrive", || agent.check_samples().is_ok()).await;
}
