//! On which node a pod runs, and why. `README.md` beside the modules shows the path of a pod.
//!
//! A module uses only itself and the modules below it; `cargo xtask test` checks it.
//!
//! | module | what it is |
//! |---|---|
//! | [`scheduler`] | the path of a pod, from inputs to instructions; `scheduler/cycle.rs` is the scheduling cycle. Start here |
//! | [`event_hooks`] | hooks around events: code of a program that changes what the scheduler knows of objects |
//! | [`instructions`] | what the driver reports to the scheduler, and what the scheduler has it do |
//! | [`preemption`] | the search for pods to evict so that another pod fits |
//! | [`evaluate`] | evaluates a pod against every node: feasible nodes, scores, reasons |
//! | [`queue`] | pods that wait: their order, their backoff, and the events that can help them |
//! | [`profile`] | which plugins a scheduler name runs, where, in which order, with which weights |
//! | [`hooks`] | probes and rewrites: code of a program around the extension points |
//! | [`extender`] | extenders: the questions to them and their answers |
//! | [`plugins`] | one file per plugin, and the list of them |
//! | [`framework`] | all that the author of a plugin reads |

pub mod evaluate;
pub mod event_hooks;
pub mod extender;
pub mod framework;
pub mod hooks;
pub mod instructions;
pub mod plugins;
pub mod preemption;
pub mod profile;
pub mod queue;
pub mod scheduler;
