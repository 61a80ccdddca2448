//! The agent of `deploy/agent.yaml` as a pod of the real kubelet.

use std::fs;
use std::time::{Duration, Instant};

use e2e::node::{HostNode, pod};
use e2e::{Api, ControlPlane, eventually};
use serde_json::{Value, json};

use crate::cpu::cpu_goes_to_online_pods;
use crate::groups::{Groups, calm, wake};
use crate::killed::{LastAgent, kill_agents};
use crate::panorama::add_tiers;
use crate::real_node::{LIMIT, uid, wait_until_running};
use crate::trust::{
    an_absurd_request_concerns_its_pod_only, pods_do_not_reach_the_groups_of_others,
};
use crate::users::Users;

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
        // The kubelet replaces its files, and a mounted file would stay the first one.
        let is_file = |path: &Value| !path["type"].as_str().unwrap().starts_with("Directory");
        assert!(!volume.get("hostPath").is_some_and(is_file), "{volume}");
        let path = match volume["name"].as_str().unwrap() {
            "state" => directory.join("agent-state"),
            "kubelet" => directory.join("kubelet"),
            "pod-logs" => directory.join("logs"),
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
    let mounts = container["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().all(|it| it.get("subPath").is_none()));
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

/// All proofs on the host, one after the other, on one node. The agent that it returns still runs.
pub(crate) fn prove(control_plane: &ControlPlane, users: &Users, node: &HostNode) -> LastAgent {
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
    // What a busy machine lends may be less than the pods of the panorama request.
    let least = json!({"minReclaimedResourceForReport": {"cpu": "2", "memory": "1Gi"}});
    lend_at_least(&api, json!(least.to_string()));
    api.create(&agent_pod(control_plane, node)).unwrap();
    wait_until_running(&api, "tidepool-system", "tidepool-agent");
    wait_until_lending(&api, node.name());
    let rows = users.prove(control_plane, node, &groups);
    lend_at_least(&api, Value::Null);
    new_pods_have_their_values_in_time(&api, node, &groups);
    pods_do_not_reach_the_groups_of_others(&api, node, &groups, &rows);
    an_absurd_request_concerns_its_pod_only(&api, node, &groups, &rows);
    cpu_goes_to_online_pods(&api, node, &groups);
    interference_taints(&api, node, &format!("{CNR}/{}", node.name()));
    tokens_are_bound_to_their_node(&api, control_plane, node);
    unsatisfied_pods_are_evicted(&api, node);
    memory_pressure_evicts_in_order(&api, node);
    api.delete_now("/api/v1/namespaces/tidepool-system/pods/tidepool-agent")
        .unwrap();
    kill_agents(control_plane, &api, node, &groups, &tidepool)
}

/// Changes settings. CPU pressure evicts nothing here: the burners of the test would be gone after a minute.
pub(crate) fn set_thresholds(api: &Api, more: Value) {
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

fn lend_at_least(api: &Api, settings: Value) {
    let settings = json!({"data": {"reclaimed-resource-config": settings}});
    api.patch(&format!("{SETTINGS}/tidepool-colocation"), &settings)
        .unwrap();
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
pub(crate) fn interference_taints(api: &Api, node: &HostNode, path: &str) {
    wake(node, "online");
    wait_for_taint(api, path, "tidepool.io/interference", true);
    calm(node, "online");
    wait_for_taint(api, path, "tidepool.io/interference", false);
}

pub(crate) fn wait_until_lending(api: &Api, node: &str) {
    eventually("the node lends", LIMIT, || is_lending(api, node));
}

/// Else what its report says.
pub(crate) fn is_lending(api: &Api, node: &str) -> Result<(), String> {
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
}

/// The values of a pod are there within a second of its first container, the sandbox.
fn new_pods_have_their_values_in_time(api: &Api, node: &HostNode, groups: &Groups) {
    let amounts = json!({"kubernetes.io/batch-cpu": "600", "kubernetes.io/batch-memory": "70Mi"});
    let resources = json!({"requests": amounts, "limits": amounts});
    // Another process of the machine may delay one of them.
    let taken: Vec<Duration> = (0..3)
        .map(|number| {
            let name = format!("new-{number}");
            let object = pod(node.name(), &name, "sleep 100000", resources.clone());
            let object = api.create(&object).unwrap();
            let uid = object["metadata"]["uid"].as_str().unwrap();
            let group = format!("kubepods/besteffort/pod{uid}");
            wait_often("the pod has a container", || groups.has_children(&group));
            let began = Instant::now();
            wait_often("the pod has its values", || {
                let values = groups.values(&group);
                values.is_some_and(|(_, quota, memory)| {
                    (quota, memory) == (Some(60_000), Some(70 << 20))
                })
            });
            let taken = began.elapsed();
            api.delete_now(&format!("/api/v1/namespaces/default/pods/{name}"))
                .unwrap();
            taken
        })
        .collect();
    let least = taken.iter().min().unwrap();
    assert!(*least <= Duration::from_secs(1), "{taken:?}");
}

/// Asks more often than [`eventually`], for times that are measured.
fn wait_often(what: &str, is_true: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_true() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
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

/// A reclaimed pod that may use far less CPU than it requests is evicted; pods that use none stay.
fn unsatisfied_pods_are_evicted(api: &Api, node: &HostNode) {
    let path = "/api/v1/namespaces/default/pods/lent";
    let uid = uid(api, "lent");
    wake(node, "lent");
    // On a machine that is busy with other work online pods wait for CPU, which is another reason to evict.
    set_thresholds(
        api,
        json!({
            "cpuEvictTimeWindowSeconds": 3, "cpuEvictBEUsageThresholdPercent": 20,
            "cpuEvictThresholdPercent": 100, "cpuEvictLowerPercent": 99,
            "interferencePressurePercent": 100,
        }),
    );
    eventually("the reclaimed pod is evicted", LIMIT, || {
        let pod = api.get(path).ok();
        let is_going = pod
            .as_ref()
            .is_none_or(|it| !it["metadata"]["deletionTimestamp"].is_null());
        is_going.then_some(()).ok_or(format!("{pod:?}"))
    });
    set_thresholds(api, json!({}));
    calm(node, "lent");
    let reason = eventually("the eviction has an event", LIMIT, || {
        let events = api.list("/api/v1/namespaces/default/events");
        let events = events.map_err(|error| format!("{error:#}"))?;
        let mut of_pod = events
            .iter()
            .filter(|it| it["involvedObject"]["uid"] == uid && it["reason"] == "Evicted");
        let event = of_pod.next().ok_or(format!("{events:?}"))?;
        Ok(event["message"].as_str().unwrap_or_default().to_owned())
    });
    assert!(reason.contains("CPU"), "{reason}");
    assert_eq!(evicted(node), ["lent"]);
}

/// (c): with a threshold below the present use, own pods go in the order of their classes, and no other pod does.
fn memory_pressure_evicts_in_order(api: &Api, node: &HostNode) {
    let _ = api.delete_now("/api/v1/namespaces/default/pods/midls");
    let before = evicted(node).len();
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
        let gone = evicted(node).split_off(before);
        (gone.len() >= own.len())
            .then_some(gone.clone())
            .ok_or(format!("{gone:?}"))
    });
    // Batch and reclaimed pods are one class.
    gone[1..3].sort();
    assert_eq!(gone, own);
    let cnr = format!("{CNR}/{}", node.name());
    wait_for_taint(api, &cnr, "tidepool.io/pressure", true);
    for name in ["ls-burstable", "plain", "ls"].map(name) {
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
