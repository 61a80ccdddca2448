//! Whether this process may write to the cluster, and for how long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::Election;
use api::http::{Leader, Role};

/// A leader whose Lease is overdue by more is unhealthy, as in kube-scheduler.
const OVERDUE: Duration = Duration::from_secs(20);

/// The permission of the Lease to write. It ends by itself when it is not extended.
#[derive(Debug)]
pub(crate) struct Leadership {
    begun: Instant,
    /// Microseconds after `begun`.
    until: AtomicU64,
    /// The time of the last extension, in the same unit.
    renewed: AtomicU64,
    role: watch::Sender<Role>,
    /// The holder of the Lease, as last seen.
    leader: Mutex<Option<Leader>>,
    /// When the API server answered about the Lease last, and why it has not since.
    answered: Mutex<LastAnswer>,
}

#[derive(Debug, Default)]
struct LastAnswer {
    at: Option<Instant>,
    failure: Option<String>,
}

impl Leadership {
    /// Without end for a process that needs no Lease; a candidate may not write yet.
    pub(crate) fn new(role: Role) -> Self {
        let until = match role {
            Role::Alone | Role::Observer => u64::MAX,
            _ => 0,
        };
        Self {
            begun: Instant::now(),
            until: AtomicU64::new(until),
            renewed: AtomicU64::new(0),
            role: watch::Sender::new(role),
            leader: Mutex::default(),
            answered: Mutex::default(),
        }
    }

    /// For how long requests may be sent; `None` if leadership is lost.
    pub(crate) fn left(&self) -> Option<Duration> {
        let until = self.until.load(Ordering::Acquire);
        let left = until.checked_sub(self.micros(Instant::now()))?;
        (left > 0).then(|| Duration::from_micros(left))
    }

    /// The Lease was renewed at `at`, for this time.
    pub(crate) fn extend(&self, at: Instant, time: Duration) {
        self.renewed.store(self.micros(at), Ordering::Release);
        self.until.store(self.micros(at + time), Ordering::Release);
    }

    /// Ends now. Returns how long requests that were sent before may take at most.
    pub(crate) fn end(&self) -> Duration {
        let until = self.until.swap(0, Ordering::AcqRel);
        self.set_role(Role::Former);
        let left = until.saturating_sub(self.micros(Instant::now()));
        Duration::from_micros(left)
    }

    /// The time since the last renewal.
    pub(crate) fn age(&self) -> Duration {
        let renewed = self.renewed.load(Ordering::Acquire);
        Duration::from_micros(self.micros(Instant::now()).saturating_sub(renewed))
    }

    pub(crate) fn role(&self) -> Role {
        *self.role.borrow()
    }

    pub(crate) fn set_role(&self, role: Role) {
        self.role.send_if_modified(|known| {
            let changed = *known != role;
            *known = role;
            changed
        });
    }

    /// Returns after the first attempt to take the Lease.
    pub(crate) async fn tried(&self) {
        let mut role = self.role.subscribe();
        // The sender lives as long as `self`.
        let _ = role.wait_for(|role| *role != Role::Candidate).await;
    }

    pub(crate) fn leader(&self) -> Option<Leader> {
        let leader = self.leader.lock();
        leader.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_leader(&self, leader: Option<Leader>) {
        *self.leader.lock().unwrap_or_else(PoisonError::into_inner) = leader;
    }

    /// A health check: a leader renews its Lease.
    pub(crate) fn check(&self, election: &Election) -> Result<(), String> {
        let leads = matches!(self.role(), Role::Leader | Role::CatchingUp);
        let age = self.age();
        if leads && age > election.lease_duration + OVERDUE {
            return Err(format!("the Lease was last renewed {age:?} ago"));
        }
        Ok(())
    }

    /// The API server answered about the Lease.
    pub(super) fn answered(&self) {
        *self.last_answer() = LastAnswer {
            at: Some(Instant::now()),
            failure: None,
        };
    }

    /// It did not.
    pub(super) fn unanswered(&self, why: String) {
        self.last_answer().failure = Some(why);
    }

    /// A check of readiness: this candidate reaches the API server, so that it can take over.
    pub(crate) fn check_reached(&self, election: &Election) -> Result<(), String> {
        let last = self.last_answer();
        let silence = last.at.unwrap_or(self.begun).elapsed();
        // A candidate asks once in up to 2.2 periods, and waits for an answer.
        let longest = 2 * election.renew_deadline;
        let why = last.failure.as_deref().unwrap_or("no answer yet");
        let lease = format!("Lease {}/{}", election.namespace, election.name);
        match last.at {
            Some(_) if silence <= longest => Ok(()),
            Some(_) => Err(format!(
                "the API server has not answered about {lease} for {} s: {why}",
                silence.as_secs()
            )),
            None => Err(format!(
                "the API server has not answered about {lease}: {why}"
            )),
        }
    }

    fn last_answer(&self) -> MutexGuard<'_, LastAnswer> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn micros(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.begun);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_by_itself() {
        let leadership = Leadership::new(Role::Candidate);
        assert_eq!(leadership.left(), None);
        leadership.extend(Instant::now(), Duration::from_millis(30));
        assert!(leadership.left().is_some());
        std::thread::sleep(Duration::from_millis(40));
        assert_eq!(leadership.left(), None);
        assert!(leadership.age() >= Duration::from_millis(40));
    }

    #[test]
    fn it_counts_from_the_renewal() {
        let leadership = Leadership::new(Role::Candidate);
        std::thread::sleep(Duration::from_millis(20));
        let seen = leadership.begun;
        leadership.extend(seen, Duration::from_millis(10));
        assert_eq!(leadership.left(), None);
    }

    #[test]
    fn without_a_lease_it_never_ends() {
        let leadership = Leadership::new(Role::Alone);
        assert!(
            leadership
                .left()
                .is_some_and(|left| left > Duration::from_secs(1_000_000))
        );
        leadership.end();
        assert_eq!((leadership.left(), leadership.role()), (None, Role::Former));
    }
}
