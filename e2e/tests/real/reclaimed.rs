//! Reclaimed pods on the real API server: with our definition of CustomNodeResource, and with Katalyst's.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use e2e::{Api, ControlPlane, Process, eventually};
use serde_json::{Value, json};

use crate::deployed;
use crate::faults::create_all;
use crate::shared::Shared;
use crate::shared_cluster::{SHORT, asks, condition, merge, node, pod, pod_path, text};

const LONG: Duration = Duration::from_secs(120);
const CPU: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
/// So much longer than on an empty cluster a service may wait.
const LATER: Duration = Duration::from_secs(4);
const REPORTS: &str = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources";
const DEFINITION: &str = "node.katalyst.kubewharf.io_customnoderesources.yaml";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIGURATION: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: { leaderElect: false }
profiles:
- schedulerName: tidepool
  plugins:
    multiPoint:
      enabled: [{ name: QoSAwareNodeResourcesFit, weight: 4 }, { name: QoSAwareNodeResourcesBalancedAllocation, weight: 1 }]
    score: { disabled: [{ name: NodeResourcesFit }, { name: NodeResourcesBalancedAllocation }] }
";

/// With our definition.
static SHARED: Shared<Lending> = Shared::by(3);

struct Lending {
    api: Api,
    // Stopped in this order.
    ours: Process,
    control_plane: ControlPlane,
}

impl Lending {
    /// With the definition that is in this file.
    fn start(definition: &Path) -> Self {
        let control_plane = deployed::start(&[]);
        let api = deployed::serve_definition(&control_plane, definition, REPORTS);
        for (name, value) in [("urgent", 1_000), ("modest", -10)] {
            let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": name}, "value": value});
            api.create(&class).unwrap();
        }
        Self {
            api,
            ours: schedule(&control_plane, "tidepool"),
            control_plane,
        }
    }

    fn node(&self, name: &str, pods: u32) {
        let capacity = json!({"status": {"capacity": {"pods": pods.to_string()}}});
        self.api.create(&node(name, "zone", capacity)).unwrap();
    }

    /// The first report of the agent of a node.
    fn report(&self, node: &str, lent: u32, taints: Value) {
        let report = json!({"apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource",
            "metadata": {"name": node}, "spec": {"taints": taints}});
        self.api.create(&report).unwrap();
        self.lend(node, lent);
    }

    fn lend(&self, node: &str, lent: u32) {
        let amount = json!({CPU: lent.to_string()});
        let status = json!({"status": {"resources": {"allocatable": amount, "capacity": amount}}});
        let path = format!("{REPORTS}/{node}/status");
        self.api.patch(&path, &status).unwrap();
    }

    fn create(&self, pod: &Value) {
        self.api.create(pod).unwrap();
    }

    fn get(&self, pod: &str) -> Value {
        self.api.get(&pod_path(pod)).unwrap()
    }

    fn bound(&self, pod: &str, node: &str) {
        eventually(&format!("{pod} is on {node}"), SHORT, || {
            let found = self.get(pod);
            if found["spec"]["nodeName"] == node {
                Ok(())
            } else {
                Err(format!("{}\n{}", found["status"], self.ours.last_words()))
            }
        });
    }

    /// Creates it, and returns how long it waited for this node.
    fn place(&self, pod: &Value, node: &str) -> Duration {
        let begun = Instant::now();
        self.create(pod);
        self.bound(&text(&pod["metadata"]["name"]), node);
        begun.elapsed()
    }

    /// It is unschedulable, with this message.
    fn waits(&self, pod: &str, words: &str) {
        eventually(&format!("{pod} waits: {words}"), SHORT, || {
            let found = self.get(pod);
            assert!(found["spec"]["nodeName"].is_null(), "{pod} is bound");
            let message = text(&condition(&found, "PodScheduled")["message"]);
            if message.contains(words) {
                Ok(())
            } else {
                Err(message)
            }
        });
    }

    fn empty(&self) {
        for path in [PODS, "/api/v1/nodes", REPORTS] {
            // All objects of the list.
            self.api.delete_now(path).unwrap();
        }
    }
}

fn schedule(control_plane: &ControlPlane, name: &str) -> Process {
    let file = control_plane.logs().join("scheduler.yaml");
    std::fs::write(&file, CONFIGURATION).unwrap();
    let flag = format!("--config={}", file.display());
    deployed::with_flags(control_plane, name, &[&flag])
}

