//! One run of the tests on one cluster.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use e2e::Process;
use serde::Deserialize;

use crate::cluster::{Cluster, NODES, Running};

/// All tests take some fifteen minutes. After this time the program ends by itself and reports what it has.
const TIMEOUT: &str = "60m";

/// The result of a test, as the program writes it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    state: String,
    pub(crate) seconds: f64,
    /// Why it failed, or why it skipped itself.
    pub(crate) message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Passed,
    Failed,
    /// Not among the tests of this run.
    NotSelected,
}

impl Outcome {
    pub(crate) fn state(&self) -> State {
        match self.state.as_str() {
            "passed" => State::Passed,
            "skipped" if self.message.is_empty() => State::NotSelected,
            // A test that skips itself tests nothing: tests.yaml has to name it and its reason.
            _ => State::Failed,
        }
    }
}

/// Runs the program on a cluster and calls `on_result` with each result as it comes.
pub(crate) fn run(
    program: &Path,
    cluster: Cluster,
    flags: &[String],
    directory: &Path,
    mut on_result: impl FnMut(&Outcome),
) -> Result<Vec<Outcome>> {
    let mut running = cluster.start(directory)?;
    let results = directory.join("results");
    let mut arguments = vec![
        format!("--kubeconfig={}", running.kubeconfig.display()),
        format!("--num-nodes={NODES}"),
        "--provider=skeleton".to_owned(),
        format!("--results={}", results.display()),
        // The log of a test that takes long shows where it waits.
        "--ginkgo.v".to_owned(),
        "--ginkgo.no-color".to_owned(),
        // Every run has the same order.
        "--ginkgo.seed=1".to_owned(),
        format!("--ginkgo.timeout={TIMEOUT}"),
    ];
    arguments.extend_from_slice(flags);
    let mut tests = Process::start(program, &arguments, &directory.join("judge.log"))?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    loop {
        let ended = tests.ended()?;
        // An empty run, or one that cannot connect, writes no file.
        let text = std::fs::read_to_string(&results).unwrap_or_default();
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        for line in whole.skip(outcomes.len()) {
            let outcome = serde_json::from_str(line)
                .with_context(|| format!("the tests wrote an unknown result: {line}"))?;
            on_result(&outcome);
            outcomes.push(outcome);
        }
        if let Some(why) = running.ended()? {
            bail!("a program of the cluster {} ended: {why}", cluster.name());
        }
        if let Some(status) = ended {
            // The status is 1 after failed tests, which the results name.
            if !outcomes.iter().any(|it| it.state() != State::NotSelected) {
                bail!("no test ran ({status}):\n{}", tests.last_words());
            }
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    keep_logs_of_failures(&mut running, &outcomes);
    Ok(outcomes)
}

fn keep_logs_of_failures(running: &mut Running, outcomes: &[Outcome]) {
    if outcomes.iter().any(|it| it.state() == State::Failed) {
        running.keep_logs();
    }
}
