//! Reports: what the agent writes to the API server, on definitions of different age, beside other writers.

use std::time::Duration;

use agent::agent::Agent;
use agent::report::taint::{TaintForm, TaintTarget, Taints};
use agent::report::writer::{Failure, ObjectWriter};
use agent::report::{Observation, Target, Values, reporter};
use apiserver::faults::{Fault, Matching};
use engine::node::health::{INTERFERENCE, PRESSURE};
use engine::node::{AgentTaint, CpuMemory, ReclaimedReport};
use serde_json::{Value, json};

use crate::fake::{FakeNode, UID};
use crate::support::{CNR, METRICS, TestCluster, eventually, text};

const CPU: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";

fn node() -> FakeNode {
    let node = FakeNode::new();
    node.write("cgroup/cgroup.controllers", "");
    for group in ["kubepods", "kubepods/burstable", "kubepods/besteffort"] {
        node.set_group_v2(group, 1, 5000);
    }
    node
}

fn observation(milli_cpu: i64, taints: &[&'static str]) -> Observation {
    let amount = CpuMemory::new(milli_cpu, 1 << 20);
    let taint = |key: &&'static str| AgentTaint { key, value: "why" };
    Observation {
        reclaimed: ReclaimedReport {
            capacity: amount,
            allocatable: amount,
            ..ReclaimedReport::default()
        },
        taints: taints.iter().map(taint).collect(),
        ..Observation::default()
    }
}

fn values(observation: &Observation, form: &TaintForm) -> Values {
    let taints = Taints {
        target: TaintTarget::Cnr,
        form: form.clone(),
    };
    let mut values = reporter(taints).unwrap().values(observation);
    values.remove(&Target::CustomNodeResource).unwrap()
}

fn writer(cluster: &TestCluster) -> ObjectWriter {
    ObjectWriter::new(cluster.client.clone(), Target::CustomNodeResource, "n1")
}

#[tokio::test]
async fn an_agent_creates_its_objects_and_fills_them() {
    let node = node();
    let cluster = TestCluster::new().await;
    cluster.create_node("n1").await;
    let agent = Agent::start(cluster.client.clone(), node.options("n1")).unwrap();
    let lends = |cnr: &Value| {
        let condition = cnr["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        condition
            .iter()
            .any(|it| it["type"] == "Lending" && it["status"] == "True")
    };
    let url = format!("{CNR}/n1");
    let cnr = cluster.wait_for("the node lends", &url, lends).await;
    let resources = &cnr["status"]["resources"];
    let old = &cnr["status"]["resourceAllocatable"];
    let amount = &resources["allocatable"][CPU];
    assert!(amount.is_string(), "{cnr:#}");
    assert_eq!(amount, &old["katalyst.kubewharf.io/reclaimed_millicpu"]);
    let zones = &cnr["status"]["topologyZone"];
    assert_eq!(zones[0]["type"], "Socket", "{cnr:#}");
    assert_eq!(zones[0]["children"][1]["name"], "1", "{cnr:#}");
    let terms = cnr["metadata"]["annotations"]["tidepool.io/terms"].as_str();
    let terms: Value = serde_json::from_str(terms.unwrap()).unwrap();
    assert!(terms[0]["terms"].is_array(), "{terms:#}");
    let has_use = |metric: &Value| {
        metric["status"]["nodeMetric"]["nodeUsage"]["resources"]["cpu"].is_string()
    };
    let url = format!("{METRICS}/n1");
    let metric = cluster.wait_for("use is reported", &url, has_use).await;
    assert!(metric["status"]["updateTime"].is_string(), "{metric:#}");
    let url = "/apis/coordination.k8s.io/v1/namespaces/tidepool-system/leases/agent-n1";
    let lease = cluster.wait_for("the Lease exists", url, |_| true).await;
    assert_eq!(lease["metadata"]["labels"]["tidepool.io/agent"], "true");
    assert_eq!(lease["spec"]["holderIdentity"], "n1");
    let renewed = lease["spec"]["renewTime"].clone();
    let is_newer = |lease: &Value| lease["spec"]["renewTime"] != renewed;
    cluster
        .wait_for("the Lease is renewed", url, is_newer)
        .await;
    eventually("metrics show the reports", || {
        text(&agent).contains("tidepool_agent_report_failing{kind=\"CustomNodeResource\"} 0.0")
    })
    .await;
    // Deleted by hand: the agent makes it again.
    cluster.delete(&format!("{METRICS}/n1")).await;
    cluster
        .wait_for("the metric is back", &format!("{METRICS}/n1"), has_use)
        .await;
}

#[tokio::test]
async fn items_of_other_writers_stay_and_own_items_go() {
    let cluster = TestCluster::new().await;
    let (mut writer, form) = (writer(&cluster), TaintForm::default());
    let url = format!("{CNR}/n1");
    writer
        .write(&values(&observation(1, &[PRESSURE]), &form))
        .await
        .unwrap();
    // The writer does not see these changes: its next write fails at first.
    let other = json!({"key": "someone/else", "effect": "NoSchedule", "qosLevel": "shared_cores"});
    let cnr = cluster.get(&url).await.unwrap();
    let mut taints = cnr["spec"]["taints"].as_array().unwrap().clone();
    taints.push(other.clone());
    cluster
        .patch(&url, &json!({"spec": {"taints": taints}}))
        .await;
    let condition = json!({"type": "AgentReady", "status": "True"});
    cluster
        .patch(
            &format!("{url}/status"),
            &json!({"status": {"conditions": [condition]}}),
        )
        .await;
    writer
        .write(&values(&observation(1, &[INTERFERENCE]), &form))
        .await
        .unwrap();
    let cnr = cluster.get(&url).await.unwrap();
    let ours =
        json!({"key": INTERFERENCE, "value": "why", "effect": "NoScheduleForReclaimedTasks"});
    assert_eq!(cnr["spec"]["taints"], json!([other, ours]));
    assert_eq!(cnr["status"]["conditions"][0]["type"], "AgentReady");
    writer
        .write(&values(&observation(1, &[]), &form))
        .await
        .unwrap();
    let cnr = cluster.get(&url).await.unwrap();
    assert_eq!(cnr["spec"]["taints"], json!([other]));
    let same = values(&observation(1, &[]), &form);
    assert_eq!(writer.write(&same).await, Ok(false), "nothing to send");
}

#[tokio::test]
async fn a_missing_kind_is_named_and_used_once_it_exists() {
    let cluster = TestCluster::bare().await;
    let (mut writer, form) = (writer(&cluster), TaintForm::default());
    let values = values(&observation(5, &[]), &form);
    let failure = writer.write(&values).await.unwrap_err();
    assert_eq!(failure, Failure::MissingKind("CustomNodeResource"));
    cluster.define(|_| {}).await;
    assert_eq!(writer.write(&values).await, Ok(true));
    let cnr = cluster.get(&format!("{CNR}/n1")).await.unwrap();
    assert_eq!(cnr["status"]["resources"]["allocatable"][CPU], "5");
}

/// As katalyst-api v0.5.0: no fields of the first version, taints without a level.
#[tokio::test]
async fn a_definition_that_prunes_fields_gets_each_report_once() {
    let cluster = TestCluster::bare().await;
    cluster
        .define(|definition| {
            let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let status = schema["properties"]["status"]["properties"]
                .as_object_mut()
                .unwrap();
            status.remove("resourceAllocatable");
            status.remove("resourceCapacity");
        })
        .await;
    let (mut writer, form) = (writer(&cluster), TaintForm::default());
    for (amount, want) in [(5, true), (5, false), (6, true), (6, false)] {
        let values = values(&observation(amount, &[PRESSURE]), &form);
        assert_eq!(writer.write(&values).await, Ok(want), "{amount}");
        let pending = values
            .iter()
            .any(|(field, value)| writer.is_pending(field, value));
        assert!(!pending);
    }
    let cnr = cluster.get(&format!("{CNR}/n1")).await.unwrap();
    assert_eq!(cnr["status"]["resources"]["allocatable"][CPU], "6");
    assert!(cnr["status"]["resourceAllocatable"].is_null());
}

/// As the main branch of katalyst-api: the effect of the first version is not in the list.
#[tokio::test]
async fn a_definition_that_refuses_the_first_form_of_taints_gets_the_other() {
    let node = node();
    let cluster = TestCluster::bare().await;
    cluster
        .define(|definition| {
            let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let spec = &mut schema["properties"]["spec"]["properties"];
            let effect = &mut spec["taints"]["items"]["properties"]["effect"];
            effect["enum"] = json!(["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        })
        .await;
    // Without a Node object the agent is unhealthy.
    let _agent = Agent::start(cluster.client.clone(), node.options("n1")).unwrap();
    let is_tainted = |cnr: &Value| cnr["spec"]["taints"][0]["key"] == "tidepool.io/agent-unhealthy";
    let url = format!("{CNR}/n1");
    let cnr = cluster
        .wait_for("the CNR is tainted", &url, is_tainted)
        .await;
    let taint = &cnr["spec"]["taints"][0];
    assert_eq!(taint["effect"], "NoSchedule");
    assert_eq!(taint["qosLevel"], "reclaimed_cores");
    cluster.create_node("n1").await;
    let is_clean = |cnr: &Value| cnr["spec"]["taints"] == json!([]);
    cluster.wait_for("the taint is gone", &url, is_clean).await;
}

/// As the definition of another project might.
async fn refuse_capacity(cluster: &TestCluster) {
    cluster
        .define(|definition| {
            let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let status = &mut schema["properties"]["status"]["properties"];
            status["resourceCapacity"] = json!({"type": "integer"});
        })
        .await;
}

#[tokio::test]
async fn one_refused_field_does_not_hold_up_the_others() {
    let cluster = TestCluster::bare().await;
    refuse_capacity(&cluster).await;
    let (mut writer, form) = (writer(&cluster), TaintForm::default());
    let values = values(&observation(7, &[PRESSURE]), &form);
    let failure = writer.write(&values).await.unwrap_err();
    assert!(
        failure.to_string().contains("resourceCapacity"),
        "{failure}"
    );
    let cnr = cluster.get(&format!("{CNR}/n1")).await.unwrap();
    assert_eq!(cnr["status"]["resources"]["allocatable"][CPU], "7");
    assert_eq!(cnr["spec"]["taints"][0]["key"], PRESSURE);
}

#[tokio::test]
async fn a_refused_field_does_not_delay_urgent_reports() {
    let node = node();
    let cluster = TestCluster::bare().await;
    refuse_capacity(&cluster).await;
    cluster.create_node("n1").await;
    let _agent = Agent::start(cluster.client.clone(), node.options("n1")).unwrap();
    let is_degraded = |cnr: &Value| {
        let conditions = cnr["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it["type"] == "AgentDegraded" && it["status"] == "True")
    };
    let cnr = format!("{CNR}/n1");
    let lends = |cnr: &Value| cnr["status"]["resources"]["allocatable"][CPU].is_string();
    cluster.wait_for("the node lends", &cnr, lends).await;
    // A sender that takes a refusal for a failure waits twice as long after each, up to half a minute.
    for round in 0..8 {
        let begun = std::time::Instant::now();
        match round % 2 {
            0 => node.remove("proc/stat"),
            _ => node.set_busy_ticks([100 + round, 200 + round]),
        }
        let follows = |cnr: &Value| is_degraded(cnr) == (round % 2 == 0);
        cluster
            .wait_for("the condition follows", &cnr, follows)
            .await;
        let seconds = begun.elapsed().as_secs_f64();
        assert!(seconds < 5.0, "round {round}: {seconds} s");
    }
}

#[tokio::test]
async fn node_taints_are_the_agents_own_only() {
    let node = node();
    let cluster = TestCluster::new().await;
    let mut options = node.options("n1");
    options.taint_target = TaintTarget::Node;
    // Kinds of files that cannot be read make the agent unhealthy.
    node.remove("proc/stat");
    cluster.create_node("n1").await;
    let other = json!({"key": "someone/else", "effect": "NoSchedule"});
    cluster
        .patch("/api/v1/nodes/n1", &json!({"spec": {"taints": [other]}}))
        .await;
    let agent = Agent::start(cluster.client.clone(), options).unwrap();
    let keys = |node: &Value| -> Vec<String> {
        let taints = node["spec"]["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        taints
            .iter()
            .map(|it| it["key"].as_str().unwrap().to_owned())
            .collect()
    };
    let both = ["someone/else", "tidepool.io/agent-unhealthy"];
    let is_tainted = |node: &Value| keys(node) == both;
    cluster
        .wait_for("the Node is tainted", "/api/v1/nodes/n1", is_tainted)
        .await;
    let cnr = cluster
        .wait_for("the CNR exists", &format!("{CNR}/n1"), |_| true)
        .await;
    assert_eq!(keys(&cnr), Vec::<String>::new());
    node.set_busy_ticks([100, 200]);
    let is_clean = |node: &Value| keys(node) == ["someone/else"];
    cluster
        .wait_for("the taint is gone", "/api/v1/nodes/n1", is_clean)
        .await;
    drop(agent);
    let ours = json!({"key": both[1], "effect": "NoSchedule"});
    let taints = json!({"spec": {"taints": [other, ours]}});
    let tainted = cluster.patch("/api/v1/nodes/n1", &taints).await;
    assert!(is_tainted(&tainted), "{tainted}");
    agent::report::withdraw(&cluster.client, "n1", TaintTarget::Node)
        .await
        .unwrap();
    let withdrawn = cluster.get("/api/v1/nodes/n1").await.unwrap();
    assert_eq!(keys(&withdrawn), ["someone/else"]);
}

#[tokio::test]
async fn a_dry_run_writes_neither_objects_nor_files() {
    let node = node();
    let cluster = TestCluster::new().await;
    cluster.create_node("n1").await;
    let pod = format!("kubepods/besteffort/pod{UID}");
    node.set_group_v2(&pod, 1, 5000);
    node.add_settings_v2(&pod);
    let reclaimed = json!({CPU: "500", "resource.katalyst.kubewharf.io/reclaimed_memory": "1Mi"});
    cluster
        .create_pod(
            &node,
            "p",
            UID,
            json!({"requests": reclaimed, "limits": reclaimed}),
        )
        .await;
    let mut options = node.options("n1");
    options.dry_run = true;
    let agent = Agent::start(cluster.client.clone(), options).unwrap();
    eventually("the agent wants to write", || {
        !text(&agent).contains("tidepool_agent_written_files{} 0.0")
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(agent);
    assert!(!node.path("state").exists());
    assert_eq!(node.read(&format!("cgroup/{pod}/cpu.max")), "max 100000");
    assert_eq!(cluster.get(&format!("{CNR}/n1")).await, None);
    assert_eq!(cluster.get(&format!("{METRICS}/n1")).await, None);
}

/// A node that lends nothing more says so as soon as the API server answers again; meanwhile the agent goes on.
#[tokio::test]
async fn reports_continue_when_the_api_server_is_back() {
    let node = node();
    let cluster = TestCluster::new().await;
    cluster.create_node("n1").await;
    let agent = Agent::start(cluster.client.clone(), node.options("n1")).unwrap();
    let lending = |cnr: &Value| {
        let conditions = cnr["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.find_map(|it| (it["type"] == "Lending").then(|| it["status"] == "True"))
    };
    let url = format!("{CNR}/n1");
    let lends = |cnr: &Value| lending(cnr) == Some(true);
    cluster.wait_for("the node lends", &url, lends).await;
    cluster
        .faults
        .every(1, Matching::default(), Fault::LostRequest);
    node.remove("proc/stat");
    let shows = |line: &str| text(&agent).contains(line);
    let failing = "tidepool_agent_report_failing{kind=\"CustomNodeResource\"} 1.0";
    eventually("reports fail", || shows(failing)).await;
    assert!(shows("tidepool_agent_condition{type=\"Lending\"} 0.0"));
    cluster.faults.clear();
    let has_stopped = |cnr: &Value| lending(cnr) == Some(false);
    cluster.wait_for("the report", &url, has_stopped).await;
    eventually("no report fails", || !shows(failing)).await;
}
