//! The scheduler at work: watches in, binds, events and status patches out.
//!
//! The engine decides; this carries its decisions into the world and brings back what came of them.
//!
//! | module | what it is |
//! |---|---|
//! | [`client`] | connections to an API server, and what its answers mean |
//! | [`watch`] | every kind the engine reads, listed and watched |
//! | [`scheduler`] | the threads: one decides, one talks to the world; read it first |
//! | [`election`] | leader election |
//! | [`serve`] | the HTTP server: health, metrics, explanations |
//! | [`status`] | what a scheduler says of itself |

mod backoff;
pub mod client;
pub mod election;
pub mod scheduler;
pub mod serve;
#[cfg(test)]
mod testing;
pub mod watch;
