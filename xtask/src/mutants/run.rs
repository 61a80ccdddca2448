//! Runs tests against one mutant at a time: only those that reach it, and only until the first one fails.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::sites::Site;
use super::tree::{Binaries, Binary, Tree};
use crate::process;

/// A mutant may make its tests this many times slower before it counts as an endless loop.
const SLOWDOWN: u32 = 5;
/// And this much more: most tests take less than a millisecond.
const START: Duration = Duration::from_secs(5);
/// An endless loop may also allocate. In KiB.
const MEMORY: u64 = 6 << 20;
/// A test of this length is tried after all others.
const LONG: Duration = Duration::from_secs(2);
/// `SIGXCPU`
const NO_TIME_LEFT: i32 = 24;
/// Tests of the engine that read its sources: they would find the mutants.
const READS_SOURCES: &str = "shape::";

/// A mutant's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Caught,
    /// Tests did not end; they do without the mutant.
    TimedOut,
    Survived,
    /// No test runs the place.
    Unreached,
}

/// What a test reaches in the original, and its time there.
struct Test {
    name: String,
    time: Duration,
    /// By id.
    reaches: Vec<bool>,
}

struct Suite {
    binary: Binary,
    tests: Vec<Test>,
    /// Sites that are reached in a thread without the name of a test.
    reached_elsewhere: Vec<bool>,
}

/// The test binaries with what their tests reach, in the order in which they are tried.
pub(super) struct Baseline {
    suites: Vec<Suite>,
}

impl Baseline {
    /// Runs everything once without a mutant.
    pub(super) fn record(tree: &Tree<'_>, binaries: Binaries) -> Result<Self> {
        let mut suites = Vec::new();
        for binary in [binaries.unit, binaries.engine, binaries.scenarios] {
            let started = Instant::now();
            let suite = Suite::record(tree, binary)?;
            let name = suite.binary.program.file_name().unwrap_or_default();
            eprintln!(
                "without mutants: {}, {} tests, {} s",
                name.display(),
                suite.tests.len(),
                started.elapsed().as_secs()
            );
            suites.push(suite);
        }
        Ok(Self { suites })
    }

    /// Cheap tests first, and of them those of the module: they are the most likely to fail.
    pub(super) fn run(&self, id: usize, site: &Site) -> Result<Fate> {
        let module = module(&site.file);
        let mut batches: Vec<(&Suite, Vec<&Test>)> = Vec::new();
        let mut long: Vec<(&Suite, &Test)> = Vec::new();
        for suite in &self.suites {
            let (cheap, others): (Vec<&Test>, Vec<&Test>) = suite
                .reaching(id)
                .into_iter()
                .partition(|test| test.time < LONG);
            long.extend(others.into_iter().map(|test| (suite, test)));
            let (near, far) = cheap
                .into_iter()
                .partition(|test| test.name.starts_with(&module));
            batches.extend([(suite, near), (suite, far)]);
        }
        long.sort_by_key(|(_, test)| test.time);
        batches.extend(long.into_iter().map(|(suite, test)| (suite, vec![test])));

        let mut fate = Fate::Unreached;
        for (suite, tests) in batches.iter().filter(|(_, tests)| !tests.is_empty()) {
            fate = suite.run(id, tests)?;
            if fate != Fate::Survived {
                break;
            }
        }
        Ok(fate)
    }
}

/// Where the unit tests of a file are: `scheduling::plugins::node_name::`.
fn module(file: &str) -> String {
    let path = file.trim_start_matches("crates/engine/src/");
    let path = path.trim_end_matches(".rs").replace('/', "::");
    format!("{path}::")
}

impl Suite {
    fn record(tree: &Tree<'_>, binary: Binary) -> Result<Self> {
        let listed = process::read(Command::new(&binary.program).arg("--list"))?;
        let names = listed.lines().filter_map(|it| it.strip_suffix(": test"));
        let is_run = |name: &&str| !name.starts_with(READS_SOURCES);
        let names: Vec<String> = names.filter(is_run).map(str::to_owned).collect();

        let program = binary.program.file_stem().unwrap_or_default();
        let record = tree.file(&format!("{}.record", program.display()));
        // It holds as long as the program is not built again.
        if !is_newer(&record, &binary.program) {
            Self::write_record(&binary, &record)?;
        }
        let text = fs::read_to_string(&record).unwrap_or_default();
        Ok(Self::of(binary, names, &text))
    }

    fn write_record(binary: &Binary, record: &Path) -> Result<()> {
        let _ = fs::remove_file(record);
        let mut command = program(binary, "unlimited");
        command.env("MUTANT_RECORD", record);
        command.args(["--test-threads=2", "--skip", READS_SOURCES]);
        let output = command.output().context("cannot start the tests")?;
        if !output.status.success() {
            let _ = fs::remove_file(record);
            let text = String::from_utf8_lossy(&output.stdout);
            bail!("tests fail without a mutant:\n{text}");
        }
        Ok(())
    }

