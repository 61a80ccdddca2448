//! Tests on real nodes: containerd, runc and the kubelet on this machine, and in a virtual machine with cgroup v2.
//!
//! A test binary of its own: Cargo runs one at a time, so nothing else of the suite runs beside the nodes. The tests need root.

#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]
#![allow(clippy::print_stdout, reason = "shown when a test fails")]

mod agent;
mod cpu;
mod groups;
mod guest_agent;
mod guest_cpu;
mod killed;
mod numa;
mod panorama;
mod real_node;
mod tiers;
mod trust;
mod up;
mod users;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by each test: what a pod of one node uses would count as use of the other node's machine.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
