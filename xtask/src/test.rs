//! `cargo xtask test`: all checks and tests. It runs on a fresh machine; the last line has the counts.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;

use crate::{annotations, boundaries, chaos, controlplane, guest, judge, parity, process, wording};

#[derive(Args)]
pub(crate) struct Options {
    /// Run the large sizes: more cases, larger clusters
    #[arg(long)]
    full: bool,
}

/// The result of a step, for the last line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
}

impl Count {
    fn one(passed: bool) -> Self {
        Self {
            passed: u64::from(passed),
            failed: u64::from(!passed),
        }
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let started = Instant::now();
    let mut total = Count::default();
    let (mut failed_steps, mut failures) = (Vec::new(), Vec::new());
    let mut step = |name: &'static str, body: &mut dyn FnMut() -> Result<Count>| {
        let started = Instant::now();
        println!("==> {name}");
        let count = body().unwrap_or_else(|error| {
            println!("{error:#}");
            Count::one(false)
        });
        if count.failed > 0 {
            failed_steps.push(name);
        }
        let verdict = if count.failed == 0 { "ok" } else { "FAILED" };
        println!("    {verdict}: {name} ({:.0?})", started.elapsed());
        total.add(count);
    };

    step("format", &mut || {
        passes(process::cargo().args(["fmt", "--all", "--check"]))
    });
    step("lints", &mut || {
        passes(process::cargo().args([
            "clippy",
            "--release",
            "--workspace",
            "--all-targets",
            "--locked",
            "--quiet",
            "--",
            "--deny=warnings",
        ]))
    });
    step("boundaries", &mut || {
        let violations = boundaries::violations()?;
        violations
            .iter()
            .for_each(|violation| println!("    {violation}"));
        Ok(Count::one(violations.is_empty()))
    });
    step("annotations", &mut || {
        let violations = annotations::violations()?;
        violations
            .iter()
            .for_each(|violation| println!("    {violation}"));
        Ok(Count::one(violations.is_empty()))
    });
    step("wording", &mut || {
        let hits = wording::hits()?;
        hits.iter().for_each(|hit| println!("    {hit}"));
        Ok(Count::one(hits.is_empty()))
    });

    let go = process::find("go").is_some();
    if go || in_ci() {
        let cases = if options.full { 20_000 } else { 2_000 };
        step("parity with kube-scheduler", &mut || {
            parity::agrees_with_kube(cases).map(Count::one)
        });
        // Its own profile is the smaller part of the comparison.
        step("parity of `tidepool up`", &mut || {
            parity::up_agrees_with_kube(cases / 4).map(Count::one)
        });
        step("parity with Koordinator", &mut || {
            parity::agrees_with_koordinator(cases).map(Count::one)
        });
        step("parity with Koordinator's agent", &mut || {
            parity::agrees_with_koordlet(cases).map(Count::one)
        });
        step("parity of admission with Koordinator", &mut || {
            parity::admission_agrees_with_koordinator(cases).map(Count::one)
        });
        step("parity with Katalyst", &mut || {
            parity::agrees_with_katalyst(cases).map(Count::one)
        });
    }
    let controlplane = go || given_controlplane();
    let node_tests = guest::is_root() || in_ci();
    let mut tests = cargo_test(options.full);
    let mut timed = cargo_test(options.full);
    timed.args(["--test", "all", "--", TIMED, "--test-threads=1"]);
    if controlplane || in_ci() {
        step("control plane", &mut || {
            let directory = controlplane::directory()?;
            println!("    {}", directory.display());
            tests.env("TIDEPOOL_CONTROLPLANE", &directory);
            timed.env("TIDEPOOL_CONTROLPLANE", &directory);
            Ok(Count::one(true))
        });
        if node_tests {
            step("packages of a node", &mut || {
                tests.env("TIDEPOOL_GUEST", guest::directory()?);
                Ok(Count::one(true))
            });
        }
    } else {
        tests.args(["--exclude", "e2e"]);
    }
    tests.args(["--", "--skip", TIMED]);
    if !node_tests {
        tests.args(["--skip", "real_node::"]);
    }
    step("tests", &mut || count_tests(&mut tests, &mut failures));

