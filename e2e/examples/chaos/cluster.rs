//! The cluster of a run: the real control plane, nodes in groups, what they lend, and the permissions of the manifests.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use e2e::{Api, ControlPlane};
use serde_json::{Value, json};

use crate::replicas::{LEASE_NAME, LEASE_NAMESPACE};
use crate::token::{self, Account};

pub(crate) const RECLAIMED: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
pub(crate) const REPORTS: &str = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const GROUP: &str = "group";
pub(crate) const GROUPS: [&str; 3] = ["x", "y", "z"];
/// The priority class of pods that preempt others.
pub(crate) const URGENT: &str = "urgent";
pub(crate) const URGENT_PRIORITY: i64 = 1_000;
/// Nodes per group, each with four cpus.
const NODES: usize = 3;
const MANIFESTS: [&str; 7] = [
    include_str!("../../../deploy/namespace.yaml"),
    include_str!("../../../deploy/policies.yaml"),
    include_str!("../../../deploy/scheduler.yaml"),
    include_str!("../../../deploy/webhook.yaml"),
    include_str!("../../../deploy/gate.yaml"),
    include_str!("../../../deploy/crds/node.katalyst.kubewharf.io_customnoderesources.yaml"),
    include_str!("../../../deploy/crds/config.koordinator.sh_clustercolocationprofiles.yaml"),
];
const KUBECTL: Duration = Duration::from_secs(120);

pub(crate) fn start() -> Result<ControlPlane> {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let control_plane = ControlPlane::start(e2e::Options {
        disable_admission_plugins: names(&["ServiceAccount", "TaintNodesByCondition"]),
        audited_group: Some("system:serviceaccounts".to_owned()),
        audit_binds: true,
        apiserver_flags: names(&[
            // The checker reads the whole history.
            "--etcd-compaction-interval=0",
            "--storage-media-type=application/json",
            "--audit-log-maxsize=100000",
        ]),
        ..e2e::Options::default()
    })?;
    apply_manifests(&control_plane)?;
    let api = Api::new(&control_plane.admin())?;
    api.create(
        &json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": URGENT}, "value": URGENT_PRIORITY}),
    )?;
    for name in nodes() {
        let (group, _) = name.split_once('-').unwrap_or_default();
        let labels = json!({"kubernetes.io/hostname": name, GROUP: group});
        let capacity = json!({"cpu": "4", "memory": "16Gi", "pods": "30"});
        api.create(&json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels}, "status": {"capacity": capacity}}))?;
    }
    retry("the reports of nodes are created", || create_reports(&api))?;
    Ok(control_plane)
}

pub(crate) fn nodes() -> impl Iterator<Item = String> {
    let of_group = |group| (0..NODES).map(move |index| format!("{group}-{index}"));
    GROUPS.into_iter().flat_map(of_group)
}

fn create_reports(api: &Api) -> Result<()> {
    let known = api.list(REPORTS)?;
    for name in nodes() {
        if known
            .iter()
            .all(|report| report["metadata"]["name"] != *name)
        {
            let kind = json!({"apiVersion": "node.katalyst.kubewharf.io/v1alpha1",
                "kind": "CustomNodeResource", "metadata": {"name": name}});
            api.create(&kind)?;
        }
        lend(api, &name, 3_000)?;
    }
    Ok(())
}

/// Sets what a node lends.
pub(crate) fn lend(api: &Api, node: &str, millis: u64) -> Result<()> {
    let amount = json!({RECLAIMED: millis.to_string()});
    let status = json!({"status": {"resources": {"allocatable": amount, "capacity": amount}}});
    api.patch(&format!("{REPORTS}/{node}/status"), &status)?;
    Ok(())
}

/// Without the Deployments, which would be pods; and the webhook and the gate are asked about no pod.
fn apply_manifests(control_plane: &ControlPlane) -> Result<()> {
    let mut items: Vec<Value> = Vec::new();
    for text in MANIFESTS {
        let objects: Vec<Value> = serde_saphyr::from_multiple(text)?;
        items.extend(objects.into_iter().filter(|it| it["kind"] != "Deployment"));
    }
    for item in &mut items {
        let webhooks = item.get_mut("webhooks").and_then(Value::as_array_mut);
        for webhook in webhooks.into_iter().flatten() {
            webhook["namespaceSelector"] = json!({"matchLabels": {"chaos": "none"}});
        }
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let kubectl = control_plane.kubectl()?;
    std::fs::write(kubectl.directory().join("list.json"), list.to_string())?;
    let applied = kubectl.run(&["apply", "-f", "list.json"], KUBECTL)?;
    if applied.code != Some(0) {
        bail!("kubectl cannot apply the manifests: {applied:?}");
    }
    Ok(())
}

/// A token of the scheduler's account, and one of it that has expired.
pub(crate) fn tokens(control_plane: &ControlPlane) -> Result<(String, String)> {
    let api = Api::new(&control_plane.admin())?;
    let path = format!("/api/v1/namespaces/{LEASE_NAMESPACE}/serviceaccounts/{LEASE_NAME}");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 24 * 3_600}});
    let answer = api.post(&format!("{path}/token"), &request)?;
    let token = answer["status"]["token"].as_str().context("no token")?;
    let account = api.get(&path)?;
    let account = Account {
        namespace: LEASE_NAMESPACE,
        name: LEASE_NAME,
        uid: account["metadata"]["uid"].as_str().context("no uid")?,
    };
    let expired = token::expired(&control_plane.accounts_key_pem()?, &account)?;
    Ok((token.to_owned(), expired))
}

/// Asks every 200 ms for up to a minute until it succeeds.
pub(crate) fn retry<T>(what: &str, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    const LIMIT: Duration = Duration::from_secs(60);
    let deadline = std::time::Instant::now() + LIMIT;
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) if std::time::Instant::now() > deadline => {
                return Err(error.context(format!("waited {LIMIT:?} in vain until {what}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}
