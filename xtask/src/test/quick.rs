//! `cargo xtask quick`: the checks and tests that a change of the working copy may break, as far as two minutes allow.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

use super::count::{Count, count_tests, passes};
use super::outcome::{self, Outcome};
use super::run_steps;
use super::steps::{Lane, STEPS, Step, UNIT, targets};
use crate::{boundaries, parity, process};

#[derive(Args)]
pub(crate) struct QuickOptions {
    /// Compare the working copy with this commit
    #[arg(long, value_name = "COMMIT", default_value = "HEAD")]
    since: String,
}

/// Comparisons that plugins may fail, and as many cases as take seconds.
const COMPARISONS: [&str; 3] = ["kube", "koordinator", "katalyst"];
const CASES: &str = "--cases=200";

pub(crate) fn quick(options: &QuickOptions) -> Result<ExitCode> {
    let started = Instant::now();
    let changed = changed(&options.since)?;
    let metadata = process::metadata(&[])?;
    let affected = affected(&metadata, &changed);
    println!("files changed since {}: {}", options.since, changed.len());

    // Format, boundaries and the like take seconds, whatever has changed.
    let is_check = |step: &&Step| step.lane == Lane::First && step.name != "unit";
    let checks: Vec<&Step> = STEPS.iter().filter(is_check).collect();
    let mut finished = run_steps(&checks, false);
    if !affected.is_empty() {
        let shows = format!("unit tests and scenarios of {}", list(&affected));
        finished.push(Outcome::of("unit", &shows, |failures| {
            unit(&affected, failures)
        }));
    }
    let plugins = "crates/engine/src/scheduling/plugins";
    if changed.iter().any(|file| file.starts_with(plugins)) {
        let shows = "plugins decide as upstream's, with the oracles that are built";
        finished.push(Outcome::of("parity", shows, |_| compare()));
    }
    outcome::print_total(started, outcome::print(&finished))
}

/// Files that differ from a commit, and new ones, from the root of the repository.
fn changed(since: &str) -> Result<Vec<PathBuf>> {
    let tracked = process::read(process::git().args(["diff", "--name-only", since]))?;
    let new = ["ls-files", "--others", "--exclude-standard"];
    let new = process::read(process::git().args(new))?;
    let files = tracked.lines().chain(new.lines());
    Ok(files.map(PathBuf::from).collect())
}

/// The crates whose tests may fail.
fn affected(metadata: &Value, changed: &[PathBuf]) -> BTreeSet<String> {
    let mut affected = boundaries::with_dependents(metadata, touched(metadata, changed));
    if !changed.is_empty() {
        // Its tests read the documentation and the sources of all crates.
        affected.insert("xtask".to_owned());
    }
    affected
}

/// The crates that changed files belong to, or that read them in their tests.
fn touched(metadata: &Value, changed: &[PathBuf]) -> BTreeSet<String> {
    let crates = crates(metadata);
    let mut touched = BTreeSet::new();
    for file in changed {
        let owners = crates.iter().filter(|(folder, _)| file.starts_with(folder));
        // `e2e/parity` lies inside `e2e`.
        let owner = owners.max_by_key(|(folder, _)| folder.components().count());
        let readers: &[&str] = match owner {
            Some((_, name)) => &[name],
            None if file.starts_with("scenarios") => &["sim"],
            None if file.starts_with("deploy") => &["api", "tidepool", "xtask"],
            None if file.extension().is_some_and(|it| it == "md") => &["sim", "tidepool", "xtask"],
            // Such as Cargo.lock.
            None => {
                touched.extend(crates.iter().map(|(_, name)| name.clone()));
                continue;
            }
        };
        touched.extend(readers.iter().map(|&it| it.to_owned()));
    }
    touched
}

/// Our crates: folder from the root of the repository, and name.
fn crates(metadata: &Value) -> Vec<(PathBuf, String)> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let ours = packages.filter(|package| package["source"].is_null());
    ours.filter_map(|package| {
        let folder = Path::new(package["manifest_path"].as_str()?).parent()?;
        let folder = folder.strip_prefix(process::root()).ok()?;
        Some((folder.to_owned(), package["name"].as_str()?.to_owned()))
    })
    .collect()
}

