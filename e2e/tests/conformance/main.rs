//! The embedded cluster against the real kube-apiserver: the same requests, the same answers.
//!
//! A behaviour is a function that sends requests; it runs on both servers, and what they answered
//! is compared. There are no expected values: the real server is what the embedded one must be
//! like. What is meant to differ is in `differences.rs`, and nowhere else.
//!
//! This binary has its own `main`, because all behaviours share two servers that must be stopped at
//! the end; `#[test]` functions would not run here.
//!
//! `CONFORMANCE_AGAINST=real` compares the real server with a second one of its kind: whatever
//! differs then is a gap in the normaliser or a race in a behaviour.

#![allow(
    clippy::print_stdout,
    reason = "a program of its own: printing is its report"
)]

mod behaviours;
mod client;
mod differences;
mod objects;
mod servers;
mod session;
mod suite;

use std::process::ExitCode;

fn main() -> ExitCode {
    suite::run()
}
