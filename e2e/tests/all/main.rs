//! Tests that need the real control plane, in one binary. Conformance has its own.

mod harness;
mod scheduler;
