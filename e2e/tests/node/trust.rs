//! What the author of a pod writes reaches the cgroup of that pod, and no other one.

use e2e::node::{HostNode, pod};
use e2e::{Api, eventually};
use serde_json::{Value, json};

use crate::agent::{is_lending, wait_until_lending};
use crate::groups::Groups;
use crate::panorama::Row;
use crate::real_node::{LIMIT, uid};

/// Pods that name the cgroup of another pod, or one that does not exist, are limited as any other pod.
pub(crate) fn pods_do_not_reach_the_groups_of_others(
    api: &Api,
    node: &HostNode,
    groups: &Groups,
    rows: &[Row],
) {
    let owned = |row: &Row| row.group(&uid(api, &row.pod(node.name())));
    let owned: Vec<String> = rows.iter().map(owned).collect();
    let values = || -> Vec<_> { owned.iter().map(|group| groups.values(group)).collect() };
    let before = values();
    let victim = uid(api, &rows[0].pod(node.name()));
    let invented = "0123456789abcdef0123456789abcdef".to_owned();
    let amounts = json!({"kubernetes.io/batch-cpu": "50", "kubernetes.io/batch-memory": "40Mi"});
    for (name, hash) in [("takes-a-group", victim), ("has-no-group", invented)] {
        let resources = json!({"requests": amounts, "limits": amounts});
        let mut object = pod(node.name(), name, "sleep 100000", resources);
        object["metadata"]["annotations"] = json!({"kubernetes.io/config.hash": hash});
        wait_for_limits(api, groups, &object, (Some(5_000), Some(40 << 20)));
        assert_eq!(values(), before, "{name}");
        api.delete_now(&format!("/api/v1/namespaces/default/pods/{name}"))
            .unwrap();
    }
}

/// A pod with a request beyond any machine has values that the kernel takes, and the node lends on.
pub(crate) fn an_absurd_request_concerns_its_pod_only(api: &Api, node: &HostNode, groups: &Groups) {
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
    wait_until_lending(api, node.name());
    // A refused write stopped lending with the next sample, a second later.
    std::thread::sleep(std::time::Duration::from_secs(3));
    is_lending(api, node.name()).unwrap();
    api.delete_now("/api/v1/namespaces/default/pods/absurd")
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
