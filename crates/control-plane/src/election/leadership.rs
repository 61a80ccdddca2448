//! Whether this process may write to the cluster, and for how long it may be sure of that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Why something was not written. Failures that end so are told to nobody: they say nothing about a pod.
pub(crate) const OVER: &str = "the Lease may have run out";

/// What this process is among those that could do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Nobody else is expected: there is no Lease.
    Alone,
    /// Decides and writes nothing.
    Observer,
    /// Has not asked for the Lease yet.
    Candidate,
    /// Somebody else has the Lease.
    Standby,
    /// Has the Lease, and is finding out what its predecessor did last.
    CatchingUp,
    Leader,
    /// Had the Lease.
    Former,
}

/// The right to write. It ends by itself when it is not prolonged.
#[derive(Debug)]
pub(crate) struct Mandate {
    begun: Instant,
    /// Microseconds after `begun`.
    until: AtomicU64,
    /// The same for the last time it was prolonged.
    renewed: AtomicU64,
    role: watch::Sender<Role>,
}

impl Mandate {
    /// Without end for whoever needs no Lease, and not yet begun for a candidate.
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
        }
    }

    /// How long requests may still be sent; `None` if it is over.
    pub(crate) fn left(&self) -> Option<Duration> {
        let until = self.until.load(Ordering::Acquire);
        let left = until.checked_sub(self.micros(Instant::now()))?;
        (left > 0).then(|| Duration::from_micros(left))
    }

    /// The Lease was seen to be ours at `at`, and is for so long.
    pub(crate) fn prolong(&self, at: Instant, time: Duration) {
        self.renewed.store(self.micros(at), Ordering::Release);
        self.until.store(self.micros(at + time), Ordering::Release);
    }

    /// Over, now.
    pub(crate) fn end(&self) {
        self.until.store(0, Ordering::Release);
        self.set_role(Role::Former);
    }

    /// How long ago it was last prolonged.
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

    /// Returns once the Lease has been asked for.
    pub(crate) async fn tried(&self) {
        let mut role = self.role.subscribe();
        // The sender lives as long as `self`.
        let _ = role.wait_for(|role| *role != Role::Candidate).await;
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
        let mandate = Mandate::new(Role::Candidate);
        assert_eq!(mandate.left(), None);
        mandate.prolong(Instant::now(), Duration::from_millis(30));
        assert!(mandate.left().is_some());
        std::thread::sleep(Duration::from_millis(40));
        assert_eq!(mandate.left(), None);
        assert!(mandate.age() >= Duration::from_millis(40));
    }

    #[test]
    fn it_counts_from_when_the_lease_was_seen() {
        let mandate = Mandate::new(Role::Candidate);
        std::thread::sleep(Duration::from_millis(20));
        let seen = mandate.begun;
        mandate.prolong(seen, Duration::from_millis(10));
        assert_eq!(mandate.left(), None);
    }

    #[test]
    fn without_a_lease_it_never_ends() {
        let mandate = Mandate::new(Role::Alone);
        assert!(
            mandate
                .left()
                .is_some_and(|left| left > Duration::from_secs(1_000_000))
        );
        mandate.end();
        assert_eq!((mandate.left(), mandate.role()), (None, Role::Former));
    }
}
