//! The kinds that are followed, and how each becomes news for the engine.

use std::sync::Arc;

use api::parse;
use api::wire::core::{self, PodStatus};
use api::wire::meta::{Identity, ObjectMeta};
use api::wire::{katalyst, storage, workload};
use bytes::Bytes;
use engine::cluster::Update;
use engine::model::{Name, Pod, WorkloadKind};
use engine::scheduler::Input;
use prost::Message;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::known::Key;
use crate::scheduler::pods::PendingPod;

/// One object as it came.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Raw {
    Json(Bytes),
    /// The message without its envelope.
    Protobuf(Bytes),
}

pub(crate) struct Kind {
    /// The plural, for messages.
    pub(crate) name: &'static str,
    /// Of its list.
    pub(crate) path: &'static str,
    /// A field selector, encoded; empty for all objects.
    pub(crate) fields: &'static str,
    pub(crate) protobuf: bool,
    /// Whether we begin without it where we may not read it, as those who have kube-scheduler's own rights.
    pub(crate) optional: bool,
    pub(crate) read: fn(&Raw) -> Result<Item, Unreadable>,
    /// Message of an object that is gone, by its name and its uid.
    pub(crate) gone: fn(Key, Name) -> Input,
}

/// An object that was read.
pub(crate) struct Item {
    pub(crate) key: Key,
    pub(crate) uid: Name,
    pub(crate) version: String,
    pub(crate) what: What,
    /// What in it means nothing, in sentences with its name; only a CustomNodeResource has them.
    pub(crate) warnings: Vec<String>,
}

pub(crate) enum What {
    Object(Update),
    Pod(Arc<Pod>, PendingPod),
    /// It exists, but takes no room any more.
    Over,
}

/// An object that could not be read, or not all of it.
#[derive(Debug)]
pub(crate) struct Unreadable {
    /// A sentence with the object's name.
    pub(crate) text: String,
    pub(crate) whom: Whom,
}

/// Who is told besides those who read the log.
#[derive(Debug)]
pub(crate) enum Whom {
    Nobody,
    /// Whoever made this pod, which has no node.
    Pod(Arc<Pod>, PendingPod),
    /// Whoever looks at this CustomNodeResource, by name, uid and version.
    Report(Name, Name, Name),
}

impl Unreadable {
    pub(crate) fn other(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            whom: Whom::Nobody,
        }
    }
}

/// Pods that ended are left out by the server; one that ends looks deleted.
const NOT_ENDED: &str = "status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";

