//! A pod that finds its node and one that does not, as people see it: in kubectl.

use e2e::{Kubectl, eventually};
use serde_json::json;

use crate::world::{SHORT, asks, node, pod, with};

fn kubectl(kubectl: &Kubectl, command: &str) -> String {
    let arguments: Vec<&str> = command.split(' ').collect();
    let run = kubectl.run(&arguments, SHORT).unwrap();
    assert_eq!(run.code, Some(0), "kubectl {command}: {run:?}");
    run.stdout
}

/// Asks until all of this is said.
fn told(client: &Kubectl, command: &str, parts: &[&str]) {
    eventually(&format!("kubectl tells {parts:?}"), SHORT, || {
        let told = kubectl(client, command);
        if parts.iter().all(|part| told.contains(part)) {
            Ok(())
        } else {
            Err(told)
        }
    });
}

#[test]
fn pods_are_placed_and_people_are_told() {
    with(|world| {
        for (name, zone) in [("a", "east"), ("b", "west")] {
            world.create(&node(name, zone, json!({})));
        }
        // A field of every depth that the choice depends on.
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["west"]}]}]}}});
        for (name, cpu) in [("fits", "1"), ("giant", "9")] {
            let spec = json!({"affinity": affinity, "containers": asks("cpu", cpu)});
            world.create(&pod(name, spec));
        }
        assert_eq!(world.node_of("fits"), "b");
        let client = world.control_plane.kubectl().unwrap();
        let line = "Successfully assigned default/fits to b";
        told(
            &client,
            "describe pod fits",
            &["Scheduled", "tidepool", line],
        );
        let words = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector.";
        told(
            &client,
            "describe pod giant",
            &["FailedScheduling", "tidepool", words],
        );
        let condition = r#"jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}"#;
        told(&client, &format!("get pod giant -o {condition}"), &[words]);
    });
}
