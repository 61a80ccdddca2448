//! The agent as a process: killed at any time, beside a kubelet that restarts and resizes pods, traced, and undone.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use e2e::node::{HostNode, pod};
use e2e::{Api, ControlPlane, Process, eventually};
use serde_json::json;

use crate::agent::{CNR, interference_taints, set_thresholds};
use crate::groups::{GroupValues, Groups, mid_ls, mid_ls_labels};
use crate::real_node::{LIMIT, check_metrics, get, uid, wait_until_running};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// An own pod: its groups, from the pod to the container, and the values that the agent gives them.
struct OwnPod {
    groups: [String; 2],
    wanted: GroupValues,
}

impl OwnPod {
    fn new(api: &Api, name: &str, directory: &str, wanted: GroupValues) -> Self {
        wait_until_running(api, "default", name);
        let object = api.get(&format!("{PODS}/{name}")).unwrap();
        let id = object["status"]["containerStatuses"][0]["containerID"].as_str();
        let id = id.unwrap().trim_start_matches("containerd://");
        let pod = format!("kubepods/{directory}/pod{}", uid(api, name));
        let container = format!("{pod}/{id}");
        Self {
            groups: [pod, container],
            wanted,
        }
    }

    fn check(&self, groups: &Groups) -> Result<(), String> {
        for group in &self.groups {
            let found = groups.values(group);
            if found != Some(self.wanted) {
                return Err(format!("{group}: {found:?} instead of {:?}", self.wanted));
            }
        }
        Ok(())
    }
}

/// The values for these thousandths of cores and bytes; on cgroup v2 a weight in place of CPU shares.
fn values(milli_cpu: u64, memory: u64) -> GroupValues {
    let shares = milli_cpu * 1024 / 1000;
    let weight = 1 + (shares - 2) * 9999 / 262_142;
    let shares = if Groups::is_v2() { weight } else { shares };
    (shares, Some(milli_cpu * 100), Some(memory))
}

pub(crate) fn is_full() -> bool {
    std::env::var_os("TIDEPOOL_FULL").is_some()
}

/// The agent that runs after others were killed, traced.
pub(crate) struct LastAgent {
    process: Traced,
    address: String,
    arguments: Vec<String>,
    trace: PathBuf,
    state: PathBuf,
    batch: OwnPod,
    resized: OwnPod,
    /// What the kubelet gave the groups of `batch`.
    original: GroupValues,
}

