//! Tests with bounds on time. `cargo xtask test` runs them one by one, without other tests beside them.

mod large_pods;
mod webhook_faults;
