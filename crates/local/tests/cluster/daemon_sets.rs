//! DaemonSets, as a client sees them.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet},
    core::v1::{Node, Pod},
};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::{Fixture, cluster, eventually, is_ready, template};

fn set(spec: Value) -> Value {
    let mut set = json!({"metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": {"app": "agent"}},
        "template": template("agent", "app:1"),
    }});
    for (key, value) in spec.as_object().unwrap() {
        set["spec"][key] = value.clone();
    }
    set
}

fn node_of(pod: &Pod) -> String {
    let spec = pod.spec.as_ref().unwrap();
    spec.node_name.clone().unwrap_or_default()
}

fn image_of(pod: &Pod) -> String {
    pod.spec.as_ref().unwrap().containers[0]
        .image
        .clone()
        .unwrap()
}

async fn patch_node(fixture: &Fixture, name: &str, fields: Value) {
    let _: Node = fixture
        .nodes()
        .patch(name, &PatchParams::default(), &Patch::Strategic(fields))
        .await
        .unwrap();
}

async fn runs_on(fixture: &Fixture, want: &[&str]) {
    eventually(&format!("its pods run on {want:?}"), || async {
        let pods = fixture.pods("agent").await;
        let nodes: Vec<String> = pods.iter().map(node_of).collect();
        let set: BTreeSet<&str> = nodes.iter().map(String::as_str).collect();
        let all_ready = pods.iter().all(is_ready);
        if all_ready && nodes.len() == want.len() && set.iter().eq(want) {
            Ok(())
        } else {
            Err(nodes)
        }
    })
    .await;
}

#[tokio::test]
async fn every_node_that_fits_has_a_pod() {
    let fixture = cluster(3).await;
    let mut spec = set(json!({}));
    spec["spec"]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "bare", "operator": "DoesNotExist"}]},
        ]},
    }});
    fixture.create::<DaemonSet>(spec).await;
    runs_on(&fixture, &["node-001", "node-002", "node-003"]).await;

    // A cordoned node keeps its pod; a node with a taint that evicts, and one that the affinity excludes, do not.
    fixture.local.nodes().cordon("node-001").await.unwrap();
    let taint = json!({"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}});
    patch_node(&fixture, "node-002", taint).await;
    patch_node(
        &fixture,
        "node-003",
        json!({"metadata": {"labels": {"bare": ""}}}),
    )
    .await;
    runs_on(&fixture, &["node-001"]).await;
    let free = json!({"metadata": {"labels": {"bare": null}}});
    patch_node(&fixture, "node-003", free).await;
    runs_on(&fixture, &["node-001", "node-003"]).await;
    eventually("the status follows", || async {
        let status = fixture
            .api::<DaemonSet>()
            .get("agent")
            .await
            .unwrap()
            .status
            .unwrap();
        let counts = [status.desired_number_scheduled, status.number_ready];
        if counts == [2, 2] && status.number_available == Some(2) {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    fixture.local.nodes().remove("node-003").await.unwrap();
    runs_on(&fixture, &["node-001"]).await;
}

#[tokio::test]
async fn a_rollout_replaces_one_pod_at_a_time_or_surges() {
    let fixture = cluster(3).await;
    fixture.create::<DaemonSet>(set(json!({}))).await;
    fixture.ready("agent", 3).await;
    let surge = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    for (tag, strategy, least, most) in [("app:2", json!({}), 2, 3), ("app:3", surge, 3, 4)] {
        let fields = json!({"spec": {
            "updateStrategy": strategy,
            "template": {"spec": {"containers": [{"name": "main", "image": tag}]}},
        }});
        fixture
            .api::<DaemonSet>()
            .patch("agent", &PatchParams::default(), &Patch::Strategic(fields))
            .await
            .unwrap();
        eventually(&format!("{tag} is everywhere"), || async {
            let pods = fixture.pods("agent").await;
            let live = pods
                .iter()
                .filter(|pod| pod.metadata.deletion_timestamp.is_none());
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            assert!(
                ready >= least && live.count() <= most,
                "{ready} ready of {}",
                pods.len()
            );
            let images: Vec<String> = pods.iter().map(image_of).collect();
            if ready == 3 && images == [tag; 3] {
                Ok(())
            } else {
                Err(images)
            }
        })
        .await;
    }
    assert_eq!(fixture.list::<ControllerRevision>().await.len(), 3);
    let events = fixture.events_about("agent").await;
    let created = events
        .iter()
        .filter(|(reason, _)| reason == "SuccessfulCreate");
    assert_eq!(created.count(), 9, "{events:?}");
}