/// (e): an agent that is killed at any time leaves settings that are whole one period after its restart.
pub(crate) fn kill_agents(
    control_plane: &ControlPlane,
    api: &Api,
    node: &HostNode,
    groups: &Groups,
    tidepool: &Path,
) -> LastAgent {
    let amounts = json!({"kubernetes.io/batch-cpu": "700", "kubernetes.io/batch-memory": "90Mi"});
    let resources = json!({"requests": amounts, "limits": amounts});
    let batch = pod(node.name(), "batch", "sleep 100000", resources);
    api.create(&batch).unwrap();
    // The name of its cgroup is whatever this annotation says; it must lead nowhere.
    let mut hostile = batch;
    hostile["metadata"]["name"] = json!("hostile");
    hostile["metadata"]["annotations"] = json!({"kubernetes.io/config.hash": "../../../../../tmp"});
    api.create(&hostile).unwrap();
    let mut resized = pod(node.name(), "resized", "sleep 100000", mid_ls(500));
    resized["metadata"]["labels"] = mid_ls_labels();
    api.create(&resized).unwrap();
    let batch = OwnPod::new(api, "batch", "besteffort", values(700, 90 << 20));
    let resized = OwnPod::new(api, "resized", "burstable", values(500, 64 << 20));
    let original = groups.values(&batch.groups[0]).unwrap();
    let state = node.directory().join("killed-state");
    let kubeconfig = control_plane.kubeconfig_file("admin").unwrap();
    let arguments = vec![
        "agent".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--node-name={}", node.name()),
        format!("--cgroup-root=/{}", node.cgroup_root()),
        format!("--state-dir={}", state.display()),
        "--sample-period=200ms".to_owned(),
        "--detail-period=1s".to_owned(),
        "--taint-target=node".to_owned(),
    ];
    let kills = if is_full() { 40 } else { 4 };
    for kill in 0..kills {
        // Everything is to be written again.
        for group in &batch.groups {
            groups.set_values(group, original);
        }
        let start = |role: &str| {
            let name = format!("{role}-agent-{kill}");
            control_plane.run(&name, tidepool, &arguments).unwrap()
        };
        let mut killed = start("killed");
        let delay = random_delay();
        std::thread::sleep(delay);
        kill_now(&mut killed);
        let mut next = start("next");
        wait_for_first_period(&next);
        if let Err(found) = batch.check(groups) {
            panic!("after a kill at {delay:?}: {found}\n{}", next.log());
        }
        kill_now(&mut next);
    }
    let reset = || {
        for group in &batch.groups {
            groups.set_values(group, original);
        }
    };
    dry_run_writes_nothing(control_plane, node, tidepool, &arguments, reset);
    for group in &batch.groups {
        assert_eq!(groups.values(group), Some(original), "after a dry run");
    }
    let trace = node.directory().join("strace");
    let process = start_traced(control_plane, "last-agent", tidepool, &arguments, &trace);
    let address = wait_for_first_period(&process.strace);
    for pod in [&batch, &resized] {
        if let Err(found) = pod.check(groups) {
            panic!("{found}\n{}", process.strace.log());
        }
    }
    eventually("the agent has measured the pods", LIMIT, || {
        let metrics = get(&address, "/metrics");
        check_metrics("host", &["guaranteed", "burstable"], &metrics)
    });
    interference_taints(api, node, &format!("/api/v1/nodes/{}", node.name()));
    LastAgent {
        process,
        address,
        arguments,
        trace,
        state,
        batch,
        resized,
        original,
    }
}

/// A dry run finds what it would write, says so, and opens no file for writing. `reset` makes files differ, also while it runs.
fn dry_run_writes_nothing(
    control_plane: &ControlPlane,
    node: &HostNode,
    tidepool: &Path,
    arguments: &[String],
    reset: impl Fn(),
) {
    let trace = node.directory().join("strace-of-dry-run");
    let mut arguments = arguments.to_vec();
    arguments.push("--dry-run".to_owned());
    let dry_run = start_traced(control_plane, "dry-run", tidepool, &arguments, &trace);
    wait_for_first_period(&dry_run.strace);
    eventually("the dry run says what it would write", LIMIT, || {
        reset();
        let log = dry_run.strace.log();
        let says = log.contains("would write cgroup file");
        says.then_some(()).ok_or(log)
    });
    drop(dry_run);
    let trace = fs::read_to_string(&trace).unwrap();
    let mut writes = trace.lines().filter(is_change);
    let write = writes.find(|line| !line.contains("\"/dev/"));
    assert_eq!(write, None);
}

/// Within the time that an agent takes to start and to write. The clock is the source of chance: the run says which delay failed.
fn random_delay() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanos = since.unwrap().subsec_nanos();
    Duration::from_micros(u64::from(nanos.wrapping_mul(2_654_435_761) % 1_200_000))
}

/// Waits until an agent has decided once with all samples and lists, and returns its address. What it decided is written then: it
/// reports a period after its writes.
pub(crate) fn wait_for_first_period(agent: &Process) -> String {
    let address = eventually("the agent serves", LIMIT, || {
        let log = agent.log();
        let (_, rest) = log.rsplit_once("serving on http://").ok_or(log.clone())?;
        let address = rest.split_whitespace().next().unwrap_or_default();
        Ok(address.trim_matches('"').to_owned())
    });
    eventually("the agent has finished a period", LIMIT, || {
        let metrics = get(&address, "/metrics");
        let is_complete = "tidepool_agent_condition{type=\"AgentDegraded\"} 0.0";
        metrics.contains(is_complete).then_some(()).ok_or(metrics)
    });
    address
}

