use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use e2e::node::{GuestNode, HostNode, MachineState, options, pod};
use e2e::{Api, ControlPlane, eventually};
use serde_json::{Value, json};

use crate::agent::set_thresholds;
use crate::groups::Groups;
use crate::users::Users;

/// Long enough for a guest on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// One pod of each QoS class of Kubernetes: name, script, resources.
fn pods() -> [(&'static str, &'static str, Value); 3] {
    let exact = json!({"cpu": "250m", "memory": "64Mi"});
    [
        (
            "guaranteed",
            "sleep 100000",
            json!({"requests": exact, "limits": exact}),
        ),
        (
            "burstable",
            "sleep 100000",
            json!({"requests": {"cpu": "100m"}}),
        ),
        ("besteffort", "while :; do :; done", json!({})),
    ]
}

pub(crate) fn wait_until_ready(api: &Api, node: &str) {
    let path = format!("/api/v1/nodes/{node}");
    eventually("the node is ready", LIMIT, || {
        let node = api.get(&path).map_err(|error| format!("{error:#}"))?;
        let conditions = node["status"]["conditions"].as_array().cloned();
        let conditions = conditions.unwrap_or_default();
        let ready = conditions.iter().find(|it| it["type"] == "Ready");
        match ready {
            Some(ready) if ready["status"] == "True" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

fn run_pods(api: &Api, node: &str) {
    wait_until_ready(api, node);
    for (name, script, resources) in pods() {
        let name = format!("{name}-{node}");
        api.create(&pod(node, &name, script, resources)).unwrap();
    }
    for (name, ..) in pods() {
        wait_until_running(api, "default", &format!("{name}-{node}"));
    }
}

pub(crate) fn wait_until_running(api: &Api, namespace: &str, name: &str) {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    eventually("the pod runs", LIMIT, || {
        let status = api.get(&path).map_err(|error| format!("{error:#}"))?["status"].clone();
        let is_running = status["phase"] == "Running";
        is_running
            .then_some(())
            .ok_or_else(|| format!("{name}: {status}"))
    });
}

pub(crate) fn uid(api: &Api, name: &str) -> String {
    let path = format!("/api/v1/namespaces/default/pods/{name}");
    api.get(&path).unwrap()["metadata"]["uid"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// One after the other: what a pod of one node uses would count as use of the other node's machine.
#[test]
fn agents_on_the_host_and_in_a_guest_protect_pods_and_leave_the_machine_as_it_was() {
    let _alone = crate::alone();
    let before = MachineState::read().unwrap();
    let control_plane = ControlPlane::start(options(&["host", "guest", "static"])).unwrap();
    crate::agent::install(&control_plane);
    let users = Users::start(&control_plane);
    on_the_host(&control_plane, &users);
    in_the_guest(&control_plane);
    crate::numa::prove_with_static_cpu_manager(&control_plane);
    drop(users);
    drop(control_plane);
    assert_eq!(MachineState::read().unwrap(), before);
}

fn on_the_host(control_plane: &ControlPlane, users: &Users) {
    let api = Api::new(&control_plane.admin()).unwrap();
    let mut node = HostNode::start(control_plane, "host").unwrap();
    run_pods(&api, node.name());
    let uid = uid(&api, "guaranteed-host");
    let pod = format!("{}/kubepods/pod{uid}", node.cgroup_root());
    let (v1, v2) = (
        format!("/sys/fs/cgroup/cpu/{pod}/cpu.cfs_quota_us"),
        format!("/sys/fs/cgroup/{pod}/cpu.max"),
    );
    let quota = fs::read_to_string(v1).or_else(|_| fs::read_to_string(v2));
    assert!(quota.unwrap().starts_with("25000"));

    let agent = crate::agent::prove(control_plane, users, &node);

    let groups = Groups::new(&node);
    agent.resize(control_plane, &api, &groups);
    agent.outlast_groups_that_end(&groups);
    agent.outlast_the_minute(&groups);
    let containers = count_containers(node.directory());
    let writes = agent.does_not_fight(&groups, "a restart of the kubelet", || {
        node.restart_kubelet().unwrap();
        eventually("the new kubelet has seen the pods", LIMIT, || {
            let log = node.kubelet_log();
            let starts = log.matches("Started kubelet").count();
            (starts >= 2).then_some(()).ok_or(log)
        });
    });
    assert!(
        writes <= 3,
        "{writes} writes after a restart of the kubelet"
    );
    assert_eq!(count_containers(node.directory()), containers);
    agent.limit_the_directory(&api, &node, &groups);
    agent.finish(control_plane, &node);
    // Agents of other nodes get the same settings.
    set_thresholds(&api, json!({}));
    crate::numa::prove_on_the_host(control_plane, &api, &node);
    node.stop().unwrap();
}

/// containerd keeps a directory for each sandbox and container that runs.
fn count_containers(directory: &Path) -> usize {
    let tasks = directory.join("run/io.containerd.runtime.v2.task/k8s.io");
    fs::read_dir(tasks).unwrap().count()
}

fn in_the_guest(control_plane: &ControlPlane) {
    let api = Api::new(&control_plane.admin()).unwrap();
    let tidepool = e2e::tidepool::binary().unwrap();
    let mut node = GuestNode::start(control_plane, "guest", &[&tidepool]).unwrap();
    run_pods(&api, node.name());
    crate::guest_agent::allow(&api, node.name());
    crate::guest_agent::create_pods(&api, node.name());
    let agent = "tidepool agent --kubeconfig=/node/kubeconfig --node-name=guest --kubelet-root=/node/kubelet";
    node.shell(&format!("{agent} >/node/agent.log 2>&1 &"))
        .unwrap();
    eventually("the agent has measured the pods", LIMIT, || {
        let metrics = node.shell("wget -q -O - http://127.0.0.1:10268/metrics");
        let metrics = metrics.map_err(|error| format!("{error:#}"))?;
        let has_numa = metrics.contains("tidepool_agent_numa_cpu_cores{numa=\"1\"}");
        has_numa.then_some(()).ok_or(metrics.clone())?;
        check_metrics("guest", &pods().map(|(name, ..)| name), &metrics)
    });
    let pod = format!(
        "/sys/fs/cgroup/kubepods/pod{}",
        uid(&api, "guaranteed-guest")
    );
    let read = format!("cat {pod}/cpu.max {pod}/memory.max {pod}/cpu.weight");
    assert_eq!(node.shell(&read).unwrap(), "25000 100000\n67108864\n10");
    // It burns CPU.
    api.delete_now("/api/v1/namespaces/default/pods/besteffort-guest")
        .unwrap();
    crate::guest_agent::prove(&api, &mut node);
    crate::numa::prove_in_the_guest(control_plane, &api, &mut node);
    let nodes = node.shell("cat /sys/devices/system/node/online").unwrap();
    assert_eq!(nodes, "0-1");
    node.shell("cat /sys/fs/cgroup/kubepods/cpu.pressure")
        .unwrap();
    node.stop().unwrap();
}

/// The agent has measured the pods of a node.
pub(crate) fn check_metrics(node: &str, pods: &[&str], metrics: &str) -> Result<(), String> {
    let value = |name: &str, pod: &str| -> Option<f64> {
        let labels =
            format!("tidepool_agent_pod_{name}{{namespace=\"default\",pod=\"{pod}-{node}\"");
        let line = metrics.lines().find(|line| line.starts_with(&labels))?;
        line.rsplit(' ').next()?.parse().ok()
    };
    for pod in pods {
        if value("memory_working_set_bytes", pod).is_none_or(|size| size <= 0.0) {
            return Err(format!("no memory of {pod}: {metrics}"));
        }
        // Hybrid and v2 have the pressure of each pod.
        let has_pressure = Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
            || Path::new("/sys/fs/cgroup/unified").exists();
        if has_pressure && value("pressure_ratio", pod).is_none() {
            return Err(format!("no pressure of {pod}: {metrics}"));
        }
    }
    if pods.contains(&"besteffort") && value("cpu_cores", "besteffort").is_none_or(|it| it <= 0.0) {
        return Err(format!("the burner uses no CPU: {metrics}"));
    }
    match metrics.contains("tidepool_agent_unreadable_files{} 0.0") {
        true => Ok(()),
        false => Err(format!("a file cannot be read: {metrics}")),
    }
}

/// The answer to a request over plain HTTP.
pub(crate) fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
