//! The whole agent on a directory that looks like a node's cgroups: it writes what the engine says, and continues after a restart.

use agent::agent::Agent;
use agent::hierarchy::{Hierarchies, Reader};
use agent::write::{KernelFiles, Mode, Writer};
use serde_json::json;

use crate::fake::{FakeNode, UID};
use crate::support::{TestCluster, eventually, text};

const OTHER: &str = "11111111-47f5-41dc-b3fb-a7379534fd30";

fn node() -> FakeNode {
    let node = FakeNode::new();
    node.write("cgroup/cgroup.controllers", "");
    for group in ["kubepods", "kubepods/burstable", "kubepods/besteffort"] {
        node.set_group_v2(group, 1, 5000);
        node.add_settings_v2(group);
    }
    node
}

fn add_pod(node: &FakeNode, uid: &str) -> String {
    let pod = format!("kubepods/besteffort/pod{uid}");
    for group in [pod.clone(), format!("{pod}/{}", "c".repeat(64))] {
        node.set_group_v2(&group, 1, 5000);
        node.add_settings_v2(&group);
    }
    pod
}

#[tokio::test]
async fn own_pods_get_their_values_and_others_keep_theirs() {
    let node = node();
    let cluster = TestCluster::new().await;
    cluster.create_node("n1").await;
    let amounts = json!({"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Mi"});
    cluster
        .create_pod(
            &node,
            "ours",
            UID,
            json!({"requests": amounts, "limits": amounts}),
        )
        .await;
    cluster.create_pod(&node, "theirs", OTHER, json!({})).await;
    let theirs = add_pod(&node, OTHER);
    let agent = Agent::start(cluster.client.clone(), node.options("n1")).unwrap();
    eventually("the agent has listed the objects", || {
        agent.check_objects().is_ok()
    })
    .await;
    // A pod that starts later is seen without waiting for the next full scan.
    let ours = add_pod(&node, UID);
    let container = format!("{ours}/{}", "c".repeat(64));
    for group in [&ours, &container] {
        eventually("the pod has its values", || {
            node.read(&format!("cgroup/{group}/cpu.max")) == "50000 100000"
                && node.read(&format!("cgroup/{group}/memory.max")) == "1048576"
                && node.read(&format!("cgroup/{group}/cpu.weight")) == "20"
        })
        .await;
    }
    let read = |group: &str, file: &str| node.read(&format!("cgroup/{group}/{file}"));
    eventually("the pod is confined", || {
        ["0", "1", "0-1"].contains(&&*read(&ours, "cpuset.cpus"))
    })
    .await;
    for group in [
        &theirs,
        "kubepods/besteffort",
        "kubepods/burstable",
        "kubepods",
    ] {
        assert_eq!(read(group, "cpu.max"), "max 100000", "{group}");
        assert_eq!(read(group, "cpu.weight"), "1", "{group}");
        assert_eq!(read(group, "memory.max"), "max", "{group}");
    }
    assert_eq!(read(&theirs, "cpuset.cpus"), "");
    drop(agent);
    // Another process restores everything from the journal.
    let paths = node.paths();
    let hierarchies = Hierarchies::find(&paths.cgroups, &paths.cgroup_root).unwrap();
    let mut writer = Writer::new(Mode::Apply, node.path("state/journal")).unwrap();
    let report = writer.restore(&mut KernelFiles {
        hierarchies: &hierarchies,
        reader: &mut Reader::default(),
    });
    assert_eq!(report.failed, []);
    assert_eq!(read(&ours, "cpu.max"), "max 100000");
    assert_eq!(read(&container, "memory.max"), "max");
}

#[tokio::test]
async fn an_agent_protects_without_an_api_server() {
    let node = node();
    let cluster = TestCluster::new().await;
    cluster.create_node("n1").await;
    let amounts = json!({"kubernetes.io/batch-cpu": "500"});
    cluster
        .create_pod(
            &node,
            "ours",
            UID,
            json!({"requests": amounts, "limits": amounts}),
        )
        .await;
    let ours = add_pod(&node, UID);
    let agent = Agent::start(cluster.client.clone(), node.options("n1")).unwrap();
    let quota = format!("cgroup/{ours}/cpu.max");
    eventually("the pod has its quota", || {
        node.read(&quota) == "50000 100000"
    })
    .await;
    drop(cluster);
    // The container starts anew while the API server is away.
    node.add_settings_v2(&ours);
    eventually("the pod has its quota again", || {
        node.read(&quota) == "50000 100000"
    })
    .await;
    drop(agent);
}

#[tokio::test]
async fn a_corrupt_checkpoint_is_set_aside_and_a_new_one_written() {
    let node = node();
    let cluster = TestCluster::new().await;
    cluster.create_node("n1").await;
    node.write("state/checkpoint.json", "{\"half");
    let agent = Agent::start(cluster.client.clone(), node.options("n1")).unwrap();
    eventually("a checkpoint is written", || {
        node.path("state/checkpoint.json").exists()
    })
    .await;
    drop(agent);
    assert_eq!(node.read("state/checkpoint.corrupt"), "{\"half");
    let checkpoint = node.read("state/checkpoint.json");
    let checkpoint: serde_json::Value = serde_json::from_str(&checkpoint).unwrap();
    assert!(checkpoint.is_object());
    // A restart continues from it: nothing is set aside.
    node.remove("state/checkpoint.corrupt");
    let agent = Agent::start(cluster.client.clone(), node.options("n1")).unwrap();
    eventually("samples arrive", || agent.check_samples().is_ok()).await;
    drop(agent);
    assert!(!node.path("state/checkpoint.corrupt").exists());
}

#[tokio::test]
async fn a_state_directory_that_cannot_be_written_stops_lending_but_not_measuring() {
    let node = node();
    let cluster = TestCluster::new().await;
    cluster.create_node("n1").await;
    let amounts = json!({"kubernetes.io/batch-cpu": "500"});
    cluster
        .create_pod(
            &node,
            "ours",
            UID,
            json!({"requests": amounts, "limits": amounts}),
        )
        .await;
    let ours = add_pod(&node, UID);
    let mut options = node.options("n1");
    options.state_dir = "/proc/no/state".into();
    let agent = Agent::start(cluster.client.clone(), options).unwrap();
    eventually("the agent is degraded", || {
        text(&agent).contains("tidepool_agent_condition{type=\"AgentDegraded\"} 1.0")
    })
    .await;
    assert_eq!(node.read(&format!("cgroup/{ours}/cpu.max")), "max 100000");
    assert!(agent.check_samples().is_ok());
    assert_eq!(agent.observation().reclaimed.allocatable.milli_cpu, 0);
}

#[tokio::test]
async fn a_memory_limit_of_burstable_is_a_condition_of_the_node() {
    let node = node();
    let cluster = TestCluster::new().await;
    cluster.create_node("n1").await;
    let agent = Agent::start(cluster.client.clone(), node.options("n1")).unwrap();
    let shows = |value: &str| {
        text(&agent).contains(&format!(
            "tidepool_agent_condition{{type=\"MidLSUnsupported\"}} {value}"
        ))
    };
    eventually("Mid+LS pods can go there", || shows("0.0")).await;
    node.write("cgroup/kubepods/burstable/memory.max", "1048576\n");
    eventually("the limit is a condition", || shows("1.0")).await;
    node.write("cgroup/kubepods/burstable/memory.max", "max\n");
    eventually("the condition ends", || shows("0.0")).await;
    assert_eq!(agent.check_thread(), Ok(()));
}