impl LastAgent {
    /// Writes of each cgroup file since its start. Cpusets do not count: they follow the load of the machine.
    fn writes(&self) -> BTreeMap<String, usize> {
        let mut writes = BTreeMap::new();
        for line in fs::read_to_string(&self.trace).unwrap().lines() {
            if !line.contains("openat2(") || !line.contains("O_WRONLY") {
                continue;
            }
            let Some(file) = line
                .split('"')
                .nth(1)
                .filter(|it| !it.ends_with("cpuset.cpus"))
            else {
                continue;
            };
            *writes.entry(file.to_owned()).or_default() += 1;
        }
        writes
    }

    /// (h): while something happens to the kubelet, the agent writes no file more than three times, gives none up, and its values
    /// hold in the end. Returns the number of its writes.
    pub(crate) fn does_not_fight(
        &self,
        groups: &Groups,
        what: &str,
        happens: impl FnOnce(),
    ) -> usize {
        let before = self.writes();
        let mut all = 0;
        happens();
        for pod in [&self.batch, &self.resized] {
            eventually("own pods have their values", LIMIT, || pod.check(groups));
        }
        for (file, count) in self.writes() {
            let more = count - before.get(&file).copied().unwrap_or(0);
            assert!(more <= 3, "{what}: {more} writes of {file}");
            all += more;
        }
        let metrics = get(&self.address, "/metrics");
        let no_conflict = "tidepool_agent_condition{type=\"CgroupConflict\"} 0.0";
        assert!(metrics.contains(no_conflict), "{what}: {metrics}");
        all
    }

    /// The kubelet gives a pod new limits while it runs.
    pub(crate) fn resize(&self, control_plane: &ControlPlane, api: &Api, groups: &Groups) {
        let writes = self.does_not_fight(groups, "a resize in place", || {
            let kubectl = control_plane.kubectl().unwrap();
            let patch = json!({"spec": {"containers": [
                {"name": "main", "resources": {"limits": {"cpu": "400m"}}},
            ]}});
            let patch = format!("--patch={patch}");
            let arguments = ["patch", "pod", "resized", "--subresource=resize", &patch];
            let resized = kubectl.run(&arguments, LIMIT).unwrap();
            assert_eq!(resized.code, Some(0), "{resized:?}");
            eventually("the kubelet has resized the pod", LIMIT, || {
                let pod = api.get(&format!("{PODS}/resized"));
                let status = pod.map_err(|error| format!("{error:#}"))?["status"].clone();
                let limit = &status["containerStatuses"][0]["resources"]["limits"]["cpu"];
                (limit == "400m").then_some(()).ok_or(status.to_string())
            });
        });
        // The kubelet has overwritten at least the quota.
        assert!(writes > 0);
    }

    /// The kubelet writes the groups of QoS classes each minute.
    pub(crate) fn outlast_the_minute(&self, groups: &Groups) {
        if !is_full() {
            return;
        }
        let directories = ["kubepods", "kubepods/burstable", "kubepods/besteffort"];
        let before = directories.map(|it| groups.values(it));
        let writes = self.does_not_fight(groups, "the kubelet's minute", || {
            let end = Instant::now() + Duration::from_secs(75);
            while let Some(rest) = end.checked_duration_since(Instant::now()) {
                std::thread::sleep(rest.min(Duration::from_secs(1)));
            }
        });
        assert!(writes <= 3, "{writes} writes in the kubelet's minute");
        assert_eq!(directories.map(|it| groups.values(it)), before);
    }

