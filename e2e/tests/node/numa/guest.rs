//! Pods with NUMA zones in the guest with two NUMA nodes: their processes and pages, and agents that are killed.

use std::time::Instant;

use e2e::node::GuestNode;
use e2e::{Api, ControlPlane, eventually};
use serde_json::{Value, json};

use super::{
    CNR, Machine, PODS, Proof, SECOND, SUPPRESSED, Sets, ZONES, Zone, dedicated, is_part, written,
};
use crate::killed::is_full;
use crate::real_node::{LIMIT, uid, wait_until_running};

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
/// A pod whose author wrote zones.
const FORGED: &str = "forged-guest";

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
    let is_bound = |(cpus, mems): &(String, String)| (&**cpus, &**mems) == own;
    let is_off = |(cpus, mems): &(String, String)| is_part(cpus, rest.0) && is_part(mems, rest.1);
    eventually("the pod is alone in its zone", LIMIT, || {
        let found = processes(node, &format!("-path '*{group}*' -name cgroup.procs"));
        let others = format!("-path '*{group}*' -prune -o -name cgroup.procs -print");
        let others = processes(node, &others);
        let is_right = found.len() >= 2 && found.iter().all(is_bound) && others.iter().all(is_off);
        is_right
            .then_some(())
            .ok_or_else(|| format!("{own:?}: {found:?}, others {others:?}"))
    });
    let forged = claim_all_zones(api, node);
    eventually("an older pod keeps its zone", LIMIT, || {
        let older = processes(node, &format!("-path '*{group}*' -name cgroup.procs"));
        let younger = processes(node, &format!("-path '*{forged}*' -name cgroup.procs"));
        let is_right = older.iter().all(is_bound) && younger.iter().all(is_off);
        (is_right && older.len() >= 2 && younger.len() >= 2)
            .then_some(())
            .ok_or_else(|| format!("{own:?}: {older:?}, the younger pod {younger:?}"))
    });
    api.delete_now(&format!("{PODS}/{name}")).unwrap();
    wait_until_ended(node, &group);
    prove_one_zone(api, node, &forged);
}

/// A pod whose author wrote more zones than it needs, as one could without admission policies. Returns its uid.
fn claim_all_zones(api: &Api, node: &GuestNode) -> String {
    let resources = json!({"requests": {"cpu": "1m"}});
    let mut object = dedicated(node.name(), FORGED, "sleep 100000", resources);
    object["metadata"]["annotations"][ZONES] = json!("0,1");
    api.create(&object).unwrap();
    wait_until_running(api, "default", FORGED);
    uid(api, FORGED)
}

/// The pod with this uid has the first of its zones, and the other pods keep the second.
fn prove_one_zone(api: &Api, node: &mut GuestNode, forged: &str) {
    eventually("the pod has one zone", LIMIT, || {
        let found = processes(node, &format!("-path '*{forged}*' -name cgroup.procs"));
        let others = format!("-path '*{forged}*' -prune -o -name cgroup.procs -print");
        let others = processes(node, &others);
        let is_bound = |it: &(String, String)| *it == ("0-1".into(), "0".into());
        let is_off = |(cpus, mems): &(String, String)| is_part(cpus, "2-3") && mems == "1";
        let is_right = found.len() >= 2 && found.iter().all(is_bound) && others.iter().all(is_off);
        (is_right && others.len() > 10)
            .then_some(())
            .ok_or_else(|| format!("{found:?}, others {others:?}"))
    });
    eventually("one zone is reported as taken", LIMIT, || {
        let cnr = api
            .get(&format!("{CNR}/guest"))
            .map_err(|error| format!("{error:#}"))?;
        let sockets = &cnr["status"]["topologyZone"];
        let consumer = format!("default/{FORGED}/{forged}");
        let is_taken = |zone: usize| {
            let allocations = sockets[zone]["children"][0]["allocations"].as_array();
            let mut allocations = allocations.into_iter().flatten();
            allocations.any(|it| it["consumer"] == consumer.as_str())
        };
        (is_taken(0) && !is_taken(1))
            .then_some(())
            .ok_or(format!("{sockets:#}"))
    });
    api.delete_now(&format!("{PODS}/{FORGED}")).unwrap();
    wait_until_ended(node, forged);
}

/// Waits until the cgroups of a pod are gone: their end is work for the emulated machine.
fn wait_until_ended(node: &mut GuestNode, uid: &str) {
    eventually("the pod has ended", LIMIT, || {
        let groups = node.shell(&format!("find /sys/fs/cgroup/kubepods -name '*{uid}*'"));
        let groups = groups.map_err(|error| format!("{error:#}"))?;
        groups.is_empty().then_some(()).ok_or(groups)
    });
}
