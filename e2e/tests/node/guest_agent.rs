//! (b): the agent in the guest with cgroup v2: values of pods, and CPU that goes back to an online pod.

use e2e::node::GuestNode;
use e2e::{Api, eventually};
use serde_json::json;

use crate::guest_cpu;
use crate::panorama::{Row, add_tiers, rows};
use crate::real_node::{LIMIT, uid, wait_until_running};

/// In the guest every pod takes seconds.
const ROWS: [&str; 5] = ["ls-burstable", "mid-ls", "mid-be", "reclaimed", "plain"];

/// The agent runs as the user of the kubelet, with the permissions of the agent.
pub(crate) fn allow(api: &Api, node: &str) {
    let user = json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": e2e::node::user(node)}]);
    for role in ["ClusterRole", "Role"] {
        let mut binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{role}Binding"),
            "metadata": {"name": format!("agent-{node}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": "tidepool-agent"},
            "subjects": user,
        });
        if role == "Role" {
            binding["metadata"]["namespace"] = json!("tidepool-system");
        }
        api.create(&binding).unwrap();
    }
}

/// Pods for [`prove`], made early because they take long to start.
pub(crate) fn create_pods(api: &Api, node: &str) {
    add_tiers(api, node);
    for row in chosen() {
        row.check_admitted(&api.create(&row.placed(node)).unwrap());
        wait_until_admitted(api, node, &row);
    }
    guest_cpu::create_pods(api, node);
}

/// Creates a pod again that the kubelet rejects: it may not know the tiers of its node yet.
fn wait_until_admitted(api: &Api, node: &str, row: &Row) {
    let path = format!("/api/v1/namespaces/default/pods/{}", row.pod(node));
    eventually("the kubelet admits the pod", LIMIT, || {
        let status = api.get(&path).map_err(|error| format!("{error:#}"))?["status"].clone();
        if status["phase"] == "Failed" {
            api.delete_now(&path).unwrap();
            api.create(&row.placed(node)).unwrap();
            return Err(status.to_string());
        }
        let is_known = status["startTime"].is_string();
        is_known.then_some(()).ok_or(status.to_string())
    });
}

fn chosen() -> impl Iterator<Item = Row> {
    rows().into_iter().filter(|row| ROWS.contains(&row.name))
}

pub(crate) fn prove(api: &Api, node: &mut GuestNode) {
    let name = node.name().to_owned();
    for row in chosen() {
        wait_until_running(api, "default", &row.pod(&name));
        let group = row.group(&uid(api, &row.pod(&name)));
        eventually("the pod has its values", LIMIT, || {
            let read = format!("cd /sys/fs/cgroup/{group} && cat cpu.weight cpu.max memory.max");
            let found = node.shell(&read).map_err(|error| format!("{error:#}"))?;
            let text = |value: Option<u64>| value.map_or("max".to_owned(), |it| it.to_string());
            let weight = 1 + (row.shares - 2) * 9999 / 262_142;
            let want = format!("{weight}\n{} 100000\n{}", text(row.quota), text(row.memory));
            (found == want)
                .then_some(())
                .ok_or(format!("{}: {found} instead of {want}", row.name))
        });
    }
    guest_cpu::prove(api, node);
    for directory in ["", "/burstable", "/besteffort"] {
        let read = format!("cd /sys/fs/cgroup/kubepods{directory} && cat cpu.max");
        assert!(
            node.shell(&read).unwrap().starts_with("max "),
            "{directory}"
        );
    }
}