    /// Groups of pods that end while the agent reads them are no problem of the node.
    pub(crate) fn outlast_groups_that_end(&self, groups: &Groups) {
        let directories: Vec<PathBuf> = (0..100)
            .map(|pod| format!("kubepods/besteffort/pod{pod:08x}-0000-4000-8000-000000000000"))
            .flat_map(|pod| groups.directories(&pod))
            .collect();
        let end = Instant::now() + Duration::from_secs(4);
        while Instant::now() < end {
            for directory in &directories {
                let _ = fs::create_dir(directory);
            }
            for directory in &directories {
                // The kubelet removes groups of pods that it does not know.
                let _ = fs::remove_dir(directory);
            }
        }
        let metrics = get(&self.address, "/metrics");
        for line in [
            "tidepool_agent_unreadable_files{} 0.0",
            "tidepool_agent_condition{type=\"AgentDegraded\"} 0.0",
        ] {
            assert!(
                metrics.contains(line),
                "no {line}: {}\n{metrics}",
                self.process.strace.log()
            );
        }
    }

    /// A directory `besteffort` with own pods only gets a memory limit, and a quota if the settings ask for it.
    pub(crate) fn limit_the_directory(&self, api: &Api, node: &HostNode, groups: &Groups) {
        for name in ["hostile", "kube-proxy", &format!("plain-{}", node.name())] {
            api.delete_now(&format!("{PODS}/{name}")).unwrap();
        }
        set_thresholds(api, json!({"cpuSuppressPolicy": "cfsQuota"}));
        let (shares, ..) = groups.values("kubepods/besteffort").unwrap();
        eventually("the directory has limits", LIMIT, || {
            let found = groups.values("kubepods/besteffort");
            match found {
                Some((now, Some(quota), Some(memory)))
                    if now == shares && quota >= 2000 && memory > 90 << 20 =>
                {
                    Ok(())
                }
                other => Err(format!("{other:?}")),
            }
        });
    }

    /// Ends it; `--restore` then gives all files the values that the kubelet gave them.
    pub(crate) fn finish(mut self, control_plane: &ControlPlane, node: &HostNode) {
        assert!(self.process.signal("-TERM"));
        let strace = &mut self.process.strace;
        eventually("the agent has ended", LIMIT, || match strace.ended() {
            Ok(Some(status)) if status.success() => Ok(()),
            other => Err(format!("{other:?}: {}", strace.log())),
        });
        check_trace(&fs::read_to_string(&self.trace).unwrap(), node, &self.state);
        let (code, log) = self.restore(control_plane, "restore", &self.state, &[]);
        assert_eq!(code, Some(0), "{log}");
        let groups = Groups::new(node);
        self.check_restored(&groups);
        self.recover_from_damage(control_plane, node, &groups);
        self.check_restored(&groups);
    }

    fn check_restored(&self, groups: &Groups) {
        for group in &self.batch.groups {
            assert_eq!(groups.values(group), Some(self.original), "{group}");
        }
        let (_, quota, memory) = groups.values("kubepods/besteffort").unwrap();
        assert_eq!((quota, memory), (None, None));
    }

    /// Its exit code, and what it says.
    fn restore(
        &self,
        control_plane: &ControlPlane,
        name: &str,
        state: &Path,
        flags: &[&str],
    ) -> (Option<i32>, String) {
        let mut arguments = self.arguments.clone();
        arguments.retain(|it| !it.starts_with("--state-dir="));
        arguments.push(format!("--state-dir={}", state.display()));
        arguments.push("--restore".to_owned());
        arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
        let tidepool = e2e::tidepool::binary().unwrap();
        let mut restore = control_plane.run(name, &tidepool, &arguments).unwrap();
        eventually("the restore has ended", LIMIT, || match restore.ended() {
            Ok(Some(status)) => Ok((status.code(), restore.log())),
            other => Err(format!("{other:?}: {}", restore.log())),
        })
    }

