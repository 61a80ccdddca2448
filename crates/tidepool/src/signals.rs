//! SIGUSR2: the scheduler logs its sizes, as kube-scheduler's debugger does.

use anyhow::{Context, Result};
use control_plane::scheduler::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Once this exists, the signal does not end the process.
pub(crate) struct StatusSignal(Signal);

impl StatusSignal {
    pub(crate) fn listen() -> Result<Self> {
        let signal = signal(SignalKind::user_defined2()).context("cannot listen for SIGUSR2")?;
        Ok(Self(signal))
    }

    /// Logs the sizes on each signal, including those since `listen`.
    pub(crate) fn answer(mut self, scheduler: Handle) {
        tokio::spawn(async move {
            while self.0.recv().await.is_some() {
                scheduler.log_sizes();
            }
        });
    }
}
