//! SIGUSR2: somebody wants to know what a scheduler has in mind. kube-scheduler's debugger answers to it, too.

use anyhow::{Context, Result};
use control_plane::scheduler::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// From when this is made on, the signal ends nothing.
pub(crate) struct Asked(Signal);

impl Asked {
    pub(crate) fn listen() -> Result<Self> {
        let signal = signal(SignalKind::user_defined2()).context("cannot listen for SIGUSR2")?;
        Ok(Self(signal))
    }

    /// Answers in the log, for as long as this process runs. What came before is answered now.
    pub(crate) fn answer(mut self, scheduler: Handle) {
        tokio::spawn(async move {
            while self.0.recv().await.is_some() {
                scheduler.log_sizes();
            }
        });
    }
}
