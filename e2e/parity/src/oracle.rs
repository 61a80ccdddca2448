//! A Go program that calls a scheduler's own plugins, as a child process.
//!
//! One process answers many cases; a case costs it a few milliseconds, its start half a second.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::compare::Judge;
use crate::generate::Case;
use crate::verdicts::Verdicts;

/// A case takes milliseconds: after this time the oracle hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Oracle {
    child: Child,
    requests: BufWriter<ChildStdin>,
    answers: Receiver<std::io::Result<String>>,
    sent: u64,
}

#[derive(Serialize)]
struct Request<'a, C> {
    id: String,
    case: &'a C,
}

#[derive(Deserialize)]
struct Answer<V> {
    id: String,
    error: Option<String>,
    verdicts: Option<V>,
}

/// Names of programs; `cargo xtask parity` builds them.
pub(crate) const KUBE: &str = "oracle-kube";
pub(crate) const KOORDINATOR: &str = "oracle-koordinator";
pub(crate) const TIERS: &str = "oracle-tiers";
pub(crate) const WEBHOOK: &str = "oracle-webhook";
pub(crate) const KATALYST: &str = "oracle-katalyst";
pub(crate) const KOORDLET: &str = "oracle-koordlet";

/// Names the directory of these programs.
const DIRECTORY: &str = "TIDEPOOL_ORACLES";

impl Oracle {
    pub(crate) fn start(name: &str) -> Result<Self> {
        let directory = std::env::var_os(DIRECTORY);
        let directory = directory.with_context(|| {
            format!("${DIRECTORY} is not set: start this program by `cargo xtask parity`")
        })?;
        let program = PathBuf::from(directory).join(name);
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let requests = BufWriter::new(child.stdin.take().context("the oracle has no stdin")?);
        let output = BufReader::new(child.stdout.take().context("the oracle has no stdout")?);
        let (sender, answers) = channel();
        // A thread of its own, because a pipe cannot be read with a time limit.
        std::thread::spawn(move || {
            for line in output.lines() {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            requests,
            answers,
            sent: 0,
        })
    }

    /// The oracle's answer to a question in its own form.
    pub(super) fn ask<C: Serialize, V: DeserializeOwned>(&mut self, case: &C) -> Result<V> {
        let answer: Answer<V> = self.exchange(case)?;
        match (answer.verdicts, answer.error) {
            (Some(verdicts), None) => Ok(verdicts),
            (_, error) => Err(anyhow!(
                "the oracle cannot evaluate the case: {}",
                error.as_deref().unwrap_or("it gave no reason")
            )),
        }
    }

    fn exchange<C: Serialize, V: DeserializeOwned>(&mut self, case: &C) -> Result<Answer<V>> {
        self.sent += 1;
        let id = self.sent.to_string();
        serde_json::to_writer(&mut self.requests, &Request { id, case })?;
        self.requests.write_all(b"\n")?;
        self.requests.flush().context("the oracle exited")?;
        let line = match self.answers.recv_timeout(ANSWER_TIMEOUT) {
            Ok(line) => line.context("cannot read the oracle's answer")?,
            Err(RecvTimeoutError::Timeout) => {
                bail!("the oracle did not answer within {ANSWER_TIMEOUT:?}")
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the oracle exited"),
        };
        let answer: Answer<V> = serde_json::from_str(&line)
            .with_context(|| format!("cannot decode the oracle's answer: {line}"))?;
        if answer.id != self.sent.to_string() {
            bail!(
                "the oracle answered request {} instead of {}",
                answer.id,
                self.sent
            );
        }
        Ok(answer)
    }
}

impl Judge for Oracle {
    fn judge(&mut self, case: &Case) -> Result<Verdicts> {
        self.ask(case)
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // It has no state to save, and may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
