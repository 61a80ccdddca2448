//! A real kubelet whose API server is `tidepool up`.

use std::fs;
use std::path::Path;

use e2e::node::{HostNode, MachineState, pod};
use e2e::{Binaries, Kubectl, Process, eventually};
use serde_json::{Value, json};

use crate::real_node::LIMIT;

const NODE: &str = "real";

#[test]
fn a_kubelet_that_joins_up_runs_the_pods_that_our_scheduler_places() {
    let _alone = crate::alone();
    let before = MachineState::read().unwrap();
    let home = tempfile::tempdir().unwrap();
    let up = start(home.path());
    let path = eventually("the cluster is up", LIMIT, || {
        let log = up.log();
        let line = log.lines().find_map(|it| it.strip_prefix("kubeconfig: "));
        line.map(str::to_owned).ok_or(log.clone())
    });
    let kubeconfig = fs::read_to_string(path.trim()).unwrap();
    let binaries = Binaries::find().unwrap();
    let kubectl = Kubectl::with_text(&binaries, &kubeconfig).unwrap();
    // No simulated kubelet for this node.
    apply(
        &kubectl,
        &json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": NODE, "annotations": {"tidepool.io/heartbeat": "off"}},
        }),
    );
    let node = HostNode::join(&binaries, &kubeconfig, NODE).unwrap();
    let mut placed = pod(NODE, "placed", "sleep 100000", json!({}));
    placed["spec"].as_object_mut().unwrap().remove("nodeName");
    // Nothing issues tokens here.
    placed["spec"]["automountServiceAccountToken"] = json!(false);
    placed["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    apply(&kubectl, &placed);
    let uid = eventually("the pod runs", LIMIT, || {
        let pod = get(&kubectl, "pod/placed")?;
        let id = &pod["status"]["containerStatuses"][0]["containerID"];
        let is_real = id
            .as_str()
            .is_some_and(|it| it.starts_with("containerd://"));
        let is_running = pod["status"]["phase"] == "Running" && pod["spec"]["nodeName"] == NODE;
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        (is_real && is_running)
            .then(|| uid.to_owned())
            .ok_or(format!("{} {}", pod["spec"]["nodeName"], pod["status"]))
    });
    let group = format!("{}/kubepods/besteffort/pod{uid}", node.cgroup_root());
    let groups = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(|it| Path::new(it).join(&group));
    assert!(groups.iter().any(|it| it.is_dir()), "{groups:?}");
    node.stop().unwrap();
    drop(up);
    assert_eq!(MachineState::read().unwrap(), before);
}

fn start(home: &Path) -> Process {
    let tidepool = e2e::tidepool::binary().unwrap();
    let arguments = [
        format!("HOME={}", home.display()),
        tidepool.display().to_string(),
        "up".to_owned(),
        "--empty".to_owned(),
        "--plain".to_owned(),
        "--port=0".to_owned(),
        "--for=10m".to_owned(),
    ];
    let log = home.join("up.log");
    Process::start(Path::new("/usr/bin/env"), &arguments, &log).unwrap()
}

fn apply(kubectl: &Kubectl, object: &Value) {
    let file = kubectl.directory().join("object.json");
    fs::write(file, object.to_string()).unwrap();
    let applied = kubectl.run(&["apply", "-f", "object.json"], LIMIT).unwrap();
    assert_eq!(applied.code, Some(0), "{applied:?}");
}

fn get(kubectl: &Kubectl, name: &str) -> Result<Value, String> {
    let answer = kubectl.run(&["get", name, "-o", "json"], LIMIT);
    let answer = answer.map_err(|error| format!("{error:#}"))?;
    serde_json::from_str(&answer.stdout).map_err(|error| format!("{error}: {answer:?}"))
}