/// A pod of the level that lives on what is lent.
fn job(name: &str, amount: &str, class: &str) -> Value {
    let mut job = pod(
        name,
        json!({"containers": asks(CPU, amount), "terminationGracePeriodSeconds": 0}),
    );
    let level = json!({"katalyst.kubewharf.io/qos_level": "reclaimed_cores"});
    merge(&mut job, json!({"metadata": {"annotations": level}}));
    if !class.is_empty() {
        job["spec"]["priorityClassName"] = class.into();
    }
    job
}

fn service(name: &str, cpu: &str) -> Value {
    pod(
        name,
        json!({"containers": asks("cpu", cpu), "terminationGracePeriodSeconds": 0}),
    )
}

/// Nodes full by native requests still take jobs up to what they lend, never more, and services are not held up.
fn jobs_run_on_what_is_lent_and_no_more(cluster: &Lending) {
    cluster.node("a", 20);
    cluster.report("a", 2_000, json!([]));
    let usual = cluster.place(&service("full", "8"), "a");
    for name in ["job-0", "job-1", "job-2"] {
        cluster.create(&job(name, "1k", ""));
    }
    let waiting = eventually("one job waits", SHORT, || {
        let jobs = ["job-0", "job-1", "job-2"].map(|name| (name, cluster.get(name)));
        let (bound, waiting): (Vec<_>, Vec<_>) = jobs
            .iter()
            .partition(|(_, pod)| pod["spec"]["nodeName"] == "a");
        match (&bound[..], &waiting[..]) {
            ([_, _], [(name, _)]) => Ok(*name),
            _ => Err(format!("{} are bound", bound.len())),
        }
    });
    cluster.waits(waiting, &format!("Insufficient {CPU}"));
    // An online pod that fits on another node goes there at once, whatever waits.
    create_all(&cluster.control_plane, 200, |index| {
        job(&format!("crowd-{index}"), "9k", "urgent")
    });
    cluster.node("b", 20);
    let took = cluster.place(&service("late", "4"), "b");
    assert!(
        took < usual + LATER,
        "the service waited {took:?}, the first one {usual:?}"
    );
    cluster.waits(waiting, &format!("Insufficient {CPU}"));
    cluster.lend("a", 3_000);
    cluster.bound(waiting, "a");
}

/// A reclaimed pod evicts only reclaimed pods of lower priority.
fn a_reclaimed_pod_evicts_only_reclaimed_pods(cluster: &Lending) {
    cluster.node("a", 1);
    cluster.node("b", 20);
    cluster.report("a", 2_000, json!([]));
    let mut web = service("web", "1");
    merge(
        &mut web["spec"],
        json!({"priorityClassName": "modest", "nodeSelector": {"kubernetes.io/hostname": "a"}}),
    );
    cluster.create(&web);
    cluster.bound("web", "a");
    cluster.report("b", 2_000, json!([]));
    for (name, class) in [("low", "modest"), ("equal", "urgent")] {
        cluster.create(&job(name, "1k", class));
        cluster.bound(name, "b");
    }
    cluster.create(&job("first", "1k", "urgent"));
    cluster.bound("first", "b");
    assert!(cluster.api.get(&pod_path("low")).is_err(), "low stayed");
    // Only pods that it may not touch are left.
    cluster.create(&job("second", "1k", "urgent"));
    cluster.waits("second", "preemption: 0/2 nodes are available");
    for name in ["web", "equal", "first"] {
        let pod = cluster.get(name);
        assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{name}");
    }
}

/// A QoS taint keeps jobs away, and services do not notice.
fn a_qos_taint_is_for_jobs_only(cluster: &Lending) {
    cluster.node("a", 20);
    let taint = json!([{"key": "unwell", "value": "", "effect": "NoScheduleForReclaimedTasks"}]);
    cluster.report("a", 4_000, taint);
    cluster.create(&job("job", "1k", ""));
    cluster.waits("job", "node(s) had untolerated QoS taint(s)");
    let mut brave = job("brave", "1k", "");
    brave["spec"]["tolerations"] = json!([{"key": "unwell", "operator": "Exists"}]);
    cluster.create(&brave);
    cluster.bound("brave", "a");
    cluster.create(&service("web", "1"));
    cluster.bound("web", "a");
    let cured = json!({"spec": {"taints": []}});
    let path = format!("{REPORTS}/a");
    cluster.api.patch(&path, &cured).unwrap();
    cluster.bound("job", "a");
}

fn stories(cluster: &Lending) {
    jobs_run_on_what_is_lent_and_no_more(cluster);
    cluster.empty();
    a_reclaimed_pod_evicts_only_reclaimed_pods(cluster);
    cluster.empty();
    a_qos_taint_is_for_jobs_only(cluster);
}

