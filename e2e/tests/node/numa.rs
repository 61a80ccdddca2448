//! Pods with NUMA zones of their own: in the guest with two NUMA nodes, with kills of the agent there and on this machine, and
//! beside the kubelet's static CPU manager.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use e2e::node::{GuestNode, HostNode, pod};
use e2e::{Api, ControlPlane, Process, eventually};
use serde_json::{Value, json};

use crate::killed::{is_full, kill_now, wait_for_first_period};
use crate::real_node::{LIMIT, get, uid, wait_until_ready, wait_until_running};

const PODS: &str = "/api/v1/namespaces/default/pods";
const CNR: &str = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources";
const ZONES: &str = "tidepool.io/numa-zones";
/// The most time from the binding of a pod until all others have left its zone, and from its deletion until they are back.
const SECOND: f64 = 1.0;
/// The emulated machine is slow at times, and even stands still. So there time is counted in looks of a process that sleeps between
/// two of them: a second has at most [`LOOKS`]. The bound in seconds is for the full run. Each is for one of so many tries.
const TRIES: usize = 3;
const LOOKS: u32 = 50;
/// Seconds between two looks.
const PAUSE: &str = "0.02";
/// An agent that waited for its next sample would be late: it takes one after a quarter of this period, if a group has come or gone,
/// and else after the whole period.
const LONG_PERIOD: &str = "--sample-period=40s --detail-period=40s";
/// The seconds since a sample that has just been taken.
const FRESH: f64 = 1.0;
const SHORT_PERIOD: &str = "--sample-period=100ms";
/// Pods with these names are suppressed: their CPUs follow the load.
const SUPPRESSED: [&str; 5] = ["mid-be", "batch", "reclaimed", "free", "lent"];

/// The files `cpuset.cpus` and `cpuset.mems` of pods and containers, by group.
type Sets = BTreeMap<String, [String; 2]>;

/// A pod that wants NUMA zones.
fn dedicated(node: &str, name: &str, script: &str, resources: Value) -> Value {
    let mut pod = pod(node, name, script, resources);
    pod["metadata"]["annotations"] = json!({
        "katalyst.kubewharf.io/qos_level": "dedicated_cores",
        "katalyst.kubewharf.io/memory_enhancement": r#"{"numa_binding": "true"}"#,
    });
    pod
}

/// Gives the pod zone 1, or takes it away.
fn claim(api: &Api, name: &str, is_claimed: bool) {
    let zones = is_claimed.then_some("1");
    let patch = json!({"metadata": {"annotations": {ZONES: zones}}});
    api.patch(&format!("{PODS}/{name}"), &patch).unwrap();
}

/// The zone with the number 1, and the rest of the machine. The memory nodes are none where the rest has no memory.
struct Zone {
    cpus: &'static str,
    rest: &'static str,
    mems: Option<[&'static str; 2]>,
}

/// A node on which agents run one after the other.
trait Machine {
    fn zone(&self) -> Zone;

    fn sets(&mut self) -> Sets;

    /// Runs an agent for a period with all samples and lists. Returns how many files it wrote; it still runs.
    fn run(&mut self) -> u64;

    /// Starts an agent that is killed before this write.
    fn start_killed(&mut self, write: u64);

    /// Whether the agent that was started last has ended.
    fn has_ended(&mut self) -> bool;

    fn kill(&mut self);

    /// Undoes what all agents did.
    fn restore(&mut self);
}

/// What the sets of the pods are compared with.
struct Proof<'a> {
    api: &'a Api,
    name: &'a str,
    zone: Zone,
    /// The uid of the pod with the zone.
    dedicated: String,
    suppressed: Vec<String>,
    before: Sets,
}

impl<'a> Proof<'a> {
    fn new(api: &'a Api, name: &'a str, machine: &mut impl Machine) -> Self {
        let pods = api.list(PODS).unwrap();
        let suppressed = pods.iter().filter(|pod| {
            let name = pod["metadata"]["name"].as_str().unwrap();
            SUPPRESSED.iter().any(|it| name.starts_with(it))
        });
        let uid_of = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap().to_owned();
        Self {
            api,
            name,
            zone: machine.zone(),
            dedicated: uid(api, name),
            suppressed: suppressed.map(uid_of).collect(),
            before: machine.sets(),
        }
    }

