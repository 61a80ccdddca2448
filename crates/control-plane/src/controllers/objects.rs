//! Reads watched objects: what the handlers of several controllers share.

use api::wire::meta::{Map, ObjectMeta};
use engine::kinds::Key;
use engine::model::Labels;
use prost::Message;
use serde::de::DeserializeOwned;

use crate::watch::{Observed, RawObject};

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

pub(super) fn labels(labels: &Map) -> Labels {
    let pairs = labels.iter();
    pairs
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}
