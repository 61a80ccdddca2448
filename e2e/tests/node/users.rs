//! Pods as users write them, on a real node: the API server asks our webhook, our scheduler places them, the kubelet runs them, and
//! the agent writes the values of their cgroups.

use std::fs;
use std::time::Duration;

use e2e::node::{HostNode, free_port};
use e2e::{Api, ControlPlane, Process, eventually};
use serde_json::{Value, json};

use crate::groups::Groups;
use crate::panorama::{Row, rows};
use crate::real_node::{LIMIT, uid, wait_until_running};
use crate::tiers::PROFILE;

/// The label of pods that go to the webhook. Other tests of these nodes create pods as the webhook leaves them, or as it never would.
pub(crate) const LABEL: &str = "tidepool.test/user";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Pods with whole cores: the cores of this machine are few, so one of them runs at a time.
const WHOLE_CORES: [&str; 2] = ["lse", "lsr"];

/// The webhook of `deploy/webhook.yaml`, as a process.
pub(crate) struct Users {
    webhook: Process,
    api: Api,
}

impl Users {
    /// Returns when the API server asks the webhook.
    pub(crate) fn start(control_plane: &ControlPlane) -> Self {
        let port = free_port().unwrap();
        apply(control_plane, port);
        let kubeconfig = control_plane.kubeconfig_file("admin").unwrap();
        let arguments = [
            "webhook".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--webhook-address=127.0.0.1".to_owned(),
            "--webhook-host=127.0.0.1".to_owned(),
            format!("--webhook-port={port}"),
            "--certificate-check-interval=200ms".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        let tidepool = e2e::tidepool::binary().unwrap();
        let users = Self {
            webhook: control_plane.run("webhook", &tidepool, &arguments).unwrap(),
            api: Api::new(&control_plane.admin()).unwrap(),
        };
        let mut wrong = rows().remove(0).unplaced("any");
        wrong["spec"]["priorityClassName"] = json!("koord-mid");
        eventually("the API server asks the webhook", LIMIT, || {
            match users.api.post(&format!("{PODS}?dryRun=All"), &wrong) {
                Err(error) if format!("{error:#}").contains("LSE does not go with") => Ok(()),
                other => Err(format!("{other:?}: {}", users.webhook.last_words())),
            }
        });
        users
    }

    /// Each row of the panorama becomes a pod with its values. Returns the rows whose pods still run.
    pub(crate) fn prove(
        &self,
        control_plane: &ControlPlane,
        node: &HostNode,
        groups: &Groups,
    ) -> Vec<Row> {
        // Mid+LS pods go only to nodes that an administrator has prepared for them.
        let reserved =
            json!({"metadata": {"annotations": {"node.koordinator.sh/reservation": "{}"}}});
        let path = format!("/api/v1/nodes/{}", node.name());
        self.api.patch(&path, &reserved).unwrap();
        let scheduler = scheduler(control_plane);
        let (whole, rest): (Vec<Row>, Vec<Row>) = rows()
            .into_iter()
            .partition(|row| WHOLE_CORES.contains(&row.name));
        for row in &whole {
            self.check_all(std::slice::from_ref(row), node, groups, &scheduler);
            let name = row.pod(node.name());
            self.api.delete_now(&format!("{PODS}/{name}")).unwrap();
        }
        self.check_all(&rest, node, groups, &scheduler);
        rest
    }

    fn check_all(&self, rows: &[Row], node: &HostNode, groups: &Groups, scheduler: &Process) {
        for row in rows {
            self.api.create(&row.unplaced(node.name())).unwrap();
        }
        for row in rows {
            let name = row.pod(node.name());
            eventually("the scheduler places the pod", LIMIT, || {
                let pod = self.api.get(&format!("{PODS}/{name}"));
                let pod = pod.map_err(|error| format!("{error:#}"))?;
                row.check_admitted(&pod);
                let is_placed = pod["spec"]["nodeName"] == node.name();
                let why = || format!("{name}: {} {}", pod["status"], scheduler.last_words());
                is_placed.then_some(()).ok_or_else(why)
            });
            wait_until_running(&self.api, "default", &name);
            self.check_values(row, node, groups);
        }
    }

    /// The kubelet's values of pods of services, and those of the agent for the others.
    fn check_values(&self, row: &Row, node: &HostNode, groups: &Groups) {
        let group = row.group(&uid(&self.api, &row.pod(node.name())));
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

/// The objects of the manifest. Its webhooks judge only the pods of users, and no pod that they did not judge is created.
fn apply(control_plane: &ControlPlane, port: u16) {
    let manifest = include_str!("../../../deploy/webhook.yaml");
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap();
    // Its pods are a process here.
    objects.retain(|it| it["kind"] != "Deployment");
    let all = objects.iter_mut().filter_map(|it| it.get_mut("webhooks"));
    for webhook in all.filter_map(Value::as_array_mut).flatten() {
        let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap();
        let url = format!("https://127.0.0.1:{port}{path}");
        webhook["clientConfig"] = json!({"url": url});
        webhook["objectSelector"] =
            json!({"matchExpressions": [{"key": LABEL, "operator": "Exists"}]});
        webhook["failurePolicy"] = json!("Fail");
        // A loaded machine needs more than the manifest gives.
        webhook["timeoutSeconds"] = json!(10);
    }
    let kubectl = control_plane.kubectl().unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    fs::write(kubectl.directory().join("webhook.json"), list.to_string()).unwrap();
    let limit = Duration::from_secs(60);
    let applied = kubectl
        .run(&["apply", "-f", "webhook.json"], limit)
        .unwrap();
    assert_eq!(applied.code, Some(0), "{applied:?}");
}

/// With the co-location profile of `tidepool up`.
fn scheduler(control_plane: &ControlPlane) -> Process {
    let profile = fs::read_to_string(PROFILE).unwrap();
    let file = control_plane.logs().join("users-scheduler.yaml");
    let config = format!("{profile}\nleaderElection: {{ leaderElect: false }}\n");
    fs::write(&file, config).unwrap();
    let config = format!("--config={}", file.display());
    let flags = ["--mode=primary", &config, "--secure-port=0"];
    let scheduler = control_plane.tidepool("users-scheduler", &control_plane.admin(), &flags);
    scheduler.unwrap()
}
