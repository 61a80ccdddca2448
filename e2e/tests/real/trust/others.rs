//! What belongs to others and must stay as it is: their pods, nodes, capacity, Leases and settings.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::eventually;
use serde_json::{Value, json};

use super::cluster::{BARRIER, Cluster};
use crate::shared_cluster::{SHORT, text};

/// All but the namespace of the users.
const LISTS: [&str; 24] = [
    "/api/v1/nodes",
    "/api/v1/persistentvolumes",
    "/api/v1/namespaces",
    "/api/v1/namespaces/victim/pods",
    "/api/v1/namespaces/kube-system/pods",
    "/api/v1/namespaces/tidepool-system/pods",
    "/api/v1/namespaces/tidepool-system/configmaps",
    "/api/v1/namespaces/tidepool-system/secrets",
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
    "/apis/coordination.k8s.io/v1/namespaces/tidepool-system/leases",
    "/apis/discovery.k8s.io/v1/namespaces/tidepool-system/endpointslices",
    "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources",
    "/apis/slo.koordinator.sh/v1alpha1/nodemetrics",
    "/apis/scheduling.sigs.x-k8s.io/v1alpha1/namespaces/victim/resourcepolicies",
    "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/tidepool-system/rolebindings",
    "/api/v1/namespaces/tidepool-system/serviceaccounts",
    "/api/v1/namespaces/tidepool-system/services",
];
/// Components of the test hold these, and renew them.
const HELD: [&str; 3] = [
    "tidepool-controllers",
    "tidepool-gate",
    "tidepool-scheduler",
];

pub(super) struct Others {
    /// By path.
    objects: BTreeMap<String, Value>,
    /// Probes that failed, so that one failure is reported once.
    failed: Vec<String>,
}

impl Others {
    /// Once the components have written what they write at their start.
    pub(super) fn settled(cluster: &Cluster) -> Self {
        let mut last = Self::now(cluster);
        eventually("the cluster is at rest", 2 * SHORT, || {
            std::thread::sleep(Duration::from_secs(1));
            let found = last.check(cluster);
            match found.is_empty() {
                true => Ok(()),
                false => Err(found.join("\n")),
            }
        });
        assert_eq!(last.failed, Vec::<String>::new());
        last
    }

    fn now(cluster: &Cluster) -> Self {
        let objects = LISTS.iter().flat_map(|path| {
            let items = cluster.api.list(path).unwrap().into_iter();
            let object = move |mut item: Value| {
                let name = text(&item["metadata"]["name"]);
                strip(&mut item, &name);
                (format!("{path}/{name}"), item)
            };
            items.map(object)
        });
        Self {
            objects: objects.collect(),
            failed: probes(cluster),
        }
    }

    /// What is not as before, each as a sentence; what is found counts as before for the next check.
    pub(super) fn check(&mut self, cluster: &Cluster) -> Vec<String> {
        let now = Self::now(cluster);
        let keys = self.objects.keys().chain(now.objects.keys());
        let keys: std::collections::BTreeSet<&String> = keys.collect();
        let mut found = Vec::new();
        for key in keys {
            match (self.objects.get(key), now.objects.get(key)) {
                (Some(before), Some(after)) if before != after => {
                    let mut fields = Vec::new();
                    differences(before, after, "", &mut fields);
                    found.push(format!("{key} is changed: {}", fields.join(", ")));
                }
                (Some(_), None) => found.push(format!("{key} is gone")),
                (None, Some(_)) => found.push(format!("{key} is new")),
                _ => {}
            }
        }
        let failed = now.failed.iter();
        found.extend(failed.filter(|it| !self.failed.contains(it)).cloned());
        *self = now;
        found
    }
}

/// Removes what changes by itself.
fn strip(object: &mut Value, name: &str) {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["resourceVersion", "managedFields", "generation"] {
        metadata.remove(field);
    }
    // The API server renews one of its own.
    let is_held = HELD.contains(&name) || name.starts_with("apiserver-");
    let spec = object.get_mut("spec").and_then(Value::as_object_mut);
    if let Some(spec) = spec.filter(|_| is_held) {
        spec.remove("renewTime");
    }
    // The components renew their certificates.
    let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
    for webhook in webhooks.into_iter().flatten() {
        webhook["clientConfig"]
            .as_object_mut()
            .unwrap()
            .remove("caBundle");
    }
    if name == BARRIER {
        object["metadata"]["annotations"] = Value::Null;
    }
    if let Some(Value::String(names)) = object.pointer_mut("/data/names") {
        let kept = names.split(',').filter(|it| !it.starts_with(BARRIER));
        *names = kept.collect::<Vec<_>>().join(",");
    }
}

fn differences(before: &Value, after: &Value, at: &str, found: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let keys = before.keys().chain(after.keys());
            let keys: std::collections::BTreeSet<&String> = keys.collect();
            for key in keys {
                let [before, after] = [before, after].map(|it| it.get(key).unwrap_or(&Value::Null));
                if before != after {
                    differences(before, after, &format!("{at}.{key}"), found);
                }
            }
        }
        _ => found.push(format!("{at} was {before}, is {after}")),
    }
}

/// Whether pods of others find their places as before: cpu, a NUMA zone, what a node lends, and a scheduler.
fn probes(cluster: &Cluster) -> Vec<String> {
    let bind = |pod: &str, annotations: Value| {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}});
        let path = format!("/api/v1/namespaces/victim/pods/{pod}/binding?dryRun=All");
        let bound = cluster.api.post(&path, &binding);
        bound.map_err(|error| format!("pod victim/{pod} finds no place: {}", error.root_cause()))
    };
    let scheduled = {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"},
            "spec": {"schedulerName": "tidepool", "containers": [{"name": "c", "image": "i"}]}});
        let made = cluster
            .api
            .post("/api/v1/namespaces/deny/pods?dryRun=All", &pod);
        made.map_err(|error| {
            format!(
                "a pod of scheduler tidepool is refused: {}",
                error.root_cause()
            )
        })
    };
    let results = [
        bind("waits-for-cpu", Value::Null),
        bind("waits-for-zone", json!({"tidepool.io/numa-zones": "1"})),
        bind("waits-for-lent", Value::Null),
        scheduled,
    ];
    results.into_iter().filter_map(Result::err).collect()
}
