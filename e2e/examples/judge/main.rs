//! Runs Kubernetes' own tests of scheduling on up to three clusters and prints the results as a table.
//!
//! `cargo xtask judge` builds all that this needs and runs it.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line: printing is its work"
)]

mod cluster;
mod run;
mod selection;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::Parser;

use cluster::Cluster;
use run::{Outcome, State};
use selection::Selection;
use table::{Count, Results};

/// Lines of a failure to print; the log has all.
const MESSAGE_LINES: usize = 8;

#[derive(Parser)]
#[command(
    name = "cargo xtask judge",
    about = "Runs Kubernetes' own tests of scheduling"
)]
struct Flags {
    /// The program that has the tests; `cargo xtask judge` builds it
    #[arg(long, hide = true)]
    program: PathBuf,
    /// The clusters to test [default: all; with --quick embedded and tidepool]
    #[arg(long, value_enum, value_delimiter = ',')]
    clusters: Vec<Cluster>,
    /// Run only the tests whose names match this regular expression
    #[arg(long, value_name = "REGEX")]
    focus: Option<String>,
    /// Run only a few short tests
    #[arg(long, conflicts_with = "focus")]
    quick: bool,
    /// Keep the logs also if all tests pass
    #[arg(long)]
    keep_logs: bool,
}

fn main() -> ExitCode {
    match judge(&Flags::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all tests passed.
fn judge(flags: &Flags) -> Result<bool> {
    let selection = Selection::read()?;
    let clusters = match (flags.clusters.as_slice(), flags.quick) {
        ([], true) => &[Cluster::Embedded, Cluster::Tidepool],
        ([], false) => Cluster::ALL.as_slice(),
        (given, _) => given,
    };
    let logs = tempfile::Builder::new()
        .prefix("tidepool-judge-")
        .tempdir()?
        .keep();
    let results = run_all(flags, &selection, clusters, &logs)
        .with_context(|| format!("logs in {}", logs.display()))?;
    for outcomes in results.values() {
        let names: Vec<&str> = outcomes.iter().map(|it| it.name.as_str()).collect();
        selection.check(&names)?;
    }
    print!("\n{}", table::table(&results, &selection));
    let count = Count::of(results.values().flatten());
    let passed = count.failed == 0;
    if passed && !flags.keep_logs {
        std::fs::remove_dir_all(&logs)?;
    } else {
        println!("logs: {}", logs.display());
    }
    println!(
        "test result: {} passed; {} failed; 0 ignored",
        count.passed, count.failed
    );
    Ok(passed)
}

/// The tests mostly wait, so the clusters run side by side.
fn run_all(
    flags: &Flags,
    selection: &Selection,
    clusters: &[Cluster],
    logs: &Path,
) -> Result<Results> {
    let run_one = |cluster: Cluster| {
        let directory = logs.join(cluster.name());
        std::fs::create_dir_all(&directory)?;
        let selected = selection.flags(cluster, flags.quick, flags.focus.as_deref());
        run::run(&flags.program, cluster, &selected, &directory, |outcome| {
            print(cluster, outcome);
        })
    };
    std::thread::scope(|scope| {
        let start = |&cluster: &Cluster| (cluster, scope.spawn(move || run_one(cluster)));
        let runs: Vec<_> = clusters.iter().map(start).collect();
        let results = runs.into_iter().map(|(cluster, run)| {
            let outcomes = run.join().map_err(|_| anyhow!("it panicked"));
            let outcomes = outcomes.flatten();
            Ok((cluster, outcomes.context(cluster.name())?))
        });
        results.collect()
    })
}

fn print(cluster: Cluster, outcome: &Outcome) {
    let state = match outcome.state() {
        State::Passed => "passed",
        State::Failed => "FAILED",
        State::NotSelected => return,
    };
    let (cluster, name) = (cluster.name(), table::short(&outcome.name));
    println!("{state}  {:4.0}s  {cluster:14}  {name}", outcome.seconds);
    if outcome.state() == State::Failed {
        // The message of a pod that does not run has the whole pod.
        for line in outcome.message.lines().take(MESSAGE_LINES) {
            println!("        {line}");
        }
    }
}
