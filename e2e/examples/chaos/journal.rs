//! What the proxy saw: every write of a scheduler with its times, reports that reached it, and how often each fault hit.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;

use crate::plan::FaultKind;

/// Microseconds since the start of the run.
pub(crate) type Micros = u64;

/// A process of a scheduler: the replica, and how often it was started before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Incarnation {
    pub(crate) replica: usize,
    pub(crate) run: u32,
}

impl std::fmt::Display for Incarnation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", ["a", "b"][self.replica % 2], self.run)
    }
}

/// A write of a scheduler that was forwarded to the API server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SentWrite {
    pub(crate) id: u64,
    pub(crate) by: Incarnation,
    /// When the scheduler sent it, at the earliest.
    pub(crate) sent: Micros,
    pub(crate) forwarded: Micros,
    /// When the API server answered.
    pub(crate) answered: Option<Micros>,
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// A CustomNodeResource on its way to a scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeliveredReport {
    pub(crate) to: Incarnation,
    pub(crate) at: Micros,
    pub(crate) node: String,
    pub(crate) revision: u64,
}

#[derive(Debug)]
pub(crate) struct Journal {
    begun: Instant,
    records: Mutex<Records>,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Records {
    requests: u64,
    pub(crate) writes: Vec<SentWrite>,
    pub(crate) reports: Vec<DeliveredReport>,
    pub(crate) hits: BTreeMap<FaultKind, u64>,
    /// The replica whose write of the Lease was accepted last.
    leader: Option<usize>,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            records: Mutex::default(),
        }
    }

    pub(crate) fn now(&self) -> Micros {
        self.at(Instant::now())
    }

    pub(crate) fn at(&self, time: Instant) -> Micros {
        let since = time.saturating_duration_since(self.begun);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// The number of the next request.
    pub(crate) fn next_request(&self) -> u64 {
        let mut records = self.lock();
        records.requests += 1;
        records.requests
    }

    pub(crate) fn sent(&self, write: SentWrite) {
        self.lock().writes.push(write);
    }

    pub(crate) fn answered(&self, id: u64, leads: Option<usize>) {
        let now = self.now();
        let mut records = self.lock();
        let write = records.writes.iter_mut().rev().find(|it| it.id == id);
        if let Some(write) = write {
            write.answered = Some(now);
        }
        records.leader = leads.or(records.leader);
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        self.lock().leader
    }

    pub(crate) fn delivered(&self, report: DeliveredReport) {
        self.lock().reports.push(report);
    }

    /// A fault had an effect.
    pub(crate) fn hit(&self, kind: FaultKind) {
        *self.lock().hits.entry(kind).or_default() += 1;
    }

    pub(crate) fn records(&self) -> Records {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