    /// What a group should have: CPUs, none if they follow the load, and memory nodes.
    fn wanted(&self, group: &str, is_claimed: bool) -> (Option<String>, String) {
        let [cpus, mems] = self.before[group].clone();
        let is_suppressed = self.suppressed.iter().any(|uid| group.contains(uid));
        let is_dedicated = group.contains(&self.dedicated);
        let cpus = match (is_claimed, is_dedicated) {
            _ if is_suppressed => None,
            (true, true) => Some(self.zone.cpus.to_owned()),
            (true, false) => Some(self.zone.rest.to_owned()),
            (false, _) => Some(cpus),
        };
        let mems = match (is_claimed, self.zone.mems) {
            (true, Some([own, rest])) => (if is_dedicated { own } else { rest }).to_owned(),
            _ => mems,
        };
        (cpus, mems)
    }

    fn check_right(&self, sets: &Sets, is_claimed: bool) -> Result<(), String> {
        for (group, [cpus, mems]) in self.known(sets) {
            let (want, want_mems) = self.wanted(group, is_claimed);
            let is_off =
                |cpus: &str| !is_claimed || (!cpus.is_empty() && is_part(cpus, self.zone.rest));
            let is_right = match &want {
                Some(want) => cpus == want,
                None => is_off(cpus),
            };
            if !is_right || *mems != want_mems {
                return Err(format!(
                    "{group}: {cpus}|{mems} instead of {want:?}|{want_mems}"
                ));
            }
        }
        Ok(())
    }

    /// After a kill each file has what it had before or what it should have.
    fn check_legal(&self, sets: &Sets) {
        for (group, [cpus, mems]) in self.known(sets) {
            let ends = [true, false].map(|is_claimed| self.wanted(group, is_claimed));
            let is_legal = ends.iter().any(|(want, _)| match want {
                Some(want) => cpus == want,
                None => true,
            });
            let is_legal = is_legal && ends.iter().any(|(_, want)| mems == want);
            assert!(is_legal, "{group}: {cpus}|{mems}, not one of {ends:?}");
        }
    }

    /// Groups that were there from the start.
    fn known<'s>(&self, sets: &'s Sets) -> impl Iterator<Item = (&'s String, &'s [String; 2])> {
        sets.iter()
            .filter(|(group, _)| self.before.contains_key(*group))
    }

    fn run(&self, machine: &mut impl Machine, is_claimed: bool) -> u64 {
        let written = machine.run();
        // At once: it has finished one period.
        let sets = machine.sets();
        if let Err(found) = self.check_right(&sets, is_claimed) {
            panic!("{found}: {sets:#?}");
        }
        machine.kill();
        written
    }

    /// Waits until the agent was killed; false if it has nothing left to write.
    fn wait_for_end(&self, machine: &mut impl Machine, is_claimed: bool) -> bool {
        let mut right = 0;
        let is_killed = eventually("the agent has ended", LIMIT, || {
            if machine.has_ended() {
                return Ok(true);
            }
            match self.check_right(&machine.sets(), is_claimed) {
                Ok(()) => right += 1,
                Err(found) => return Err(found),
            }
            (right > 20).then_some(false).ok_or("it runs".to_owned())
        });
        machine.kill();
        is_killed
    }

    /// Kills an agent before this write. Suppression follows the load, so an agent may have fewer files to write than the first one:
    /// then another agent is killed before an earlier write.
    fn kill_before(&self, machine: &mut impl Machine, is_claimed: bool, mut write: u64) {
        loop {
            claim(self.api, self.name, is_claimed);
            machine.start_killed(write);
            if self.wait_for_end(machine, is_claimed) {
                return;
            }
            assert!(write > 1, "no agent was killed");
            write = (write * 3 / 4).max(1);
            claim(self.api, self.name, !is_claimed);
            self.run(machine, !is_claimed);
        }
    }

    /// Kills agents before so many of the writes, half of them while pods leave the zone and half while they come back.
    fn kill_agents(&self, machine: &mut impl Machine, kills: u64) {
        let phases = [true, false];
        // The first agent also writes the values of own pods.
        claim(self.api, self.name, false);
        self.run(machine, false);
        let writes = phases.map(|is_claimed| {
            claim(self.api, self.name, is_claimed);
            self.run(machine, is_claimed)
        });
        assert!(writes.iter().all(|it| *it > 1), "{writes:?}");
        let kills = match is_full() {
            true => 2 * writes[0].max(writes[1]),
            false => kills,
        };
        for kill in 0..kills {
            let phase = usize::try_from(kill % 2).unwrap();
            let (steps, step) = (kills / 2, kill / 2);
            // Evenly over all writes, the first and the last among them.
            let write = 1 + step * (writes[phase] - 1) / (steps - 1).max(1);
            self.kill_before(machine, phases[phase], write.min(writes[phase]));
            self.check_legal(&machine.sets());
            self.run(machine, phases[phase]);
        }
        println!("{kills} agents were killed, before one of {writes:?} writes");
        claim(self.api, self.name, true);
        self.run(machine, true);
        machine.restore();
        assert_eq!(machine.sets(), self.before, "restored");
    }
}

