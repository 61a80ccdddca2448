//! The kinds that the gate watches. Every change is in the judge's state before the next bind is judged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::parse;
use api::wire::core::{self, NOT_FINISHED};
use engine::binding::gate::{BindGate, GatePod, Machine};
use engine::cluster::kinds::{Kind, Object, Update};
use engine::model::Pod;
use prost::Message;
use serde::Deserialize;

use crate::scheduler::kinds::{self as objects, InvalidObject, Parsed};
use reconcile::watch::{Handler, ObjectChange, Observed, Progress, RawObject, Resource};

pub(super) static WATCHED: [(Kind, Resource); 4] = [
    (
        Kind::Pod,
        Resource {
            // One that ends looks deleted.
            field_selector: NOT_FINISHED,
            protobuf: true,
            ..Resource::at(parse::path(Kind::Pod))
        },
    ),
    (
        Kind::Node,
        Resource {
            protobuf: true,
            ..Resource::at(parse::path(Kind::Node))
        },
    ),
    // Not every cluster has them.
    objects::optional(Kind::CustomNodeResource),
    objects::optional(Kind::ResourcePolicy),
];

pub(super) fn progress() -> Progress {
    Progress::new(WATCHED.iter().map(|(_, resource)| resource))
}

/// The judge, which watches change and reviews ask, one after the other.
#[derive(Clone, Default)]
pub(super) struct Judge(Arc<Mutex<BindGate>>);

impl Judge {
    pub(super) fn lock(&self) -> MutexGuard<'_, BindGate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(&self, kind: Kind) -> GateKindHandler {
        GateKindHandler {
            kind,
            judge: self.clone(),
        }
    }
}

/// Takes the objects of one kind.
pub(super) struct GateKindHandler {
    kind: Kind,
    judge: Judge,
}

/// An object for the judge.
pub(super) enum Watched {
    Pod(GatePod),
    Node(Object, Machine),
    Other(Object),
}

impl Handler for GateKindHandler {
    type Object = Watched;
    type Problem = InvalidObject;

    fn parse(&self, raw: &RawObject) -> Result<Observed<Watched, InvalidObject>, InvalidObject> {
        let observed = objects::parse_object(self.kind, raw)?;
        let uid = observed.uid.clone();
        let object = observed.object.map(|object| match object {
            Parsed::Pod(pod, _) => Watched::Pod(gate_pod(pod, &read(raw))),
            Parsed::Other(object) if self.kind == Kind::Node => {
                let NodeFields { status } = read(raw);
                let machine = Machine {
                    uid,
                    os: status.node_info.operating_system.into(),
                    supports_strict_groups: status.features.supplemental_groups_policy,
                };
                Watched::Node(object, machine)
            }
            Parsed::Other(object) => Watched::Other(object),
        });
        Ok(Observed {
            key: observed.key,
            uid: observed.uid,
            resource_version: observed.resource_version,
            object,
            problem: observed.problem,
        })
    }

    async fn deliver(&self, changes: Vec<ObjectChange<Watched>>) {
        let mut gate = self.judge.lock();
        for change in changes {
            match change {
                ObjectChange::Applied(Watched::Pod(pod)) => gate.set_pod(pod),
                ObjectChange::Applied(Watched::Node(node, machine)) => {
                    gate.set_machine(node.key().name, machine);
                    gate.apply(node.into());
                }
                ObjectChange::Applied(Watched::Other(object)) => gate.apply(object.into()),
                ObjectChange::Deleted { key, uid } if self.kind == Kind::Pod => {
                    gate.remove_pod(&key, &uid);
                }
                ObjectChange::Deleted { key, .. } => {
                    if self.kind == Kind::Node {
                        gate.remove_machine(&key.name);
                    }
                    gate.apply(Update::Delete(self.kind, key));
                }
            }
        }
    }

    async fn synced(&self, _: &'static str) {}

    fn report(&self, problem: InvalidObject) {
        tracing::warn!("{problem}");
    }
}

fn gate_pod(pod: Arc<Pod>, fields: &PodFields) -> GatePod {
    let spec = &fields.spec;
    let os = &spec.os.name;
    GatePod {
        os: (!os.is_empty()).then(|| os.as_str().into()),
        strict_groups: spec.security_context.supplemental_groups_policy == "Strict",
        pod,
    }
}

/// A pod that was read as JSON; `None` if it has ended.
pub(super) fn read_pod(bytes: &[u8]) -> Result<Option<GatePod>, String> {
    let read_error = |error: serde_json::Error| error.to_string();
    let pod: core::Pod = serde_json::from_slice(bytes).map_err(read_error)?;
    if pod.is_finished() {
        return Ok(None);
    }
    let parsed = parse::pod(&pod).map_err(|error| error.to_string())?;
    let fields: PodFields = serde_json::from_slice(bytes).map_err(read_error)?;
    Ok(Some(gate_pod(Arc::new(parsed), &fields)))
}

/// The fields of an object that was parsed already, so it can be read.
fn read<T: Message + Default + serde::de::DeserializeOwned>(raw: &RawObject) -> T {
    let read = match raw {
        RawObject::Json(bytes) => serde_json::from_slice(bytes).ok(),
        RawObject::Protobuf(bytes) => T::decode(&**bytes).ok(),
    };
    read.unwrap_or_default()
}

/// What a kubelet reads of a pod and a scheduler does not.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct PodFields {
    #[prost(message, required, tag = "2")]
    spec: PodSpecFields,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpecFields {
    #[prost(message, required, tag = "14")]
    security_context: SecurityContext,
    #[prost(message, required, tag = "36")]
    os: PodOs,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SecurityContext {
    #[prost(string, tag = "12")]
    supplemental_groups_policy: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct PodOs {
    #[prost(string, tag = "1")]
    name: String,
}

/// What a kubelet knows of its machine.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct NodeFields {
    #[prost(message, required, tag = "3")]
    status: NodeStatusFields,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeStatusFields {
    #[prost(message, required, tag = "7")]
    node_info: NodeInfo,
    #[prost(message, required, tag = "13")]
    features: NodeFeatures,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeInfo {
    #[prost(string, tag = "9")]
    operating_system: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeFeatures {
    #[prost(bool, tag = "1")]
    supplemental_groups_policy: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_only_kubelets_read_is_the_same_in_both_formats() {
        let pod = json!({"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": {"os": {"name": "windows"},
            "securityContext": {"supplementalGroupsPolicy": "Strict"}, "containers": []}});
        let read_pod = read_pod(pod.to_string().as_bytes()).unwrap().unwrap();
        assert_eq!(
            (read_pod.os.as_deref(), read_pod.strict_groups),
            (Some("windows"), true)
        );
        let fields: PodFields = serde_json::from_value(pod).unwrap();
        assert_eq!(PodFields::decode(&*fields.encode_to_vec()).unwrap(), fields);

        let node: NodeFields =
            serde_json::from_value(json!({"status": {"nodeInfo": {"operatingSystem": "linux"},
            "features": {"supplementalGroupsPolicy": true}}}))
            .unwrap();
        assert!(node.status.features.supplemental_groups_policy);
        assert_eq!(node.status.node_info.operating_system, "linux");
        // A node of an old kubelet says neither.
        let old: NodeFields = serde_json::from_value(json!({"status": {}})).unwrap();
        assert_eq!(old, NodeFields::default());
    }

    #[test]
    fn a_pod_that_has_ended_is_gone() {
        let pod = json!({"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": {}, "status": {"phase": "Failed"}});
        assert!(read_pod(pod.to_string().as_bytes()).unwrap().is_none());
        assert!(read_pod(b"{").is_err());
    }
}
