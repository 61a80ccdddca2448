//! What is true of every Kubernetes object, whatever its kind: how its fields are named, read, patched and owned.
//!
//! Nothing here knows a kind, a request or the store.

pub mod decode;
pub(crate) mod fields;
pub(crate) mod golang;
pub(crate) mod managed_fields;
pub(crate) mod names;
pub(crate) mod patch;
pub mod schema;
pub mod status;
