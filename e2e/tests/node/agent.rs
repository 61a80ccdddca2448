//! The agent of `deploy/agent.yaml` as a pod of the real kubelet, and as a process that is killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use e2e::node::{HostNode, pod};
use e2e::{Api, ControlPlane, Process, eventually};
use serde_json::{Value, json};

use crate::panorama::{Row, add_tiers, rows};
use crate::real_node::{LIMIT, check_metrics, get, uid, wait_until_running};

pub(crate) const CNR: &str = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources";
const SETTINGS: &str = "/api/v1/namespaces/tidepool-system/configmaps";

/// The kinds, the namespace, and the permissions of the agent.
pub(crate) fn install(control_plane: &ControlPlane) {
    let deploy = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");
    let kubectl = control_plane.kubectl().unwrap();
    let files = [
        "crds",
        "namespace.yaml",
        "agent.yaml",
        "agent-node-taints.yaml",
    ];
    let mut arguments = vec!["apply".to_owned()];
    for file in files {
        arguments.extend(["-f".to_owned(), format!("{deploy}/{file}")]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let applied = kubectl.run(&arguments, LIMIT).unwrap();
    assert_eq!(applied.code, Some(0), "{applied:?}");
    let api = Api::new(&control_plane.admin()).unwrap();
    // The controller that publishes it does not run here.
    let certificate = control_plane.admin().certificate_authority_pem;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kube-root-ca.crt", "namespace": "tidepool-system"},
        "data": {"ca.crt": certificate},
    });
    api.create(&map).unwrap();
    eventually("the kind is served", LIMIT, || {
        api.get(CNR).map_err(|error| format!("{error:#}"))
    });
}

