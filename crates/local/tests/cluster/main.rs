//! Nodes and controllers on the embedded cluster, with short times.

#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod cleanup;
mod cron_jobs;
mod daemon_sets;
mod faults;
mod nodes;
mod simulated;
mod stateful_sets;
mod support;
mod volumes;
mod workloads;
mod zones;
