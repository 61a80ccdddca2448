//! Starts tests, shows what they print and counts them.

use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::process;

/// The result of a step, for the last line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) passed: u64,
    pub(super) failed: u64,
}

impl Count {
    pub(super) fn one(passed: bool) -> Self {
        Self {
            passed: u64::from(passed),
            failed: u64::from(!passed),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// A command that succeeds or fails as a whole.
pub(super) fn passes(command: &mut Command) -> Result<Count> {
    process::run(command)?;
    Ok(Count::one(true))
}

/// A check that found these faults, a line each.
pub(super) fn has_no_hits(hits: &[impl Display]) -> Count {
    for hit in hits {
        println!("    {hit}");
    }
    Count::one(hits.is_empty())
}

/// How many lines of what the tests of a failed step print are shown again at the end.
const MOST_REPEATED: usize = 200;

/// Runs tests, shows their output as it comes and adds up the `test result:` lines. What failed tests printed is also kept, because
/// thousands of lines of other tests may follow. Each line begins with the step: another one may print at the same time.
pub(super) fn count_tests(
    step: &str,
    command: &mut Command,
    failures: &mut Vec<String>,
) -> Result<Count> {
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
        println!("{step}: {line}");
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