    fn of(binary: Binary, names: Vec<String>, record: &str) -> Self {
        let with_name = |name: String| Test {
            name,
            time: Duration::ZERO,
            reaches: Vec::new(),
        };
        let mut tests: Vec<Test> = names.into_iter().map(with_name).collect();
        let by_name: HashMap<String, usize> = tests
            .iter()
            .enumerate()
            .map(|(index, test)| (test.name.clone(), index))
            .collect();
        let mut reached_elsewhere = Vec::new();
        for line in record.lines() {
            let mut cells = line.split('\t');
            let name = cells.next().unwrap_or_default();
            let micros = cells.next().and_then(|it| it.parse().ok());
            let ids = cells.next().unwrap_or_default();
            let reaches = match by_name.get(name) {
                Some(index) => {
                    tests[*index].time += Duration::from_micros(micros.unwrap_or_default());
                    &mut tests[*index].reaches
                }
                None => &mut reached_elsewhere,
            };
            for id in ids.split_whitespace().filter_map(|id| id.parse().ok()) {
                if reaches.len() <= id {
                    reaches.resize(id + 1, false);
                }
                reaches[id] = true;
            }
        }
        Self {
            binary,
            tests,
            reached_elsewhere,
        }
    }

    fn reaching(&self, id: usize) -> Vec<&Test> {
        let has = |reached: &[bool]| reached.get(id).copied().unwrap_or_default();
        let all = has(&self.reached_elsewhere);
        let tests = self.tests.iter();
        tests.filter(|test| all || has(&test.reaches)).collect()
    }

    /// Runs these tests until one fails.
    fn run(&self, id: usize, tests: &[&Test]) -> Result<Fate> {
        let usual: Duration = tests.iter().map(|test| test.time).sum();
        let most = START + usual * SLOWDOWN;
        let mut command = program(&self.binary, &most.as_secs().to_string());
        command
            .env("MUTANT", id.to_string())
            .args(["--test-threads=1", "--exact"])
            .args(tests.iter().map(|test| &test.name))
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().context("cannot start the tests")?;
        let output = child.stdout.take().context("the tests have no output")?;
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let has_failed = lines.any(|line| line.ends_with("... FAILED"));
        if has_failed {
            // It may have ended by itself.
            let _ = child.kill();
        }
        let status = child.wait()?;
        Ok(match status.signal() {
            _ if has_failed => Fate::Caught,
            Some(NO_TIME_LEFT) => Fate::TimedOut,
            _ if status.success() => Fate::Survived,
            // Out of memory, or of stack.
            _ => Fate::Caught,
        })
    }
}

/// The program with a limit on its memory, and on its processor time in seconds. Random cases repeat themselves.
fn program(binary: &Binary, seconds: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {MEMORY}; ulimit -S -t {seconds}; exec \"$@\"");
    command.args(["-c", &script, "sh"]);
    command.arg(&binary.program);
    command.current_dir(&binary.folder);
    command.env("PROPTEST_RNG_SEED", "1");
    command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
    command.env("PROPTEST_MAX_SHRINK_ITERS", "0");
    command
}

fn is_newer(file: &Path, other: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|it| it.modified());
    match (time(file), time(other)) {
        (Ok(file), Ok(other)) => file > other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_mutant_is_run_with_the_tests_that_reach_it() {
        let binary = Binary {
            program: PathBuf::new(),
            folder: PathBuf::new(),
        };
        let names = ["a::one", "a::two", "b::three"].map(str::to_owned);
        let record = "a::one\t1500\t0 2 \nb::three\t20\t2 \nworker\t1\t3 \n";
        let suite = Suite::of(binary, names.to_vec(), record);
        for (id, want) in [
            (0, vec!["a::one"]),
            (1, vec![]),
            (2, vec!["a::one", "b::three"]),
            // It may be any test whose thread it is.
            (3, vec!["a::one", "a::two", "b::three"]),
        ] {
            let found = suite.reaching(id);
            let found: Vec<&str> = found.iter().map(|test| test.name.as_str()).collect();
            assert_eq!(found, want, "{id}");
        }
        assert_eq!(suite.tests[0].time, Duration::from_micros(1500));
    }

    #[test]
    fn the_module_of_a_file_is_the_path_of_its_tests() {
        for (file, want) in [
            (
                "crates/engine/src/scheduling/queue.rs",
                "scheduling::queue::",
            ),
            (
                "crates/engine/src/scheduling/plugins/node_name.rs",
                "scheduling::plugins::node_name::",
            ),
        ] {
            assert_eq!(module(file), want);
        }
    }
}
