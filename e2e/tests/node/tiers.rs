//! Mid and batch pods on the real kubelet, with the controllers, the scheduler and the agent as processes beside it.

use std::path::PathBuf;

use e2e::node::{HostNode, MachineState, options, pod};
use e2e::{Api, ControlPlane, Process, eventually};
use serde_json::{Value, json};

use crate::agent::{CNR, wait_for_taint};
use crate::killed::kill_now;
use crate::real_node::{LIMIT, wait_until_ready, wait_until_running};

const NODE: &str = "tiers";
const PODS: &str = "/api/v1/namespaces/default/pods";
const PROFILE: &str = concat!(
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
        let arguments = vec![
            "agent".to_owned(),
            kubeconfig.clone(),
            format!("--node-name={NODE}"),
            format!("--cgroup-root=/{}", node.cgroup_root()),
            format!("--state-dir={}", node.directory().join("state").display()),
            "--report-period=1s".to_owned(),
            "--lease-period=1s".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        let agent = control_plane.run("agent", &tidepool, &arguments).unwrap();
        let controllers = [
            "controllers".to_owned(),
            kubeconfig,
            // A second of a busy machine is short.
            "--agent-silent-after=8s".to_owned(),
            "--secure-port=0".to_owned(),
        ];
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
        let cnr = format!("{CNR}/{NODE}");
        wait_for_taint(&self.api, &cnr, "tidepool.io/agent-silent", true);
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