/// The pod that the DaemonSet would make. Differences to the manifest: the node has no network for pods, no service that leads to
/// the API server, and directories of its own.
fn agent_pod(control_plane: &ControlPlane, node: &HostNode) -> Value {
    let text = include_str!("../../../deploy/agent.yaml");
    let objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let set = objects
        .into_iter()
        .find(|it| it["kind"] == "DaemonSet")
        .unwrap();
    let mut pod = set["spec"]["template"].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("tidepool-agent");
    pod["metadata"]["namespace"] = json!("tidepool-system");
    let directory = node.directory();
    let spec = &mut pod["spec"];
    spec["nodeName"] = json!(node.name());
    spec["hostNetwork"] = json!(true);
    spec.as_object_mut().unwrap().remove("priorityClassName");
    for volume in spec["volumes"].as_array_mut().unwrap() {
        let path = match volume["name"].as_str().unwrap() {
            "state" => directory.join("agent-state"),
            "cpu-manager" => directory.join("kubelet/cpu_manager_state"),
            _ => continue,
        };
        volume["hostPath"]["path"] = json!(path);
    }
    // What admission adds to a pod with a service account.
    spec["volumes"].as_array_mut().unwrap().push(json!({"name": "token", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]}}));
    let container = &mut spec["containers"][0];
    let mount = json!({"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true});
    container["volumeMounts"]
        .as_array_mut()
        .unwrap()
        .push(mount);
    let url = control_plane.url();
    let port = url.rsplit(':').next().unwrap();
    let environment = container["env"].as_array_mut().unwrap();
    environment.push(json!({"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"}));
    environment.push(json!({"name": "KUBERNETES_SERVICE_PORT", "value": port}));
    let free = e2e::node::free_port().unwrap();
    let arguments = container["args"].as_array_mut().unwrap();
    arguments.retain(|it| !it.as_str().unwrap().starts_with("--secure-port"));
    arguments.push(json!(format!("--secure-port={free}")));
    arguments.push(json!(format!("--cgroup-root=/{}", node.cgroup_root())));
    arguments.push(json!("--report-period=2s"));
    arguments.push(json!("--detail-period=1s"));
    container["ports"][0]["containerPort"] = json!(free);
    pod
}

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

    fn is_v2() -> bool {
        Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
    }

    fn file(&self, group: &str, controller: &str, v1: &str, v2: &str) -> PathBuf {
        let root = Path::new("/sys/fs/cgroup");
        match Self::is_v2() {
            true => root.join(&self.root).join(group).join(v2),
            false => root.join(controller).join(&self.root).join(group).join(v1),
        }
    }

    fn read(&self, group: &str, controller: &str, v1: &str, v2: &str) -> Option<String> {
        let text = fs::read_to_string(self.file(group, controller, v1, v2)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Shares, quota and memory limit.
    fn values(&self, group: &str) -> Option<(u64, Option<u64>, Option<u64>)> {
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

    fn cpus(&self, group: &str) -> Option<String> {
        self.read(group, "cpuset", "cpuset.cpus", "cpuset.cpus")
    }

    /// CPU time in seconds.
    fn cpu_time(&self, group: &str) -> f64 {
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

/// The CPU time of all processes of the machine, in seconds.
fn machine_time() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let line = text.lines().next().unwrap();
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
fn measure(groups: &Groups, names: &[&str], time: Duration) -> (Vec<f64>, f64) {
    let read = || -> Vec<f64> { names.iter().map(|it| groups.cpu_time(it)).collect() };
    let (began, before, machine) = (Instant::now(), read(), machine_time());
    std::thread::sleep(time);
    let (after, machine) = (read(), machine_time() - machine);
    let seconds = began.elapsed().as_secs_f64();
    let used = before.iter().zip(&after).map(|(a, b)| (b - a) / seconds);
    (used.collect(), machine / seconds)
}

fn cpus() -> f64 {
    std::thread::available_parallelism().unwrap().get() as f64
}

/// A pod that burns CPU with so many processes while the file exists.
fn burner(node: &HostNode, name: &str, processes: usize, resources: Value) -> Value {
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

fn wake(node: &HostNode, name: &str) {
    fs::write(node.directory().join("go").join(name), "").unwrap();
}

fn calm(node: &HostNode, name: &str) {
    let _ = fs::remove_file(node.directory().join("go").join(name));
}

/// All proofs on the host, one after the other, on one node. The agent that it returns still runs.
pub(crate) fn prove(control_plane: &ControlPlane, node: &HostNode) -> LastAgent {
    let api = Api::new(&control_plane.admin()).unwrap();
    let tidepool = e2e::tidepool::binary().unwrap();
    node.add_tidepool(&tidepool).unwrap();
    add_tiers(&api, node.name());
    set_thresholds(&api, json!({}));
    // It burns CPU.
    api.delete_now(&format!(
        "/api/v1/namespaces/default/pods/besteffort-{}",
        node.name()
    ))
    .unwrap();
    let groups = Groups::new(node);
    let rows = rows();
    for row in &rows {
        row.create(&api, node.name());
    }
    api.create(&agent_pod(control_plane, node)).unwrap();
    for row in &rows {
        wait_until_running(&api, "default", &row.pod(node.name()));
    }
    wait_until_running(&api, "tidepool-system", "tidepool-agent");
    wait_until_lending(&api, node.name());
    check_rows(&api, node, &groups, &rows);
    cpu_goes_to_online_pods(&api, node, &groups);
    interference_taints(&api, node, &format!("{CNR}/{}", node.name()));
    tokens_are_bound_to_their_node(&api, control_plane, node);
    memory_pressure_evicts_in_order(&api, node);
    api.delete_now("/api/v1/namespaces/tidepool-system/pods/tidepool-agent")
        .unwrap();
    kill_agents(control_plane, &api, node, &groups, &tidepool)
}

/// Changes settings. CPU pressure evicts nothing here: the burners of the test would be gone after a minute.
fn set_thresholds(api: &Api, more: Value) {
    let mut strategy = json!({
        "cpuEvictTimeWindowSeconds": 3600,
        "interferencePeriodSeconds": 1,
        "interferencePeriods": 3,
    });
    for (key, value) in more.as_object().unwrap() {
        strategy[key] = value.clone();
    }
    let strategy = json!({"clusterStrategy": strategy}).to_string();
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "tidepool-colocation", "namespace": "tidepool-system"},
        "data": {"resource-threshold-config": strategy},
    });
    if api.create(&settings).is_err() {
        api.patch(&format!("{SETTINGS}/tidepool-colocation"), &settings)
            .unwrap();
    }
}

/// Waits until an object has a taint with this key, or has none.
pub(crate) fn wait_for_taint(api: &Api, path: &str, key: &str, is_wanted: bool) {
    eventually("the taint follows", LIMIT, || {
        let object = api.get(path).map_err(|error| format!("{error:#}"))?;
        let taints = object["spec"]["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let has = taints.iter().any(|it| it["key"] == key);
        let found = format!("{key}: {is_wanted} {}", object["spec"]);
        (has == is_wanted).then_some(()).ok_or(found)
    });
}

/// An online pod that waits for CPU taints the object; the taint goes when the pod waits no more.
fn interference_taints(api: &Api, node: &HostNode, path: &str) {
    wake(node, "online");
    wait_for_taint(api, path, "tidepool.io/interference", true);
    calm(node, "online");
    wait_for_taint(api, path, "tidepool.io/interference", false);
}

fn wait_until_lending(api: &Api, node: &str) {
    eventually("the node lends", LIMIT, || {
        let cnr = api
            .get(&format!("{CNR}/{node}"))
            .map_err(|error| format!("{error:#}"))?;
        let conditions = cnr["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let lends = conditions
            .iter()
            .any(|it| it["type"] == "Lending" && it["status"] == "True");
        lends.then_some(()).ok_or(cnr.to_string())
    });
}

/// (i), and the half of (f) that files show: a pod without marks keeps the kubelet's values.
fn check_rows(api: &Api, node: &HostNode, groups: &Groups, rows: &[Row]) {
    for row in rows {
        let group = row.group(&uid(api, &row.pod(node.name())));
        eventually("the pod has its values", LIMIT, || {
            let (shares, quota, memory) = groups.values(&group).ok_or("no group")?;
            let weight = |shares: u64| 1 + (shares - 2) * 9999 / 262_142;
            let want = match Groups::is_v2() {
                true => weight(row.shares),
                false => row.shares,
            };
            let found = format!("{}: {shares} {quota:?} {memory:?}", row.name);
            let is_right = (shares, quota, memory) == (want, row.quota, row.memory);
            is_right.then_some(()).ok_or(found)
        });
    }
}

/// (a) and (f): a reclaimed pod uses what is left; online and Mid+LS pods that wake get their CPU back within two seconds; a
/// BestEffort pod that is not the agent's keeps its CPU.
fn cpu_goes_to_online_pods(api: &Api, node: &HostNode, groups: &Groups) {
    let reclaimed = json!({
        "resource.katalyst.kubewharf.io/reclaimed_millicpu": "4000",
        "resource.katalyst.kubewharf.io/reclaimed_memory": "64Mi",
    });
    let mid = json!({"kubernetes.io/mid-cpu": "1000", "kubernetes.io/mid-memory": "64Mi"});
    let (mut requests, mut limits) = (mid.clone(), mid);
    for (amounts, cpu, memory) in [(&mut requests, "0", "0"), (&mut limits, "1", "64Mi")] {
        amounts["cpu"] = json!(cpu);
        amounts["memory"] = json!(memory);
    }
    let mid_ls = json!({"requests": requests, "limits": limits});
    let mut pods = [
        burner(
            node,
            "lent",
            4,
            json!({"requests": reclaimed, "limits": reclaimed}),
        ),
        burner(node, "online", 4, json!({"requests": {"cpu": "500m"}})),
        burner(node, "midls", 1, mid_ls),
        burner(node, "kube-proxy", 1, json!({})),
    ];
    pods[2]["metadata"]["labels"] =
        json!({"koordinator.sh/priority-class": "koord-mid", "koordinator.sh/qosClass": "LS"});
    for pod in &pods {
        api.create(pod).unwrap();
    }
    for pod in &pods {
        wait_until_running(api, "default", pod["metadata"]["name"].as_str().unwrap());
    }
    let group = |directory: &str, name: &str| format!("kubepods/{directory}/pod{}", uid(api, name));
    let lent = group("besteffort", "lent");
    let (online, midls) = (group("burstable", "online"), group("burstable", "midls"));
    let proxy = group("besteffort", "kube-proxy");

    wake(node, "lent");
    eventually(
        "the reclaimed pod uses what the threshold leaves",
        LIMIT,
        || {
            let names = [&*lent, "kubepods", "kubepods/besteffort"];
            let (used, machine) = measure(groups, &names, Duration::from_secs(3));
            let (lent, others) = (used[0], machine - used[2]);
            let left = 0.65 * cpus() - others;
            let found = format!("it uses {lent:.2} of {left:.2} cores, others {others:.2}");
            (lent >= 0.9 * left && lent > 0.05)
                .then_some(())
                .ok_or(found)
        },
    );

    for (name, group, wants) in [("online", &online, cpus()), ("midls", &midls, 1.0)] {
        let mut found = Vec::new();
        // Another process of the machine may disturb one measurement.
        let has_its_cpu = (0..5).any(|_| {
            wake(node, name);
            std::thread::sleep(Duration::from_secs(2));
            let (used, machine) = measure(groups, &[group, &lent], Duration::from_secs(2));
            calm(node, name);
            let rest = machine - used[0] - used[1];
            let possible = wants.min(cpus() - rest);
            found.push(format!(
                "{:.2} of {possible:.2} cores, lent {:.2}",
                used[0], used[1]
            ));
            used[0] >= 0.9 * possible
        });
        assert!(has_its_cpu, "{name}: {found:?}");
    }

    // While an online pod needs all CPUs, reclaimed pods are confined to one; the other BestEffort pod is not.
    wake(node, "online");
    wake(node, "kube-proxy");
    eventually("the reclaimed pod is confined to one CPU", LIMIT, || {
        let set = groups.cpus(&lent).unwrap_or_default();
        (set.parse::<u32>().is_ok()).then_some(()).ok_or(set)
    });
    let all = groups.cpus("kubepods");
    assert_eq!(groups.cpus(&proxy), all);
    assert_eq!(groups.cpus("kubepods/besteffort"), all);
    let (_, quota, _) = groups.values("kubepods/besteffort").unwrap();
    assert_eq!(quota, None);
    calm(node, "online");
    let (used, _) = measure(groups, &[&proxy, &lent], Duration::from_secs(3));
    // One process against four of the same weight: half of what the two get, or a whole CPU.
    let fair = 0.4 * (used[0] + used[1]);
    assert!(
        used[0] >= fair.min(0.9),
        "kube-proxy uses {:.2}, lent {:.2} cores",
        used[0],
        used[1]
    );
    for name in ["lent", "kube-proxy"] {
        calm(node, name);
    }
}

/// The token of this node's agent may write only the objects of its node.
fn tokens_are_bound_to_their_node(api: &Api, control_plane: &ControlPlane, node: &HostNode) {
    let agent = api
        .get("/api/v1/namespaces/tidepool-system/pods/tidepool-agent")
        .unwrap();
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"boundObjectRef": {
            "apiVersion": "v1", "kind": "Pod", "name": "tidepool-agent", "uid": agent["metadata"]["uid"],
        }},
    });
    let path = "/api/v1/namespaces/tidepool-system/serviceaccounts/tidepool-agent/token";
    let token = api.post(path, &request).unwrap();
    let mut user = control_plane.admin();
    user.token = token["status"]["token"].as_str().unwrap().to_owned();
    let own = Api::new(&user).unwrap();
    let cnr = |name: &str| {
        json!({
            "apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource", "metadata": {"name": name},
        })
    };
    let refused = own.post(CNR, &cnr("other")).unwrap_err();
    let refused = format!("{refused:#}");
    assert!(
        refused.contains("may not write customnoderesources other"),
        "{refused}"
    );
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "agent-other", "namespace": "tidepool-system"},
    });
    let refused = format!("{:#}", own.create(&lease).unwrap_err());
    assert!(
        refused.contains("may not write leases agent-other"),
        "{refused}"
    );
    let taints = json!({"spec": {"taints": [{"key": "a/b", "effect": "NoSchedule"}]}});
    let path = format!("/api/v1/nodes/{}", node.name());
    let refused = format!("{:#}", own.patch(&path, &taints).unwrap_err());
    assert!(refused.contains("only its own taints"), "{refused}");
}