pub(crate) const ALL: &[Kind] = &[
    Kind {
        fields: NOT_ENDED,
        protobuf: true,
        ..kind("pods", "/api/v1/pods", pod, |_, uid| Input::PodGone(uid))
    },
    Kind {
        protobuf: true,
        ..kind("nodes", "/api/v1/nodes", node, |(_, name), _| {
            Input::Object(Update::NodeGone(name))
        })
    },
    kind(
        "namespaces",
        "/api/v1/namespaces",
        |raw| {
            json(raw, |object: core::Namespace| {
                let (name, labels) = parse::namespace(&object);
                item(object.metadata, Update::Namespace { name, labels })
            })
        },
        |(_, name), _| Input::Object(Update::NamespaceGone(name)),
    ),
    kind(
        "services",
        "/api/v1/services",
        |raw| {
            json(raw, |object: workload::Service| {
                let update = Update::Service(parse::service(&object));
                item(object.metadata, update)
            })
        },
        |(namespace, name), _| Input::Object(Update::ServiceGone { namespace, name }),
    ),
    kind(
        "replicationcontrollers",
        "/api/v1/replicationcontrollers",
        |raw| {
            json(raw, |object: workload::ReplicationController| {
                let update = Update::Workload(parse::replication_controller(&object));
                item(object.metadata, update)
            })
        },
        |key, _| workload_gone(WorkloadKind::ReplicationController, key),
    ),
    kind(
        "replicasets",
        "/apis/apps/v1/replicasets",
        |raw| workload(WorkloadKind::ReplicaSet, raw),
        |key, _| workload_gone(WorkloadKind::ReplicaSet, key),
    ),
    kind(
        "statefulsets",
        "/apis/apps/v1/statefulsets",
        |raw| workload(WorkloadKind::StatefulSet, raw),
        |key, _| workload_gone(WorkloadKind::StatefulSet, key),
    ),
    kind(
        "poddisruptionbudgets",
        "/apis/policy/v1/poddisruptionbudgets",
        |raw| {
            json(raw, |object: workload::PodDisruptionBudget| {
                let update = Update::Budget(parse::budget(&object));
                item(object.metadata, update)
            })
        },
        |(namespace, name), _| Input::Object(Update::BudgetGone { namespace, name }),
    ),
    Kind {
        optional: true,
        ..kind(
            "priorityclasses",
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            |raw| {
                json(raw, |object: workload::PriorityClass| {
                    let update = Update::PriorityClass(parse::priority_class(&object));
                    item(object.metadata, update)
                })
            },
            |(_, name), _| Input::Object(Update::PriorityClassGone(name)),
        )
    },
    kind(
        "persistentvolumes",
        "/api/v1/persistentvolumes",
        |raw| {
            json(raw, |object: storage::PersistentVolume| {
                let update = Update::Volume(parse::volume(&object)?);
                item(object.metadata, update)
            })
        },
        |(_, name), _| Input::Object(Update::VolumeGone(name)),
    ),
    kind(
        "persistentvolumeclaims",
        "/api/v1/persistentvolumeclaims",
        |raw| {
            json(raw, |object: storage::PersistentVolumeClaim| {
                let update = Update::Claim(parse::claim(&object)?);
                item(object.metadata, update)
            })
        },
        |(namespace, name), _| Input::Object(Update::ClaimGone { namespace, name }),
    ),
    kind(
        "storageclasses",
        "/apis/storage.k8s.io/v1/storageclasses",
        |raw| {
            json(raw, |object: storage::StorageClass| {
                let update = Update::StorageClass(parse::storage_class(&object));
                item(object.metadata, update)
            })
        },
        |(_, name), _| Input::Object(Update::StorageClassGone(name)),
    ),
    kind(
        "csinodes",
        "/apis/storage.k8s.io/v1/csinodes",
        |raw| {
            json(raw, |object: storage::CsiNode| {
                let update = Update::CsiNode(parse::csi_limits(&object));
                item(object.metadata, update)
            })
        },
        |(_, name), _| Input::Object(Update::CsiNodeGone(name)),
    ),
    kind(
        "csidrivers",
        "/apis/storage.k8s.io/v1/csidrivers",
        |raw| {
            json(raw, |object: storage::CsiDriver| {
                let update = Update::CsiDriver(parse::csi_driver(&object));
                item(object.metadata, update)
            })
        },
        |(_, name), _| Input::Object(Update::CsiDriverGone(name)),
    ),
    kind(
        "csistoragecapacities",
        "/apis/storage.k8s.io/v1/csistoragecapacities",
        |raw| {
            json(raw, |object: storage::CsiStorageCapacity| {
                let update = Update::StorageCapacity(parse::storage_capacity(&object)?);
                item(object.metadata, update)
            })
        },
        |(namespace, name), _| Input::Object(Update::StorageCapacityGone { namespace, name }),
    ),
    kind(
        "volumeattachments",
        "/apis/storage.k8s.io/v1/volumeattachments",
        |raw| {
            json(raw, |object: storage::VolumeAttachment| {
                let update = Update::VolumeAttachment(parse::volume_attachment(&object));
                item(object.metadata, update)
            })
        },
        |(_, name), _| Input::Object(Update::VolumeAttachmentGone(name)),
    ),
    kind(
        "customnoderesources",
        "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources",
        report,
        |(_, name), _| Input::Object(Update::CustomNodeResourceGone(name)),
    ),
];

const fn kind(
    name: &'static str,
    path: &'static str,
    read: fn(&Raw) -> Result<Item, Unreadable>,
    gone: fn(Key, Name) -> Input,
) -> Kind {
    Kind {
        name,
        path,
        fields: "",
        protobuf: false,
        optional: false,
        read,
        gone,
    }
}

fn key(meta: &ObjectMeta) -> Key {
    (meta.namespace.as_str().into(), meta.name.as_str().into())
}

type Parsed = Result<Item, parse::ParseError>;

fn item(meta: ObjectMeta, update: Update) -> Parsed {
    Ok(Item {
        key: key(&meta),
        uid: meta.uid.into(),
        version: meta.resource_version,
        what: What::Object(update),
        warnings: Vec::new(),
    })
}

