//! The scheduler on the embedded cluster, with and without faults.

#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod cache;
mod controllers;
mod election;
mod events;
mod extenders;
mod faults;
mod http;
mod metrics;
mod permissions;
mod preemption;
mod reclaimed;
mod scheduling;
mod streaming;
mod support;
mod volumes;