    /// With a damaged journal the agent says so and writes nothing. `--restore` restores the records that can be read, and
    /// `--kubelet-values` the rest.
    fn recover_from_damage(&self, control_plane: &ControlPlane, node: &HostNode, groups: &Groups) {
        // A quota of the directory leaves its pods without one.
        set_thresholds(&Api::new(&control_plane.admin()).unwrap(), json!({}));
        let tidepool = e2e::tidepool::binary().unwrap();
        let start = |name: &str| {
            let mut arguments = self.arguments.clone();
            arguments.push("--report-period=1s".to_owned());
            control_plane.run(name, &tidepool, &arguments).unwrap()
        };
        let mut agent = start("agent-before-damage");
        wait_for_first_period(&agent);
        eventually("the pod has its values", LIMIT, || self.batch.check(groups));
        kill_now(&mut agent);
        let damaged = self.damage_the_journal();
        // An agent with a journal would write them again.
        for group in &self.batch.groups {
            groups.set_values(group, self.original);
        }
        let mut agent = start("agent-after-damage");
        wait_for_damage(control_plane, node, &agent);
        for group in &self.batch.groups {
            assert_eq!(groups.values(group), Some(self.original), "{group}");
        }
        assert_eq!(fs::read(self.state.join("journal")).unwrap(), damaged);
        kill_now(&mut agent);
        for group in &self.batch.groups {
            groups.set_values(group, self.batch.wanted);
        }

        self.refused_values_keep_the_damage(control_plane, node);
        let (code, log) = self.restore(control_plane, "restore-damaged", &self.state, &[]);
        assert_eq!(code, Some(1), "{log}");
        for part in [
            "was damaged: ",
            " of its records can be read, 1 cannot; ",
            "use --kubelet-values",
        ] {
            assert!(log.contains(part), "{part}: {log}");
        }
        let [pod, container] = &self.batch.groups;
        let (shares, quota, _) = self.original;
        let (.., limit) = self.batch.wanted;
        assert_eq!(groups.values(pod), Some((shares, quota, limit)));
        assert_eq!(groups.values(container), Some(self.original));
        let flags = ["--kubelet-values"];
        let (code, log) = self.restore(control_plane, "kubelet-values", &self.state, &flags);
        assert_eq!(code, Some(0), "{log}");
    }

    /// Changes the record of the pod's memory limit, and returns the text.
    fn damage_the_journal(&self) -> Vec<u8> {
        let path = self.state.join("journal");
        let text = fs::read_to_string(&path).unwrap();
        let name = match Groups::is_v2() {
            true => "memory.max",
            false => "memory.limit_in_bytes",
        };
        let record = format!("\t{}\t{name}\t", self.batch.groups[0]);
        let damaged = text.replacen(&record, &format!("{record}7"), 1);
        assert_ne!(damaged, text);
        fs::write(&path, &damaged).unwrap();
        damaged.into_bytes()
    }

    /// A journal with a value that the kernel refuses, beside a record that cannot be read: every restore fails and names both.
    fn refused_values_keep_the_damage(&self, control_plane: &ControlPlane, node: &HostNode) {
        let state = node.directory().join("refused-state");
        fs::create_dir(&state).unwrap();
        let name = match Groups::is_v2() {
            true => "cpu.max",
            false => "cpu.cfs_quota_us",
        };
        // A quota of a microsecond; records of the first version have no checksum.
        let journal = format!("no record\n2\tcpu\t{}\t{name}\t1\n", self.batch.groups[0]);
        fs::write(state.join("journal"), &journal).unwrap();
        for round in ["restore-refused-0", "restore-refused-1"] {
            let (code, log) = self.restore(control_plane, round, &state, &[]);
            assert_eq!(code, Some(1), "{round}: {log}");
            for part in [
                "cannot restore ",
                " is damaged: 1 of its records can be read, 1 cannot; ",
            ] {
                assert!(log.contains(part), "{round}: {part}: {log}");
            }
            let left = fs::read_to_string(state.join("journal")).unwrap();
            assert_eq!(left, journal, "{round}");
        }
    }
}

