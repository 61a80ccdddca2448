//! A pod that is scheduled and one that is not, as kubectl shows them.

use e2e::{Kubectl, eventually};
use serde_json::json;

use crate::shared_cluster::{SHORT, asks, node, pod, with};

fn kubectl(kubectl: &Kubectl, command: &str) -> String {
    let arguments: Vec<&str> = command.split(' ').collect();
    let run = kubectl.run(&arguments, SHORT).unwrap();
    assert_eq!(run.code, Some(0), "kubectl {command}: {run:?}");
    run.stdout
}

/// Repeats the command until it prints all of these.
fn shows(client: &Kubectl, command: &str, parts: &[&str]) {
    eventually(&format!("kubectl tells {parts:?}"), SHORT, || {
        let output = kubectl(client, command);
        if parts.iter().all(|part| output.contains(part)) {
            Ok(())
        } else {
            Err(output)
        }
    });
}

#[test]
fn pods_are_scheduled_and_get_events() {
    with(|cluster| {
        for (name, zone) in [("a", "east"), ("b", "west")] {
            cluster.create(&node(name, zone, json!({})));
        }
        // A field of every depth that the choice depends on.
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["west"]}]}]}}});
        for (name, cpu) in [("fits", "1"), ("giant", "9")] {
            let spec = json!({"affinity": affinity, "containers": asks("cpu", cpu)});
            cluster.create(&pod(name, spec));
        }
        assert_eq!(cluster.node_of("fits"), "b");
        let client = cluster.control_plane.kubectl().unwrap();
        let line = "Successfully assigned default/fits to b";
        shows(
            &client,
            "describe pod fits",
            &["Scheduled", "tidepool", line],
        );
        let message = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector.";
        shows(
            &client,
            "describe pod giant",
            &["FailedScheduling", "tidepool", message],
        );
        let condition = r#"jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}"#;
        shows(
            &client,
            &format!("get pod giant -o {condition}"),
            &[message],
        );
    });
}