/// Whether all CPUs of one list are in the other.
fn is_part(cpus: &str, of: &str) -> bool {
    let set = |text: &str| -> Vec<u32> {
        let ranges = text.split(',').filter(|it| !it.is_empty());
        let ranges = ranges.map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse::<u32>().unwrap()..=last.parse::<u32>().unwrap()
        });
        ranges.flatten().collect()
    };
    let all = set(of);
    set(cpus).iter().all(|cpu| all.contains(cpu))
}

/// The count of written files in the metrics of an agent.
fn written(metrics: &str) -> u64 {
    let mut lines = metrics.lines();
    let line = lines.find(|it| it.starts_with("tidepool_agent_written_files"));
    let number = line.and_then(|line| line.rsplit(' ').next());
    number.unwrap().parse::<f64>().unwrap() as u64
}

/// Agents on this machine, whose CPUs look like two NUMA nodes to them: the second one has the last CPU and no memory.
struct OnHost<'a> {
    control_plane: &'a ControlPlane,
    node: &'a HostNode,
    arguments: Vec<String>,
    agent: Option<Process>,
    count: usize,
}

impl<'a> OnHost<'a> {
    fn new(control_plane: &'a ControlPlane, node: &'a HostNode) -> Self {
        let sys = node.directory().join("numa-sys");
        let nodes = sys.join("devices/system/node");
        let write = |file: &str, text: &str| {
            let file = nodes.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("online", "0-1\n");
        for (number, cpus, memory) in [(0, "0", 4_000_000), (1, "1", 0)] {
            write(&format!("node{number}/cpulist"), &format!("{cpus}\n"));
            write(&format!("node{number}/distance"), "10 20\n");
            let memory = format!(
                "Node {number} MemTotal: {memory} kB\nNode {number} MemFree: {memory} kB\n"
            );
            write(&format!("node{number}/meminfo"), &memory);
        }
        let kubeconfig = control_plane.kubeconfig_file("admin").unwrap();
        let state = node.directory().join("numa-state");
        let arguments = vec![
            "agent".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--node-name={}", node.name()),
            format!("--cgroup-root=/{}", node.cgroup_root()),
            format!(
                "--kubelet-root={}",
                node.directory().join("kubelet").display()
            ),
            format!("--state-dir={}", state.display()),
            format!("--sys={}", sys.display()),
        ];
        Self {
            control_plane,
            node,
            arguments,
            agent: None,
            count: 0,
        }
    }

    fn start(&mut self, flags: &[&str]) -> Process {
        self.count += 1;
        let name = format!("numa-agent-{}", self.count);
        let mut arguments = self.arguments.clone();
        arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
        let tidepool = e2e::tidepool::binary().unwrap();
        self.control_plane
            .run(&name, &tidepool, &arguments)
            .unwrap()
    }
}

impl Machine for OnHost<'_> {
    fn zone(&self) -> Zone {
        Zone {
            cpus: "1",
            rest: "0",
            mems: None,
        }
    }

    fn sets(&mut self) -> Sets {
        let root = Path::new("/sys/fs/cgroup");
        let (v1, v2) = (root.join("cpuset"), root.to_owned());
        let root = if v1.exists() { v1 } else { v2 };
        let root = root.join(self.node.cgroup_root());
        let mut sets = Sets::new();
        let mut directories: Vec<PathBuf> = vec![root.join("kubepods")];
        while let Some(directory) = directories.pop() {
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            directories.extend(entries.map(|it| it.path()).filter(|path| path.is_dir()));
            let group = directory.strip_prefix(&root).unwrap().display().to_string();
            let read = |file: &str| {
                let text = fs::read_to_string(directory.join(file)).ok()?;
                Some(text.trim().to_owned())
            };
            if let (true, Some(cpus), Some(mems)) = (
                group.contains("/pod"),
                read("cpuset.cpus"),
                read("cpuset.mems"),
            ) {
                sets.insert(group, [cpus, mems]);
            }
        }
        sets
    }

    fn run(&mut self) -> u64 {
        let process = self.start(&[SHORT_PERIOD]);
        let address = wait_for_first_period(&process);
        self.agent = Some(process);
        written(&get(&address, "/metrics"))
    }

    fn start_killed(&mut self, write: u64) {
        let kill = format!("--kill-before-write={write}");
        self.agent = Some(self.start(&[SHORT_PERIOD, &kill]));
    }

    fn has_ended(&mut self) -> bool {
        let agent = self.agent.as_mut().unwrap();
        agent.ended().unwrap().is_some()
    }

