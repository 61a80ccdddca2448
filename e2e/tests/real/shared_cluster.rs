//! A cluster that tests of the scheduler share, because it takes longer to start than most tests run: real servers,
//! kube-controller-manager for Deployments and volumes, and both schedulers, each for the pods that name it.

use std::time::Duration;

use e2e::{Api, ControlPlane, Process, eventually};
use serde_json::{Value, json};

use crate::deployed;
use crate::shared::Shared;

/// Our profile.
pub(crate) const OURS: &str = "tidepool";
/// kube-scheduler's.
pub(crate) const THEIRS: &str = "default-scheduler";
/// Two priority classes.
pub(crate) const GREATER: &str = "greater";
pub(crate) const LESSER: &str = "lesser";
pub(crate) const SHORT: Duration = Duration::from_secs(30);

pub(crate) struct SharedCluster {
    pub(crate) api: Api,
    // Stopped in this order.
    _ours: Process,
    _theirs: Process,
    pub(crate) control_plane: ControlPlane,
}

static SHARED: Shared<SharedCluster> = Shared::until_the_end();

/// Gives the cluster to one test at a time, empty.
pub(crate) fn with(test: impl FnOnce(&SharedCluster)) {
    SHARED.with(SharedCluster::start, |cluster| {
        cluster.empty();
        test(cluster);
        deployed::check_permissions(&cluster.control_plane);
    });
}

impl SharedCluster {
    fn start() -> Self {
        let control_plane = deployed::start(&[
            "deployment-controller",
            "replicaset-controller",
            "persistentvolume-binder-controller",
            "disruption-controller",
        ]);
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        });
        // Its log then has the score of every node.
        let theirs = control_plane.kube_scheduler(&config, &["--vmodule=schedule_one=10"]);
        let ours = deployed::scheduler(&control_plane, "tidepool");
        let api = Api::new(&control_plane.admin()).unwrap();
        for (name, value) in [(GREATER, 1_000), (LESSER, -10)] {
            api.create(
                &json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": name}, "value": value}),
            )
            .unwrap();
        }
        Self {
            api,
            _ours: ours,
            _theirs: theirs.unwrap(),
            control_plane,
        }
    }

    /// Takes away what the test before made.
    fn empty(&self) {
        for deployments in ["deployments", "replicasets"] {
            self.delete_all(&format!("/apis/apps/v1/namespaces/default/{deployments}"));
        }
        for kind in ["pods", "services", "persistentvolumeclaims"] {
            self.delete_all(&format!("/api/v1/namespaces/default/{kind}"));
        }
        self.delete_all("/apis/policy/v1/namespaces/default/poddisruptionbudgets");
        self.delete_all("/api/v1/persistentvolumes");
        self.delete_all("/api/v1/nodes");
        self.delete_all("/apis/storage.k8s.io/v1/storageclasses");
        self.delete_all("/apis/storage.k8s.io/v1/csinodes");
    }

    fn delete_all(&self, path: &str) {
        eventually(&format!("{path} is empty"), SHORT, || {
            let items = self.api.list(path).map_err(|error| format!("{error:#}"))?;
            // The service of the API server itself comes back whatever one does.
            let ours = |item: &&Value| item["metadata"]["name"] != "kubernetes";
            let items: Vec<&Value> = items.iter().filter(ours).collect();
            for item in &items {
                let path = format!("{path}/{}", text(&item["metadata"]["name"]));
                if item["metadata"]["finalizers"].is_array() {
                    let none = json!({"metadata": {"finalizers": null}});
                    // It may be gone by now; the next look tells.
                    let _ = self.api.patch(&path, &none);
                }
                let _ = self.api.delete_now(&path);
            }
            if items.is_empty() {
                Ok(())
            } else {
                Err(format!("{} are left", items.len()))
            }
        });
    }

    pub(crate) fn create(&self, object: &Value) -> Value {
        self.api.create(object).unwrap()
    }

    pub(crate) fn pod(&self, name: &str) -> Value {
        self.api.get(&pod_path(name)).unwrap()
    }

    /// The node that the pod is bound to, once it is.
    pub(crate) fn node_of(&self, name: &str) -> String {
        eventually(&format!("pod {name} is bound"), SHORT, || {
            let pod = self.pod(name);
            let node = text(&pod["spec"]["nodeName"]);
            if node.is_empty() {
                Err(pod["status"].to_string())
            } else {
                Ok(node)
            }
        })
    }

    /// Returns once the condition and an event of the pod report that it cannot be scheduled, with this message first.
    pub(crate) fn await_refusal(&self, name: &str, message: &str) {
        eventually(&format!("pod {name} is refused"), SHORT, || {
            let pod = self.pod(name);
            let condition = condition(&pod, "PodScheduled");
            let events = self.events(&text(&pod["metadata"]["uid"]));
            let is_reported = events.iter().any(|event| {
                event["reason"] == "FailedScheduling" && text(&event["note"]).starts_with(message)
            });
            if is_reported && text(&condition["message"]).starts_with(message) {
                Ok(())
            } else {
                Err(format!("{condition} {events:?}"))
            }
        });
        assert_eq!(self.pod(name)["spec"]["nodeName"], Value::Null);
    }

    /// The events of a pod, oldest first.
    pub(crate) fn events(&self, uid: &str) -> Vec<Value> {
        let path = "/apis/events.k8s.io/v1/namespaces/default/events";
        let mut events = self.api.list(path).unwrap();
        events.retain(|event| event["regarding"]["uid"] == uid);
        events.sort_by_key(|event| text(&event["eventTime"]));
        events
    }
}

pub(crate) fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(crate) fn condition(pod: &Value, kind: &str) -> Value {
    let conditions = pod["status"]["conditions"].as_array();
    let found = conditions.and_then(|all| all.iter().find(|it| it["type"] == kind));
    found.cloned().unwrap_or_default()
}

/// A node with 8 cpus; `more` is merged into it.
pub(crate) fn node(name: &str, zone: &str, more: Value) -> Value {
    let capacity = json!({"cpu": "8", "memory": "16Gi", "pods": "20"});
    let labels = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone});
    let mut node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels}, "status": {"capacity": capacity}});
    merge(&mut node, more);
    node
}

/// A pod of ours with one container; `spec` is merged into its own.
pub(crate) fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"schedulerName": OURS, "containers": [{"name": "c", "image": "i"}]}});
    merge(&mut pod["spec"], spec);
    pod
}

/// What a container with this request looks like.
pub(crate) fn asks(resource: &str, amount: &str) -> Value {
    json!([{"name": "c", "image": "i",
        "resources": {"requests": {resource: amount}, "limits": {resource: amount}}}])
}

pub(crate) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
