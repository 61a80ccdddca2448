//! The real kubectl, with a home directory of its own.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
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
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
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
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Ok(Running {
            child,
            stdout,
            stderr,
            started: Instant::now(),
        })
    }
}

impl Running {
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
        let text = |reader: Option<JoinHandle<String>>| {
            reader.and_then(|r| r.join().ok()).unwrap_or_default()
        };
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

/// Reads to the end in a thread, so that a full pipe never blocks kubectl.
fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A broken pipe ends the text; what came before it counts.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