    fn kill(&mut self) {
        let mut agent = self.agent.take().unwrap();
        if agent.ended().unwrap().is_none() {
            kill_now(&mut agent);
        }
    }

    fn restore(&mut self) {
        let mut process = self.start(&["--restore"]);
        eventually("everything is restored", LIMIT, || match process.ended() {
            Ok(Some(status)) if status.success() => Ok(()),
            other => Err(format!("{other:?}: {}", process.log())),
        });
    }
}

/// With the ordinary period, all pods leave the zone and come back within a second.
fn follow_in_time(proof: &Proof, machine: &mut OnHost) {
    let agent = machine.start(&[]);
    wait_for_first_period(&agent);
    for is_claimed in [true, false, true, false] {
        claim(proof.api, proof.name, is_claimed);
        let claimed = Instant::now();
        let took = eventually("all pods have what they should", LIMIT, || {
            proof.check_right(&machine.sets(), is_claimed)?;
            Ok(claimed.elapsed().as_secs_f64())
        });
        println!("zone claimed: {is_claimed}; all pods followed after {took:.2} s");
        assert!(took <= SECOND, "{took:.2} s: {}", agent.last_words());
    }
    machine.agent = Some(agent);
    machine.kill();
}

/// On the cgroups of this machine, v1 or v2.
pub(crate) fn prove_on_the_host(control_plane: &ControlPlane, api: &Api, node: &HostNode) {
    let name = "dedicated-host";
    // Zones count only as far as the request needs them; zone 1 has no memory here.
    let resources = json!({"requests": {"cpu": "10m"}});
    api.create(&dedicated(node.name(), name, "sleep 100000", resources))
        .unwrap();
    wait_until_running(api, "default", name);
    let mut machine = OnHost::new(control_plane, node);
    let proof = Proof::new(api, name, &mut machine);
    follow_in_time(&proof, &mut machine);
    proof.kill_agents(&mut machine, 14);
}

/// Agents in the guest.
struct InGuest<'a> {
    node: &'a mut GuestNode,
}

const AGENT: &str = "tidepool agent --kubeconfig=/node/kubeconfig --node-name=guest --kubelet-root=/node/kubelet --state-dir=/node/numa-state --sample-period=200ms --secure-port=10268";

impl InGuest<'_> {
    fn start(&mut self, flags: &str) {
        let log = "/node/numa-agent.log";
        let start = format!("{AGENT} {flags} >>{log} 2>&1 & echo $! >/node/numa-agent.pid");
        self.node.shell(&start).unwrap();
    }
}

impl Machine for InGuest<'_> {
    fn zone(&self) -> Zone {
        Zone {
            cpus: "2-3",
            rest: "0-1",
            mems: Some(["1", "0"]),
        }
    }

    fn sets(&mut self) -> Sets {
        let find = "find kubepods -mindepth 2 -name cpuset.cpus -o -mindepth 2 -name cpuset.mems";
        let text = self
            .node
            .shell(&format!(
                "cd /sys/fs/cgroup && grep -H '' $({find}) /dev/null || true"
            ))
            .unwrap();
        let mut sets = Sets::new();
        for line in text.lines() {
            let Some((file, value)) = line.split_once(':') else {
                continue;
            };
            let (group, name) = file.rsplit_once('/').unwrap();
            if group.contains("/pod") {
                let set = sets.entry(group.to_owned()).or_default();
                set[usize::from(name == "cpuset.mems")] = value.trim().to_owned();
            }
        }
        // An empty set is the parent's. The kernel does not let the set of a group with processes be empty again.
        let own = sets.clone();
        for (group, set) in &mut sets {
            let parent = group
                .rsplit_once('/')
                .and_then(|(parent, _)| own.get(parent));
            for (file, all) in ["0-3", "0-1"].into_iter().enumerate() {
                let candidates = [Some(set[file].clone()), parent.map(|it| it[file].clone())];
                let found = candidates.into_iter().flatten().find(|it| !it.is_empty());
                set[file] = found.unwrap_or_else(|| all.to_owned());
            }
        }
        sets
    }

    fn run(&mut self) -> u64 {
        self.start("");
        let metrics = eventually("the agent has finished a period", LIMIT, || {
            let metrics = guest_metrics(self.node)?;
            let is_complete =
                metrics.contains("tidepool_agent_condition{type=\"AgentDegraded\"} 0.0");
            is_complete.then_some(metrics.clone()).ok_or(metrics)
        });
        written(&metrics)
    }

    fn start_killed(&mut self, write: u64) {
        self.start(&format!("--kill-before-write={write}"));
    }

    fn has_ended(&mut self) -> bool {
        // The link of a process that has ended leads nowhere.
        let ended = "[ ! -e /proc/$(cat /node/numa-agent.pid)/exe ]";
        self.node.shell(ended).is_ok()
    }

    fn kill(&mut self) {
        let kill = "kill -9 $(cat /node/numa-agent.pid) 2>/dev/null || true";
        self.node.shell(kill).unwrap();
        eventually("the agent has ended", LIMIT, || {
            self.has_ended().then_some(()).ok_or(String::new())
        });
    }

    fn restore(&mut self) {
        let restore = "tidepool agent --restore --state-dir=/node/numa-state";
        self.node.shell(restore).unwrap();
    }
}

