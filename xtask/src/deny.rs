//! cargo-deny: licences, sources and banned crates. It does not use the advisory
//! database, so that the check needs only the package registry.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::process;

const VERSION: &str = "0.20.2";

pub(crate) fn run() -> Result<ExitCode> {
    if process::find("cargo-deny").is_none() {
        eprintln!("installing cargo-deny {VERSION} (some minutes, once)");
        process::run(process::cargo().args([
            "install",
            "--locked",
            "--version",
            VERSION,
            "cargo-deny",
        ]))?;
    }
    let mut deny = Command::new("cargo-deny");
    deny.current_dir(process::root())
        .args(["check", "bans", "licenses", "sources"]);
    process::run(&mut deny)?;
    Ok(ExitCode::SUCCESS)
}
