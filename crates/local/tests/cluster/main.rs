//! Nodes and controllers on the embedded cluster, with short times.

mod cleanup;
mod faults;
mod nodes;
mod support;
mod workloads;
