//! Nodes and controllers on the embedded cluster, with short times.

#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod cleanup;
mod faults;
mod nodes;
mod simulated;
mod support;
mod workloads;
