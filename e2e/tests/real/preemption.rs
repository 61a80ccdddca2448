//! Preemption with victims that take time to terminate, as with a kubelet.

use e2e::eventually;
use serde_json::{Value, json};

use crate::shared_cluster::{
    GREATER, LESSER, SHORT, asks, condition, merge, node, pod, pod_path, text, with,
};

fn spec(cpu: &str, class: &str) -> Value {
    json!({"containers": asks("cpu", cpu), "priorityClassName": class, "terminationGracePeriodSeconds": 60})
}

#[test]
fn the_preemptor_waits_until_its_victim_has_terminated() {
    with(|cluster| {
        cluster.create(&node("n", "a", json!({})));
        // A budget keeps one of two equals. Its watch is another one than that of pods, so it comes long before them.
        cluster.create(&json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "stays"}}}}));
        let budget = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b";
        eventually("the budget was counted", SHORT, || {
            let status = &cluster.api.get(budget).unwrap()["status"];
            if status["observedGeneration"] == 1 {
                Ok(())
            } else {
                Err(status.to_string())
            }
        });
        for name in ["leaves", "stays"] {
            cluster.create(&pod(name, spec("3500m", LESSER)));
            assert_eq!(cluster.node_of(name), "n");
        }
        let wants = cluster.create(&pod("wants", spec("4", GREATER)));
        let uid = text(&wants["metadata"]["uid"]);

        eventually("preemption has begun", SHORT, || {
            let pod = cluster.pod("wants");
            let nominated = pod["status"]["nominatedNodeName"] == "n";
            let leaving = !cluster.pod("leaves")["metadata"]["deletionTimestamp"].is_null();
            if nominated && leaving {
                Ok(())
            } else {
                Err(pod["status"].to_string())
            }
        });
        let victim = cluster.pod("leaves");
        let disrupted = condition(&victim, "DisruptionTarget");
        assert_eq!(disrupted["reason"], "PreemptionByScheduler", "{victim}");
        assert_eq!(
            disrupted["message"],
            "tidepool: preempting to accommodate a higher priority pod"
        );
        assert_eq!(
            cluster.pod("stays")["metadata"]["deletionTimestamp"],
            Value::Null
        );
        let note = format!("Preempted by pod {uid} on node n");
        eventually("the victim has an event", SHORT, || {
            let events = cluster.events(&text(&victim["metadata"]["uid"]));
            let told =
                |event: &Value| event["reason"] == "Preempted" && event["note"] == note.as_str();
            if events.iter().any(told) {
                Ok(())
            } else {
                Err(format!("{events:?}"))
            }
        });
        // A pod of lower priority gets nothing of the capacity that is being freed.
        let mut late = spec("500m", LESSER);
        merge(&mut late, json!({"terminationGracePeriodSeconds": 0}));
        cluster.create(&pod("late", late));
        eventually("the late one was refused", SHORT, || {
            let condition = condition(&cluster.pod("late"), "PodScheduled");
            if condition["status"] == "False" {
                Ok(())
            } else {
                Err(condition.to_string())
            }
        });
        assert_eq!(cluster.pod("wants")["spec"]["nodeName"], Value::Null);

        // What its kubelet does when the containers have ended.
        cluster.api.delete_now(&pod_path("leaves")).unwrap();
        assert_eq!(cluster.node_of("wants"), "n");
        assert_eq!(cluster.node_of("late"), "n");
    });
}
