//! The two examples of the design document of NodeResourcesFitPlus and ScarceResourceAvoidance: its configuration and its
//! Deployments as printed, on nodes with its shares of use.

use std::time::Duration;

use e2e::eventually;
use serde_json::{Value, json};

use crate::deployed;
use crate::shared_cluster::{SHORT, SharedCluster, node, text, with};

/// The two scenarios have the configuration, too, and explain the numbers.
const SCENARIO: &str =
    include_str!("../../../scenarios/koordinator/gpu-pods-fill-the-fuller-gpu-node.yaml");

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: test-scheduler1
spec:
  replicas: 1
  selector:
    matchLabels:
      app: test-scheduler1
  template:
    metadata:
      labels:
        app: test-scheduler1
    spec:
      schedulerName: koord-scheduler
      containers:
        - image: dockerpull.com/nginx
          imagePullPolicy: IfNotPresent
          name: nginx
          ports:
            - containerPort: 80
          resources:
            requests:
              cpu: "100"
              memory: "100"
              nvidia.com/gpu: 2
            limits:
              cpu: "100"
              memory: "100"
              nvidia.com/gpu: 2
"#;

#[test]
fn a_gpu_pod_goes_to_the_fuller_gpu_node() {
    with(|cluster| {
        for (name, cpu, memory, gpus) in [("node1", 580, "210Gi", 6), ("node2", 220, "50Gi", 0)] {
            let more = json!({"nvidia.com/gpu": "8"});
            fill(cluster, name, more, cpu, memory, gpus);
        }
        let want = [("node1", 354, 154, 200), ("node2", 306, 106, 200)];
        place(cluster, "gpu", DEPLOYMENT, &want);
    });
}

#[test]
fn a_pod_without_gpu_avoids_the_gpu_node() {
    with(|cluster| {
        // What Koordinator publishes on such a machine.
        let more = json!({"nvidia.com/gpu": "8", "ephemeral-storage": "1Ti", "kubernetes.io/batch-cpu": "1000",
            "kubernetes.io/batch-memory": "1Ti", "kubernetes.io/mid-cpu": "1000", "kubernetes.io/mid-memory": "1Ti"});
        fill(cluster, "node1", more, 220, "100Gi", 6);
        fill(cluster, "node2", json!({}), 400, "500Gi", 0);
        fill(cluster, "node3", json!({}), 300, "200Gi", 0);
        let lines = DEPLOYMENT.lines().filter(|line| !line.contains("gpu"));
        let deployment: String = lines.map(|line| format!("{line}\n")).collect();
        let want = [
            ("node3", 338, 138, 200),
            ("node1", 322, 156, 166),
            ("node2", 298, 98, 200),
        ];
        place(cluster, "no-gpu", &deployment, &want);
    });
}

/// A node of 1,000 cores with one pod on it that asks for so much.
fn fill(cluster: &SharedCluster, name: &str, more: Value, cpu: u32, memory: &str, gpus: u32) {
    let mut capacity = json!({"cpu": "1000", "memory": "1000Gi", "pods": "110"});
    crate::shared_cluster::merge(&mut capacity, more);
    cluster.create(&node(name, "a", json!({"status": {"capacity": capacity}})));
    let mut amounts = json!({"cpu": cpu.to_string(), "memory": memory});
    if gpus > 0 {
        amounts["nvidia.com/gpu"] = gpus.to_string().into();
    }
    cluster.create(
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("on-{name}")},
        "spec": {"nodeName": name, "containers": [
            {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}]}}),
    );
}

/// Applies the Deployment as a person would. Its pod goes to the first of these nodes, and the log has the table with
/// these numbers. `log` is the name of that log.
fn place(cluster: &SharedCluster, log: &str, deployment: &str, want: &[(&str, i64, i64, i64)]) {
    let (_, configuration) = SCENARIO.split_once("configuration: |\n").unwrap();
    let lines = configuration.lines();
    let lines = lines.map_while(|line| line.strip_prefix("  "));
    let configuration: String = lines.map(|line| format!("{line}\n")).collect();
    let kubectl = cluster.control_plane.kubectl().unwrap();
    let file = kubectl.directory().join("configuration.yaml");
    std::fs::write(&file, configuration).unwrap();
    let flags = [
        &format!("--config={}", file.display())[..],
        "--debug-scores=10",
        "--leader-elect=false",
        "--secure-port=0",
    ];
    let _scheduler = deployed::with_flags(&cluster.control_plane, log, &flags);
    let log = cluster.control_plane.logs().join(format!("{log}.log"));
    std::fs::write(kubectl.directory().join("deployment.yaml"), deployment).unwrap();
    let applied = kubectl
        .run(&["apply", "-f", "deployment.yaml"], Duration::from_secs(60))
        .unwrap();
    assert_eq!(applied.code, Some(0), "{applied:?}");
    let pod = eventually("the pod of the Deployment is bound", SHORT, || {
        let path = "/api/v1/namespaces/default/pods?labelSelector=app%3Dtest-scheduler1";
        let pods = cluster
            .api
            .list(path)
            .map_err(|error| format!("{error:#}"))?;
        match &pods[..] {
            [pod] if pod["spec"]["nodeName"].is_string() => Ok(pod.clone()),
            _ => Err(format!("{pods:?}")),
        }
    });
    assert_eq!(pod["spec"]["nodeName"], want[0].0);
    assert_eq!(
        pod["spec"]["containers"][0]["image"],
        "dockerpull.com/nginx"
    );
    let name = text(&pod["metadata"]["name"]);
    let mut table = format!(
        "Top10 scores for Pod: default/{name}, feasibleNodes: {}, plugins:[NodeResourcesFitPlus ScarceResourceAvoidance]\n\
         | # | Pod | Node | Score | NodeResourcesFitPlus | ScarceResourceAvoidance |\n\
         | --- | --- | --- | ---:| ---:| ---:|\n",
        want.len()
    );
    for (rank, (node, total, plus, scarce)) in want.iter().enumerate() {
        table += &format!("| {rank} | default/{name} | {node} | {total} | {plus} | {scarce} |\n");
    }
    let logged = |what: &str| {
        eventually("it is in the log", SHORT, || {
            let log = std::fs::read_to_string(&log).unwrap();
            match log.contains(what) {
                true => Ok(log),
                false => Err(format!("not\n{what}\nbut\n{log}")),
            }
        })
    };
    logged(&table);

    // A pod with an unusual request gets one event and is scheduled.
    let spec = json!({"schedulerName": "koord-scheduler"});
    let mut odd = crate::shared_cluster::pod("odd", spec);
    odd["metadata"]["annotations"] = json!({"tidepool.io/debug-scores": "many"});
    let uid = text(&cluster.create(&odd)["metadata"]["uid"]);
    cluster.node_of("odd");
    let warning = "ignoring invalid annotation tidepool.io/debug-scores: found `many`; use a whole number from 0 to 1000";
    let log = logged("Top10 scores for Pod: default/odd, ");
    assert_eq!(log.matches(warning).count(), 1, "{log}");
    eventually("the pod has the event", SHORT, || {
        let events = cluster.events(&uid);
        let found = events.iter().filter(|event| event["note"] == warning);
        match found.count() {
            1 => Ok(()),
            _ => Err(format!("{events:?}")),
        }
    });
}
