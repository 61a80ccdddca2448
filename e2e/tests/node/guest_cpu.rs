//! (b): CPU of a reclaimed pod in the guest goes back to pods that wake.
//!
//! Everything is measured inside of the guest, with its own clock and the counters of its cgroups: an answer over the serial line
//! takes a while, and `/proc/stat` counts in ticks, of which emulated CPUs lose most. The processes of burners are stopped until
//! they are woken, so that they cost nothing.

use e2e::node::{GuestNode, pod};
use e2e::{Api, eventually};
use serde_json::{Value, json};

use crate::groups::{mid_ls, mid_ls_labels};
use crate::real_node::{LIMIT, uid, wait_until_running};

/// CPUs of the guest.
const CPUS: f64 = 4.0;
/// A pod that wakes has its CPU after this time.
const RETURN: f64 = 2.0;
const KUBEPODS: &str = "/sys/fs/cgroup/kubepods";
const BESTEFFORT: &str = "/sys/fs/cgroup/kubepods/besteffort";
/// All processes but those of pods.
const SYSTEM: &str = "/sys/fs/cgroup/system";

/// A pod in the guest with processes that use CPU once they are woken.
struct Burner {
    /// Its cgroup, as a path of the guest.
    group: String,
    container: String,
}

fn burner(node: &str, name: &str, processes: usize, resources: Value) -> Value {
    // In the command of a container the kubelet makes one `$` of two.
    let one = "/bin/busybox sh -c 'kill -STOP $$$$; while :; do :; done' &";
    let script = format!("{} wait", one.repeat(processes));
    pod(node, name, &script, resources)
}

/// Pods for [`prove`], made early because they take long to start.
pub(crate) fn create_pods(api: &Api, node: &str) {
    let reclaimed = json!({
        "resource.katalyst.kubewharf.io/reclaimed_millicpu": "8000",
        "resource.katalyst.kubewharf.io/reclaimed_memory": "64Mi",
    });
    let reclaimed = json!({"requests": reclaimed, "limits": reclaimed});
    // It wants more than half of the CPUs, which equal weights would give it without suppression.
    let mut mid = burner(node, "midls-guest", 3, mid_ls(3000));
    mid["metadata"]["labels"] = mid_ls_labels();
    for pod in [
        burner(node, "lent-guest", 4, reclaimed),
        burner(node, "online-guest", 4, json!({"requests": {"cpu": "1"}})),
        mid,
    ] {
        api.create(&pod).unwrap();
    }
}

impl Burner {
    fn find(api: &Api, directory: &str, name: &str) -> Self {
        wait_until_running(api, "default", name);
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        let status = api.get(&path).unwrap()["status"].clone();
        let id = status["containerStatuses"][0]["containerID"].as_str();
        let id = id.unwrap().trim_start_matches("containerd://");
        let group = format!("{KUBEPODS}/{directory}/pod{}", uid(api, name));
        let container = format!("{group}/{id}");
        Self { group, container }
    }

    /// The command that sends a signal to its processes.
    fn signal(&self, signal: &str) -> String {
        format!("kill -{signal} $(cat {}/cgroup.procs)", self.container)
    }
}

/// Counters at one moment of the guest's clock, in seconds.
struct Reading {
    at: f64,
    /// CPU time of each group.
    used: Vec<f64>,
    /// CPUs of the first group.
    cpus: String,
}

/// Runs a command in the guest, then reads the CPU time of groups four times a second. A reading starts no process.
fn record(node: &mut GuestNode, command: &str, groups: &[&str], seconds: usize) -> Vec<Reading> {
    let read = |group: &&str| format!("read _ u <{group}/cpu.stat; r=\"$r $u\"; ");
    let reads: String = groups.iter().map(read).collect();
    let script = format!(
        "{command}; i=0; while [ $i -le {} ]; do read r _ </proc/uptime; {reads} read c <{}/cpuset.cpus.effective; echo \"$r|$c\"; i=$((i+1)); sleep 0.25; done",
        4 * seconds,
        groups[0]
    );
    let text = node.shell(&script).unwrap();
    let reading = |line: &str| {
        let (times, cpus) = line.split_once('|').unwrap();
        let mut times = times.split(' ').map(|it| it.parse::<f64>().unwrap());
        Reading {
            at: times.next().unwrap(),
            used: times.map(|micros| micros / 1e6).collect(),
            cpus: cpus.to_owned(),
        }
    };
    text.lines().map(reading).collect()
}

