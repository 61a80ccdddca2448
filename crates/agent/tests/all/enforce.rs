//! The whole agent on a directory that looks like a node's cgroups: it writes what the engine says, and continues after a restart.

use agent::agent::Agent;
use agent::hierarchy::{Hierarchies, Reader};
use agent::write::{KernelFiles, Mode, Writer};
use serde_json::{Value, json};

use crate::fake::{FakeNode, UID};
use crate::support::{CNR, TestCluster, eventually, text};

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

/// A pod of the API server: the annotation is whatever its user wrote.
async fn create_user_pod(
    cluster: &TestCluster,
    name: &str,
    hash: &str,
    resources: Value,
) -> String {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {"kubernetes.io/config.hash": hash}},
        "spec": {"nodeName": "n1", "containers": [
            {"name": "main", "image": "i", "resources": resources},
        ]},
    });
    let pod = cluster
        .create("/api/v1/namespaces/default/pods", &pod)
        .await;
    pod["metadata"]["uid"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_pod_that_names_the_group_of_another_is_limited_itself() {
    let node = node();
    let cluster = TestCluster::new().await;
    cluster.create_node("n1").await;
    let online = create_user_pod(&cluster, "online", "", json!({})).await;
    let amounts = json!({"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Mi"});
    let batch = json!({"requests": amounts, "limits": amounts});
    let thief = create_user_pod(&cluster, "thief", &online, batch.clone()).await;
    let liar = create_user_pod(&cluster, "liar", &"f".repeat(32), batch).await;
    let amounts = json!({"resource.katalyst.kubewharf.io/reclaimed_millicpu": "1000000000000000"});
    let most = json!({"requests": amounts, "limits": amounts});
    let absurd = create_user_pod(&cluster, "absurd", "", most).await;
    let [online, thief, liar, absurd] =
        [online, thief, liar, absurd].map(|uid| add_pod(&node, &uid));
    let agent = Agent::start(cluster.client.clone(), node.options("n1")).unwrap();
    let read = |group: &str, file: &str| node.read(&format!("cgroup/{group}/{file}"));
    for pod in [&thief, &liar] {
        eventually("the pod has its own limits", || {
            read(pod, "cpu.max") == "50000 100000" && read(pod, "memory.max") == "1048576"
        })
        .await;
    }
    // 44 bits are the most that the kernel takes.
    let most = format!("{} 100000", (1_u64 << 44) - 1);
    eventually("the value is one that the kernel takes", || {
        read(&absurd, "cpu.max") == most
    })
    .await;
    assert_eq!(read(&online, "cpu.max"), "max 100000");
    assert_eq!(read(&online, "cpu.weight"), "1");
    assert_eq!(read(&online, "memory.max"), "max");
    let cnr = cluster
        .wait_for("both pods are named", &format!("{CNR}/n1"), |cnr| {
            let conditions = cnr["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|it| it["reason"] == "GroupClaimed")
        })
        .await;
    let conditions = cnr["status"]["conditions"].as_array().unwrap();
    let of = |kind: &str| conditions.iter().find(|it| it["type"] == kind).unwrap();
    let want = "the annotation kubernetes.io/config.hash of pod default/thief names the cgroup of pod default/online; it has no effect";
    assert_eq!(of("AgentDegraded")["message"], want);
    assert_eq!(of("Lending")["status"], "True");
    drop(agent);
}

#[tokio::test]
async fn with_a_damaged_journal_the_agent_writes_nothing_until_it_is_restored() {
    let node = node();
    let cluster = TestCluster::new().await;
    cluster.create_node("n1").await;
    let amounts = json!({"kubernetes.io/batch-cpu": "500"});
    let batch = json!({"requests": amounts, "limits": amounts});
    let pod = create_user_pod(&cluster, "batch", "", batch).await;
    let pod = add_pod(&node, &pod);
    node.write("state/journal", "not a journal\n");
    let agent = Agent::start(cluster.client.clone(), node.options("n1")).unwrap();
    cluster
        .wait_for("the damage is a condition", &format!("{CNR}/n1"), |cnr| {
            let conditions = cnr["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|it| it["type"] == "AgentDegraded" && it["reason"] == "JournalDamaged")
        })
        .await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let quota = format!("cgroup/{pod}/cpu.max");
    assert_eq!(node.read(&quota), "max 100000");
    assert_eq!(node.read("state/journal"), "not a journal");
    drop(agent);
    let paths = node.paths();
    let hierarchies = Hierarchies::find(&paths.cgroups, &paths.cgroup_root).unwrap();
    let mut writer = Writer::for_restore(Mode::Apply, node.path("state/journal")).unwrap();
    writer.restore(&mut KernelFiles {
        hierarchies: &hierarchies,
        reader: &mut Reader::default(),
    });
    let _agent = Agent::start(cluster.client.clone(), node.options("n1")).unwrap();
    eventually("the agent writes again", || {
        node.read(&quota) == "50000 100000"
    })
    .await;
}
