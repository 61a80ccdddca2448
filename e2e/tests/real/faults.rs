//! The API server restarts, and compacts its history.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use e2e::{Api, Binds, ControlPlane, eventually};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::deployed::{scheduler, start};
use crate::shared_cluster::{SHORT, asks, node, pod, pod_path, text};

const LONG: Duration = Duration::from_secs(90);
const PODS: &str = "/api/v1/namespaces/default/pods";
const NODES: &str = "/api/v1/nodes";

/// Creates pods `p0` and so on, many at a time.
pub(crate) fn create_pods(control_plane: &ControlPlane, count: usize, spec: &Value) {
    create_all(control_plane, count, |index| {
        pod(&format!("p{index}"), spec.clone())
    });
}

/// Creates the pods that `make` returns, many at a time.
pub(crate) fn create_all(
    control_plane: &ControlPlane,
    count: usize,
    make: impl Fn(usize) -> Value,
) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let config = control_plane.admin().to_client_config().await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let creations = futures::stream::iter(0..count).map(|index| {
            let body = make(index).to_string();
            let request = http::Request::post(PODS).header("content-type", "application/json");
            let request = request.body(body.into_bytes()).unwrap();
            client.request::<Value>(request)
        });
        let created: Vec<_> = creations.buffer_unordered(16).collect().await;
        created.into_iter().for_each(|result| drop(result.unwrap()));
    });
}

/// All pods are on nodes, and no node has more pods than fit.
pub(crate) fn check_placements(api: &Api, count: usize, most_per_node: usize) {
    let mut load: BTreeMap<String, usize> = BTreeMap::new();
    for pod in api.list(PODS).unwrap() {
        let node = text(&pod["spec"]["nodeName"]);
        assert!(!node.is_empty(), "{} was lost", pod["metadata"]["name"]);
        *load.entry(node).or_default() += 1;
    }
    assert_eq!(load.values().sum::<usize>(), count);
    let overfull = load.iter().find(|(_, pods)| **pods > most_per_node);
    assert_eq!(overfull, None, "a node can take {most_per_node} pods");
}

fn signal(id: u32, signal: &str) {
    let status = Command::new("kill")
        .args([signal, &id.to_string()])
        .status();
    assert!(status.unwrap().success(), "kill {signal} {id}");
}

#[test]
fn no_pod_is_lost_when_the_api_server_restarts() {
    const COUNT: usize = 600;
    let mut control_plane = start(&[]);
    let api = Api::new(&control_plane.admin()).unwrap();
    for index in 0..20 {
        api.create(&node(
            &format!("n{index}"),
            "a",
            json!({"status": {"capacity": {"pods": "110"}}}),
        ))
        .unwrap();
    }
    // 32 of them fill a node, so that one that was counted twice or forgotten would show.
    create_pods(
        &control_plane,
        COUNT,
        &json!({"containers": asks("cpu", "250m")}),
    );
    let binds = Binds::watch(&control_plane.admin()).unwrap();
    let ours = scheduler(&control_plane, "tidepool");
    let before = eventually("a tenth is bound", SHORT, || match binds.count() {
        count if count > COUNT / 10 => Ok(count),
        count => Err(count.to_string()),
    });
    control_plane.restart_apiserver().unwrap();
    assert!(before < COUNT, "the drain was over before the restart");
    // The connections of before are dead.
    let api = Api::new(&control_plane.admin()).unwrap();
    let binds = Binds::watch(&control_plane.admin()).unwrap();
    eventually("every pod is bound", LONG, || match binds.count() {
        COUNT => Ok(()),
        bound => Err(format!("{bound}: {}", ours.last_words())),
    });
    check_placements(&api, COUNT, 32);
}

#[test]
fn changes_before_a_compaction_are_not_missed() {
    let mut control_plane = start(&[]);
    let api = Api::new(&control_plane.admin()).unwrap();
    let full = json!({"containers": asks("cpu", "8")});
    for name in ["stays", "goes"] {
        api.create(&node(name, "a", json!({}))).unwrap();
    }
    let ours = scheduler(&control_plane, "tidepool");
    for (name, on) in [("first", "stays"), ("second", "goes")] {
        let mut spec = full.clone();
        spec["nodeSelector"] = json!({"kubernetes.io/hostname": on});
        api.create(&pod(name, spec)).unwrap();
        eventually("the pod is bound", SHORT, || {
            let pod = api.get(&pod_path(name)).unwrap();
            if pod["spec"]["nodeName"] == on {
                Ok(())
            } else {
                Err(pod["status"].to_string())
            }
        });
    }
    let seen = text(&api.get(PODS).unwrap()["metadata"]["resourceVersion"]);

    // While it cannot watch, one node gets free capacity, one is deleted, and one is created.
    signal(ours.id(), "-STOP");
    api.delete_now(&pod_path("first")).unwrap();
    api.delete_now(&pod_path("second")).unwrap();
    api.delete(&format!("{NODES}/goes")).unwrap();
    api.create(&node("comes", "b", json!({}))).unwrap();
    control_plane.compact().unwrap();
    control_plane.restart_apiserver().unwrap();
    let api = Api::new(&control_plane.admin()).unwrap();
    let watch = format!("{PODS}?watch=1&resourceVersion={seen}&timeoutSeconds=1");
    let answer = api.text(&watch).unwrap();
    assert!(answer.contains(r#""code":410"#), "{answer}");
    signal(ours.id(), "-CONT");

    for name in ["third", "fourth"] {
        api.create(&pod(name, full.clone())).unwrap();
    }
    let nodes = eventually("both are bound", SHORT, || {
        let pods = ["third", "fourth"].map(|name| api.get(&pod_path(name)).unwrap());
        let mut nodes = pods.map(|pod| text(&pod["spec"]["nodeName"]));
        nodes.sort();
        if nodes.iter().all(|node| !node.is_empty()) {
            Ok(nodes)
        } else {
            Err(ours.last_words())
        }
    });
    assert_eq!(nodes, ["comes", "stays"]);
}
