//! A real node: containerd, runc and the kubelet, on this machine or in a virtual machine.
//!
//! [`HostNode`] runs them on this machine, under cgroups of its own and with the machine's cgroup version. [`GuestNode`] boots a
//! virtual machine with cgroup v2, PSI and two NUMA nodes. Both join an API server and run pods of the image [`IMAGE`], which is
//! made here: nothing is pulled. Nodes need root.

mod cgroups;
mod guest;
mod host;
mod image;
mod initramfs;
mod machine;
mod modules;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde_json::{Value, json};

pub use guest::GuestNode;
pub use host::HostNode;
pub use machine::MachineState;

use crate::{Options, User};

pub use crate::loopback::free_port;

/// The image of pods and of their sandboxes: busybox and nothing else.
pub const IMAGE: &str = "tidepool.test/busybox:1";
/// The directory of a node's programs when the search path does not have it.
const SYSTEM_DIRECTORIES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// The options of a control plane that these nodes can join.
pub fn options(nodes: &[&str]) -> Options {
    let user = |node: &&str| User {
        name: user(node),
        groups: vec!["system:nodes".to_owned()],
    };
    Options {
        users: nodes.iter().map(user).collect(),
        // Pods have no service account, and no controller removes the taint of a node that becomes ready.
        disable_admission_plugins: vec![
            "ServiceAccount".to_owned(),
            "TaintNodesByCondition".to_owned(),
        ],
        apiserver_flags: vec![
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
        ],
        ..Options::default()
    }
}

/// The user of a node's kubelet.
pub fn user(node: &str) -> String {
    format!("system:node:{node}")
}

/// A pod that runs a shell script on a node. `resources` are those of its only container.
pub fn pod(node: &str, name: &str, script: &str, resources: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node,
            // The node has no network for pods.
            "hostNetwork": true,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["/bin/busybox", "sh", "-c", script],
                "resources": resources,
            }],
        },
    })
}

/// The configuration of a kubelet whose files are in this directory.
fn kubelet_config(directory: &Path, cgroup_root: &str, ports: [u16; 2]) -> Value {
    let [port, health_port] = ports;
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        // By default the kubelet refuses cgroup v1.
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup_root,
        "containerRuntimeEndpoint": format!("unix://{}", directory.join("containerd.sock").display()),
        "enforceNodeAllocatable": ["pods"],
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        "resolvConf": "",
        "podLogsDir": directory.join("logs"),
        "address": "127.0.0.1",
        "port": port,
        "healthzPort": health_port,
        "localStorageCapacityIsolation": false,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
    })
}

fn kubelet_flags(directory: &Path, node: &str, address: &str) -> Vec<String> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", directory.join(name).display());
    vec![
        file("config", "kubelet.json"),
        file("kubeconfig", "kubeconfig"),
        file("root-dir", "kubelet"),
        file("cert-dir", "certificates"),
        format!("--hostname-override={node}"),
        format!("--node-ip={address}"),
    ]
}

fn containerd_config(directory: &Path) -> String {
    let directory = directory.display();
    format!(
        r#"version = 2
root = "{directory}/containerd"
state = "{directory}/run"
[grpc]
  address = "{directory}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{IMAGE}"
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE a process cannot lower its oom_score_adj.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{directory}/cni"
    conf_dir = "{directory}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"#
    )
}

/// A node without a CNI configuration is not ready. Pods on the host's network never use it.
fn cni_config() -> Value {
    json!({"cniVersion": "0.4.0", "name": "none", "plugins": [{"type": "loopback"}]})
}

/// The path of a program that a package of the distribution provides.
fn program(name: &str, package: &str) -> Result<PathBuf> {
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let directories =
        std::env::split_paths(&search_path).chain(SYSTEM_DIRECTORIES.map(PathBuf::from));
    for directory in directories {
        let path = directory.join(name);
        if path.is_file() {
            return Ok(path);
        }
    }
    bail!("{name} is missing: run `cargo xtask guest`, or install the package {package}")
}