/// A cluster with our definition, empty.
fn with_ours(test: impl FnOnce(&mut Lending)) {
    SHARED.with(
        || Lending::start(&ours()),
        |cluster| {
            cluster.empty();
            test(cluster);
        },
    );
}

fn ours() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.join("deploy/crds").join(DEFINITION)
}

/// The file of Katalyst's own module.
fn katalysts() -> PathBuf {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle-katalyst");
    let go = |arguments: &[&str]| {
        let mut go = Command::new("go");
        go.args(arguments).current_dir(&module);
        let output = go.env("GOTOOLCHAIN", "local").output().unwrap();
        assert!(output.status.success(), "go {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let name = "github.com/kubewharf/katalyst-api";
    go(&["mod", "download", name]);
    let folder = go(&["list", "-m", "-f", "{{.Dir}}", name]);
    Path::new(folder.trim())
        .join("config/crd/bases")
        .join(DEFINITION)
}

#[test]
fn reclaimed_pods_with_our_definition() {
    with_ours(|cluster| stories(cluster));
}

#[test]
fn reclaimed_pods_with_katalysts_definition() {
    stories(&Lending::start(&katalysts()));
}

/// What the definition refuses before any scheduler sees it, and what it shows.
#[test]
fn our_definition_rejects_invalid_reports() {
    with_ours(|cluster| rejects_invalid_reports(cluster));
}

fn rejects_invalid_reports(cluster: &Lending) {
    cluster.report("n", 1_000, json!([]));
    for (case, path, patch, words) in [
        (
            "less than nothing",
            format!("{REPORTS}/n/status"),
            json!({"status": {"resources": {"allocatable": {CPU: "-1"}}}}),
            "amounts must not be negative",
        ),
        (
            "a taint without an effect",
            format!("{REPORTS}/n"),
            json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
            "a taint needs a qosLevel",
        ),
        (
            "an effect that is none",
            format!("{REPORTS}/n"),
            json!({"spec": {"taints": [{"key": "k", "effect": "Never", "qosLevel": "reclaimed_cores"}]}}),
            "Unsupported value: \"Never\"",
        ),
    ] {
        let error = cluster.api.patch(&path, &patch).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(words), "{case}: {error}");
    }
    let kubectl = cluster.control_plane.kubectl().unwrap();
    let run = kubectl.run(&["get", "kcnr", "n"], SHORT).unwrap();
    let head = run.stdout.lines().next().unwrap_or_default();
    assert!(
        head.starts_with("NAME   RECLAIMED-CPU   RECLAIMED-MEMORY"),
        "{run:?}"
    );
    // The current layout is shown before the older one, and both may have the names of Katalyst's first design.
    const OLD: &str = "katalyst.kubewharf.io/reclaimed_millicpu";
    for (status, shown) in [
        (json!({"resources": {"allocatable": {CPU: "3k"}}}), "3k"),
        (
            json!({"resources": {"allocatable": {CPU: null, OLD: "4k"}}}),
            "4k",
        ),
        (
            json!({"resources": null, "resourceAllocatable": {CPU: "5k"}}),
            "5k",
        ),
        (json!({"resourceAllocatable": {CPU: null, OLD: "6k"}}), "6k"),
        (json!({"resources": {"allocatable": {CPU: "7k"}}}), "7k"),
    ] {
        let patch = json!({"status": status});
        let path = format!("{REPORTS}/n/status");
        cluster.api.patch(&path, &patch).unwrap();
        let run = kubectl.run(&["get", "kcnr", "n", "--no-headers"], SHORT);
        let line = run.unwrap().stdout;
        assert_eq!(line.split_whitespace().nth(1), Some(shown), "{status}");
    }
}

/// What every node lent recently, with the time of the report. No decision uses older reports.
struct History(BTreeMap<String, VecDeque<(Instant, u32)>>);

impl History {
    /// A decision may be this old when its binding is seen: watches lag, and a new scheduler lists first.
    const LAG: Duration = Duration::from_secs(5);

    fn note(&mut self, node: &str, lent: u32) {
        let reports = self.0.entry(node.to_owned()).or_default();
        reports.push_back((Instant::now(), lent));
    }

    /// The most that a decision made after `since` can have seen.
    fn most(&self, node: &str, since: Instant) -> u32 {
        let reports = &self.0[node];
        let known = reports
            .iter()
            .rposition(|(at, _)| *at <= since)
            .unwrap_or(0);
        reports
            .range(known..)
            .map(|(_, lent)| *lent)
            .max()
            .unwrap_or(0)
    }
}

#[test]
fn reclaimed_capacity_stays_consistent_while_reports_change_and_schedulers_are_killed() {
    with_ours(stays_consistent);
}

fn stays_consistent(cluster: &mut Lending) {
    const NODES: usize = 100;
    const JOBS: usize = 1_000;
    const ROUNDS: u64 = 15;
    let mut history = History(BTreeMap::new());
    let name = |index: usize| format!("n{index}");
    for index in 0..NODES {
        cluster.node(&name(index), 110);
        history.note(&name(index), 4_000);
        cluster.report(&name(index), 4_000, json!([]));
    }
    create_all(&cluster.control_plane, JOBS, |index| {
        job(&format!("p{index}"), "1k", "")
    });
    let mut loads: BTreeMap<String, u32> = BTreeMap::new();
    let mut looked = Instant::now();
    for round in 0..ROUNDS {
        if round == ROUNDS / 3 || round == 2 * ROUNDS / 3 {
            cluster.ours.stop();
            cluster.ours = schedule(&cluster.control_plane, &format!("tidepool-{round}"));
        }
        let begun = Instant::now();
        for index in 0..NODES {
            // Between 1 and 8 jobs, up and down in no order that nodes share.
            let lent = 1_000 * (1 + (index as u64 * 7 + round * 5) % 8) as u32;
            history.note(&name(index), lent);
            cluster.lend(&name(index), lent);
        }
        looked = check(cluster, &history, &mut loads, looked);
        std::thread::sleep(Duration::from_secs(1).saturating_sub(begun.elapsed()));
    }
    let early: u32 = loads.values().sum();
    assert!(early > 0 && early < 1_000 * JOBS as u32, "{early}");
    for index in 0..NODES {
        history.note(&name(index), 11_000);
        cluster.lend(&name(index), 11_000);
    }
    eventually("every job is bound", LONG, || {
        looked = check(cluster, &history, &mut loads, looked);
        match loads.values().sum::<u32>() {
            sum if sum == 1_000 * JOBS as u32 => Ok(()),
            sum => Err(format!("{sum}: {}", cluster.ours.last_words())),
        }
    });
    eventually("the scheduler counts what is listed", SHORT, || {
        let counted = counted(&deployed::get(&cluster.ours, "/debug/cache")?);
        let listed = listed(&cluster.api);
        if counted == listed {
            Ok(())
        } else {
            Err(format!("counted {counted:?}\nlisted {listed:?}"))
        }
    });
}

/// The accounts of every node: what it lends, what is taken of that, and how many pods it has.
type Accounts = BTreeMap<String, (i64, i64, i64)>;

/// As `/debug/cache` has it.
fn counted(dump: &Value) -> Accounts {
    let nodes = dump["nodes"].as_array().unwrap();
    assert_eq!(dump["unknownNodes"], json!([]), "{dump}");
    nodes
        .iter()
        .map(|node| {
            let account = &node["reclaimed"];
            assert_eq!(node["assumed"], json!([]), "{node}");
            let lent = amount(&account["allocatable"]);
            let taken = amount(&account["requested"]);
            let pods = node["pods"].as_i64().unwrap();
            (text(&node["name"]), (lent, taken, pods))
        })
        .collect()
}

/// As the API server has it.
fn listed(api: &Api) -> Accounts {
    let mut accounts = Accounts::new();
    for report in api.list(REPORTS).unwrap() {
        let lent = amount(&report["status"]["resources"]["allocatable"]);
        accounts.insert(text(&report["metadata"]["name"]), (lent, 0, 0));
    }
    for pod in api.list(PODS).unwrap() {
        let account = accounts.get_mut(&text(&pod["spec"]["nodeName"])).unwrap();
        account.1 += amount(&pod["spec"]["containers"][0]["resources"]["requests"]);
        account.2 += 1;
    }
    accounts
}

fn amount(amounts: &Value) -> i64 {
    let quantity = engine::model::Quantity::parse(&text(&amounts[CPU]));
    quantity.unwrap().units()
}

/// What is bound since the last look was lent when it was decided. Returns when it looked.
fn check(
    cluster: &Lending,
    history: &History,
    loads: &mut BTreeMap<String, u32>,
    looked: Instant,
) -> Instant {
    let now = Instant::now();
    let mut found: BTreeMap<String, u32> = BTreeMap::new();
    for pod in cluster.api.list(PODS).unwrap() {
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            *found.entry(node.to_owned()).or_default() += 1_000;
        }
    }
    for (node, load) in &found {
        let before = loads.get(node).copied().unwrap_or(0);
        let lent = history.most(node, looked.checked_sub(History::LAG).unwrap_or(looked));
        assert!(
            *load == before || *load <= lent,
            "{node} had {before}, and got {load} when it lent {lent} at most"
        );
    }
    *loads = found;
    now
}
