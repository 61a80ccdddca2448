//! The embedded cluster: an in-memory Kubernetes API that real clients can talk to.
//!
//! It keeps objects, checks writes as the real server does and streams changes; it schedules
//! nothing and runs nothing (see `crates/local`).

pub mod decode;
mod fields;
pub mod kind;
pub mod kinds;
pub mod managed_fields;
mod metadata;
mod names;
pub mod patch;
pub mod schema;
pub mod status;
mod table;