/// (c): with a threshold below the present use, own pods go in the order of their classes, and no other pod does.
fn memory_pressure_evicts_in_order(api: &Api, node: &HostNode) {
    for name in ["lent", "midls"] {
        let _ = api.delete_now(&format!("/api/v1/namespaces/default/pods/{name}"));
    }
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let size = |key: &str| -> f64 {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let used = 100.0 * (1.0 - size("MemAvailable:") / size("MemTotal:"));
    let threshold = (used as i64 / 2).max(2);
    set_thresholds(
        api,
        json!({
            "memoryEvictThresholdPercent": threshold,
            "memoryEvictLowerPercent": threshold - 1,
        }),
    );
    let name = |row: &str| format!("{row}-{}", node.name());
    let own = ["free", "batch", "reclaimed", "mid-ls", "mid-be"].map(name);
    let mut gone = eventually("all own pods are evicted", LIMIT, || {
        let gone = evicted(node);
        (gone.len() >= own.len())
            .then_some(gone.clone())
            .ok_or(format!("{gone:?}"))
    });
    // Batch and reclaimed pods are one class.
    gone[1..3].sort();
    assert_eq!(gone, own);
    let cnr = format!("{CNR}/{}", node.name());
    wait_for_taint(api, &cnr, "tidepool.io/pressure", true);
    for name in ["ls-burstable", "plain", "lse"].map(name) {
        let pod = api
            .get(&format!("/api/v1/namespaces/default/pods/{name}"))
            .unwrap();
        assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{name}");
    }
    set_thresholds(api, json!({}));
    wait_for_taint(api, &cnr, "tidepool.io/pressure", false);
}

/// The pods that the agent evicted, in the order of its log.
fn evicted(node: &HostNode) -> Vec<String> {
    let logs = fs::read_dir(node.directory().join("logs"))
        .unwrap()
        .flatten();
    let mut logs = logs
        .map(|it| it.path())
        .filter(|it| it.display().to_string().contains("tidepool-agent"));
    let Some(log) = logs.next() else {
        return Vec::new();
    };
    let text = fs::read_to_string(log.join("agent/0.log")).unwrap_or_default();
    let lines = text.lines().filter(|line| line.contains("evicted pod"));
    let names = lines.filter_map(|line| {
        let (_, rest) = line.split_once("pod=")?;
        let name = rest.trim_start_matches(['\\', '"']);
        Some(name.split(['"', '\\', ' ']).next()?.to_owned())
    });
    names.collect()
}

/// The agent that runs after others were killed, traced.
pub(crate) struct LastAgent {
    process: Process,
    address: String,
    arguments: Vec<String>,
    trace: PathBuf,
    state: PathBuf,
    /// Of an own pod, and the values that the kubelet gave it.
    group: String,
    original: (u64, Option<u64>, Option<u64>),
}

/// (e): an agent that is killed at any time leaves whole settings one period after its restart.
fn kill_agents(
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
    wait_until_running(api, "default", "batch");
    let group = format!("kubepods/besteffort/pod{}", uid(api, "batch"));
    let original = groups.values(&group).unwrap();
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
    let is_full = std::env::var_os("TIDEPOOL_FULL").is_some();
    let kills = if is_full { 40 } else { 4 };
    for kill in 0..kills {
        let agent = control_plane.run("killed-agent", tidepool, &arguments);
        // Spread over the first second, in which an agent writes.
        std::thread::sleep(Duration::from_millis(100 + 230 * kill % 1000));
        kill_now(&mut agent.unwrap());
    }
    // As if the last one was killed between two writes.
    fs::write(groups.file(&group, "cpu", "cpu.shares", "cpu.weight"), "2").unwrap();
    let trace = node.directory().join("strace");
    let process = start_traced(control_plane, tidepool, &arguments, &trace);
    let shares = if Groups::is_v2() { 28 } else { 716 };
    let wanted = (shares, Some(70_000), Some(90 << 20));
    eventually("the settings are whole", LIMIT, || {
        let found = groups.values(&group);
        let log = process.log();
        (found == Some(wanted))
            .then_some(())
            .ok_or(format!("{found:?} {log}"))
    });
    let address = eventually("the agent serves", LIMIT, || {
        let log = process.log();
        let (_, rest) = log.rsplit_once("serving on http://").ok_or(log.clone())?;
        let address = rest.split_whitespace().next().unwrap_or_default();
        Ok(address.trim_matches('"').to_owned())
    });
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
        group,
        original,
    }
}

