//! Mid and batch pods on the real kubelet, with the controllers, the scheduler and the agent as processes beside it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use e2e::node::{HostNode, MachineState, options, pod};
use e2e::{Api, ControlPlane, Process, eventually};
use serde_json::{Value, json};

use crate::agent::{CNR, wait_for_taint};
use crate::groups::{burner, cpus, wake};
use crate::killed::{is_full, kill_now};
use crate::real_node::{LIMIT, uid, wait_until_ready, wait_until_running};

const NODE: &str = "tiers";
const COOL_NODE: &str = "cool-001";
const PODS: &str = "/api/v1/namespaces/default/pods";
const METRICS: &str = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics";
/// Pods that burn CPU until they are moved.
const BURNERS: [&str; 2] = ["burner-a", "burner-b"];
/// The high mark of a node's CPU, in percent.
const HIGH_MARK: f64 = 75.0;
pub(crate) const PROFILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../crates/tidepool/src/up/default-profile.yaml"
);

/// The node and what runs beside it.
struct TierNode {
    // Ended in this order.
    _scheduler: Process,
    _controllers: Process,
    agent: Process,
    arguments: Vec<String>,
    node: HostNode,
    api: Api,
    control_plane: ControlPlane,
    tidepool: PathBuf,
}

#[test]
fn tiers_on_a_real_node_never_fail_running_pods_and_follow_the_agent() {
    let _alone = crate::alone();
    let before = MachineState::read().unwrap();
    let mut tiers = TierNode::start();
    tiers.run("mid", &amounts("mid", 200, 48), "koord-mid");
    tiers.run("batch", &amounts("batch", 100, 64), "koord-batch");
    tiers.services_take_all_that_was_lent();
    tiers.a_new_kubelet_keeps_all_pods();
    tiers.no_other_pod_fits();
    tiers.a_silent_agent_taints_its_node();
    tiers.a_hot_node_is_relieved();
    tiers.stop();
    assert_eq!(MachineState::read().unwrap(), before);
}

fn amounts(tier: &str, milli_cpu: u32, mebibytes: u32) -> Value {
    json!({
        format!("kubernetes.io/{tier}-cpu"): milli_cpu.to_string(),
        format!("kubernetes.io/{tier}-memory"): format!("{mebibytes}Mi"),
    })
}

/// A pod that the scheduler places.
fn unplaced(name: &str, amounts: &Value) -> Value {
    let resources = json!({"requests": amounts, "limits": amounts});
    let mut pod = pod(NODE, name, "sleep 100000", resources);
    pod["spec"].as_object_mut().unwrap().remove("nodeName");
    pod
}

