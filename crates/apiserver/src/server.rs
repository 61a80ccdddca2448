//! The server as its users see it: an embedded cluster, reached in process or over TLS.
//!
//! It routes requests to `handlers`, and answers by itself what is not about a resource: discovery, OpenAPI, health.

pub(crate) mod cluster;
mod discovery;
pub mod faults;
pub(crate) mod listener;
mod openapi;
mod router;