/// The seconds since the guest started, when the API server has answered this request.
fn uptime_after(node: &mut GuestNode, request: impl FnOnce()) -> f64 {
    let text = node.shell("cut -d' ' -f1 /proc/uptime").unwrap();
    let sent = Instant::now();
    request();
    text.trim().parse::<f64>().unwrap() + sent.elapsed().as_secs_f64()
}

/// Starts to wait in the guest until the masks of all groups that are there now are among these. A look at them starts no process:
/// in an emulated machine that takes a long time.
fn watch_masks(node: &mut GuestNode, except: &[String], cpus: &str, mems: &str) {
    let except: Vec<String> = except
        .iter()
        .map(|uid| format!("-path '*{uid}*' -prune -o"))
        .collect();
    let except = except.join(" ");
    let list = |file: &str| {
        format!(
            "$(find /sys/fs/cgroup/kubepods -mindepth 3 {except} -name cpuset.{file}.effective -print)"
        )
    };
    let look = |files: &str, allowed: &str| {
        format!(
            "for f in ${files}; do read x <$f || continue; case $x in {allowed}) ;; *) ok=0; break;; esac; done;"
        )
    };
    let script = format!(
        "rm -f /node/masks; cpus={}; mems={}; ( n=0; ok=0; while [ $ok = 0 ] && [ $n -lt 1000 ]; do ok=1; {} {} n=$((n+1)); [ $ok = 1 ] || sleep {PAUSE}; done; read u _ </proc/uptime; echo $ok $n $u >/node/masks ) >/dev/null 2>&1 &",
        list("cpus"),
        list("mems"),
        look("cpus", cpus),
        look("mems", mems),
    );
    node.shell(&script).unwrap();
}

/// How long it took until masks were right.
#[derive(Debug, Clone, Copy)]
struct Followed {
    looks: u32,
    seconds: f64,
}

impl Followed {
    /// `looks` counts from the start of the wait, which is a little earlier than `since`.
    fn read(node: &mut GuestNode, since: f64) -> Self {
        let (looks, at) = masks_were_right(node);
        Self {
            looks,
            seconds: at - since,
        }
    }

    fn is_late(self) -> bool {
        self.looks > LOOKS || (is_full() && self.seconds > SECOND)
    }
}

/// After how many looks the masks that are waited for were right, and when.
fn masks_were_right(node: &mut GuestNode) -> (u32, f64) {
    let text = eventually("the masks are right", LIMIT, || {
        let text = node.shell("cat /node/masks");
        let text = text.map_err(|error| format!("{error:#}"))?;
        // The shell makes the file before it writes the line.
        let is_written = text.contains(' ');
        is_written.then_some(text).ok_or("no line yet".to_owned())
    });
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(words[0], "1", "{}", agent_log(node));
    (words[1].parse().unwrap(), words[2].parse().unwrap())
}

fn agent_log(node: &mut GuestNode) -> String {
    node.shell("tail -n 200 /node/agent.log")
        .unwrap_or_default()
}

/// The lists of CPUs and memory nodes of all processes below groups that `find` selects.
fn processes(node: &mut GuestNode, find: &str) -> Vec<(String, String)> {
    let status = format!(
        "$(cat $(find /sys/fs/cgroup/kubepods -mindepth 2 {find}) | sed 's|.*|/proc/&/status|')"
    );
    // A process may end while it is read.
    let read = format!("grep -h -E '^(Cpus|Mems)_allowed_list' {status} 2>/dev/null || true");
    let text = node.shell(&read).unwrap();
    let lists: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(_, list)| list.trim())
        .collect();
    let pairs = lists.chunks_exact(2);
    pairs
        .map(|pair| (pair[0].to_owned(), pair[1].to_owned()))
        .collect()
}

