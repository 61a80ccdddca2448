//! Tests with bounds on time. `cargo xtask test` runs them one by one, without other tests beside them.

mod dedicated;
mod large_pods;
mod webhook_faults;
