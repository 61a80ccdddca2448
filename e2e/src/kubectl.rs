//! The real kubectl, with a home directory of its own.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{Binaries, Kubeconfig};

/// kubectl as one user of one server. Its caches are its own, because kubectl remembers discovery
/// by host and port for hours and ports are reused.
pub struct Kubectl {
    program: PathBuf,
    home: tempfile::TempDir,
}

/// What a run left behind.
#[derive(Debug, Clone)]
pub struct Run {
    pub stdout: String,
    pub stderr: String,
    /// `None`: it did not end in time and was killed.
    pub code: Option<i32>,
}

/// A run that is still going on.
pub struct Running {
    child: std::process::Child,
    stdout: Option<Output>,
    stderr: Option<Output>,
    started: Instant,
}

impl Kubectl {
    pub fn new(binaries: &Binaries, kubeconfig: &Kubeconfig) -> Result<Self> {
        Self::with_text(binaries, &kubeconfig.to_yaml())
    }

    /// With the text of a kubeconfig.
    pub fn with_text(binaries: &Binaries, kubeconfig: &str) -> Result<Self> {
        let home = tempfile::tempdir().context("no temporary directory for kubectl")?;
        std::fs::write(home.path().join("kubeconfig"), kubeconfig)?;
        Ok(Self {
            program: binaries.path("kubectl")?,
            home,
        })
    }

    pub fn program(&self) -> &std::path::Path {
        &self.program
    }

    /// A directory for manifests; kubectl runs in it, so that relative paths work.
    pub fn directory(&self) -> &std::path::Path {
        self.home.path()
    }

    /// Runs to the end, or until the timeout kills it.
    pub fn run(&self, arguments: &[&str], timeout: Duration) -> Result<Run> {
        self.start(arguments)?.wait(timeout)
    }

    /// For commands that do not end by themselves, such as `get -w`.
    pub fn start(&self, arguments: &[&str]) -> Result<Running> {
        let home = self.home.path();
        let mut child = Command::new(&self.program)
            .args(arguments)
            .current_dir(home)
            .env_clear()
            // `kubectl diff` runs `diff`.
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home)
            .env("KUBECONFIG", home.join("kubeconfig"))
            .env("KUBECACHEDIR", home.join("cache"))
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let stdout = child.stdout.take().map(Output::collect);
        let stderr = child.stderr.take().map(Output::collect);
        Ok(Running {
            child,
            stdout,
            stderr,
            started: Instant::now(),
        })
    }
}

impl Running {
    /// Waits until it has printed a text so many times, and says whether it did so in time.
    pub fn prints(&self, text: &str, times: usize, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            let output = self.stdout.as_ref().map(Output::so_far);
            if output.is_some_and(|output| output.matches(text).count() >= times) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end, or kills it at the timeout, which counts from its start.
    pub fn wait(mut self, timeout: Duration) -> Result<Run> {
        let mut code = None;
        while self.started.elapsed() < timeout {
            if let Some(status) = self.child.try_wait()? {
                code = status.code();
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if code.is_none() {
            self.child.kill()?;
            self.child.wait()?;
        }
        let text = |output: Option<Output>| output.map(Output::finish).unwrap_or_default();
        Ok(Run {
            stdout: text(self.stdout.take()),
            stderr: text(self.stderr.take()),
            code,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What comes out of a pipe. A thread reads it to the end, so that a full pipe never blocks kubectl.
struct Output {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Output {
    fn collect(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let read = bytes.clone();
        let reader = std::thread::spawn(move || {
            let mut part = [0; 4096];
            // A broken pipe ends the text; what came before it counts.
            while let Ok(count @ 1..) = pipe.read(&mut part) {
                let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
                read.extend_from_slice(&part[..count]);
            }
        });
        Self { bytes, reader }
    }

    fn so_far(&self) -> String {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn finish(self) -> String {
        let Self { bytes, reader } = self;
        // It cannot panic, and what it read counts anyway.
        let _ = reader.join();
        let bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
