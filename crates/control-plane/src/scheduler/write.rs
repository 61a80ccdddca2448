//! Writes to the API server: bindings, events, status patches, evictions and volumes.
//!
//! The executor owns the queue of requests and reports each result back to the deciding loop.

pub(crate) mod bind;
mod budget;
pub(crate) mod events;
mod evict;
pub(crate) mod executor;
pub(crate) mod extenders;
mod queue;
pub mod replay;
pub(crate) mod requests;
pub(crate) mod status;
mod volumes;
