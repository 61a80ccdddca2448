//! The scheduler on the embedded cluster, with and without faults.

#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod cache;
mod controllers;
mod extenders;
mod faults;
mod http;
mod leading;
mod measuring;
mod placing;
mod preemption;
mod reclaimed;
mod rights;
mod streaming;
mod support;
mod telling;
mod volumes;
