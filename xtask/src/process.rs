//! Starts other programs. Errors name the program and how to install it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The root of the checkout: xtask is compiled inside it.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies below the root")
}

/// The `cargo` that runs us, with the environment of a shell: the variables that it sets for our own package would make build
/// scripts run again, and with them all that depends on them be compiled again, each time the two alternate.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command.current_dir(root());
    command
}

/// Builds programs of the workspace for tests. The features are those of the whole workspace, so that dependencies are not
/// compiled a second time. The result is their directory.
pub(crate) fn build(flags: &[&str]) -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--quiet", "--workspace", "--locked"]);
    run(build.args(flags))?;
    directory()
}

/// Builds programs of the workspace as users run them. The result is their directory.
pub(crate) fn build_release(flags: &[&str]) -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--release", "--quiet", "--workspace", "--locked"]);
    run(build.args(flags))?;
    Ok(directory()?.with_file_name("release"))
}

/// Where cargo puts the programs of tests, and this one.
pub(crate) fn directory() -> Result<PathBuf> {
    let ourselves = std::env::current_exe().context("cannot find the directory of this program")?;
    let directory = ourselves.parent().context("xtask lies in a directory")?;
    Ok(directory.to_owned())
}

/// `git` in this checkout.
pub(crate) fn git() -> Command {
    let mut command = Command::new("git");
    command.current_dir(root());
    command
}

/// Runs to the end with the terminal's own output; its status is ours.
pub(crate) fn hand_over(command: &mut Command) -> Result<ExitCode> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| cannot_start(&name))?;
    Ok(match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Runs to the end with the terminal's own output; a failure is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| cannot_start(&name))?;
    if !status.success() {
        bail!("`{}` failed with {status}", shown(command));
    }
    Ok(())
}

/// Runs to the end and returns what it wrote to stdout.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| cannot_start(&name))?;
    if !output.status.success() {
        bail!("`{}` failed with {}", shown(command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of `{name}` is not text"))
}

/// What Cargo knows of the workspace.
pub(crate) fn metadata(flags: &[&str]) -> Result<Value> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version=1", "--locked"]);
    let text = read(metadata.args(flags))?;
    serde_json::from_str(&text).context("cargo metadata is not JSON")
}

/// The program's path, if it is on the search path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

fn cannot_start(name: &str) -> String {
    let hint = match name {
        "go" => "; install Go 1.26 or newer",
        "git" => "; install git",
        _ => "",
    };
    format!("cannot start `{name}`{hint}")
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}
