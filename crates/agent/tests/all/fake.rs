//! A directory with the files of a node.

use std::fs;
use std::path::Path;
use std::time::Duration;

use agent::agent::Options;
use agent::collect::Paths;
use tempfile::TempDir;

pub(crate) const UID: &str = "92b291c2-47f5-41dc-b3fb-a7379534fd30";
pub(crate) const STATIC_UID: &str = "0123456789abcdef0123456789abcdef";

/// A machine with two CPUs, each a NUMA node of its own.
pub(crate) struct FakeNode {
    directory: TempDir,
}

impl FakeNode {
    pub(crate) fn new() -> Self {
        let node = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        node.set_busy_ticks([100, 200]);
        node.write(
            "proc/meminfo",
            "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n",
        );
        node.write("proc/loadavg", "0.50 1.25 2.00 1/100 12345\n");
        for resource in ["cpu", "memory", "io"] {
            node.write(&format!("proc/pressure/{resource}"), PRESSURE);
        }
        node.write("sys/devices/system/node/online", "0-1\n");
        for number in [0, 1] {
            let directory = format!("sys/devices/system/node/node{number}");
            node.write(&format!("{directory}/cpulist"), format!("{number}\n"));
            let memory = format!("Node {number} MemTotal: 500 kB\nNode {number} MemFree: 100 kB\n");
            node.write(&format!("{directory}/meminfo"), memory);
        }
        node
    }

    pub(crate) fn paths(&self) -> Paths {
        let path = |name: &str| self.directory.path().join(name);
        Paths {
            proc: path("proc"),
            sys: path("sys"),
            cgroups: path("cgroup"),
            cgroup_root: "/".into(),
        }
    }

    /// An agent on this node with short periods.
    pub(crate) fn options(&self, name: &str) -> Options {
        Options {
            paths: self.paths(),
            kubelet_root: self.directory.path().join("kubelet"),
            pod_logs: self.directory.path().join("logs"),
            state_dir: self.directory.path().join("state"),
            period: Duration::from_millis(50),
            detail_period: Duration::from_millis(100),
            report_period: Duration::from_millis(500),
            lease_period: Duration::from_millis(200),
            checkpoint_period: Duration::from_millis(200),
            ..Options::new(name)
        }
    }

    /// The directory by which the kubelet shows that it runs a static pod of namespace `default`.
    pub(crate) fn show_static_pod(&self, name: &str, hash: &str) {
        fs::create_dir_all(self.path(&format!("logs/default_{name}_{hash}"))).unwrap();
    }

    /// The path of a file of the node.
    pub(crate) fn path(&self, path: &str) -> std::path::PathBuf {
        self.directory.path().join(path)
    }

    pub(crate) fn read(&self, path: &str) -> String {
        let text = fs::read_to_string(self.path(path)).unwrap();
        text.trim().to_owned()
    }

    /// The files of a group of cgroup v2 that the agent may write, as the kubelet leaves them.
    pub(crate) fn add_settings_v2(&self, path: &str) {
        for (file, content) in [
            ("cpu.weight", "1\n"),
            ("cpu.max", "max 100000\n"),
            ("cpu.idle", "0\n"),
            ("cpuset.cpus", "\n"),
            ("cpuset.mems", "\n"),
            ("memory.max", "max\n"),
        ] {
            self.write(&format!("cgroup/{path}/{file}"), content);
        }
    }

    pub(crate) fn cgroups(&self) -> std::path::PathBuf {
        self.directory.path().join("cgroup")
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        let path: &Path = &self.directory.path().join(path);
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }

    pub(crate) fn set_busy_ticks(&self, ticks: [u64; 2]) {
        let [first, second] = ticks;
        let text = format!(
            "cpu  1 2 3 4 5 6 7 8\ncpu0 {first} 0 0 999 999 0 0 0 0 0\ncpu1 0 0 {second} 999 999 0 0 0 0 0\nintr 1 2 3\n"
        );
        self.write("proc/stat", text);
    }

    /// The clock of the machine and the idle time of both CPUs.
    pub(crate) fn set_uptime(&self, seconds: u64, busy: [u64; 2], idle: [u64; 2]) {
        self.write("proc/uptime", format!("{seconds}.00 {seconds}.00\n"));
        let lines: String = (0..2)
            .map(|cpu| format!("cpu{cpu} {} 0 0 {} 0 0 0 0 0 0\n", busy[cpu], idle[cpu]))
            .collect();
        self.write("proc/stat", format!("cpu  1 2 3 4 5 6 7 8\n{lines}"));
    }

    /// A group of cgroup v2 with this CPU time and memory.
    pub(crate) fn set_group_v2(&self, path: &str, cpu_micros: u64, memory: u64) {
        let group = format!("cgroup/{path}");
        self.write(
            &format!("{group}/cpu.stat"),
            format!("usage_usec {cpu_micros}\nuser_usec 1\nnr_periods 10\nnr_throttled 4\nthrottled_usec 5000\n"),
        );
        self.write(&format!("{group}/memory.current"), format!("{memory}\n"));
        self.write(
            &format!("{group}/memory.stat"),
            "anon 1\ninactive_file 1000\n",
        );
        self.write(
            &format!("{group}/memory.numa_stat"),
            "anon N0=100 N1=200\nfile N0=50 N1=0\ninactive_file N0=50 N1=0\n",
        );
        for resource in ["cpu", "memory", "io"] {
            self.write(&format!("{group}/{resource}.pressure"), PRESSURE);
        }
    }

    /// A group of cgroup v1 with this CPU time and memory.
    pub(crate) fn set_group_v1(&self, path: &str, cpu_micros: u64, memory: u64) {
        let nanos = cpu_micros * 1000;
        self.write(
            &format!("cgroup/cpuacct/{path}/cpuacct.usage"),
            format!("{nanos}\n"),
        );
        self.write(
            &format!("cgroup/cpu/{path}/cpu.stat"),
            "nr_periods 10\nnr_throttled 4\nthrottled_time 5000000\n",
        );
        let group = format!("cgroup/memory/{path}");
        self.write(
            &format!("{group}/memory.usage_in_bytes"),
            format!("{memory}\n"),
        );
        self.write(
            &format!("{group}/memory.stat"),
            "inactive_file 1\ntotal_inactive_file 1000\n",
        );
        self.write(
            &format!("{group}/memory.numa_stat"),
            "total=1 N0=1 N1=0\nhierarchical_total=3 N0=1 N1=2\n",
        );
        fs::create_dir_all(self.cgroups().join("cpuset").join(path)).unwrap();
    }
}

const PRESSURE: &str = "some avg10=12.50 avg60=1.00 avg300=0.00 total=123\nfull avg10=2.25 avg60=0.00 avg300=0.00 total=4\n";
