//! The kinds that the scheduler watches, and how their objects become inputs of the engine.

use std::fmt;
use std::sync::Arc;

use api::parse::{self, Manifest};
use api::wire::core::{self, PodStatus};
use api::wire::katalyst;
use api::wire::meta::{Identity, ObjectMeta};
use engine::cluster::kinds::{Key, Kind, Object, Update};
use engine::model::{Name, Pod};
use engine::scheduling::scheduler::Input;
use prost::Message;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::scheduler::channel::{self, Channel};
use crate::scheduler::claim_waits::ClaimWaits;
use crate::scheduler::pods::{PendingPod, PendingPods};
use reconcile::watch::{Handler, ObjectChange, Observed, Progress, RawObject, Resource};

pub(crate) static WATCHED: &[(Kind, Resource)] = &[
    (
        Kind::Pod,
        Resource {
            // One that ends looks deleted.
            field_selector: core::NOT_FINISHED,
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
    // kube-scheduler's own role cannot read them.
    optional(Kind::PriorityClass),
    watched(Kind::Namespace),
    watched(Kind::Service),
    watched(Kind::ReplicationController),
    watched(Kind::ReplicaSet),
    watched(Kind::StatefulSet),
    watched(Kind::PodDisruptionBudget),
    watched(Kind::PersistentVolume),
    watched(Kind::PersistentVolumeClaim),
    watched(Kind::StorageClass),
    watched(Kind::CsiNode),
    watched(Kind::CsiDriver),
    watched(Kind::CsiStorageCapacity),
    watched(Kind::VolumeAttachment),
    // Not every cluster has them.
    optional(Kind::CustomNodeResource),
    optional(Kind::ResourcePolicy),
];

const fn watched(kind: Kind) -> (Kind, Resource) {
    (kind, Resource::at(parse::path(kind)))
}

pub(crate) const fn optional(kind: Kind) -> (Kind, Resource) {
    let resource = Resource {
        optional: true,
        ..Resource::at(parse::path(kind))
    };
    (kind, resource)
}

/// The progress of the kinds that the scheduler watches.
pub(crate) fn progress() -> Progress {
    Progress::new(WATCHED.iter().map(|(_, resource)| resource))
}

/// Where objects of all kinds go.
#[derive(Clone)]
pub(crate) struct Inbox {
    pub(crate) channel: Arc<Channel>,
    pub(crate) pods: Arc<PendingPods>,
    pub(crate) claim_waits: Arc<ClaimWaits>,
    pub(crate) problems: mpsc::Sender<InvalidObject>,
}

impl Inbox {
    pub(crate) fn of(self, kind: Kind) -> KindInbox {
        KindInbox { kind, inbox: self }
    }
}

/// Where objects of one kind go.
pub(crate) struct KindInbox {
    kind: Kind,
    inbox: Inbox,
}

/// An object for the engine.
pub(crate) enum Parsed {
    Pod(Arc<Pod>, PendingPod),
    Other(Object),
}

pub(crate) type ParsedObject = Observed<Parsed, InvalidObject>;

/// An object that cannot be parsed, or not all of it.
#[derive(Debug)]
pub(crate) struct InvalidObject {
    /// With the name of the object.
    pub(crate) message: String,
    pub(crate) event: EventTarget,
}

/// The object that gets an event about it.
#[derive(Debug)]
pub(crate) enum EventTarget {
    None,
    /// A pod without a node.
    Pod(Arc<Pod>, PendingPod),
    /// A CustomNodeResource, by name, uid and version.
    Report(Name, Name, Name),
}

impl fmt::Display for InvalidObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl InvalidObject {
    fn without_event(message: impl ToString) -> Self {
        Self {
            message: message.to_string(),
            event: EventTarget::None,
        }
    }
}

impl Handler for KindInbox {
    type Object = Parsed;
    type Problem = InvalidObject;

    fn parse(&self, raw: &RawObject) -> Result<ParsedObject, InvalidObject> {
        parse_object(self.kind, raw)
    }

    /// Waits while the engine is too far behind.
    async fn deliver(&self, changes: Vec<ObjectChange<Parsed>>) {
        let Inbox {
            channel,
            pods,
            claim_waits,
            ..
        } = &self.inbox;
        let input = |change| match change {
            ObjectChange::Applied(Parsed::Other(object)) => Input::Object(object.into()),
            ObjectChange::Applied(Parsed::Pod(pod, pending)) => {
                if pod.node.is_none() && pods.is_ours(&pod.scheduler_name) {
                    pods.set(&pod.uid, pending);
                } else {
                    pods.forget(&pod.uid);
                }
                Input::Pod(pod)
            }
            ObjectChange::Deleted { uid, .. } if self.kind == Kind::Pod => {
                pods.forget(&uid);
                Input::PodGone(uid)
            }
            ObjectChange::Deleted { key, .. } => Input::Object(Update::Delete(self.kind, key)),
        };
        let inputs: Vec<Input> = changes.into_iter().map(input).collect();
        claim_waits.observe(&inputs);
        channel
            .send(inputs.into_iter().map(channel::Message::Input).collect())
            .await;
    }

    async fn synced(&self, kind: &'static str) {
        self.inbox
            .channel
            .send(vec![channel::Message::Synced(kind)])
            .await;
    }

    fn report(&self, problem: InvalidObject) {
        tracing::warn!("{problem}");
        let has_event = !matches!(problem.event, EventTarget::None);
        if has_event && self.inbox.problems.try_send(problem).is_err() {
            tracing::warn!("too many invalid objects; dropping an event about one");
        }
    }
}

/// An object as it was received, in the form of the engine.
pub(crate) fn parse_object(kind: Kind, raw: &RawObject) -> Result<ParsedObject, InvalidObject> {
    match kind {
        Kind::Pod => pod(raw),
        Kind::Node => node(raw),
        Kind::CustomNodeResource => report(raw),
        Kind::ResourcePolicy => policy(raw),
        kind => json(kind, raw),
    }
}

fn key(meta: &ObjectMeta) -> Key {
    Key::new(meta.namespace.as_str(), meta.name.as_str())
}

fn observed(meta: ObjectMeta, object: Object) -> ParsedObject {
    Observed {
        key: key(&meta),
        uid: meta.uid.into(),
        resource_version: meta.resource_version,
        object: Some(Parsed::Other(object)),
        problem: None,
    }
}

fn json(kind: Kind, raw: &RawObject) -> Result<ParsedObject, InvalidObject> {
    let RawObject::Json(bytes) = raw else {
        return Err(InvalidObject::without_event(format_args!(
            "{kind} in protobuf: only JSON was requested"
        )));
    };
    let mut from = serde_json::Deserializer::from_slice(bytes);
    let mut manifest = Manifest::read(kind, &mut from).map_err(|error| {
        let partial = serde_json::from_slice(bytes).ok();
        unreadable(kind, partial, &error.to_string())
    })?;
    let mut warnings = Vec::new();
    let object = manifest.parse(&mut warnings);
    let object = object.map_err(InvalidObject::without_event)?;
    let meta = std::mem::take(manifest.metadata_mut());
    let problem = (!warnings.is_empty()).then(|| match kind {
        Kind::CustomNodeResource => invalid_report(&meta, warnings.join("; ")),
        // The controller writes it into the policy's status.
        _ => InvalidObject::without_event(warnings.join("; ")),
    });
    Ok(Observed {
        problem,
        ..observed(meta, object)
    })
}

fn invalid_report(meta: &ObjectMeta, message: String) -> InvalidObject {
    let event = EventTarget::Report(
        meta.name.as_str().into(),
        meta.uid.as_str().into(),
        meta.resource_version.as_str().into(),
    );
    InvalidObject { message, event }
}

fn either<T: DeserializeOwned + Message + Default>(
    kind: Kind,
    raw: &RawObject,
) -> Result<T, InvalidObject> {
    let (partial, error) = match raw {
        RawObject::Json(bytes) => match serde_json::from_slice(bytes) {
            Ok(object) => return Ok(object),
            Err(error) => (serde_json::from_slice(bytes).ok(), error.to_string()),
        },
        RawObject::Protobuf(bytes) => match T::decode(&**bytes) {
            Ok(object) => return Ok(object),
            Err(error) => (PartialPod::decode(&**bytes).ok(), error.to_string()),
        },
    };
    Err(unreadable(kind, partial, &error))
}

fn report(raw: &RawObject) -> Result<ParsedObject, InvalidObject> {
    json(Kind::CustomNodeResource, raw).or_else(|invalid| {
        let RawObject::Json(bytes) = raw else {
            return Err(invalid);
        };
        let Ok(PartialPod { metadata, .. }) = serde_json::from_slice(bytes) else {
            return Err(invalid);
        };
        // What the node lent before may not be true any more, so it lends nothing.
        let empty = katalyst::CustomNodeResource {
            metadata: ObjectMeta::from(metadata),
            ..Default::default()
        };
        let (report, _) = parse::custom_node_resource(&empty);
        let message = format!("{invalid}; the node has no reclaimed resources");
        Ok(Observed {
            problem: Some(invalid_report(&empty.metadata, message)),
            ..observed(empty.metadata, report.into())
        })
    })
}

fn policy(raw: &RawObject) -> Result<ParsedObject, InvalidObject> {
    json(Kind::ResourcePolicy, raw).or_else(|invalid| {
        let RawObject::Json(bytes) = raw else {
            return Err(invalid);
        };
        let Ok(PartialPod { metadata, .. }) = serde_json::from_slice(bytes) else {
            return Err(invalid);
        };
        // What the policy said before may not be wanted any more.
        let meta = ObjectMeta::from(metadata);
        let policy = parse::unreadable_resource_policy(&meta, invalid.to_string());
        let message = format!("{invalid}; the policy has no effect");
        Ok(Observed {
            problem: Some(InvalidObject::without_event(message)),
            ..observed(meta, policy.into())
        })
    })
}

fn node(raw: &RawObject) -> Result<ParsedObject, InvalidObject> {
    let node: core::Node = either(Kind::Node, raw)?;
    let parsed = parse::node(&node).map_err(InvalidObject::without_event)?;
    Ok(observed(node.metadata, parsed.into()))
}

fn pod(raw: &RawObject) -> Result<ParsedObject, InvalidObject> {
    let mut pod: core::Pod = either(Kind::Pod, raw)?;
    if pod.is_finished() {
        return Ok(Observed {
            key: key(&pod.metadata),
            uid: pod.metadata.uid.into(),
            resource_version: pod.metadata.resource_version,
            object: None,
            problem: None,
        });
    }
    let parsed = parse::pod(&pod).map_err(|error| invalid_pod(&mut pod, error.to_string()))?;
    Ok(Observed {
        key: Key::new(parsed.namespace().clone(), parsed.name.clone()),
        uid: parsed.uid.clone(),
        object: Some(Parsed::Pod(
            Arc::new(parsed),
            pending(&pod.metadata, &mut pod.status),
        )),
        resource_version: pod.metadata.resource_version,
        problem: None,
    })
}

fn pending(meta: &ObjectMeta, status: &mut PodStatus) -> PendingPod {
    let conditions = std::mem::take(&mut status.conditions);
    let scheduled = conditions.into_iter().find(|it| it.kind == "PodScheduled");
    PendingPod::new(meta, &status.nominated_node_name, scheduled.as_ref())
}

/// A pod with values that are not allowed.
fn invalid_pod(pod: &mut core::Pod, message: String) -> InvalidObject {
    let meta = &pod.metadata;
    let event = match pod.spec.node_name.is_empty() {
        true => EventTarget::Pod(
            named(meta, &pod.spec.scheduler_name),
            pending(meta, &mut pod.status),
        ),
        false => EventTarget::None,
    };
    InvalidObject { message, event }
}

/// As much of a pod as events are about.
fn named(meta: &ObjectMeta, scheduler_name: &str) -> Arc<Pod> {
    let kind = engine::model::PodKind {
        namespace: meta.namespace.as_str().into(),
        ..Default::default()
    };
    Arc::new(Pod {
        name: meta.name.as_str().into(),
        uid: meta.uid.as_str().into(),
        scheduler_name: scheduler_name.into(),
        kind: Arc::new(kind),
        ..Pod::default()
    })
}

/// What can be read of an object with values of wrong types, or with text that is not UTF-8.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct PartialPod {
    #[prost(message, required, tag = "1")]
    metadata: Identity,
    #[prost(message, required, tag = "2")]
    spec: PartialPodSpec,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PartialPodSpec {
    #[prost(string, tag = "10")]
    node_name: String,
    #[prost(string, tag = "19")]
    scheduler_name: String,
}

fn unreadable(kind: Kind, partial: Option<PartialPod>, error: &str) -> InvalidObject {
    let name = kind.to_string().to_lowercase();
    let Some(PartialPod { metadata, spec }) = partial else {
        return InvalidObject::without_event(format_args!("{name} that cannot be read: {error}"));
    };
    let meta = ObjectMeta::from(metadata);
    let event = match kind == Kind::Pod && spec.node_name.is_empty() {
        true => EventTarget::Pod(
            named(&meta, &spec.scheduler_name),
            PendingPod::new(&meta, "", None),
        ),
        false => EventTarget::None,
    };
    InvalidObject {
        message: format!("{name} {} cannot be read: {error}", key(&meta)),
        event,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn read(json: &'static str) -> Result<ParsedObject, InvalidObject> {
        pod(&RawObject::Json(Bytes::from_static(json.as_bytes())))
    }

    #[test]
    fn a_pod_that_ended_counts_as_deleted() {
        let item = read(
            r#"{"metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"7"},"status":{"phase":"Failed"}}"#,
        );
        let item = item.unwrap_or_else(|error| panic!("{error:?}"));
        assert!(item.object.is_none());
        assert_eq!((&*item.uid, &*item.resource_version), ("u", "7"));
    }

    #[test]
    fn a_waiting_pod_that_is_invalid_gets_an_event() {
        for (case, json, text, told) in [
            (
                "a quantity that is none",
                r#"{"kind":"Pod","metadata":{"name":"p","namespace":"n"},"spec":{"schedulerName":"s","containers":[{"name":"c","resources":{"requests":{"cpu":"many"}}}]}}"#,
                "pod n/p: cpu of spec.containers",
                true,
            ),
            (
                "bound already",
                r#"{"kind":"Pod","metadata":{"name":"p","namespace":"n"},"spec":{"nodeName":"x","containers":[{"name":"c","resources":{"requests":{"cpu":"many"}}}]}}"#,
                "pod n/p: cpu of spec.containers",
                false,
            ),
            (
                "a wrong type",
                r#"{"kind":"Pod","metadata":{"name":"p","namespace":"n"},"spec":{"priority":"high"}}"#,
                "pod n/p cannot be read: invalid type",
                true,
            ),
            ("no object", "7", "pod that cannot be read", false),
        ] {
            let Err(error) = read(json) else {
                panic!("{case}: it was read");
            };
            assert!(error.message.starts_with(text), "{case}: {}", error.message);
            assert_eq!(matches!(error.event, EventTarget::Pod(..)), told, "{case}");
        }
    }

    #[test]
    fn text_that_is_not_utf_8_invalidates_only_its_pod() {
        let pod: core::Pod = serde_json::from_str(
            r#"{"metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"7","annotations":{"a":"garbled"}},"spec":{"schedulerName":"s"}}"#,
        )
        .unwrap();
        let mut bytes = pod.encode_to_vec();
        let place = bytes.windows(7).position(|it| it == b"garbled").unwrap();
        bytes[place] = 0xff;
        let bytes = Bytes::from(bytes);
        let Err(error) = super::pod(&RawObject::Protobuf(bytes.clone())) else {
            panic!("it was read");
        };
        let text = "pod n/p cannot be read: ";
        assert!(error.message.starts_with(text), "{}", error.message);
        let EventTarget::Pod(told, note) = error.event else {
            panic!("no event");
        };
        assert_eq!((&*told.uid, &*told.scheduler_name), ("u", "s"));
        assert_eq!(&*note.version, "7");
        let known = api::wire::meta::Partial::decode_identity(&bytes).unwrap();
        assert_eq!(known.metadata.name, "p");
    }

    #[test]
    fn a_report_that_cannot_be_read_lends_nothing() {
        for (json, text) in [
            (
                r#"{"kind":"CustomNodeResource","metadata":{"name":"n","uid":"u"},"status":{"resources":{"allocatable":[1,2]}}}"#,
                "customnoderesource n cannot be read: invalid type: sequence",
            ),
            (
                r#"{"kind":"CustomNodeResource","metadata":{"name":"n","uid":"u"},"spec":{"taints":"none"}}"#,
                "customnoderesource n cannot be read: invalid type: string",
            ),
        ] {
            let item = report(&RawObject::Json(Bytes::from_static(json.as_bytes())));
            let item = item.unwrap_or_else(|error| panic!("{error:?}"));
            let Some(Parsed::Other(Object::CustomNodeResource(report))) = item.object else {
                panic!("{json} is no report");
            };
            assert_eq!(
                (&*report.node, report.allocatable),
                ("n", Default::default())
            );
            let warning = item.problem.unwrap().message;
            assert!(warning.starts_with(text), "{warning}");
            assert!(
                warning.ends_with("; the node has no reclaimed resources"),
                "{warning}"
            );
        }
    }
}