/// Pages of anonymous memory by NUMA node, of the process of a pod that has the most. Mappings of files do not count: their pages
/// are shared with other pods.
fn pages(node: &mut GuestNode, uid: &str) -> [u64; 2] {
    let tasks =
        format!("$(cat $(find /sys/fs/cgroup/kubepods -path '*{uid}*' -name cgroup.procs))");
    let text = node
        .shell(&format!(
            "for task in {tasks}; do echo process; grep anon= /proc/$task/numa_maps | grep -v file=; done; true"
        ))
        .unwrap();
    let of_process = |maps: &str| {
        let mut pages = [0, 0];
        for word in maps.split_whitespace() {
            for (number, pages) in pages.iter_mut().enumerate() {
                let count = word.strip_prefix(&format!("N{number}="));
                *pages += count.map_or(0, |count| count.parse::<u64>().unwrap());
            }
        }
        pages
    };
    let processes = text.split("process").map(of_process);
    processes
        .max_by_key(|pages| pages.iter().sum::<u64>())
        .unwrap()
}

/// Replaces the agent in the guest.
fn start_seldom_sampling_agent(node: &mut GuestNode) {
    node.shell("kill -9 $(pidof tidepool)").unwrap();
    let agent = "tidepool agent --kubeconfig=/node/kubeconfig --node-name=guest --kubelet-root=/node/kubelet";
    node.shell(&format!("{agent} {LONG_PERIOD} >/node/agent.log 2>&1 &"))
        .unwrap();
    eventually("the agent has decided", LIMIT, || {
        let metrics = metrics_after_change(node)?;
        let is_complete = "tidepool_agent_condition{type=\"AgentDegraded\"} 0.0";
        metrics.contains(is_complete).then_some(()).ok_or(metrics)
    });
}

/// Returns when the agent in the guest has just taken a sample. The next one is far away.
fn wait_for_sample(node: &mut GuestNode) {
    eventually("the agent takes a sample", LIMIT, || {
        let metrics = metrics_after_change(node)?;
        let mut lines = metrics.lines();
        let age = lines.find_map(|line| line.strip_prefix("tidepool_agent_sample_age_seconds{} "));
        let age = age.and_then(|age| age.parse::<f64>().ok());
        let is_fresh = age.is_some_and(|age| age < FRESH);
        is_fresh.then_some(()).ok_or(format!("{age:?} s old"))
    });
}

/// Makes a group and removes it, so that the agent takes its next sample early.
fn metrics_after_change(node: &mut GuestNode) -> Result<String, String> {
    let group = "/sys/fs/cgroup/kubepods/besteffort/pod01234567-0000-4000-8000-000000000000";
    let change = format!("mkdir {group} && rmdir {group} || true");
    node.shell(&change).map_err(|error| format!("{error:#}"))?;
    guest_metrics(node)
}

fn guest_metrics(node: &mut GuestNode) -> Result<String, String> {
    let metrics = node.shell("wget -q -O - http://127.0.0.1:10268/metrics");
    metrics.map_err(|error| format!("{error:#}"))
}

