//! Kubernetes objects with the fields that the engine reads. Decoding skips other fields and reads `null` as absent.
//!
//! Pods and nodes, of which there are many, can also be decoded from protobuf; one struct describes both formats.

pub mod colocation;
pub mod core;
pub mod envelope;
pub mod katalyst;
pub mod koordinator;
pub mod meta;
pub mod policy;
pub mod storage;
pub mod workload;

use serde::{Deserialize, Deserializer};

/// `null` reads as the default, as Kubernetes reads it.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
