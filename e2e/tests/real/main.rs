//! Tests that need the real control plane, in one binary. Conformance has its own.

#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod asking;
mod bad_input;
mod beside;
mod chart;
mod controllers;
mod dedicated;
mod deployed;
mod documents;
mod failover;
mod faults;
mod features;
mod gate;
mod gate_permissions;
mod gate_races;
mod gpu;
mod granted;
mod harness;
mod kube_controllers;
mod many_schedulers;
mod modes;
mod nodes;
mod permissions;
mod pod_annotations;
mod policies;
mod policy_costs;
mod policy_permissions;
mod policy_races;
mod policy_schema;
mod preemption;
mod reclaimed;
mod refused_writes;
mod scheduler;
mod shared_cluster;
mod side_by_side;
mod timed;
mod trust;
mod up;
mod volumes;
mod webhook;
mod webhook_certificates;
mod webhook_evictions;
mod webhook_fixture;
mod webhook_secret;
mod webhook_server;
