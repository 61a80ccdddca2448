//! The components that run against an API server: the scheduler, the controllers, the admission webhook and the gate.
//!
//! The engine decides; this crate feeds it with watches, carries out its decisions and reports the results.
//!
//! | module | content |
//! |---|---|
//! | [`client`] | connections to an API server, and the results of requests |
//! | [`watch`] | reflectors: list and watch the kinds of a component |
//! | [`scheduler`] | the scheduler's threads: one decides, one does the I/O; read it first |
//! | [`controllers`] | the controllers, and the component that runs them |
//! | [`election`] | leader election |
//! | [`gate`] | the gate: a webhook that judges the binds of all schedulers |
//! | [`webhook`] | the admission webhook, and the parts of it that other webhooks can use |
//! | [`serve`] | the HTTP server of a component: health, metrics and its own paths |
//! | `backoff` | exponential backoff |
//! | `planted` | faults for the chaos run, absent from the shipped program |

mod backoff;
pub mod client;
pub mod controllers;
pub mod election;
pub mod gate;
mod planted;
pub mod scheduler;
pub mod serve;
#[cfg(test)]
mod testing;
pub mod watch;
pub mod webhook;