/// Waits until the report of the node says that the journal is damaged, and the agent knows the pods and has had time to write.
fn wait_for_damage(control_plane: &ControlPlane, node: &HostNode, agent: &Process) {
    let api = Api::new(&control_plane.admin()).unwrap();
    let cnr = format!("{CNR}/{}", node.name());
    eventually("the damage is a condition", LIMIT, || {
        let cnr = api.get(&cnr).map_err(|error| format!("{error:#}"))?;
        let conditions = cnr["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let is_damaged = conditions.any(|it| {
            it["type"] == "AgentDegraded"
                && it["status"] == "True"
                && it["reason"] == "JournalDamaged"
        });
        is_damaged.then_some(()).ok_or(cnr.to_string())
    });
    let log = agent.log();
    let (_, address) = log.rsplit_once("serving on http://").unwrap();
    let address = address.split_whitespace().next().unwrap().trim_matches('"');
    eventually("the agent knows the pod", LIMIT, || {
        let metrics = get(address, "/metrics");
        let is_known =
            metrics.contains("tidepool_agent_pod_cpu_cores{namespace=\"default\",pod=\"batch\"");
        is_known.then_some(()).ok_or(metrics)
    });
    // Five periods.
    std::thread::sleep(Duration::from_secs(1));
}

/// An agent below strace, which would leave the agent behind when it is killed itself.
struct Traced {
    strace: Process,
}

impl Traced {
    /// Sends a signal to the agent, if it runs.
    fn signal(&self, signal: &str) -> bool {
        let strace = self.strace.id();
        let children = fs::read_to_string(format!("/proc/{strace}/task/{strace}/children"));
        children.is_ok_and(|children| {
            let children = children.split_whitespace();
            let mut kill = std::process::Command::new("kill");
            let status = kill
                .arg(signal)
                .args(children)
                .stderr(Stdio::null())
                .status();
            status.is_ok_and(|status| status.success())
        })
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        self.signal("-KILL");
    }
}

fn start_traced(
    control_plane: &ControlPlane,
    name: &str,
    tidepool: &Path,
    arguments: &[String],
    trace: &Path,
) -> Traced {
    let strace = Path::new("/usr/bin/strace");
    let mut all: Vec<String> = ["-f", "-y", "-e", "trace=%file", "-o"]
        .map(str::to_owned)
        .to_vec();
    all.push(trace.display().to_string());
    all.push(tidepool.display().to_string());
    all.extend_from_slice(arguments);
    let strace = control_plane.run(name, strace, &all).unwrap();
    Traced { strace }
}

/// Whether a call changed a file, or opened it to do so.
fn is_change(line: &&str) -> bool {
    let changes = [
        "O_WRONLY", "O_RDWR", "O_CREAT", "mkdir(", "unlink", "rename", "symlink", "link(",
    ];
    changes.iter().any(|it| line.contains(it))
        && !line.contains("readlink")
        && !line.contains(" = -1 ")
}

/// (g): all files that the agent opened for writing are its state, or below the pods of this node, by a path that cannot leave
/// them.
fn check_trace(trace: &str, node: &HostNode, state: &Path) {
    let (mut inside, mut outside) = (0, Vec::new());
    let state = state.display().to_string();
    let root = node.cgroup_root();
    for line in trace.lines().filter(is_change) {
        let is_beneath = line.contains("openat2(")
            && line.contains("RESOLVE_BENEATH")
            && line.contains("RESOLVE_NO_SYMLINKS")
            && line.contains(&format!("/{root}>, \"kubepods/"))
            && !line.contains("..\"")
            && !line.contains("/../");
        match is_beneath {
            true => inside += 1,
            false if line.contains(&state) || line.contains("\"/dev/") => {}
            false => outside.push(line),
        }
    }
    assert!(outside.is_empty(), "{outside:#?}");
    assert!(inside > 0, "the agent wrote nothing");
}

pub(crate) fn kill_now(agent: &mut Process) {
    let id = agent.id().to_string();
    let status = std::process::Command::new("kill")
        .args(["-KILL", &id])
        .status()
        .unwrap();
    assert!(status.success());
    agent.stop();
}