fn json<T: DeserializeOwned>(
    raw: &Raw,
    parse: impl FnOnce(T) -> Parsed,
) -> Result<Item, Unreadable> {
    let Raw::Json(bytes) = raw else {
        return Err(Unreadable::other("an object came in protobuf, unasked"));
    };
    let object = serde_json::from_slice(bytes).map_err(|error| {
        // Items of lists do not say what they are.
        let typed: Option<Typed> = serde_json::from_slice(bytes).ok();
        let kind = typed.map_or("object".to_owned(), |it| it.kind.to_lowercase());
        let ruin = serde_json::from_slice(bytes).ok();
        spoiled(&kind, ruin, &error.to_string())
    })?;
    parse(object).map_err(|error| Unreadable::other(error.to_string()))
}

fn either<T: DeserializeOwned + Message + Default>(kind: &str, raw: &Raw) -> Result<T, Unreadable> {
    let (ruin, error) = match raw {
        Raw::Json(bytes) => match serde_json::from_slice(bytes) {
            Ok(object) => return Ok(object),
            Err(error) => (serde_json::from_slice(bytes).ok(), error.to_string()),
        },
        Raw::Protobuf(bytes) => match T::decode(&**bytes) {
            Ok(object) => return Ok(object),
            Err(error) => (Ruin::decode(&**bytes).ok(), error.to_string()),
        },
    };
    Err(spoiled(kind, ruin, &error))
}

fn report(raw: &Raw) -> Result<Item, Unreadable> {
    let parsed = |object: katalyst::CustomNodeResource| {
        let (report, warnings) = parse::custom_node_resource(&object);
        let item = item(object.metadata, Update::CustomNodeResource(report))?;
        Ok(Item { warnings, ..item })
    };
    json(raw, parsed).or_else(|unreadable| {
        let Raw::Json(bytes) = raw else {
            return Err(unreadable);
        };
        let Ok(Ruin { metadata, .. }) = serde_json::from_slice(bytes) else {
            return Err(unreadable);
        };
        // Nobody knows what the node lends now. What it lent before is no answer, so it lends nothing.
        let metadata = ObjectMeta::from(metadata);
        let nothing = parsed(katalyst::CustomNodeResource {
            metadata,
            ..Default::default()
        });
        let nothing = nothing.map_err(|error| Unreadable::other(error.to_string()))?;
        Ok(Item {
            warnings: vec![format!("{}; it counts as lending nothing", unreadable.text)],
            ..nothing
        })
    })
}

fn workload(kind: WorkloadKind, raw: &Raw) -> Result<Item, Unreadable> {
    json(raw, |object: workload::SelectingWorkload| {
        let update = Update::Workload(parse::workload(kind, &object));
        item(object.metadata, update)
    })
}

fn workload_gone(kind: WorkloadKind, (namespace, name): Key) -> Input {
    Input::Object(Update::WorkloadGone {
        kind,
        namespace,
        name,
    })
}

fn node(raw: &Raw) -> Result<Item, Unreadable> {
    let node: core::Node = either("node", raw)?;
    let update = parse::node(&node).map_err(|error| Unreadable::other(error.to_string()))?;
    item(node.metadata, Update::Node(update)).map_err(|error| Unreadable::other(error.to_string()))
}

fn pod(raw: &Raw) -> Result<Item, Unreadable> {
    let mut pod: core::Pod = either("pod", raw)?;
    let what = if pod.is_finished() {
        What::Over
    } else {
        let parsed = parse::pod(&pod).map_err(|error| unparsed(&mut pod, error.to_string()))?;
        What::Pod(Arc::new(parsed), note(&pod.metadata, &mut pod.status))
    };
    let (key, uid) = match &what {
        What::Pod(pod, _) => ((pod.namespace().clone(), pod.name.clone()), pod.uid.clone()),
        _ => (key(&pod.metadata), pod.metadata.uid.into()),
    };
    Ok(Item {
        key,
        uid,
        version: pod.metadata.resource_version,
        what,
        warnings: Vec::new(),
    })
}

fn note(meta: &ObjectMeta, status: &mut PodStatus) -> PendingPod {
    let conditions = std::mem::take(&mut status.conditions);
    let scheduled = conditions.into_iter().find(|it| it.kind == "PodScheduled");
    PendingPod::new(meta, &status.nominated_node_name, scheduled.as_ref())
}

