//! The agent on directories that look like a node's, and on the embedded cluster.

#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod collect;
mod damaged;
mod enforce;
mod evict;
mod fake;
mod full_disk;
mod fuzz;
mod numa;
mod permissions;
mod pods;
mod report;
#[path = "../../../control-plane/tests/all/rights.rs"]
mod rights;
mod settings;
mod support;
mod write;