/// Builds the unit tests of all crates, since a selection would give dependencies other features, and runs those of some.
fn unit(affected: &BTreeSet<String>, failures: &mut Vec<String>) -> Result<Count> {
    let mut build = process::cargo();
    build.args(["test", "--workspace", "--locked", "--no-run"]);
    build.args(targets(UNIT));
    build.arg("--message-format=json-render-diagnostics");
    let build = build.stdout(Stdio::piped()).spawn();
    let mut build = build.context("cannot start cargo")?;
    let output = build.stdout.take().context("cargo has no output")?;
    let mut tests = Vec::new();
    for line in BufReader::new(output).lines() {
        let message: Value = serde_json::from_str(&line?).context("a message of cargo")?;
        tests.extend(TestBinary::from(&message));
    }
    if !build.wait().context("cannot wait for cargo")?.success() {
        return Ok(Count::one(false));
    }
    let mut count = Count::default();
    for test in tests.iter().filter(|it| affected.contains(&it.package)) {
        println!("unit: {}", test.program.display());
        let mut command = Command::new(&test.program);
        command.current_dir(&test.folder);
        command.env_remove("TIDEPOOL_FULL");
        count.add(count_tests("unit", &mut command, failures)?);
    }
    Ok(count)
}

struct TestBinary {
    package: String,
    program: PathBuf,
    /// Where cargo starts it.
    folder: PathBuf,
}

impl TestBinary {
    /// From a message of cargo, if it is about tests.
    fn from(message: &Value) -> Option<Self> {
        if message["profile"]["test"] != true {
            return None;
        }
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
        // `path+file:///r/e2e/parity#0.0.0`, or `path+file:///r/e2e#name@0.0.0` if the folder has another name.
        let (path, version) = message["package_id"].as_str()?.rsplit_once('#')?;
        let package = match version.split_once('@') {
            Some((name, _)) => name,
            None => path.rsplit('/').next()?,
        };
        Some(Self {
            package: package.to_owned(),
            program: message["executable"].as_str()?.into(),
            folder: folder.to_owned(),
        })
    }
}

fn compare() -> Result<Count> {
    let mut count = Count::default();
    for comparison in COMPARISONS {
        if !parity::is_built(comparison)? {
            println!("    left out: `cargo xtask parity {comparison}` builds the oracle");
            continue;
        }
        let flags = [comparison, CASES].map(str::to_owned);
        count.add(passes(&mut parity::command(&flags)?)?);
    }
    Ok(count)
}

fn list(names: &BTreeSet<String>) -> String {
    names
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_touches_the_crates_that_have_it_or_read_it() {
        let metadata = process::metadata(&["--no-deps"]).unwrap();
        for (file, want) in [
            ("crates/engine/src/scheduling/plugins/fit.rs", "engine"),
            ("e2e/parity/src/main.rs", "parity"),
            ("e2e/src/lib.rs", "e2e"),
            ("scenarios/plugins/a.yaml", "sim"),
            ("docs/tiers.md", "sim, tidepool, xtask"),
            ("deploy/agent.yaml", "api, tidepool, xtask"),
        ] {
            let touched = touched(&metadata, &[PathBuf::from(file)]);
            assert_eq!(list(&touched), want, "{file}");
        }
        let all = touched(&metadata, &[PathBuf::from("Cargo.lock")]);
        assert_eq!(all.len(), crates(&metadata).len());
    }

    #[test]
    fn what_depends_on_a_changed_crate_is_affected_and_the_checks_of_sources_always() {
        let metadata = process::metadata(&["--no-deps"]).unwrap();
        let affected = |files: &[&str]| {
            let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            super::affected(&metadata, &files)
        };
        assert_eq!(list(&affected(&[])), "");
        assert_eq!(list(&affected(&["xtask/src/main.rs"])), "xtask");
        let plugin = affected(&["crates/engine/src/plugins/fit.rs"]);
        for name in ["engine", "tidepool", "xtask"] {
            assert!(plugin.contains(name), "{name} is not in {plugin:?}");
        }
        assert!(!plugin.contains("apiserver"), "{plugin:?}");
    }

    #[test]
    fn test_binaries_are_known_by_their_package() {
        for id in [
            "path+file:///r/e2e/parity#0.0.0",
            "path+file:///r/e2e/p#parity@0.0.0",
        ] {
            let binary = TestBinary::from(&serde_json::json!({
                "package_id": id, "manifest_path": "/r/e2e/parity/Cargo.toml",
                "profile": {"test": true}, "executable": "/r/target/debug/deps/parity-0",
            }));
            let binary = binary.unwrap();
            assert_eq!(binary.package, "parity");
            assert_eq!(binary.folder, Path::new("/r/e2e/parity"));
        }
    }
}
