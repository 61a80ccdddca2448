//! Pods with NUMA zones of their own: in the guest with two NUMA nodes, with kills of the agent there and on this machine, and
//! beside the kubelet's static CPU manager.

mod guest;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use e2e::node::{GuestNode, HostNode, pod};
use e2e::{Api, ControlPlane, Process, eventually};
use serde_json::{Value, json};

pub(crate) use guest::prove_in_the_guest;

use crate::killed::{is_full, kill_now, wait_for_first_period};
use crate::real_node::{LIMIT, get, uid, wait_until_ready, wait_until_running};

const PODS: &str = "/api/v1/namespaces/default/pods";
const CNR: &str = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources";
const ZONES: &str = "tidepool.io/numa-zones";
/// The most time from the binding of a pod until all others have left its zone, and from its deletion until they are back.
const SECOND: f64 = 1.0;
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
