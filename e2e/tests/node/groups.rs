//! The groups of a node on this machine, and pods that burn CPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use e2e::node::{HostNode, pod};
use serde_json::{Value, json};

/// Shares (the weight on cgroup v2), quota and memory limit; none: no limit.
pub(crate) type GroupValues = (u64, Option<u64>, Option<u64>);

/// The files of the node's groups, in the hierarchies of this machine.
pub(crate) struct Groups {
    root: String,
}

impl Groups {
    pub(crate) fn new(node: &HostNode) -> Self {
        Self {
            root: node.cgroup_root().to_owned(),
        }
    }

    pub(crate) fn is_v2() -> bool {
        Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
    }

    fn directory(&self, group: &str, controller: &str) -> PathBuf {
        let root = Path::new("/sys/fs/cgroup");
        let hierarchy = match Self::is_v2() {
            true => root.to_owned(),
            false => root.join(controller),
        };
        hierarchy.join(&self.root).join(group)
    }

    fn file(&self, group: &str, controller: &str, v1: &str, v2: &str) -> PathBuf {
        let name = if Self::is_v2() { v2 } else { v1 };
        self.directory(group, controller).join(name)
    }

    fn read(&self, group: &str, controller: &str, v1: &str, v2: &str) -> Option<String> {
        let text = fs::read_to_string(self.file(group, controller, v1, v2)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Shares, or the weight on cgroup v2.
    pub(crate) fn set_shares(&self, group: &str, shares: u64) {
        let file = self.file(group, "cpu", "cpu.shares", "cpu.weight");
        fs::write(file, shares.to_string()).unwrap();
    }

    /// Gives a group the values that it had.
    pub(crate) fn set_values(&self, group: &str, (shares, quota, memory): GroupValues) {
        let text = |value: Option<u64>| match (value, Self::is_v2()) {
            (Some(value), _) => value.to_string(),
            (None, true) => "max".to_owned(),
            (None, false) => "-1".to_owned(),
        };
        self.set_shares(group, shares);
        for (controller, v1, v2, value) in [
            ("cpu", "cpu.cfs_quota_us", "cpu.max", quota),
            ("memory", "memory.limit_in_bytes", "memory.max", memory),
        ] {
            fs::write(self.file(group, controller, v1, v2), text(value)).unwrap();
        }
    }

    pub(crate) fn values(&self, group: &str) -> Option<GroupValues> {
        let shares: u64 = self
            .read(group, "cpu", "cpu.shares", "cpu.weight")?
            .parse()
            .ok()?;
        let quota = self.read(group, "cpu", "cpu.cfs_quota_us", "cpu.max")?;
        let quota = quota.split(' ').next()?.parse().ok();
        let memory = self.read(group, "memory", "memory.limit_in_bytes", "memory.max")?;
        let memory = memory.parse().ok().filter(|limit| *limit < 1 << 60);
        Some((shares, quota, memory))
    }

    /// Whether it has groups below it: the containers of a pod.
    pub(crate) fn has_children(&self, group: &str) -> bool {
        let entries = fs::read_dir(self.directory(group, "cpu"));
        let mut entries = entries.into_iter().flatten().flatten();
        entries.any(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
    }

    /// The directories of a group, one in each hierarchy that the agent reads.
    pub(crate) fn directories(&self, group: &str) -> Vec<PathBuf> {
        let controllers: &[&str] = match Self::is_v2() {
            true => &[""],
            false => &["cpu", "cpuacct", "cpuset", "memory"],
        };
        let directory = |controller: &&str| self.directory(group, controller);
        controllers.iter().map(directory).collect()
    }

    pub(crate) fn cpus(&self, group: &str) -> Option<String> {
        self.read(group, "cpuset", "cpuset.cpus", "cpuset.cpus")
    }

    /// CPU time in seconds.
    pub(crate) fn cpu_time(&self, group: &str) -> f64 {
        let text = self
            .read(group, "cpuacct", "cpuacct.usage", "cpu.stat")
            .unwrap_or_default();
        match Self::is_v2() {
            true => {
                let micros = text
                    .lines()
                    .find_map(|line| line.strip_prefix("usage_usec "));
                micros.and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0) / 1e6
            }
            false => text.parse::<f64>().unwrap_or(0.0) / 1e9,
        }
    }
}

/// The CPU time of all processes of this machine, in seconds.
fn machine_time() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    busy_time(text.lines().next().unwrap())
}

/// The CPU time in the first line of `/proc/stat`, in seconds.
pub(crate) fn busy_time(line: &str) -> f64 {
    let ticks: Vec<f64> = line
        .split_whitespace()
        .skip(1)
        .map(|it| it.parse().unwrap())
        .collect();
    // user, nice, system, irq, softirq, steal
    [0, 1, 2, 5, 6, 7]
        .iter()
        .map(|&column| ticks[column])
        .sum::<f64>()
        / 100.0
}

/// The average use of groups and of the machine over some time, in cores.
pub(crate) fn measure(groups: &Groups, names: &[&str], time: Duration) -> (Vec<f64>, f64) {
    let read = || -> Vec<f64> { names.iter().map(|it| groups.cpu_time(it)).collect() };
    let (began, before, machine) = (Instant::now(), read(), machine_time());
    std::thread::sleep(time);
    let (after, machine) = (read(), machine_time() - machine);
    let seconds = began.elapsed().as_secs_f64();
    let used = before.iter().zip(&after).map(|(a, b)| (b - a) / seconds);
    (used.collect(), machine / seconds)
}

pub(crate) fn cpus() -> f64 {
    std::thread::available_parallelism().unwrap().get() as f64
}

/// A pod that burns CPU with so many processes while the file exists.
pub(crate) fn burner(node: &HostNode, name: &str, processes: usize, resources: Value) -> Value {
    let one = format!(
        "while :; do if [ -e /go/{name} ]; then n=0; while [ $n -lt 3000 ]; do n=$((n+1)); done; else sleep 0.05; fi; done"
    );
    let script = format!("{} wait", format!("({one}) & ").repeat(processes));
    let mut pod = pod(node.name(), name, &script, resources);
    let directory = node.directory().join("go");
    fs::create_dir_all(&directory).unwrap();
    pod["spec"]["volumes"] = json!([{"name": "go", "hostPath": {"path": directory}}]);
    let mount = json!([{"name": "go", "mountPath": "/go"}]);
    pod["spec"]["containers"][0]["volumeMounts"] = mount;
    pod
}

pub(crate) fn wake(node: &HostNode, name: &str) {
    fs::write(node.directory().join("go").join(name), "").unwrap();
}

pub(crate) fn calm(node: &HostNode, name: &str) {
    let _ = fs::remove_file(node.directory().join("go").join(name));
}

/// The resources of a Mid+LS pod, as the webhook leaves them.
pub(crate) fn mid_ls(milli_cpu: u64) -> Value {
    let amounts = |cpu: String, memory: &str| {
        json!({
            "kubernetes.io/mid-cpu": milli_cpu.to_string(), "kubernetes.io/mid-memory": "64Mi",
            "cpu": cpu, "memory": memory,
        })
    };
    let requests = amounts("0".to_owned(), "0");
    json!({"requests": requests, "limits": amounts(format!("{milli_cpu}m"), "64Mi")})
}

/// The labels of a Mid+LS pod.
pub(crate) fn mid_ls_labels() -> Value {
    json!({"koordinator.sh/priority-class": "koord-mid", "koordinator.sh/qosClass": "LS"})
}
