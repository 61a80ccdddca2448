//! What became of the steps, and the table at the end.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::count::Count;

/// The width of the column with the names of steps.
pub(super) const WIDTH: usize = 18;

pub(super) struct Outcome {
    name: &'static str,
    took: Duration,
    count: Count,
    /// What its failed tests printed.
    failures: Vec<String>,
}

impl Outcome {
    /// Runs a step, which may keep what its failed tests print.
    pub(super) fn of(
        name: &'static str,
        shows: &str,
        run: impl FnOnce(&mut Vec<String>) -> Result<Count>,
    ) -> Self {
        let started = Instant::now();
        println!("==> {name}: {shows}");
        let mut failures = Vec::new();
        let count = run(&mut failures).unwrap_or_else(|error| {
            failures.push(format!("{name}: {error:#}"));
            Count::one(false)
        });
        let took = started.elapsed();
        println!("<== {name}: {} ({took:.0?})", verdict(count));
        Self {
            name,
            took,
            count,
            failures,
        }
    }
}

/// Prints what failed, and a line for each step. The result is the sum.
pub(super) fn print(finished: &[Outcome]) -> Count {
    println!();
    for line in finished.iter().flat_map(|it| &it.failures) {
        println!("{line}");
    }
    let mut total = Count::default();
    for Outcome {
        name, took, count, ..
    } in finished
    {
        total.add(*count);
        println!(
            "{name:<WIDTH$}  {:>5} s  {:>5} passed  {:>3} failed  {}",
            took.as_secs(),
            count.passed,
            count.failed,
            verdict(*count),
        );
    }
    total
}

/// The last two lines, and the exit code.
pub(super) fn print_total(started: Instant, total: Count) -> Result<ExitCode> {
    println!("took {:.0?}", started.elapsed());
    println!("{} passed, {} failed", total.passed, total.failed);
    Ok(match total.failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn verdict(count: Count) -> &'static str {
    match count.failed {
        0 => "ok",
        _ => "FAILED",
    }
}
