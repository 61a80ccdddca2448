//! The scheduler on the embedded cluster, with and without faults.

mod faults;
mod placing;
mod preemption;
mod support;
mod telling;