/// The average use of each group between two readings, in cores.
fn cores(first: &Reading, last: &Reading) -> Vec<f64> {
    let used = first.used.iter().zip(&last.used);
    used.map(|(a, b)| (b - a) / (last.at - first.at)).collect()
}

/// A reclaimed pod uses what is left; an online and a Mid+LS pod that wake get their CPU back within two seconds.
pub(crate) fn prove(api: &Api, node: &mut GuestNode) {
    let lent = Burner::find(api, "besteffort", "lent-guest");
    let online = Burner::find(api, "burstable", "online-guest");
    let mid_ls = Burner::find(api, "burstable", "midls-guest");
    node.shell(&lent.signal("CONT")).unwrap();
    // Both directories weigh the same, as on a node without native requests of Burstable pods.
    let weigh = format!("cat {BESTEFFORT}/cpu.weight >{KUBEPODS}/burstable/cpu.weight; ");
    for (burner, wants, before) in [(&online, CPUS, ""), (&mid_ls, 3.0, &*weigh)] {
        let mut found = Vec::new();
        // Another process of the machine may disturb one measurement.
        let has_its_cpu = (0..3).any(|_| {
            wait_until_all_is_used(node, &lent);
            let groups = [&*lent.group, &burner.group, KUBEPODS, SYSTEM];
            let wake = format!("{before}{}", burner.signal("CONT"));
            let readings = record(node, &wake, &groups, 5);
            node.shell(&burner.signal("STOP")).unwrap();
            let late = readings
                .iter()
                .find(|it| it.at >= readings[0].at + RETURN)
                .unwrap();
            let used = cores(late, readings.last().unwrap());
            let rest = used[2] + used[3] - used[0] - used[1];
            // Best-effort pods keep one CPU.
            let possible = wants.min(CPUS - rest - used[0].min(1.0));
            let seen: Vec<String> = readings
                .windows(2)
                .map(|pair| {
                    let at = pair[1].at - readings[0].at;
                    let used = cores(&pair[0], &pair[1]);
                    let cpus = &pair[1].cpus;
                    format!("{at:.1} s: {:.2}, lent {:.2} on {cpus}", used[1], used[0])
                })
                .collect();
            found.push(format!(
                "{:.2} of {possible:.2} cores, lent {:.2}, rest {rest:.2}; {seen:?}",
                used[1], used[0]
            ));
            used[1] >= 0.9 * possible
        });
        assert!(has_its_cpu, "{}: {found:#?}", burner.group);
    }
}

/// Stops all processes of the burners but one of the reclaimed pod. With more of them the emulated CPUs leave nothing of this
/// machine to the API server.
pub(crate) fn leave_one_process(api: &Api, node: &mut GuestNode) {
    let lent = Burner::find(api, "besteffort", "lent-guest");
    let mid = Burner::find(api, "burstable", "midls-guest");
    // The first process is the shell that waits for the others.
    for (burner, running) in [(lent, "1,2d"), (mid, "1d")] {
        let stop = format!(
            "kill -STOP $(sed {running} {}/cgroup.procs)",
            burner.container
        );
        node.shell(&stop).unwrap();
    }
}

/// The reclaimed pod has more than one CPU, and uses what the threshold leaves.
fn wait_until_all_is_used(node: &mut GuestNode, lent: &Burner) {
    eventually("the reclaimed pod uses what is left", LIMIT, || {
        let groups = [&*lent.group, BESTEFFORT, KUBEPODS, SYSTEM];
        let readings = record(node, "true", &groups, 3);
        let (first, last) = (&readings[0], readings.last().unwrap());
        let used = cores(first, last);
        let others = used[2] + used[3] - used[1];
        let left = 0.65 * CPUS - others;
        let found = format!(
            "{:.2} of {left:.2} cores on {}, others {others:.2}",
            used[0], last.cpus
        );
        let has_many = first.cpus == last.cpus && last.cpus.parse::<u32>().is_err();
        (has_many && used[0] >= 0.9 * left)
            .then_some(())
            .ok_or(found)
    });
}
