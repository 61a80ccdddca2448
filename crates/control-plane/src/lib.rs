//! The components that run against an API server: the scheduler, the controllers, the admission webhook and the gate.
//!
//! The engine decides; this crate feeds it with watches, carries out its decisions and reports the results.
//!
//! A module uses only itself and the modules below it; `cargo xtask test` checks it.
//!
//! | module | content |
//! |---|---|
//! | [`gate`] | the gate: a webhook that judges the binds of all schedulers |
//! | [`webhook`] | the admission webhook, and the parts of it that the gate uses |
//! | [`controllers`] | the controllers, and the component that runs them |
//! | [`scheduler`] | the scheduler's threads: one decides, one does the I/O; read it first |
//! | [`election`] | leader election |
//! | [`serve`] | the HTTP server of a component: health, metrics and its own paths |
//! | [`client`] | connections to an API server, and the results of requests |

pub mod client;
pub mod controllers;
pub mod election;
pub mod gate;
pub mod scheduler;
pub mod serve;
pub mod webhook;
