//! The side thread: the Lease and the HTTP server, on a thread of their own, so that they and the scheduling do not wait
//! for each other.

use tokio::sync::oneshot;

use super::{Ended, Handle, Shared};
use crate::client::Connect;
use crate::election::{Candidate, Election, fence};
use crate::scheduler::channel::Message;
use crate::serve::Listening;
use api::http::Role;

/// The work of the side thread.
pub(super) struct SideThread {
    pub(super) connect: Connect,
    pub(super) election: Option<Election>,
    pub(super) listening: Option<Listening>,
    pub(super) handle: Handle,
    /// The reporting controller of events about the Lease.
    pub(super) reporter: String,
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
        let server = self
            .listening
            .as_ref()
            .map(|listening| listening.url(self.connect.server()));
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
        let candidate = Candidate::new(election, api.clone(), leadership, server);
        let lead = async |won: std::time::Instant| {
            fence(&api, &shared.progress, won).await;
            let took = won.elapsed();
            shared.metrics.fence_duration.observe(took.as_secs_f64());
            shared.leadership.set_role(Role::Leader);
            tracing::info!(?took, "watches are up to date; starting to schedule");
            shared.channel.send(vec![Message::Decide(true)]).await;
        };
        candidate.run(&self.reporter, lead, stopped).await?;
        Ok(())
    }
}
