//! Sends reports: urgent values at once, others once in the report period, and all of them again after an error.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::taint::{self, TaintForm};
use super::writer::{Failure, ObjectWriter};
use super::{Observation, Reporter, Target, Urgency};

/// The object is read again after this time, to see what others changed.
const REFRESH: Duration = Duration::from_secs(5 * 60);
/// Delays after an error.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// Whether the reports of one object succeed.
#[derive(Debug, Clone, Default)]
pub struct SendState {
    shared: Arc<Mutex<SendCounts>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SendCounts {
    pub sent: u64,
    pub failed: u64,
    /// The error of the last attempt; none if it succeeded.
    pub failure: Option<String>,
}

impl SendState {
    pub fn get(&self) -> SendCounts {
        let counts = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        counts.clone()
    }

    /// Logs a failure once, and its end.
    pub(crate) fn record(&self, object: &str, result: &Result<bool, Failure>) {
        let mut counts = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = result.as_ref().err().map(Failure::to_string);
        match (&counts.failure, &failure) {
            (before, Some(why)) if before.as_ref() != Some(why) => {
                tracing::warn!(object, why, "cannot report");
            }
            (Some(_), None) => tracing::info!(object, "reporting again"),
            _ => {}
        }
        counts.failed += u64::from(failure.is_some());
        counts.sent += u64::from(*result == Ok(true));
        counts.failure = failure;
    }
}

/// Reports one object until it is cancelled.
pub struct Sender {
    pub target: Target,
    pub writer: ObjectWriter,
    pub reporter: Arc<Reporter<Observation>>,
    pub taint_form: TaintForm,
    pub period: Duration,
    pub state: SendState,
}

impl Sender {
    pub async fn run(
        mut self,
        mut observed: watch::Receiver<Arc<Observation>>,
        cancel: CancellationToken,
    ) {
        let mut sent: Option<Instant> = None;
        let mut refreshed = Instant::now();
        let mut delay = FIRST_DELAY;
        let work = async {
            // The first value is none of the node's.
            while observed.changed().await.is_ok() {
                let observation = observed.borrow_and_update().clone();
                if refreshed.elapsed() > REFRESH {
                    refreshed = Instant::now();
                    self.writer.forget();
                }
                let is_due = sent.is_none_or(|at| at.elapsed() >= self.period);
                let Some(result) = self.send(&observation, is_due).await else {
                    continue;
                };
                self.state.record(self.target.kind(), &result);
                match result {
                    // The other fields are written.
                    Ok(_) | Err(Failure::Refused(_)) => {
                        if is_due {
                            sent = Some(Instant::now());
                        }
                        delay = FIRST_DELAY;
                    }
                    Err(_) => {
                        tokio::time::sleep(delay).await;
                        delay = (delay * 2).min(LONGEST_DELAY);
                    }
                }
            }
        };
        cancel.run_until_cancelled(work).await;
    }

    /// None if nothing is urgent.
    async fn send(
        &mut self,
        observation: &Observation,
        is_due: bool,
    ) -> Option<Result<bool, Failure>> {
        let values = self.reporter.values(observation).remove(&self.target)?;
        let is_urgent = values.iter().any(|(field, value)| {
            field.urgency == Urgency::AtOnce && self.writer.is_pending(field, value)
        });
        if !is_urgent && !is_due {
            return None;
        }
        let result = self.writer.write(&values).await;
        // A newer definition refuses the older form of taints.
        if self.target == Target::CustomNodeResource
            && self.writer.is_refused(taint::PATH)
            && self.taint_form.use_level()
        {
            self.writer.accept_again(taint::PATH);
            let values = self.reporter.values(observation).remove(&self.target)?;
            return Some(self.writer.write(&values).await);
        }
        Some(result)
    }
}
