//! A Go program that calls a scheduler's own plugins, as a child process.
//!
//! One process answers many cases; a case costs it a few milliseconds, its start half a second.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Judge;
use super::generate::Case;
use super::verdicts::Verdicts;
use crate::{controlplane, guest, process};

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

/// A program in a Go module: one build list cannot hold the versions of Kubernetes that they need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    name: &'static str,
    module: &'static str,
    package: &'static str,
    /// A library that the program links by cgo: its header, and Debian's package.
    library: Option<(&'static str, &'static str)>,
}

pub(crate) const KUBE: Program = Program {
    name: "oracle-kube",
    module: "e2e",
    package: "./oracle-kube",
    library: None,
};

pub(crate) const KOORDINATOR: Program = Program {
    name: "oracle-koordinator",
    module: "e2e/oracle-koordinator",
    package: ".",
    library: None,
};

pub(crate) const TIERS: Program = Program {
    name: "oracle-tiers",
    module: "e2e/oracle-koordinator",
    package: "./tiers",
    library: None,
};

pub(crate) const WEBHOOK: Program = Program {
    name: "oracle-webhook",
    module: "e2e/oracle-koordinator",
    package: "./webhook",
    library: None,
};

pub(crate) const KATALYST: Program = Program {
    name: "oracle-katalyst",
    module: "e2e/oracle-katalyst",
    package: ".",
    library: None,
};

pub(crate) const KOORDLET: Program = Program {
    name: "oracle-koordlet",
    module: "e2e/oracle-koordlet",
    package: ".",
    library: Some(("/usr/include/perfmon/pfmlib.h", "libpfm4-dev")),
};

impl Program {
    /// Builds the program if its sources changed, and starts it.
    pub(crate) fn start(self) -> Result<Oracle> {
        Oracle::start(&self.build()?)
    }

    fn build(self) -> Result<PathBuf> {
        let program = std::env::current_exe()
            .context("cannot find the directory of this program")?
            .with_file_name(self.name);
        let module = process::root().join(self.module);
        let mut build = controlplane::go_build(&module, &program);
        if let Some((header, package)) = self.library {
            if !Path::new(header).is_file() {
                guest::install(&[package])?;
            }
            build.env("CGO_ENABLED", "1");
        }
        process::run(build.arg(self.package))?;
        Ok(program)
    }
}

impl Oracle {
    fn start(program: &Path) -> Result<Self> {
        let mut child = Command::new(program)
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
