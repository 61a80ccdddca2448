//! What the author of a pod writes reaches the cgroup of that pod, and no other one.

use std::time::Duration;

use e2e::node::{HostNode, pod};
use e2e::{Api, eventually};
use serde_json::{Value, json};

use crate::agent::{is_lending, wait_until_lending};
use crate::groups::{GroupValues, Groups};
use crate::panorama::Row;
use crate::real_node::{LIMIT, uid, wait_until_running};

/// The rows of online pods that still run.
const ONLINE: [&str; 2] = ["ls", "ls-burstable"];

/// The groups of the pods of others, and what they have before the attempts.
struct Others<'a> {
    groups: &'a Groups,
    owned: Vec<String>,
    /// The groups of online pods, whose cpusets do not follow the load of the machine.
    online: Vec<String>,
    before: Vec<Option<GroupValues>>,
    cpus: Vec<Option<String>>,
}

impl<'a> Others<'a> {
    fn of(api: &Api, node: &HostNode, groups: &'a Groups, rows: &[Row]) -> Self {
        let owned = |row: &&Row| row.group(&uid(api, &row.pod(node.name())));
        let is_online = |row: &&Row| ONLINE.contains(&row.name);
        let online: Vec<String> = rows.iter().filter(is_online).map(|it| owned(&it)).collect();
        assert_eq!(online.len(), ONLINE.len());
        let mut others = Self {
            groups,
            owned: rows.iter().map(|it| owned(&it)).collect(),
            online,
            before: Vec::new(),
            cpus: Vec::new(),
        };
        others.before = others.values();
        others.cpus = others.cpus();
        others
    }

    fn values(&self) -> Vec<Option<GroupValues>> {
        let groups = self.owned.iter();
        groups.map(|group| self.groups.values(group)).collect()
    }

    fn cpus(&self) -> Vec<Option<String>> {
        let groups = self.online.iter();
        groups.map(|group| self.groups.cpus(group)).collect()
    }

    fn check(&self, attempt: &str) {
        assert_eq!(self.values(), self.before, "{attempt}: {:?}", self.owned);
        assert_eq!(self.cpus(), self.cpus, "{attempt}: {:?}", self.online);
    }

    /// As long as the agent needs to write and to report.
    fn stay_as_they_are(&self, attempt: &str) {
        std::thread::sleep(Duration::from_secs(3));
        self.check(attempt);
    }
}

/// Pods that name the cgroup, the CPUs or the zones of other pods, or some that do not exist, are treated as any other pod.
pub(crate) fn pods_do_not_reach_the_groups_of_others(
    api: &Api,
    node: &HostNode,
    groups: &Groups,
    rows: &[Row],
) {
    let others = Others::of(api, node, groups, rows);
    let victim = uid(api, &rows[0].pod(node.name()));
    let invented = "0123456789abcdef0123456789abcdef".to_owned();
    let amounts = json!({"kubernetes.io/batch-cpu": "50", "kubernetes.io/batch-memory": "40Mi"});
    for (name, hash) in [("takes-a-group", victim), ("has-no-group", invented)] {
        let resources = json!({"requests": amounts, "limits": amounts});
        let mut object = pod(node.name(), name, "sleep 100000", resources);
        object["metadata"]["annotations"] = json!({"kubernetes.io/config.hash": hash});
        wait_for_limits(api, groups, &object, (Some(5_000), Some(40 << 20)));
        others.check(name);
        delete(api, name);
    }
    let all: Vec<String> = (0..64).map(|id| id.to_string()).collect();
    let native = json!({"cpu": "100m", "memory": "32Mi"});
    for (name, label, annotations) in [
        // Koordinator's scheduler would bind it to these CPUs.
        (
            "takes-cpus",
            json!({"koordinator.sh/priority-class": "koord-prod", "koordinator.sh/qosClass": "LSE"}),
            json!({"scheduling.koordinator.sh/resource-status": r#"{"cpuset": "0-1023"}"#}),
        ),
        // More zones than a tenth of a CPU needs.
        (
            "takes-zones",
            json!({}),
            json!({
                "katalyst.kubewharf.io/qos_level": "dedicated_cores",
                "katalyst.kubewharf.io/memory_enhancement": r#"{"numa_binding": "true"}"#,
                "tidepool.io/numa-zones": all.join(","),
            }),
        ),
    ] {
        let resources = json!({"requests": native, "limits": native});
        let mut object = pod(node.name(), name, "sleep 100000", resources);
        object["metadata"]["labels"] = label;
        object["metadata"]["annotations"] = annotations;
        api.create(&object).unwrap();
        wait_until_running(api, "default", name);
        others.stay_as_they_are(name);
        delete(api, name);
    }
}

/// A pod with a request beyond any machine has values that the kernel takes, and the node lends on.
pub(crate) fn an_absurd_request_concerns_its_pod_only(
    api: &Api,
    node: &HostNode,
    groups: &Groups,
    rows: &[Row],
) {
    let others = Others::of(api, node, groups, rows);
    let most = "1000000000000000";
    let amounts = json!({
        "resource.katalyst.kubewharf.io/reclaimed_millicpu": most,
        "resource.katalyst.kubewharf.io/reclaimed_memory": most,
    });
    let resources = json!({"requests": amounts, "limits": amounts});
    let mut object = pod(node.name(), "absurd", "sleep 100000", resources);
    object["metadata"]["annotations"] =
        json!({"katalyst.kubewharf.io/qos_level": "reclaimed_cores"});
    let shares = if Groups::is_v2() { 10_000 } else { 262_144 };
    let object = api.create(&object).unwrap();
    let group = group(&object);
    eventually("the pod has the largest weight", LIMIT, || {
        let values = groups.values(&group).ok_or("no group")?;
        let found = format!("{values:?}");
        (values.0 == shares).then_some(()).ok_or(found)
    });
    others.check("absurd");
    wait_until_lending(api, node.name());
    // A refused write stopped lending with the next sample, a second later.
    others.stay_as_they_are("absurd");
    is_lending(api, node.name()).unwrap();
    delete(api, "absurd");
}

fn delete(api: &Api, name: &str) {
    api.delete_now(&format!("/api/v1/namespaces/default/pods/{name}"))
        .unwrap();
}

fn wait_for_limits(api: &Api, groups: &Groups, object: &Value, want: (Option<u64>, Option<u64>)) {
    let group = group(&api.create(object).unwrap());
    eventually("the pod has its limits", LIMIT, || {
        let (_, quota, memory) = groups.values(&group).ok_or("no group")?;
        let found = format!("{quota:?} {memory:?}");
        ((quota, memory) == want).then_some(()).ok_or(found)
    });
}

fn group(pod: &Value) -> String {
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    format!("kubepods/besteffort/pod{uid}")
}
