//! Annotations of pods that one component writes and others believe. No other user may write them.
//!
//! deploy/policies.yaml has the same rules for the API server, also for namespaces and subresources that the webhook does not see;
//! this module is for clusters without it. [`super::keys`] says who believes what.

use serde_json::Value;

use super::AdmissionRequest;
use super::fields::annotation;
use super::keys::{EXTENDED_RESOURCES, KUBELET_PREFIX, PROFILES};
use crate::model::{NUMA_ZONES, POLICY_UNIT};

/// The user name of a node's kubelet is this and the name of the node.
const KUBELETS: &str = "system:node:";

/// Whether the kubelet of the pod's node sends the request.
pub(super) fn is_from_kubelet(request: &AdmissionRequest<'_>) -> bool {
    is_kubelet_of(request.pod, request.user)
}

/// Whether this is the user name of the kubelet of the pod's node.
pub fn is_kubelet_of(pod: &Value, user: &str) -> bool {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    !node.is_empty() && user.strip_prefix(KUBELETS) == Some(node)
}

/// What is wrong with the annotations of a new pod. Those of the webhook itself are not looked at: it has replaced what the author
/// wrote.
pub(super) fn faults_of_new(request: &AdmissionRequest<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    for key in [NUMA_ZONES, POLICY_UNIT] {
        if is_written(request.pod, key) {
            faults.push(fault(request.pod, key));
        }
    }
    faults.extend(kubelet_fault(request, &Value::Null));
    faults
}

/// What is wrong with how the annotations of a pod change.
pub(super) fn faults_of_change(request: &AdmissionRequest<'_>, old: &Value) -> Vec<String> {
    let new = request.pod;
    if old["metadata"]["annotations"] == new["metadata"]["annotations"] {
        return Vec::new();
    }
    let text = |pod, key| annotation(pod, key).unwrap_or_default();
    let changes = |key| text(old, key) != text(new, key);
    let is_bound = new["spec"]["nodeName"]
        .as_str()
        .is_some_and(|it| !it.is_empty());
    let mut faults = Vec::new();
    // Without its zones a bound pod would count as one that has none. Before that the key means nothing, and may go.
    if changes(NUMA_ZONES) && (is_bound || is_written(new, NUMA_ZONES)) {
        faults.push(fault(new, NUMA_ZONES));
    }
    // Without the mark, the deletion cost is the user's own, and users may set that.
    let is_controllers = request.user == request.controllers;
    if changes(POLICY_UNIT) && is_written(new, POLICY_UNIT) && !is_controllers {
        faults.push(fault(new, POLICY_UNIT));
    }
    for key in [PROFILES, EXTENDED_RESOURCES] {
        if annotation(old, key) != annotation(new, key) {
            faults.push(fault(new, key));
        }
    }
    faults.extend(kubelet_fault(request, old));
    faults
}

/// An empty text says as little as none.
fn is_written(pod: &Value, key: &str) -> bool {
    annotation(pod, key).is_some_and(|text| !text.is_empty())
}

/// The kubelet's own annotations, which make a pod look like a static one.
fn kubelet_fault(request: &AdmissionRequest<'_>, old: &Value) -> Option<String> {
    if is_from_kubelet(request) {
        return None;
    }
    let new = request.pod;
    let keys = [old, new].map(|pod| pod["metadata"]["annotations"].as_object());
    let keys = keys.into_iter().flatten().flat_map(|all| all.keys());
    let mut kubelets = keys.filter(|key| key.starts_with(KUBELET_PREFIX));
    let changed = kubelets.find(|key| annotation(old, key) != annotation(new, key));
    changed.map(|key| fault(new, key))
}