/// The agent that runs in the guest binds a pod to its zone, and then agents are killed.
pub(crate) fn prove_in_the_guest(control_plane: &ControlPlane, api: &Api, node: &mut GuestNode) {
    // It burns CPU; the reclaimed burner stays.
    let online = uid(api, "online-guest");
    api.delete_now(&format!("{PODS}/online-guest")).unwrap();
    crate::guest_cpu::leave_one_process(api, node);
    wait_until_ended(node, &online);
    let pods = api.list(PODS).unwrap();
    let on_guest = |pod: &&Value| pod["spec"]["nodeName"] == "guest";
    let suppressed = pods.iter().filter(on_guest).filter(|pod| {
        let name = pod["metadata"]["name"].as_str().unwrap();
        SUPPRESSED.iter().any(|it| name.starts_with(it))
    });
    let suppressed: Vec<String> = suppressed
        .map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned())
        .collect();
    let name = "dedicated-guest";
    let script = "x=$(head -c 2097152 /dev/zero | tr '\\0' a); while :; do sleep 1; done";
    let amounts = json!({"cpu": "1", "memory": "64Mi"});
    let mut object = dedicated(
        "guest",
        name,
        script,
        json!({"requests": amounts, "limits": amounts}),
    );
    object["metadata"]["annotations"][ZONES] = json!("1");
    start_seldom_sampling_agent(node);
    let give = |node: &mut GuestNode| {
        wait_for_sample(node);
        watch_masks(node, &[], "0|1|0-1", "0");
        let bound = uptime_after(node, || drop(api.create(&object).unwrap()));
        let dedicated = uid(api, name);
        let left = Followed::read(node, bound);
        println!("others left the zone: {left:.2?}");
        (dedicated, left)
    };
    let take = |node: &mut GuestNode, dedicated: &str| {
        let mut except = suppressed.clone();
        except.push(dedicated.to_owned());
        wait_for_sample(node);
        watch_masks(node, &except, "0-3", "0-1");
        let path = format!("{PODS}/{name}");
        let deleted = uptime_after(node, || drop(api.delete_now(&path).unwrap()));
        let back = Followed::read(node, deleted);
        println!("others came back: {back:.2?}");
        back
    };
    let (mut dedicated, mut left) = give(node);
    for _ in 1..TRIES {
        if left.is_late() {
            take(node, &dedicated);
            wait_until_ended(node, &dedicated);
            (dedicated, left) = give(node);
        }
    }
    assert!(
        !left.is_late(),
        "others left the zone: {left:?}\n{}",
        agent_log(node)
    );
    wait_until_running(api, "default", name);
    eventually("the pod has its zone", LIMIT, || {
        let found = processes(node, &format!("-path '*{dedicated}*' -name cgroup.procs"));
        // The sandbox and the container with its child.
        let is_right = found.len() >= 2 && found.iter().all(|it| *it == ("2-3".into(), "1".into()));
        is_right.then_some(()).ok_or(format!("{found:?}"))
    });
    let others = processes(
        node,
        &format!("-path '*{dedicated}*' -prune -o -name cgroup.procs -print"),
    );
    assert!(others.len() > 10, "{others:?}");
    for (cpus, mems) in &others {
        assert!(is_part(cpus, "0-1") && mems == "0", "{others:?}");
    }
    eventually("its memory is in its zone", LIMIT, || {
        let [away, own] = pages(node, &dedicated);
        (away == 0 && own >= 512)
            .then_some(())
            .ok_or(format!("{away} pages away, {own} in the zone"))
    });
    eventually("the zone is reported", LIMIT, || {
        let cnr = api
            .get(&format!("{CNR}/guest"))
            .map_err(|error| format!("{error:#}"))?;
        let sockets = &cnr["status"]["topologyZone"];
        let zone = &sockets[1]["children"][0];
        let consumer = format!("default/{name}/{dedicated}");
        let is_right = zone["name"] == "1"
            && zone["allocations"][0]["consumer"] == consumer.as_str()
            && zone["attributes"][0]["value"] == "20,10"
            && zone["resources"]["capacity"]["cpu"] == "2";
        is_right.then_some(()).ok_or(format!("{sockets:#}"))
    });
    let mut back = take(node, &dedicated);
    for _ in 1..TRIES {
        if back.is_late() {
            wait_until_ended(node, &dedicated);
            (dedicated, _) = give(node);
            back = take(node, &dedicated);
        }
    }
    assert!(
        !back.is_late(),
        "others came back: {back:?}\n{}",
        agent_log(node)
    );

    give_by_the_scheduler(control_plane, api, node);

    // Now agents that are killed.
    node.shell("kill -9 $(pidof tidepool)").unwrap();
    node.shell("tidepool agent --restore").unwrap();
    // Zones count only as far as the request needs them.
    let resources = json!({"requests": {"cpu": "10m"}});
    let object = self::dedicated("guest", "dedicated-kills", "sleep 100000", resources);
    api.create(&object).unwrap();
    wait_until_running(api, "default", "dedicated-kills");
    let mut machine = InGuest { node };
    let proof = Proof::new(api, "dedicated-kills", &mut machine);
    proof.kill_agents(&mut machine, 6);
}