impl TierNode {
    fn start() -> Self {
        let control_plane = ControlPlane::start(options(&[NODE])).unwrap();
        crate::agent::install(&control_plane);
        let api = Api::new(&control_plane.admin()).unwrap();
        // Other processes of the machine take little from the node, and the requests of services count even if they use less.
        let strategy = json!({
            "enable": true, "lend": "batch", "cpuReclaimThresholdPercent": 100,
            "cpuCalculatePolicy": "maxUsageRequest", "memoryCalculatePolicy": "request",
        });
        let settings = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "tidepool-colocation", "namespace": "tidepool-system"},
            "data": {"colocation-config": strategy.to_string()},
        });
        api.create(&settings).unwrap();
        let node = HostNode::start(&control_plane, NODE).unwrap();
        wait_until_ready(&api, NODE);
        let tidepool = e2e::tidepool::binary().unwrap();
        let kubeconfig = control_plane.kubeconfig_file("admin").unwrap();
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let mut arguments = vec![
            "agent".to_owned(),
            kubeconfig.clone(),
            format!("--node-name={NODE}"),
            format!("--cgroup-root=/{}", node.cgroup_root()),
            format!("--state-dir={}", node.directory().join("state").display()),
            "--report-period=1s".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        let mut controllers = vec![
            "controllers".to_owned(),
            kubeconfig,
            // The load of a test that starts everything at once is no reason to move pods.
            "--controllers=*,-hot-spots".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        if !is_full() {
            arguments.push("--lease-period=1s".to_owned());
            controllers.push("--agent-silent-after=5s".to_owned());
        }
        let agent = control_plane.run("agent", &tidepool, &arguments).unwrap();
        let controllers = control_plane.run("controllers", &tidepool, &controllers);
        let config = format!("--config={PROFILE}");
        let flags = ["--mode=primary", &config, "--secure-port=0"];
        let scheduler = control_plane.tidepool("scheduler", &control_plane.admin(), &flags);
        Self {
            _scheduler: scheduler.unwrap(),
            _controllers: controllers.unwrap(),
            agent,
            arguments,
            node,
            api,
            control_plane,
            tidepool,
        }
    }

    /// A command of the binary, with the permissions of an administrator.
    fn run_command(&self, command: &str, flags: &[&str]) -> Process {
        let kubeconfig = self.control_plane.kubeconfig_file("admin").unwrap();
        let mut arguments = vec![
            command.to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--secure-port=0".to_owned(),
        ];
        arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
        let name = format!("tiers-{command}");
        let process = self.control_plane.run(&name, &self.tidepool, &arguments);
        process.unwrap()
    }

    fn run(&self, name: &str, amounts: &Value, class: &str) {
        self.create(name, amounts, class);
        wait_until_running(&self.api, "default", name);
    }

    fn create(&self, name: &str, amounts: &Value, class: &str) {
        let mut pod = unplaced(name, amounts);
        pod["metadata"]["labels"] =
            json!({"koordinator.sh/priority-class": class, "koordinator.sh/qosClass": "BE"});
        self.api.create(&pod).unwrap();
    }

    fn node_status(&self) -> Result<Value, String> {
        let node = self.api.get(&format!("/api/v1/nodes/{NODE}"));
        Ok(node.map_err(|error| format!("{error:#}"))?["status"].clone())
    }

    /// A service that requests the whole node: the formulas give 0, and the bound pods keep what they have.
    fn services_take_all_that_was_lent(&self) {
        let status = self.node_status().unwrap();
        let whole =
            json!({"cpu": status["allocatable"]["cpu"], "memory": status["allocatable"]["memory"]});
        let mut service = unplaced("service", &whole);
        service["metadata"]["labels"] =
            json!({"koordinator.sh/priority-class": "koord-prod", "koordinator.sh/qosClass": "LS"});
        self.api.create(&service).unwrap();
        wait_until_running(&self.api, "default", "service");
        self.wait_until_only_bound_is_published();
    }

    fn wait_until_only_bound_is_published(&self) {
        eventually("only what is bound is published", LIMIT, || {
            let status = self.node_status()?;
            let is_bound =
                [("mid", 200, 48), ("batch", 100, 64)]
                    .into_iter()
                    .all(|(tier, cpu, mebibytes)| {
                        let memory = (mebibytes << 20).to_string();
                        let amounts = [("cpu", cpu.to_string()), ("memory", memory)];
                        amounts.into_iter().all(|(name, want)| {
                            let name = format!("kubernetes.io/{tier}-{name}");
                            ["capacity", "allocatable"]
                                .iter()
                                .all(|part| is_amount(&status[part][&name], &want))
                        })
                    });
            is_bound
                .then_some(())
                .ok_or_else(|| status["allocatable"].to_string())
        });
    }

    fn a_new_kubelet_keeps_all_pods(&mut self) {
        let before = self.containers();
        assert_eq!(before.len(), 3, "{before:?}");
        self.node.restart_kubelet().unwrap();
        eventually("the new kubelet has seen the pods", LIMIT, || {
            let log = self.node.kubelet_log();
            let starts = log.matches("Started kubelet").count();
            (starts >= 2).then_some(()).ok_or(log)
        });
        // The kubelet has admitted the pods again when it runs a new one.
        let plain = pod(NODE, "plain", "sleep 100000", json!({}));
        self.api.create(&plain).unwrap();
        wait_until_running(&self.api, "default", "plain");
        self.api.delete_now(&format!("{PODS}/plain")).unwrap();
        eventually("the plain pod is gone", LIMIT, || {
            let now = self.containers();
            (now == before)
                .then_some(())
                .ok_or(format!("{now:?}, before {before:?}"))
        });
        self.wait_until_only_bound_is_published();
    }

    /// Name and container of each pod; all of them run.
    fn containers(&self) -> Vec<(String, String)> {
        let pods = self.api.list(PODS).unwrap();
        let pods = pods.iter().map(|pod| {
            assert_eq!(pod["status"]["phase"], "Running", "{}", pod["status"]);
            let id = &pod["status"]["containerStatuses"][0]["containerID"];
            (pod["metadata"]["name"].to_string(), id.to_string())
        });
        pods.collect()
    }

    fn no_other_pod_fits(&self) {
        for (tier, class) in [("mid", "koord-mid"), ("batch", "koord-batch")] {
            let name = format!("another-{tier}");
            self.create(&name, &amounts(tier, 100, 16), class);
            self.wait_until_refused(&name, &format!("Insufficient kubernetes.io/{tier}-cpu"));
        }
    }

    fn wait_until_refused(&self, name: &str, text: &str) {
        let path = format!("{PODS}/{name}");
        eventually("the pod is refused", LIMIT, || {
            let pod = self.api.get(&path).map_err(|error| format!("{error:#}"))?;
            assert!(pod["spec"]["nodeName"].is_null(), "{pod}");
            let condition = pod["status"]["conditions"][0]["message"].as_str();
            let condition = condition.unwrap_or_default();
            let is_refused = condition.contains(text);
            is_refused
                .then_some(())
                .ok_or_else(|| format!("{name}: {condition}"))
        });
    }

    /// While the agent is killed, a service is still placed there and a reclaimed pod is not.
    fn a_silent_agent_taints_its_node(&mut self) {
        self.api.delete_now(&format!("{PODS}/service")).unwrap();
        kill_now(&mut self.agent);
        let killed = Instant::now();
        let cnr = format!("{CNR}/{NODE}");
        wait_for_taint(&self.api, &cnr, "tidepool.io/agent-silent", true);
        let (taken, bound) = (killed.elapsed(), if is_full() { 100 } else { 8 });
        assert!(
            taken <= Duration::from_secs(bound),
            "tainted after {taken:?}"
        );
        // It requests nothing, so only the taint is in its way.
        let mut reclaimed = unplaced("reclaimed", &json!({}));
        reclaimed["metadata"]["annotations"] =
            json!({"katalyst.kubewharf.io/qos_level": "reclaimed_cores"});
        self.api.create(&reclaimed).unwrap();
        self.wait_until_refused("reclaimed", "untolerated QoS taint");
        let small = json!({"cpu": "100m", "memory": "16Mi"});
        self.api.create(&unplaced("small", &small)).unwrap();
        wait_until_running(&self.api, "default", "small");

        let agent = self
            .control_plane
            .run("agent-again", &self.tidepool, &self.arguments);
        self.agent = agent.unwrap();
        wait_for_taint(&self.api, &cnr, "tidepool.io/agent-silent", false);
        wait_until_running(&self.api, "default", "reclaimed");
    }

    /// Batch pods leave the node while a service needs its CPU. The test creates them again, as a workload does.
    fn a_hot_node_is_relieved(&mut self) {
        for name in ["another-mid", "another-batch", "reclaimed", "small"] {
            self.api.delete_now(&format!("{PODS}/{name}")).unwrap();
        }
        // The agent would confine the pods, or evict them, before the node is hot.
        let thresholds = json!({"clusterStrategy": {
            "cpuSuppressThresholdPercent": 95, "cpuEvictTimeWindowSeconds": 3600, "interferencePressurePercent": 100,
        }});
        let settings = json!({"data": {"resource-threshold-config": thresholds.to_string()}});
        let path = "/api/v1/namespaces/tidepool-system/configmaps/tidepool-colocation";
        self.api.patch(path, &settings).unwrap();
        for name in BURNERS {
            self.api.create(&self.burner(name)).unwrap();
            wait_until_running(&self.api, "default", name);
        }
        let cpu = json!(format!("{}m", 300.0 * cpus()));
        let resources = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": cpu}});
        let service = burner(&self.node, "busy-service", cpus() as usize, resources);
        self.api.create(&service).unwrap();
        wait_until_running(&self.api, "default", "busy-service");
        for name in ["busy-service", BURNERS[0], BURNERS[1]] {
            wake(&self.node, name);
        }
        let _nodes = self.add_cool_node();
        self.wait_for_load("the node is hot", |percent| percent > HIGH_MARK);

        let flags = [
            "--controllers=hot-spots",
            "--leader-elect=false",
            "--hot-spot-interval=1s",
            "--hot-spot-rounds=3",
            "--hot-spot-workload-pause=1s",
        ];
        let controllers = self.run_command("controllers", &flags);
        eventually("the pods are moved", LIMIT, || {
            for name in BURNERS {
                if self.api.get(&format!("{PODS}/{name}")).is_err() {
                    self.api.create(&self.burner(name)).unwrap();
                }
            }
            let nodes = BURNERS.map(|name| self.node_of(name));
            let is_moved = nodes.iter().all(|it| it == COOL_NODE);
            is_moved
                .then_some(())
                .ok_or_else(|| format!("{nodes:?} {}", controllers.last_words()))
        });
        self.wait_for_load("the node is below its mark", |percent| percent < HIGH_MARK);
        let uids = BURNERS.map(|name| uid(&self.api, name));
        // Time in which a controller that does not stop moves more.
        std::thread::sleep(Duration::from_secs(6));
        assert_eq!(BURNERS.map(|name| uid(&self.api, name)), uids);
        assert_eq!(self.node_of("batch"), NODE);
        self.check_events();
    }

    /// A batch pod that burns CPU. It has no limit: it uses what the agent leaves it.
    fn burner(&self, name: &str) -> Value {
        let amounts =
            json!({"kubernetes.io/batch-cpu": "50", "kubernetes.io/batch-memory": "16Mi"});
        let resources = json!({"requests": amounts});
        let mut pod = burner(&self.node, name, cpus() as usize, resources);
        pod["spec"].as_object_mut().unwrap().remove("nodeName");
        pod["metadata"]["labels"] = json!({"koordinator.sh/priority-class": "koord-batch", "koordinator.sh/qosClass": "BE"});
        // A pod that nothing creates again is never moved.
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": true,
        }]);
        pod
    }

    fn node_of(&self, pod: &str) -> String {
        let pod = self.api.get(&format!("{PODS}/{pod}")).unwrap_or_default();
        pod["spec"]["nodeName"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// A simulated node that uses nothing.
    fn add_cool_node(&self) -> Process {
        let cpu = format!("--cpu={}", 8.0 * cpus());
        let nodes = self.run_command("nodes", &["--nodes=1", "--name-prefix=cool", &cpu]);
        wait_until_ready(&self.api, COOL_NODE);
        let metric = json!({
            "apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": COOL_NODE}, "spec": {},
        });
        self.api.post(METRICS, &metric).unwrap();
        let usage = json!({"resources": {"cpu": "100m", "memory": "1Gi"}});
        let status = json!({"status": {
            "updateTime": jiff::Timestamp::now().to_string(),
            "nodeMetric": {"nodeUsage": usage, "systemUsage": usage},
        }});
        let path = format!("{METRICS}/{COOL_NODE}/status");
        self.api.patch(&path, &status).unwrap();
        nodes
    }

    /// Waits until what the agent reports of the node's CPU is so in five reports.
    fn wait_for_load(&self, what: &str, is_wanted: impl Fn(f64) -> bool) {
        let mut reports = BTreeSet::new();
        eventually(what, LIMIT, || {
            let metric = self.api.get(&format!("{METRICS}/{NODE}"));
            let status = metric.map_err(|error| format!("{error:#}"))?["status"].clone();
            let used = &status["nodeMetric"]["nodeUsage"]["resources"]["cpu"];
            let used = used
                .as_str()
                .and_then(|it| it.strip_suffix('m')?.parse::<f64>().ok());
            let percent = used.ok_or_else(|| status.to_string())? / 10.0 / cpus();
            if !is_wanted(percent) {
                reports.clear();
            } else {
                reports.insert(status["updateTime"].to_string());
            }
            (reports.len() >= 5)
                .then_some(())
                .ok_or_else(|| format!("the node uses {percent}%"))
        });
    }

    /// Each burner has one event, with the figures; other pods have none.
    fn check_events(&self) {
        let events = self.api.list("/api/v1/namespaces/default/events").unwrap();
        let mut events: Vec<&Value> = events
            .iter()
            .filter(|it| it["reason"] == "HotSpot")
            .collect();
        events.sort_by_key(|it| it["involvedObject"]["name"].to_string());
        let names: Vec<&str> = events
            .iter()
            .filter_map(|it| it["involvedObject"]["name"].as_str())
            .collect();
        assert_eq!(names, BURNERS, "{events:#?}");
        for event in events {
            assert_ne!(event["count"], 2, "{event}");
            let message = event["message"].as_str().unwrap();
            for words in [
                format!("node {NODE} uses"),
                format!("the scheduler would place it on node {COOL_NODE}"),
            ] {
                assert!(message.contains(&words), "{message}");
            }
        }
    }

    fn stop(mut self) {
        self.agent.stop();
        self.node.stop().unwrap();
    }
}

/// Whether a quantity of the API is this number; `1Mi` and `1048576` are.
fn is_amount(found: &Value, want: &str) -> bool {
    let Some(found) = found.as_str() else {
        return false;
    };
    let number = |text: &str| -> Option<u64> {
        let units = [("Ki", 10), ("Mi", 20), ("Gi", 30)];
        let unit = units.iter().find(|(unit, _)| text.ends_with(unit));
        match unit {
            Some((unit, shift)) => Some(text.strip_suffix(unit)?.parse::<u64>().ok()? << shift),
            None => text.parse().ok(),
        }
    };
    number(found).is_some() && number(found) == number(want)
}
