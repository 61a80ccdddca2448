//! The scheduler on the real API server: what it reads is protobuf there.

use std::time::{Duration, Instant};

use control_plane::client::Connect;
use control_plane::scheduler::{Options, Running};
use e2e::{ControlPlane, Kubectl};
use serde_json::json;

const SHORT: Duration = Duration::from_secs(30);

fn kubectl(kubectl: &Kubectl, arguments: &[&str]) -> String {
    let run = kubectl.run(arguments, SHORT).expect("kubectl runs");
    assert_eq!(run.code, Some(0), "kubectl {arguments:?}: {run:?}");
    run.stdout
}

fn create(kubectl_: &Kubectl, object: &serde_json::Value) {
    let file = kubectl_.directory().join("object.json");
    std::fs::write(file, object.to_string()).expect("the object can be written");
    kubectl(kubectl_, &["create", "-f", "object.json"]);
}

/// Asks until the answer pleases.
fn eventually(what: &str, mut ask: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + SHORT;
    while let Err(last) = ask() {
        assert!(
            Instant::now() < deadline,
            "waited in vain until {what}: {last}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn pods_are_placed_and_people_are_told() {
    let control_plane = ControlPlane::start(e2e::Options {
        disable_admission_plugins: vec![
            "ServiceAccount".to_owned(),
            "TaintNodesByCondition".to_owned(),
        ],
        ..e2e::Options::default()
    })
    .unwrap();
    let admin = control_plane.kubectl().unwrap();
    for (name, zone) in [("a", "east"), ("b", "west")] {
        create(
            &admin,
            &json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {"zone": zone}},
                "status": {"capacity": {"cpu": "4", "memory": "4Gi", "pods": "10"}}}),
        );
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config = runtime
        .block_on(control_plane.admin().to_client_config())
        .unwrap();
    let options = Options::with_defaults("tidepool", "host").unwrap();
    let running = Running::start(Connect::Config(Box::new(config)), options).unwrap();

    // A field of every depth that the choice depends on.
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["west"]}]}]}}});
    for (name, cpu) in [("fits", "1"), ("giant", "5")] {
        create(
            &admin,
            &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
                "schedulerName": "tidepool", "affinity": affinity,
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}}),
        );
    }
    eventually("the pod is on node b", || {
        let node = kubectl(
            &admin,
            &["get", "pod", "fits", "-o", "jsonpath={.spec.nodeName}"],
        );
        if node == "b" { Ok(()) } else { Err(node) }
    });
    eventually("kubectl tells of it", || {
        let told = kubectl(&admin, &["describe", "pod", "fits"]);
        let line = "Successfully assigned default/fits to b";
        if told.contains(line) {
            Ok(())
        } else {
            Err(told)
        }
    });
    let words = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector.";
    eventually("kubectl tells why the other pod waits", || {
        let told = kubectl(&admin, &["describe", "pod", "giant"]);
        let told_all = told.contains("FailedScheduling") && told.contains(words);
        if told_all { Ok(()) } else { Err(told) }
    });
    let condition = r#"jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}"#;
    let message = kubectl(&admin, &["get", "pod", "giant", "-o", condition]);
    assert!(message.starts_with(words), "{message}");
    runtime.block_on(running.stop());
}
