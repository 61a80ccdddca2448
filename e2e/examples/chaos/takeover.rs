//! The workload around a takeover with late watches.
//!
//! A new leader that does not wait for its watches must do visible harm, or the run proves nothing. Jobs wait that both
//! replicas know, while nodes lend nothing. Then urgent jobs come, nodes lend one job each, and the old leader binds the
//! urgent jobs. The standby learns that nodes lend, but not who took it: without a fence it binds the jobs that it knows.

use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use serde_json::Value;

use crate::cluster::{PODS, URGENT, nodes};
use crate::evidence::stored_pod;
use crate::workload::{Workload, job};

/// What a node lends, and what each job requests.
const AMOUNT: u64 = 1_000;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No takeover: random changes.
    #[default]
    Random,
    /// Nodes lend nothing, and a job per node waits.
    Backlog,
    /// An urgent job per node waits, too.
    Newcomers,
    /// Nodes lend one job each.
    Lending,
}

/// The phase that the conductor has reached; the workload follows.
#[derive(Default)]
pub(crate) struct Takeover(Mutex<Phase>);

impl Takeover {
    pub(crate) fn set(&self, phase: Phase) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the changes of a phase. A server that is down refuses some of them; then all are made again.
pub(crate) fn enter(phase: Phase, workload: &mut Workload) -> Result<()> {
    let names = |kind: &'static str| (0..nodes().count()).map(move |it| format!("{kind}-{it}"));
    match phase {
        Phase::Random => Ok(()),
        Phase::Backlog => {
            workload.lend_all(0)?;
            let pods = workload.api.list(PODS)?;
            let jobs = pods.iter().filter(|pod| stored_pod(pod).reclaimed > 0);
            jobs.into_iter().try_for_each(|pod| workload.delete(pod))?;
            names("waiting").try_for_each(|name| workload.replace(&name, &job(&name, AMOUNT)))
        }
        Phase::Newcomers => {
            names("newcomer").try_for_each(|name| workload.replace(&name, &urgent_job(&name)))
        }
        Phase::Lending => workload.lend_all(AMOUNT),
    }
}

fn urgent_job(name: &str) -> Value {
    let mut pod = job(name, AMOUNT);
    pod["spec"]["priorityClassName"] = URGENT.into();
    pod
}
