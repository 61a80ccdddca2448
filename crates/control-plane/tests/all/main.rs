//! The scheduler on the embedded cluster, with and without faults.

#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod extenders;
mod faults;
mod placing;
mod preemption;
mod support;
mod telling;
mod volumes;
