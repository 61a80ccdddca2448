//! The embedded cluster from the outside: HTTP through the service and over TLS, and kube-rs.

#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod client;
mod custom;
mod discovery;
mod faults;
mod fuzz;
mod limits;
mod plain;
mod reads;
mod serving;
mod watches;
mod webhooks;
mod writes;

/// A file in this folder that no `mod` names would be a test that never runs.
#[test]
fn every_file_here_is_compiled() {
    let main = include_str!("main.rs");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap_or(&name);
        assert!(
            module == "main" || main.contains(&format!("mod {module};")),
            "{name} is not compiled: add `mod {module};`"
        );
    }
}