impl LastAgent {
    /// Writes of cgroup files since its start. Cpusets do not count: they follow the load of the machine.
    pub(crate) fn written(&self) -> usize {
        let trace = fs::read_to_string(&self.trace).unwrap();
        let is_write = |line: &&str| line.contains("openat2(") && line.contains("O_WRONLY");
        let writes = trace.lines().filter(is_write);
        writes.filter(|line| !line.contains("cpuset.cpus")).count()
    }

    /// Ends it; `--restore` then gives all files the values that the kubelet gave them.
    pub(crate) fn finish(mut self, control_plane: &ControlPlane, node: &HostNode) {
        let metrics = get(&self.address, "/metrics");
        let no_conflict = "tidepool_agent_condition{type=\"CgroupConflict\"} 0.0";
        assert!(metrics.contains(no_conflict), "{metrics}");
        let strace = self.process.id();
        let children =
            fs::read_to_string(format!("/proc/{strace}/task/{strace}/children")).unwrap();
        let killed = std::process::Command::new("kill")
            .arg(children.trim())
            .status();
        assert!(killed.unwrap().success());
        eventually("the agent has ended", LIMIT, || {
            match self.process.ended() {
                Ok(Some(status)) if status.success() => Ok(()),
                other => Err(format!("{other:?}: {}", self.process.log())),
            }
        });
        check_trace(&fs::read_to_string(&self.trace).unwrap(), node, &self.state);
        let mut restore = self.arguments.clone();
        restore.push("--restore".to_owned());
        let tidepool = e2e::tidepool::binary().unwrap();
        let mut restored = control_plane.run("restore", &tidepool, &restore).unwrap();
        eventually("the settings are restored", LIMIT, || {
            match restored.ended() {
                Ok(Some(status)) if status.success() => Ok(()),
                other => Err(format!("{other:?}: {}", restored.log())),
            }
        });
        assert_eq!(Groups::new(node).values(&self.group), Some(self.original));
    }
}

fn start_traced(
    control_plane: &ControlPlane,
    tidepool: &Path,
    arguments: &[String],
    trace: &Path,
) -> Process {
    let strace = Path::new("/usr/bin/strace");
    let mut all: Vec<String> = ["-f", "-y", "-e", "trace=%file", "-o"]
        .map(str::to_owned)
        .to_vec();
    all.push(trace.display().to_string());
    all.push(tidepool.display().to_string());
    all.extend_from_slice(arguments);
    control_plane.run("last-agent", strace, &all).unwrap()
}

/// (g): all files that the agent opened for writing are its state, or below the pods of this node, by a path that cannot leave
/// them.
fn check_trace(trace: &str, node: &HostNode, state: &Path) {
    let changes = [
        "O_WRONLY", "O_RDWR", "O_CREAT", "mkdir(", "unlink", "rename", "symlink", "link(",
    ];
    let is_change = |line: &&str| {
        changes.iter().any(|it| line.contains(it))
            && !line.contains("readlink")
            && !line.contains(" = -1 ")
    };
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
