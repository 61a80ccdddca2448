//! The workload around a takeover with late watches.
//!
//! A new leader that does not wait for its watches must do visible harm, or the run proves nothing. Jobs wait that both
//! replicas know, while nodes lend nothing. Then urgent jobs come, nodes lend one job each, and the old leader binds the
//! urgent jobs. The standby learns that nodes lend, but not who took it: without a fence it binds the jobs that it knows.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;

use crate::cluster::{PODS, URGENT, nodes};
use crate::evidence::{stored_pod, text};
use crate::settle::{is_bound, is_refused};
use crate::workload::{Workload, job};

/// What a node lends, and what each job requests.
const AMOUNT: u64 = 1_000;
const LOOK_EVERY: Duration = Duration::from_millis(50);

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

/// The phase that the conductor orders, and the last one that the workload has reached.
#[derive(Default)]
pub(crate) struct Takeover(Mutex<(Phase, Phase)>);

impl Takeover {
    fn phases<T>(&self, edit: impl FnOnce(&mut (Phase, Phase)) -> T) -> T {
        edit(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn order(&self, phase: Phase) {
        self.phases(|it| it.0 = phase);
    }

    /// Orders a phase. False if the workload does not reach it in time.
    pub(crate) fn reach(&self, phase: Phase, deadline: Instant) -> bool {
        self.order(phase);
        while Instant::now() < deadline {
            if self.phases(|it| it.1 == phase) {
                return true;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        false
    }

    /// The phase that the workload must enter next.
    pub(crate) fn due(&self) -> Option<Phase> {
        self.phases(|it| (it.0 != it.1).then_some(it.0))
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.phases(|it| it.0 != Phase::Random)
    }

    pub(crate) fn reached(&self, phase: Phase) {
        self.phases(|it| it.1 = phase);
    }
}

/// Makes those changes of a phase that are not made yet. A server that is down refuses some of them, and a scheduler has to
/// try the new pods: then the caller asks again.
pub(crate) fn enter(phase: Phase, workload: &mut Workload) -> Result<()> {
    match phase {
        Phase::Random => Ok(()),
        Phase::Backlog => {
            workload.lend_all(0)?;
            let pods = workload.api.list(PODS)?;
            let others = pods.iter().filter(|pod| {
                let is_waiting = text(&pod["metadata"]["name"]).starts_with("waiting-");
                stored_pod(pod).reclaimed > 0 && (is_bound(pod) || !is_waiting)
            });
            others
                .into_iter()
                .try_for_each(|pod| workload.delete(pod))?;
            refused(workload, "waiting", |name| job(name, AMOUNT))
        }
        Phase::Newcomers => refused(workload, "newcomer", urgent_job),
        Phase::Lending => workload.lend_all(AMOUNT),
    }
}

/// A pod of this kind for each node. Fails until a scheduler has refused them all.
fn refused(workload: &mut Workload, kind: &str, pod: impl Fn(&str) -> Value) -> Result<()> {
    let pods = workload.api.list(PODS)?;
    let mut left = 0;
    for index in 0..nodes().count() {
        let name = format!("{kind}-{index}");
        match pods.iter().find(|it| it["metadata"]["name"] == *name) {
            None => {
                workload.create(&pod(&name))?;
                left += 1;
            }
            Some(found) => left += usize::from(!is_refused(found)),
        }
    }
    match left {
        0 => Ok(()),
        left => bail!("{left} pods were not tried yet"),
    }
}

fn urgent_job(name: &str) -> Value {
    let mut pod = job(name, AMOUNT);
    pod["spec"]["priorityClassName"] = URGENT.into();
    pod
}
