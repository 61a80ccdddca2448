//! Pods.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use api::{
    parse::{self, ParseError},
    wire::{core as wire, meta},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{PodReadinessGate, Toleration},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use reconcile::{Index, by_owner};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

super::kind!(Pod, "", "pods");

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Pod {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: PodSpec,
    #[serde(default)]
    pub(crate) status: PodStatus,
    /// The engine's model of the pod, parsed on first use.
    #[serde(skip)]
    model: OnceLock<Result<Arc<engine::model::Pod>, ParseError>>,
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
    pub(crate) priority: i32,
    pub(crate) os: Os,
    pub(crate) security_context: SecurityContext,
    volumes: Vec<Volume>,
    node_selector: Option<BTreeMap<String, String>>,
    affinity: wire::Affinity,
    resources: Option<wire::ResourceRequirements>,
    overhead: meta::ResourceList,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    name: String,
    persistent_volume_claim: Option<ClaimSource>,
    ephemeral: Option<EphemeralSource>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimSource {
    claim_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EphemeralSource {
    volume_claim_template: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Os {
    pub(crate) name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SecurityContext {
    pub(crate) supplemental_groups_policy: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) image: String,
    /// `Always` on an init container makes it a sidecar.
    pub(crate) restart_policy: String,
    lifecycle: Lifecycle,
    resources: wire::ResourceRequirements,
    ports: Vec<wire::ContainerPort>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Lifecycle {
    pre_stop: Hook,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Hook {
    sleep: Sleep,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Sleep {
    seconds: i64,
}

impl Container {
    /// How long its hook sleeps before the container gets its signal to stop.
    pub(crate) fn pre_stop_seconds(&self) -> u64 {
        u64::try_from(self.lifecycle.pre_stop.sleep.seconds).unwrap_or(0)
    }
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
    pub(crate) fn index(&self) -> Vec<Index> {
        let mut index = by_owner(self);
        if self.is_bound() {
            index.push(Index::Node(self.spec.node_name.clone()));
        }
        index
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
        let time = ready.last_transition_time.as_ref();
        Some(time.map_or(Timestamp::UNIX_EPOCH, |time| time.0))
    }

    /// The time until it is available, if it is ready; zero if it is available now.
    pub(crate) fn available_in(&self, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
        let min_ready = SignedDuration::from_secs(min_ready_seconds.into());
        let left = min_ready.saturating_sub(now.duration_since(self.ready_since()?));
        Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
    }

    pub(crate) fn restarts(&self) -> i32 {
        let counts = self
            .status
            .container_statuses
            .iter()
            .map(|c| c.restart_count);
        counts.max().unwrap_or(0)
    }

    /// When its last container ended, if it is known.
    pub(crate) fn ended(&self) -> Option<Timestamp> {
        let ends = self.status.container_statuses.iter();
        let ends = ends.filter_map(|c| c.state.terminated.as_ref()?.finished_at.as_ref());
        ends.map(|time| time.0).max()
    }

    /// The engine's model of the pod, or why it cannot be parsed.
    pub(crate) fn model(&self) -> Result<&Arc<engine::model::Pod>, &ParseError> {
        let parsed = self
            .model
            .get_or_init(|| parse::pod(&self.wire()).map(Arc::new));
        parsed.as_ref()
    }

    fn wire(&self) -> wire::Pod {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (meta, spec) = (&self.metadata, &self.spec);
        let container = |container: &Container| wire::Container {
            name: container.name.clone(),
            image: container.image.clone(),
            resources: container.resources.clone(),
            ports: container.ports.clone(),
            restart_policy: Some(container.restart_policy.clone()),
            ..wire::Container::default()
        };
        let toleration = |toleration: &Toleration| wire::Toleration {
            key: text(&toleration.key),
            operator: text(&toleration.operator),
            value: text(&toleration.value),
            effect: text(&toleration.effect),
        };
        let created = meta.creation_timestamp.as_ref().map(|time| meta::Time {
            seconds: time.0.as_second(),
            nanos: time.0.subsec_nanosecond(),
        });
        wire::Pod {
            metadata: meta::ObjectMeta {
                name: text(&meta.name),
                namespace: text(&meta.namespace),
                uid: text(&meta.uid),
                labels: meta.labels.clone().unwrap_or_default(),
                annotations: meta.annotations.clone().unwrap_or_default(),
                creation_timestamp: created,
                ..meta::ObjectMeta::default()
            },
            spec: wire::PodSpec {
                node_name: spec.node_name.clone(),
                priority: Some(spec.priority),
                containers: spec.containers.iter().map(container).collect(),
                init_containers: spec.init_containers.iter().map(container).collect(),
                resources: spec.resources.clone(),
                overhead: spec.overhead.clone(),
                node_selector: spec.node_selector.clone().unwrap_or_default(),
                affinity: spec.affinity.clone(),
                tolerations: spec.tolerations.iter().map(toleration).collect(),
                ..wire::PodSpec::default()
            },
            status: wire::PodStatus::default(),
        }
    }

    /// The node that it is bound to, or else the only one that its node affinity names.
    pub(crate) fn target_node(&self) -> Option<&str> {
        if self.is_bound() {
            return Some(&self.spec.node_name);
        }
        let affinity = self.spec.affinity.node_affinity.as_ref()?;
        let terms = &affinity.required.as_ref()?.node_selector_terms;
        let mut fields = terms.iter().flat_map(|term| &term.match_fields);
        let name = fields.find(|field| field.key == "metadata.name" && field.operator == "In")?;
        name.values.first().map(String::as_str)
    }

    /// The names of the claims that it uses.
    pub(crate) fn claim_names(&self) -> impl Iterator<Item = String> {
        let of_others = self.spec.volumes.iter().filter_map(|volume| {
            let source = volume.persistent_volume_claim.as_ref()?;
            Some(source.claim_name.clone())
        });
        of_others.chain(self.own_claims().map(|(name, _)| name))
    }

    /// The claims that exist only for this pod: their names and templates.
    pub(crate) fn own_claims(&self) -> impl Iterator<Item = (String, &Value)> {
        self.spec.volumes.iter().filter_map(|volume| {
            let source = volume.ephemeral.as_ref()?;
            let name = format!("{}-{}", self.name(), volume.name);
            Some((name, &source.volume_claim_template))
        })
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Pods for tables of test cases.

    use super::*;
    use serde_json::json;

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
