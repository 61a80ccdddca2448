//! A pod as the controllers and nodes here need it: a tenth of the whole, because there are many.
//!
//! It is only ever read. What is written to a pod is a patch, and new pods are made from whole templates.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{PodReadinessGate, Toleration},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::Resource;
use serde::{Deserialize, de::IgnoredAny};

use crate::cache::{Link, by_owner};

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Pod {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: PodSpec,
    #[serde(default)]
    pub(crate) status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    pub(crate) node_name: String,
    pub(crate) restart_policy: String,
    pub(crate) host_network: bool,
    pub(crate) containers: Vec<Container>,
    pub(crate) init_containers: Vec<Container>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) readiness_gates: Vec<PodReadinessGate>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) image: String,
    /// `Always` on an init container makes it a sidecar.
    pub(crate) restart_policy: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    pub(crate) phase: String,
    #[serde(rename = "podIP")]
    pub(crate) pod_ip: String,
    pub(crate) start_time: Option<Time>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) type_: String,
    pub(crate) status: String,
    pub(crate) last_transition_time: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    pub(crate) restart_count: i32,
    pub(crate) state: ContainerState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerState {
    pub(crate) running: Option<IgnoredAny>,
    pub(crate) terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Terminated {
    pub(crate) finished_at: Option<Time>,
}

impl Pod {
    pub(crate) fn links(&self) -> Vec<Link> {
        let mut links = by_owner(self);
        if self.is_bound() {
            links.push(Link::Node(self.spec.node_name.clone()));
        }
        links
    }

    pub(crate) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(crate) fn is_bound(&self) -> bool {
        !self.spec.node_name.is_empty()
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Succeeded or failed: its containers will not run again.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Counts as one of its owner's replicas.
    pub(crate) fn is_active(&self) -> bool {
        !self.is_finished() && !self.is_deleting()
    }

    pub(crate) fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|c| c.type_ == type_)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|c| c.status == "True")
    }

    /// When it became ready, if it is.
    pub(crate) fn ready_since(&self) -> Option<Timestamp> {
        let ready = self.condition("Ready").filter(|c| c.status == "True")?;
        ready.last_transition_time.as_ref().map(|time| time.0)
    }

    pub(crate) fn restarts(&self) -> i32 {
        let counts = self
            .status
            .container_statuses
            .iter()
            .map(|c| c.restart_count);
        counts.max().unwrap_or(0)
    }

    /// When its last container ended, if that is known.
    pub(crate) fn ended(&self) -> Option<Timestamp> {
        let ends = self.status.container_statuses.iter();
        let ends = ends.filter_map(|c| c.state.terminated.as_ref()?.finished_at.as_ref());
        ends.map(|time| time.0).max()
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }
}

impl Resource for Pod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Short ways to say a pod in a table of cases.

    use super::*;
    use serde_json::{Value, json};

    /// A pod of namespace `ns` whose uid is its name, from the parts that matter to the case.
    pub(crate) fn pod(name: &str, parts: Value) -> Pod {
        let mut whole = json!({
            "metadata": {"namespace": "ns", "name": name, "uid": name},
            "spec": {"containers": [{"name": "main", "image": "app:1"}], "restartPolicy": "Always"},
        });
        merge(&mut whole, parts);
        serde_json::from_value(whole).unwrap()
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
}
