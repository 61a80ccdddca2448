//! Kubernetes objects, as far as the engine reads them. Unknown fields are skipped, `null` is "not given".
//!
//! Pods and nodes, of which there are many, are read from protobuf as well as from JSON: one struct says both.

pub mod core;
pub mod envelope;
pub mod katalyst;
pub mod meta;
pub mod storage;
pub mod workload;

use serde::{Deserialize, Deserializer};

/// `null` reads as the default, as Kubernetes reads it.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