/// The scheduler chooses a zone from the agent's report, and the agent binds the pod to it.
fn give_by_the_scheduler(control_plane: &ControlPlane, api: &Api, node: &mut GuestNode) {
    let config = format!("--config={}", crate::tiers::PROFILE);
    let flags = ["--mode=primary", &config, "--secure-port=0"];
    let scheduler = control_plane.tidepool("numa-scheduler", &control_plane.admin(), &flags);
    let scheduler = scheduler.unwrap();
    let name = "scheduled-guest";
    let amounts = json!({"cpu": "1", "memory": "64Mi"});
    let resources = json!({"requests": amounts, "limits": amounts});
    let mut object = dedicated("", name, "sleep 100000", resources);
    object["spec"]["nodeName"] = Value::Null;
    object["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node.name()});
    api.create(&object).unwrap();
    wait_until_running(api, "default", name);
    let bound = api.get(&format!("{PODS}/{name}")).unwrap();
    let [own, rest] = match bound["metadata"]["annotations"][ZONES].as_str() {
        Some("0") => [("0-1", "0"), ("2-3", "1")],
        Some("1") => [("2-3", "1"), ("0-1", "0")],
        other => panic!("{other:?} is not one zone: {}", scheduler.last_words()),
    };
    let group = uid(api, name);
    eventually("the pod is alone in its zone", LIMIT, || {
        let found = processes(node, &format!("-path '*{group}*' -name cgroup.procs"));
        let is_bound = |(cpus, mems): &(String, String)| (&**cpus, &**mems) == own;
        let others = format!("-path '*{group}*' -prune -o -name cgroup.procs -print");
        let others = processes(node, &others);
        let is_off =
            |(cpus, mems): &(String, String)| is_part(cpus, rest.0) && is_part(mems, rest.1);
        let is_right = found.len() >= 2 && found.iter().all(is_bound) && others.iter().all(is_off);
        is_right
            .then_some(())
            .ok_or_else(|| format!("{own:?}: {found:?}, others {others:?}"))
    });
    api.delete_now(&format!("{PODS}/{name}")).unwrap();
    wait_until_ended(node, &group);
}

/// Waits until the cgroups of a pod are gone: their end is work for the emulated machine.
fn wait_until_ended(node: &mut GuestNode, uid: &str) {
    eventually("the pod has ended", LIMIT, || {
        let groups = node.shell(&format!("find /sys/fs/cgroup/kubepods -name '*{uid}*'"));
        let groups = groups.map_err(|error| format!("{error:#}"))?;
        groups.is_empty().then_some(()).ok_or(groups)
    });
}

/// Where the kubelet binds containers to CPUs, the agent writes no cpuset and finds those that differ. It takes a boot of its own.
pub(crate) fn prove_with_static_cpu_manager(control_plane: &ControlPlane) {
    if !is_full() {
        return;
    }
    let api = Api::new(&control_plane.admin()).unwrap();
    let tidepool = e2e::tidepool::binary().unwrap();
    let config = json!({
        "cpuManagerPolicy": "static",
        // It would restore the cpuset that the test changes.
        "cpuManagerReconcilePeriod": "1h",
        "reservedSystemCPUs": "0",
        "enforceNodeAllocatable": ["pods"],
    });
    let mut node = GuestNode::start_with(control_plane, "static", &[&tidepool], &config).unwrap();
    wait_until_ready(&api, node.name());
    crate::guest_agent::allow(&api, node.name());
    let amounts = json!({"cpu": "2", "memory": "64Mi"});
    let resources = json!({"requests": amounts, "limits": amounts});
    let mut object = dedicated("static", "dedicated-static", "sleep 100000", resources);
    object["metadata"]["annotations"][ZONES] = json!("1");
    api.create(&object).unwrap();
    let web = pod(
        "static",
        "web-static",
        "sleep 100000",
        json!({"requests": {"cpu": "100m"}}),
    );
    api.create(&web).unwrap();
    for name in ["dedicated-static", "web-static"] {
        wait_until_running(&api, "default", name);
    }
    let agent = "tidepool agent --kubeconfig=/node/kubeconfig --node-name=static --kubelet-root=/node/kubelet --detail-period=1s";
    node.shell(&format!("{agent} >/node/agent.log 2>&1 &"))
        .unwrap();
    let condition = |reason: &str| {
        eventually("the condition", LIMIT, || {
            let cnr = api
                .get(&format!("{CNR}/static"))
                .map_err(|error| format!("{error:#}"))?;
            let conditions = cnr["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let found = conditions.iter().find(|it| it["type"] == "NumaZonesDiffer");
            let found = found.cloned().unwrap_or_default();
            (found["reason"] == reason)
                .then_some(found["message"].to_string())
                .ok_or(format!("{found} {}", cnr["status"]["topologyZone"]))
        })
    };
    condition("AsChosen");
    let group = format!(
        "/sys/fs/cgroup/kubepods/burstable/pod{}",
        uid(&api, "web-static")
    );
    let object = api.get(&format!("{PODS}/web-static")).unwrap();
    let id = object["status"]["containerStatuses"][0]["containerID"].as_str();
    let id = id.unwrap().trim_start_matches("containerd://").to_owned();
    let set = format!("{group}/{id}/cpuset.cpus");
    node.shell(&format!("echo 1-2 >{set}")).unwrap();
    let message = condition("CpusetsDiffer");
    assert!(
        message
            .contains("container main of pod default/web-static may use CPUs 1-2 instead of 0-1"),
        "{message}"
    );
    assert_eq!(node.shell(&format!("cat {set}")).unwrap(), "1-2");
    let metrics = node
        .shell("wget -q -O - http://127.0.0.1:10268/metrics")
        .unwrap();
    assert_eq!(written(&metrics), 0);
    node.stop().unwrap();
}