    if controlplane || in_ci() {
        step("tests that measure time", &mut || {
            count_tests(&mut timed, &mut failures)
        });
        step("chaos", &mut || {
            let mut command = chaos::command()?;
            match options.full {
                true => command.arg("--minutes=30"),
                // The same faults in every run: if it fails, the last change is the cause.
                false => command.args(["--minutes=1", "--seed=1"]),
            };
            passes(&mut command)
        });
    }
    if go || in_ci() {
        step("Kubernetes' own tests of scheduling", &mut || {
            let mut command = judge::command()?;
            command.args((!options.full).then_some("--quick"));
            count_tests(&mut command, &mut failures)
        });
    }

    println!();
    if !go && !in_ci() {
        println!(
            "skipped: parity with kube-scheduler, Koordinator and Katalyst, and Kubernetes' own tests of scheduling, because Go is missing; install Go 1.26"
        );
    }
    if !controlplane && !in_ci() {
        println!(
            "skipped: the tests against the real control plane (package e2e), because Go is \
             missing; install Go 1.26 or set TIDEPOOL_CONTROLPLANE to a directory with kube-apiserver, \
             kube-controller-manager, kube-scheduler, kubectl, kubelet and etcd"
        );
    }
    if controlplane && !node_tests {
        println!("skipped: the tests on real nodes (`real_node::`), because they need root");
    }
    for line in &failures {
        println!("{line}");
    }
    if !failed_steps.is_empty() {
        println!("failed: {}", failed_steps.join(", "));
    }
    println!("took {:.0?}", started.elapsed());
    println!("{} passed, {} failed", total.passed, total.failed);
    Ok(if total.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Tests with this in their path have bounds on time, and run without other tests beside them.
const TIMED: &str = "timed::";

fn cargo_test(full: bool) -> Command {
    let mut tests = process::cargo();
    tests.args([
        "test",
        "--release",
        "--workspace",
        "--locked",
        "--no-fail-fast",
    ]);
    // Tests only ask whether it is set.
    match full {
        true => tests.env("TIDEPOOL_FULL", "1"),
        false => tests.env_remove("TIDEPOOL_FULL"),
    };
    tests
}

fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

fn given_controlplane() -> bool {
    ["TIDEPOOL_CONTROLPLANE", "KUBEBUILDER_ASSETS"]
        .iter()
        .any(|variable| std::env::var_os(variable).is_some())
}

fn passes(command: &mut Command) -> Result<Count> {
    process::run(command)?;
    Ok(Count::one(true))
}

/// Of a failed step, so much of what its tests say about it is shown again at the end.
const MOST_REPEATED: usize = 200;

/// Runs tests, shows their output as it comes and adds up the `test result:` lines. What failed tests printed is also kept, because
/// thousands of lines of other tests may follow.
fn count_tests(command: &mut Command, failures: &mut Vec<String>) -> Result<Count> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the tests")?;
    let output = child.stdout.take().context("the tests have no output")?;
    let mut total = Count::default();
    let mut is_failure = false;
    for line in BufReader::new(output).lines() {
        let line = line.context("cannot read the output of the tests")?;
        if let Some(count) = result_line(&line) {
            total.add(count);
        }
        println!("{line}");
        // The list of names, which comes again at its end, is short.
        is_failure = (is_failure || line == "failures:") && !line.starts_with("test result: ");
        if is_failure && failures.len() < MOST_REPEATED {
            failures.push(line);
        }
    }
    let status = child.wait().context("cannot wait for the tests")?;
    // A binary that does not compile, or crashes, reports no failed test.
    if !status.success() && total.failed == 0 {
        total.failed = 1;
    }
    // No test may be disabled silently.
    if total.passed == 0 {
        total.failed += 1;
    }
    Ok(total)
}

/// `test result: ok. 12 passed; 0 failed; 0 ignored; ...`; an ignored test counts as failed.
fn result_line(line: &str) -> Option<Count> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |word: &str| {
        rest.split([';', '.'])
            .filter_map(|part| part.trim().strip_suffix(word))
            .find_map(|count| count.trim().parse::<u64>().ok())
    };
    Some(Count {
        passed: number("passed")?,
        failed: number("failed")? + number("ignored")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_added_up_and_ignored_tests_count_as_failed() {
        for (line, want) in [
            ("test a::b ... ok", None),
            (
                "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.10s",
                Some(Count {
                    passed: 12,
                    failed: 0,
                }),
            ),
            (
                "test result: FAILED. 1 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s",
                Some(Count {
                    passed: 1,
                    failed: 3,
                }),
            ),
        ] {
            assert_eq!(result_line(line), want, "{line}");
        }
    }
}