/// The pod's fields make no sense together.
fn unparsed(pod: &mut core::Pod, text: String) -> Unreadable {
    let meta = &pod.metadata;
    let waits = pod.spec.node_name.is_empty();
    let whom = if waits {
        let named = named(meta, &pod.spec.scheduler_name);
        Whom::Pod(named, note(meta, &mut pod.status))
    } else {
        Whom::Nobody
    };
    Unreadable { text, whom }
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

/// What is left to read of an object that does not have the types it should have, or text that is none.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct Ruin {
    #[prost(message, required, tag = "1")]
    metadata: Identity,
    #[prost(message, required, tag = "2")]
    spec: RuinSpec,
}

#[derive(Deserialize)]
struct Typed {
    kind: String,
}

/// Of pods.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RuinSpec {
    #[prost(string, tag = "10")]
    node_name: String,
    #[prost(string, tag = "19")]
    scheduler_name: String,
}

fn spoiled(kind: &str, ruin: Option<Ruin>, error: &str) -> Unreadable {
    let Some(Ruin { metadata, spec }) = ruin else {
        return Unreadable::other(format!("{kind} that cannot be read: {error}"));
    };
    let meta = ObjectMeta::from(metadata);
    let (namespace, name) = key(&meta);
    let waits = kind == "pod" && spec.node_name.is_empty();
    let whom = if waits {
        let named = named(&meta, &spec.scheduler_name);
        Whom::Pod(named, PendingPod::new(&meta, "", None))
    } else {
        Whom::Nobody
    };
    Unreadable {
        text: format!("{kind} {namespace}/{name} cannot be read: {error}"),
        whom,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &'static str) -> Result<Item, Unreadable> {
        pod(&Raw::Json(Bytes::from_static(json.as_bytes())))
    }

    #[test]
    fn a_pod_that_ended_is_over() {
        let item = read(
            r#"{"metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"7"},"status":{"phase":"Failed"}}"#,
        );
        let item = item.unwrap_or_else(|error| panic!("{error:?}"));
        assert!(matches!(item.what, What::Over));
        assert_eq!((&*item.uid, &*item.version), ("u", "7"));
    }

    #[test]
    fn who_must_be_told_about_a_pod_that_cannot_be_read() {
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
            assert!(error.text.starts_with(text), "{case}: {}", error.text);
            assert_eq!(matches!(error.whom, Whom::Pod(..)), told, "{case}");
        }
    }

    #[test]
    fn text_that_is_none_spoils_only_its_pod() {
        let pod: core::Pod = serde_json::from_str(
            r#"{"metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"7","annotations":{"a":"garbled"}},"spec":{"schedulerName":"s"}}"#,
        )
        .unwrap();
        let mut bytes = pod.encode_to_vec();
        let place = bytes.windows(7).position(|it| it == b"garbled").unwrap();
        bytes[place] = 0xff;
        let bytes = Bytes::from(bytes);
        let Err(error) = super::pod(&Raw::Protobuf(bytes.clone())) else {
            panic!("it was read");
        };
        let text = "pod n/p cannot be read: ";
        assert!(error.text.starts_with(text), "{}", error.text);
        let Whom::Pod(told, note) = error.whom else {
            panic!("nobody is told");
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
                "customnoderesource /n cannot be read: invalid type: sequence",
            ),
            (
                r#"{"kind":"CustomNodeResource","metadata":{"name":"n","uid":"u"},"spec":{"taints":"none"}}"#,
                "customnoderesource /n cannot be read: invalid type: string",
            ),
        ] {
            let item = report(&Raw::Json(Bytes::from_static(json.as_bytes())));
            let item = item.unwrap_or_else(|error| panic!("{error:?}"));
            let What::Object(Update::CustomNodeResource(report)) = item.what else {
                panic!("{json} is no report");
            };
            assert_eq!(
                (&*report.node, report.allocatable),
                ("n", Default::default())
            );
            let [warning] = &item.warnings[..] else {
                panic!("{:?}", item.warnings);
            };
            assert!(warning.starts_with(text), "{warning}");
            assert!(
                warning.ends_with("; it counts as lending nothing"),
                "{warning}"
            );
        }
    }
}
