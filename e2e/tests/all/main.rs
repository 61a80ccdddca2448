//! Tests that need the real control plane, in one binary. Conformance has its own.

#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod bad_input;
mod beside;
mod controllers;
mod deployed;
mod documents;
mod failover;
mod faults;
mod features;
mod gpu;
mod harness;
mod modes;
mod nodes;
mod permissions;
mod preemption;
mod reclaimed;
mod scheduler;
mod shared_cluster;
mod side_by_side;
mod up;
mod volumes;
