//! The embedded cluster: an in-memory Kubernetes API that real clients can talk to.
//!
//! It keeps objects, checks writes as the real server does and streams changes; it schedules
//! nothing and runs nothing (see `crates/local`).
//!
//! A request goes from [`ApiService`] or the network (`serve`) to `server`, which finds the kind
//! (`registry`), and on to the handler of its verb (`handlers`). What sets kinds apart is behind
//! [`kind::Rules`]; what they have in common is in the handlers; objects are in `store`.

mod answer;
mod auth;
mod cluster;
mod custom;
pub mod decode;
mod definitions;
mod discovery;
pub mod faults;
mod fields;
mod golang;
mod handlers;
pub mod kind;
pub mod kinds;
pub mod managed_fields;
mod media;
mod metadata;
mod names;
mod openapi;
mod options;
pub mod patch;
mod registry;
mod request;
pub mod schema;
mod selector;
mod serve;
mod server;
pub mod status;
mod store;
mod table;

pub use answer::{Body, BoxError};
pub use cluster::{ApiService, Cluster, Options};
pub use serve::{ServeError, ServeOptions, Serving};
pub use store::Limits;
