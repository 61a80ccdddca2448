//! The scheduler on the embedded cluster, with and without faults.

#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod agent_controller;
mod attacks;
mod backlog;
mod cache;
mod controllers;
mod election;
mod events;
mod extenders;
mod faults;
mod gate;
mod hot_spots;
mod http;
mod metrics;
mod outages;
mod permissions;
mod policies;
mod policy_controller;
mod preemption;
mod reclaimed;
mod rights;
mod scheduler_registry;
mod scheduling;
mod streaming;
mod support;
mod tier_controller;
mod tls;
mod volumes;
mod webhook;
mod webhook_clock;
