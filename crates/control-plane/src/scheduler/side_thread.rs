//! The side thread: the Lease and the HTTP server, on a thread of their own, so that they and the scheduling do not wait
//! for each other.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{Ended, Handle, Shared};
use crate::client::{Connect, Exchange};
use crate::election::{Annotations, Candidate, Election, LeaderWork, fence};
use crate::scheduler::channel::Message;
use crate::serve::Listening;
use api::http::Role;
use reconcile::planted::{PlantedFault, is_planted};
use reconcile::watch::failing_for;

/// The work of the side thread.
pub(super) struct SideThread {
    pub(super) connect: Connect,
    pub(super) election: Option<Election>,
    pub(super) listening: Option<Listening>,
    pub(super) handle: Handle,
    /// The scheduler names of the profiles. The first is the reporting controller of events about the Lease.
    pub(super) schedulers: Vec<String>,
}

impl SideThread {
    pub(super) fn is_needed(&self) -> bool {
        self.election.is_some() || self.listening.is_some()
    }

    /// Runs until `stopped`, then releases the Lease. Fails if the Lease is lost.
    pub(super) async fn run(
        self,
        shared: &Shared,
        stopped: oneshot::Receiver<()>,
    ) -> Result<(), Ended> {
        let stopped = async {
            // An error is a scheduler that was dropped: stop as well.
            let _ = stopped.await;
        };
        let api = self.connect.exchange()?;
        let annotations = Annotations::new(self.listening.as_ref(), self.connect.server())
            .with_scheduler_names(&self.schedulers);
        if let Some(listening) = self.listening {
            listening
                .serve(api.clone(), self.handle)
                .map_err(Ended::Listen)?;
        }
        let Some(election) = self.election else {
            stopped.await;
            return Ok(());
        };
        let leadership = shared.leadership.clone();
        let work = SchedulerWork {
            api: api.clone(),
            shared,
            deadline: election.sync_deadline,
        };
        let candidate = Candidate::new(election, api, leadership, annotations);
        let reporter = self.schedulers.first().map_or("", String::as_str);
        candidate.run(reporter, &work, stopped).await?;
        Ok(())
    }
}

/// Lets the engine decide while this process leads and its watches work.
struct SchedulerWork<'a> {
    api: Exchange,
    shared: &'a Shared,
    /// For the watches.
    deadline: Duration,
}

impl LeaderWork for SchedulerWork<'_> {
    async fn lead(&self, won: Instant) -> String {
        let Self {
            api,
            shared,
            deadline,
        } = self;
        let caught_up = async {
            if !is_planted(PlantedFault::NoFence) {
                fence(api, &shared.progress, won).await;
            }
        };
        if tokio::time::timeout(*deadline, caught_up).await.is_err() {
            let why = shared.progress.check_usable().err();
            let why = why.unwrap_or_else(|| "watches are behind".to_owned());
            return format!("watches are not up to date after {deadline:?}: {why}");
        }
        let took = won.elapsed();
        shared.metrics.fence_duration.observe(took.as_secs_f64());
        shared.leadership.set_role(Role::Leader);
        tracing::info!(?took, "watches are up to date; starting to schedule");
        shared.channel.send(vec![Message::Decide(true)]).await;
        let why = failing_for(*deadline, || shared.progress.check_usable()).await;
        shared.channel.send(vec![Message::Decide(false)]).await;
        format!("watches have failed for {deadline:?}: {why}")
    }

    async fn able(&self) {
        self.shared.progress.usable().await;
    }
}
