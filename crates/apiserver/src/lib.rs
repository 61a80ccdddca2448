//! The embedded cluster: an in-memory Kubernetes API server for real clients.
//!
//! It stores objects, validates writes as kube-apiserver does and streams changes to watchers. It schedules
//! nothing and runs nothing; `crates/local` does that.
//!
//! A module uses only itself and the modules below it in this table; `cargo xtask test` checks it.
//!
//! | module | purpose | its modules |
//! |---|---|---|
//! | `server` | the public interface, in process and over TLS | `cluster`, `listener`, `router`, `discovery`, `openapi`, `faults` |
//! | `handlers` | one handler per verb and subresource | `create`, `read`, `watch`, `update`, `patch`, `delete`, `binding`, `eviction`, `scale`, `review`, `containers`, `metrics`, `write` (shared by all writes), `admission` (calls webhooks), `definitions` (serves custom kinds) |
//! | `protocol` | HTTP requests and responses | `request`, `options`, `media`, `auth`, `response` |
//! | `resources` | which kinds are served, and their stored objects | `state`, `registry`, `selector`, `backends` |
//! | `custom` | CustomResourceDefinitions and the kinds they define | `definition`, `structural`, `acceptance`, `object`, `validation_schema`, `validate`, `defaults`, `formats`, `json_path`, `scale` |
//! | `kinds` | the rules of each built-in kind | `kind` (the interface), `metadata`, `spec_status`, `printer`, `quantity`, `selector` (shared), `config`, `disruption_budget`, `event`, `lease`, `limit_range`, `metrics`, `namespace`, `node`, `plain`, `pod`, `priority_class`, `review`, `runtime_class`, `service`, `storage`, `workload` |
//! | `objects` | what all Kubernetes objects share | `schema`, `decode`, `patch`, `managed_fields`, `status`, `fields`, `names`, `golang` |
//! | `store` | objects by key, revisions and history | `object`, `table` |
//!
//! A request goes through `server::router` to the handler of its verb. The handler decodes the object (`objects`),
//! applies the rules of its kind (`kinds::kind::Rules`), asks the webhooks (`handlers::admission`), writes it to the `store` and returns a response.

mod custom;
mod handlers;
mod kinds;
pub mod objects;
mod protocol;
mod resources;
mod server;
mod store;

pub use protocol::response::{Body, BoxError};
pub use resources::backends::{ServiceBackend, ServiceHandler};
pub use server::cluster::{ApiService, Cluster, Options};
pub use server::faults;
pub use server::listener::{ServeError, ServeOptions, Serving};
pub use store::Limits;
