//! (b): the agent in the guest with cgroup v2: values of pods, and CPU that goes back to an online pod.

use std::time::{Duration, Instant};

use e2e::node::{GuestNode, pod};
use e2e::{Api, eventually};
use serde_json::json;

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
        row.create(api, node);
    }
    let amounts = json!({
        "resource.katalyst.kubewharf.io/reclaimed_millicpu": "8000",
        "resource.katalyst.kubewharf.io/reclaimed_memory": "64Mi",
    });
    let resources = json!({"requests": amounts, "limits": amounts});
    let burn = |name: &str| {
        let one = format!(
            "while :; do if [ -e /tmp/{name} ]; then n=0; while [ $n -lt 500 ]; do n=$((n+1)); done; else sleep 0.2; fi; done"
        );
        format!("mkdir -p /tmp; {} wait", format!("({one}) & ").repeat(4))
    };
    api.create(&pod(node, "lent-guest", &burn("lent"), resources))
        .unwrap();
    let online = json!({"requests": {"cpu": "1"}});
    api.create(&pod(node, "online-guest", &burn("online"), online))
        .unwrap();
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
    for pod in ["lent-guest", "online-guest"] {
        wait_until_running(api, "default", pod);
    }
    let lent = format!("kubepods/besteffort/pod{}", uid(api, "lent-guest"));
    let online = format!("kubepods/burstable/pod{}", uid(api, "online-guest"));
    let wake = |node: &mut GuestNode, group: &str, file: &str| {
        // The file goes into the root of the container's own file system; the sandbox has no such directory.
        let tasks = format!("$(cat /sys/fs/cgroup/{group}/*/cgroup.procs)");
        let touch = format!("touch /proc/$task/root/tmp/{file} 2>/dev/null && exit 0");
        let script = format!("for task in {tasks}; do {touch}; done; exit 1");
        eventually("the burner can be woken", LIMIT, || {
            node.shell(&script).map_err(|error| format!("{error:#}"))
        });
    };
    wake(node, &lent, "lent");
    wake(node, &online, "online");
    let use_of = |node: &mut GuestNode| -> [f64; 2] {
        [&online, &lent].map(|group| {
            let read = format!("grep usage_usec /sys/fs/cgroup/{group}/cpu.stat");
            let text = node.shell(&read).unwrap();
            text.rsplit(' ').next().unwrap().parse::<f64>().unwrap() / 1e6
        })
    };
    eventually("the online pod has its CPU back", LIMIT, || {
        let (began, before) = (Instant::now(), use_of(node));
        std::thread::sleep(Duration::from_secs(2));
        let after = use_of(node);
        let seconds = began.elapsed().as_secs_f64();
        let [online, lent] = [0, 1].map(|it| (after[it] - before[it]) / seconds);
        let found = format!("online {online:.2}, lent {lent:.2} cores");
        (online > 0.5 && lent <= 0.1 * online)
            .then_some(())
            .ok_or(found)
    });
    eventually("the reclaimed pod is confined to one CPU", LIMIT, || {
        let set = node.shell(&format!("cat /sys/fs/cgroup/{lent}/cpuset.cpus"));
        let set = set.map_err(|error| format!("{error:#}"))?;
        set.parse::<u32>().map(drop).map_err(|_| set)
    });
    for directory in ["", "/burstable", "/besteffort"] {
        let read = format!("cd /sys/fs/cgroup/kubepods{directory} && cat cpu.max");
        assert!(
            node.shell(&read).unwrap().starts_with("max "),
            "{directory}"
        );
    }
}