fn fault(pod: &Value, key: &str) -> String {
    let name = &pod["metadata"]["name"];
    let name = name.as_str().or(pod["metadata"]["generateName"].as_str());
    let name = name.unwrap_or_default();
    let owner = match key {
        NUMA_ZONES => "the scheduler, which sets it with the Binding".to_owned(),
        POLICY_UNIT => "the scheduler and the controller of ResourcePolicies".to_owned(),
        PROFILES | EXTENDED_RESOURCES => "the admission webhook".to_owned(),
        _ => match pod["spec"]["nodeName"].as_str().unwrap_or_default() {
            "" => "the kubelet of a static pod".to_owned(),
            node => format!("the kubelet of node {node}"),
        },
    };
    format!("annotation {key} of pod {name} belongs to {owner}: no other user may write it")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admission::{validate, validate_update};

    const CONTROLLERS: &str = "system:serviceaccount:tidepool-system:tidepool-controllers";
    const HASH: &str = "kubernetes.io/config.hash";
    const MIRROR: &str = "kubernetes.io/config.mirror";

    fn pod(node: &str, annotations: Value) -> Value {
        let mut pod = json!({"metadata": {"name": "web", "annotations": annotations},
            "spec": {"containers": [{"name": "app", "image": "i"}]}});
        if !node.is_empty() {
            pod["spec"]["nodeName"] = json!(node);
        }
        pod
    }

    fn request<'a>(user: &'a str, pod: &'a Value) -> AdmissionRequest<'a> {
        AdmissionRequest {
            uid: "u",
            user,
            controllers: CONTROLLERS,
            namespace: None,
            limit_ranges: &[],
            pod,
        }
    }

    #[test]
    fn new_pods() {
        // (case, user, node, annotations, owner of the key)
        for (case, user, node, annotations, want) in [
            (
                "zones",
                "alice",
                "",
                json!({NUMA_ZONES: "0"}),
                "the scheduler, ",
            ),
            (
                "zones of a pod with a node",
                "alice",
                "n",
                json!({NUMA_ZONES: "0"}),
                "the scheduler, ",
            ),
            ("no zones", "alice", "", json!({NUMA_ZONES: ""}), ""),
            (
                "a unit",
                "alice",
                "",
                json!({POLICY_UNIT: "p/u=1"}),
                "the scheduler and the controller",
            ),
            (
                "a unit from the controllers",
                CONTROLLERS,
                "",
                json!({POLICY_UNIT: "p/u=1"}),
                "the scheduler and",
            ),
            (
                "a mirror pod",
                "system:node:n",
                "n",
                json!({MIRROR: "x", HASH: "x"}),
                "",
            ),
            (
                "from another node",
                "system:node:m",
                "n",
                json!({MIRROR: "x", HASH: "x"}),
                "the kubelet of node n",
            ),
            (
                "from a user",
                "alice",
                "n",
                json!({HASH: "x"}),
                "the kubelet of node n",
            ),
            (
                "without a node",
                "system:node:",
                "",
                json!({HASH: "x"}),
                "the kubelet of a static pod",
            ),
            (
                "a key that only begins alike",
                "alice",
                "",
                json!({"kubernetes.io/configured": "x"}),
                "",
            ),
            (
                "zones of a static pod",
                "system:node:n",
                "n",
                json!({NUMA_ZONES: "0"}),
                "the scheduler, ",
            ),
        ] {
            let pod = pod(node, annotations);
            check(case, validate(&request(user, &pod)), want);
        }
    }

    #[test]
    fn changes() {
        let zones = |zones: &str| json!({NUMA_ZONES: zones});
        let unit = |unit: &str| json!({POLICY_UNIT: unit});
        let (kubelet, kept) = ("system:node:n", json!({HASH: "x"}));
        // (case, user, node, before, after, owner of the key)
        for (case, user, node, before, after, want) in [
            (
                "zones of a bound pod",
                "alice",
                "n",
                zones("0"),
                zones("0,1"),
                "the scheduler, ",
            ),
            (
                "that it has not",
                "alice",
                "n",
                json!({}),
                zones("0"),
                "the scheduler, ",
            ),
            (
                "that go",
                "alice",
                "n",
                zones("0"),
                json!({}),
                "the scheduler, ",
            ),
            (
                "that are emptied",
                "alice",
                "n",
                zones("0"),
                zones(""),
                "the scheduler, ",
            ),
            (
                "that stay",
                "alice",
                "n",
                zones("0"),
                json!({NUMA_ZONES: "0", "a": "b"}),
                "",
            ),
            (
                "zones of a pod that waits",
                "alice",
                "",
                json!({}),
                zones("0"),
                "the scheduler, ",
            ),
            (
                "that go before the bind",
                "alice",
                "",
                zones("0"),
                json!({}),
                "",
            ),
            (
                "an empty key that goes",
                "alice",
                "n",
                zones(""),
                json!({}),
                "",
            ),
            (
                "a unit",
                "alice",
                "n",
                unit("p/u=1"),
                unit("p/u=9"),
                "the scheduler and the controller",
            ),
            (
                "a new unit",
                "alice",
                "n",
                json!({}),
                unit("p/u=9"),
                "the scheduler and the controller",
            ),
            (
                "a unit that goes",
                "alice",
                "n",
                unit("p/u=1"),
                json!({}),
                "",
            ),
            (
                "from the controllers",
                CONTROLLERS,
                "n",
                unit("p/u=1"),
                unit("p/u=9"),
                "",
            ),
            (
                "zones from the controllers",
                CONTROLLERS,
                "n",
                zones("0"),
                zones("1"),
                "the scheduler, ",
            ),
            (
                "profiles",
                "alice",
                "n",
                json!({PROFILES: "a"}),
                json!({PROFILES: "b"}),
                "the admission webhook",
            ),
            (
                "profiles that go",
                "alice",
                "n",
                json!({PROFILES: "a"}),
                json!({}),
                "the admission webhook",
            ),
            (
                "tier resources",
                "alice",
                "",
                json!({}),
                json!({EXTENDED_RESOURCES: "{}"}),
                "the admission webhook",
            ),
            (
                "a hash",
                "alice",
                "n",
                json!({}),
                kept.clone(),
                "the kubelet of node n",
            ),
            (
                "another hash",
                "alice",
                "n",
                kept.clone(),
                json!({HASH: "y"}),
                "the kubelet of node n",
            ),
            (
                "a hash that goes",
                "alice",
                "n",
                kept.clone(),
                json!({}),
                "the kubelet of node n",
            ),
            (
                "by the kubelet",
                kubelet,
                "n",
                kept.clone(),
                json!({HASH: "y"}),
                "",
            ),
            (
                "beside it",
                "alice",
                "n",
                kept.clone(),
                json!({HASH: "x", "a": "b"}),
                "",
            ),
        ] {
            let (old, new) = (pod(node, before), pod(node, after));
            check(case, validate_update(&request(user, &new), &old), want);
        }
    }

    /// A bound pod has its zones when it is resized, and is judged again.
    #[test]
    fn a_resize_leaves_the_keys_alone() {
        let annotations = json!({NUMA_ZONES: "0", POLICY_UNIT: "p/u=1", HASH: "x"});
        let old = pod("n", annotations);
        let mut new = old.clone();
        new["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
        check("resize", validate_update(&request("alice", &new), &old), "");
    }

    fn check(case: &str, result: Result<(), crate::admission::Refused>, want: &str) {
        let found = result.map_or_else(|it| it.to_string(), |()| String::new());
        match want {
            "" => assert_eq!(found, "", "{case}"),
            want => {
                let is_as_wanted = found.starts_with("annotation ")
                    && found.contains(&format!(" of pod web belongs to {want}"))
                    && found.ends_with(": no other user may write it");
                assert!(is_as_wanted, "{case}: {found}");
            }
        }
    }
}
