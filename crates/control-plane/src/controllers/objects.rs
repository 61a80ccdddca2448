//! Reads watched objects and names written ones: what several controllers share.

use api::wire::meta::{Map, ObjectMeta};
use engine::cluster::kinds::Key;
use engine::model::{Labels, Name};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta as Target;
use prost::Message;
use serde::de::DeserializeOwned;

use reconcile::watch::{Observed, RawObject};

/// Decodes an object from JSON or protobuf.
pub(super) fn either<T: DeserializeOwned + Message + Default>(
    kind: &str,
    raw: &RawObject,
) -> Result<T, String> {
    let parsed = match raw {
        RawObject::Json(bytes) => serde_json::from_slice(bytes).map_err(|it| it.to_string()),
        RawObject::Protobuf(bytes) => T::decode(&**bytes).map_err(|it| it.to_string()),
    };
    parsed.map_err(|error| format!("{kind} cannot be read: {error}"))
}

/// Decodes an object that was requested as JSON.
pub(super) fn json<T: DeserializeOwned>(kind: &str, raw: &RawObject) -> Result<T, String> {
    let RawObject::Json(bytes) = raw else {
        return Err(format!("{kind} in protobuf: only JSON was requested"));
    };
    serde_json::from_slice(bytes).map_err(|error| format!("{kind} cannot be read: {error}"))
}

/// An object without problems; None if it has ended.
pub(super) fn observed<T>(meta: &ObjectMeta, object: Option<T>) -> Observed<T, String> {
    Observed {
        key: Key::new(meta.namespace.as_str(), meta.name.as_str()),
        uid: meta.uid.as_str().into(),
        resource_version: meta.resource_version.clone(),
        object,
        problem: None,
    }
}

/// The object to write: another one with the same name is not changed.
pub(super) fn target(namespace: Option<&str>, name: &str, uid: &Name) -> Target {
    Target {
        namespace: namespace.map(str::to_owned),
        name: Some(name.to_owned()),
        uid: Some(uid.to_string()),
        ..Target::default()
    }
}

/// The pod that an event is about.
pub(super) fn pod_reference(namespace: &Name, name: &Name, uid: &Name) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.to_string()),
        name: Some(name.to_string()),
        uid: Some(uid.to_string()),
        ..ObjectReference::default()
    }
}

pub(super) fn labels(labels: &Map) -> Labels {
    let pairs = labels.iter();
    pairs
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}
