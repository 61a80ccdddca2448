//! Instructions of one decision, counted by Valgrind: equal in every run, whatever else the machine does.
//!
//! The counts are kept in the repository. A change that raises one by more than a percent replaces it, in a commit of its own that
//! gives the reason.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::{guest, process};

const FILE: &str = "crates/engine/examples/bench-engine/instructions.json";

/// Valgrind counts what runs inside of this function of the benchmark.
const COUNTED: &str = "--toggle-collect=*measured_work*";
const NODES: &str = "--nodes=500";
/// Few, since a counted instruction takes fifty times as long.
const DECISIONS: u64 = 20;

/// Default plugins, a constraint that reads other pods, preemption, and co-location with reports that change; then those that the
/// ratios need.
const WORKLOADS: [&str; 8] = [
    "basic",
    "spread-hard",
    "preemption",
    "reclaimed",
    "policy",
    "numa",
    "without-numa",
    "colocation",
];

/// A workload may cost at most so many times as much as another one.
const RATIOS: [(&str, &str, f64); 3] = [
    ("policy", "basic", 3.0),
    ("numa", "without-numa", 2.0),
    ("without-numa", "colocation", 1.02),
];

/// How far a count may be from the one in the repository. Another compiler makes other code of the same source.
const TOLERANCE: f64 = 0.01;
const TOLERANCE_OF_OTHER_COMPILERS: f64 = 0.15;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Counts {
    /// The first line of `rustc --version`.
    compiler: String,
    /// The instructions of one decision on 500 nodes, by workload.
    instructions: BTreeMap<String, u64>,
}

/// Counts and compares; every line of the result is a fault.
pub(crate) fn faults() -> Result<Vec<String>> {
    let counted = count()?;
    let text = std::fs::read_to_string(process::root().join(FILE));
    let text = text.with_context(|| format!("cannot read {FILE}"))?;
    let kept = serde_json::from_str(&text).with_context(|| format!("{FILE} is invalid"))?;
    Ok(compare(&kept, &counted))
}

/// Counts, and keeps the counts.
pub(crate) fn write() -> Result<()> {
    let mut text = serde_json::to_string_pretty(&count()?)?;
    text.push('\n');
    std::fs::write(process::root().join(FILE), text).with_context(|| format!("cannot write {FILE}"))
}

fn compare(kept: &Counts, counted: &Counts) -> Vec<String> {
    let tolerance = match kept.compiler == counted.compiler {
        true => TOLERANCE,
        false => TOLERANCE_OF_OTHER_COMPILERS,
    };
    let mut faults = Vec::new();
    for (workload, &count) in &counted.instructions {
        let Some(&before) = kept.instructions.get(workload) else {
            faults.push(format!("{FILE} has no workload {workload}"));
            continue;
        };
        let change = count as f64 / before as f64 - 1.0;
        if change.abs() > tolerance {
            faults.push(format!(
                "{workload}: {count} instructions per decision, {before} in {FILE} ({:+.1}%, allowed {:.0}%); if the change is meant, \
                 run `cargo xtask bench instructions --write` and give the reason in the commit",
                100.0 * change,
                100.0 * tolerance,
            ));
        }
    }
    let of = |workload: &str| {
        let count = counted.instructions.get(workload);
        count.map_or(f64::NAN, |&count| count as f64)
    };
    for (workload, other, most) in RATIOS {
        let ratio = of(workload) / of(other);
        // A count that is missing makes no number.
        if !ratio.is_finite() || ratio > most {
            faults.push(format!(
                "{workload} costs {ratio:.2} times as many instructions as {other}, allowed {most}"
            ));
        }
    }
    faults
}

fn count() -> Result<Counts> {
    if process::find("valgrind").is_none() {
        guest::install(&["valgrind"])?;
    }
    let benchmark = build()?;
    let mut instructions = BTreeMap::new();
    for workload in WORKLOADS {
        let count = count_one(&benchmark, workload)?;
        println!("    {workload:<12}  {count:>9} instructions per decision");
        instructions.insert(workload.to_owned(), count);
    }
    let compiler = process::read(Command::new("rustc").arg("--version"))?;
    Ok(Counts {
        compiler: compiler.trim().to_owned(),
        instructions,
    })
}

fn build() -> Result<PathBuf> {
    let mut build = process::cargo();
    build.args(["build", "--release", "--quiet", "--locked"]);
    process::run(build.args(["--package=engine", "--example=bench-engine"]))?;
    let directory = process::directory()?.with_file_name("release");
    Ok(directory.join("examples/bench-engine"))
}

fn count_one(benchmark: &Path, workload: &str) -> Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args([
        "--tool=callgrind",
        COUNTED,
        "--callgrind-out-file=/dev/null",
    ]);
    valgrind.arg(benchmark);
    valgrind.args([NODES, "--no-probe", "--without-clock"]);
    valgrind.args(["--workload", workload]);
    valgrind.arg(format!("--decisions={DECISIONS}"));
    let output = valgrind.stdout(Stdio::null()).output();
    let output = output.context("cannot start `valgrind`")?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("valgrind failed with {}:\n{text}", output.status);
    }
    let collected = collected(&text).filter(|&count| count > 0);
    let collected = collected.with_context(|| format!("valgrind counted nothing:\n{text}"))?;
    Ok(collected / DECISIONS)
}

/// `==123== Collected : 4567`
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("Collected : "))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(compiler: &str, changed: &[(&str, u64)]) -> Counts {
        let all = WORKLOADS.map(|workload| (workload.to_owned(), 100_000));
        let mut instructions = BTreeMap::from(all);
        for (workload, count) in changed {
            instructions.insert((*workload).to_owned(), *count);
        }
        Counts {
            compiler: compiler.to_owned(),
            instructions,
        }
    }

    #[test]
    fn a_count_that_differs_by_more_than_a_percent_is_a_fault() {
        let kept = counts("rustc 1", &[]);
        for (case, compiler, changed, want) in [
            ("equal", "rustc 1", &[][..], 0),
            (
                "less than a percent more",
                "rustc 1",
                &[("basic", 100_900)],
                0,
            ),
            ("more", "rustc 1", &[("basic", 101_100)], 1),
            (
                "less, so that it stays less",
                "rustc 1",
                &[("basic", 98_000)],
                1,
            ),
            ("another compiler", "rustc 2", &[("basic", 110_000)], 0),
            ("much more", "rustc 2", &[("basic", 120_000)], 1),
            ("a ratio", "rustc 2", &[("without-numa", 103_000)], 1),
        ] {
            let faults = compare(&kept, &counts(compiler, changed));
            assert_eq!(faults.len(), want, "{case}: {faults:?}");
        }
        let mut without = counts("rustc 1", &[]);
        without.instructions.remove("numa");
        assert_eq!(compare(&without, &kept).len(), 1, "not in the file");
        assert_eq!(compare(&kept, &without).len(), 1, "not counted");
    }

    #[test]
    fn the_count_is_in_the_output_of_valgrind() {
        let text = "==7== Events    : Ir\n==7== Collected : 123456\n==7==\n";
        assert_eq!(collected(text), Some(123_456));
        assert_eq!(collected("==7== Events    : Ir\n"), None);
    }
}
