//! Beside the work: the Lease and the HTTP server, on a thread of their own, so that neither waits for the work nor the
//! work for them.

use std::sync::Arc;
use std::time::Instant;

use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::{Ended, Handle, Shared};
use crate::client::{Connect, Exchange};
use crate::election::leadership::Role;
use crate::election::{Candidate, Election, LeaseError, Seen, fence};
use crate::scheduler::channel::News;
use crate::serve::{Guard, Listening, accept, routes};

/// What there is to do.
pub(super) struct Aside {
    pub(super) connect: Connect,
    pub(super) election: Option<Election>,
    pub(super) listening: Option<Listening>,
    pub(super) handle: Handle,
    pub(super) seen: Arc<Seen>,
    /// Who reports events about the Lease.
    pub(super) reporter: String,
}

impl Aside {
    pub(super) fn is_needed(&self) -> bool {
        self.election.is_some() || self.listening.is_some()
    }

    /// Until `stopped`; then the Lease is given back. An error means that the Lease is lost.
    pub(super) async fn run(
        self,
        shared: &Shared,
        stopped: oneshot::Receiver<()>,
    ) -> Result<(), Ended> {
        let stopped = async {
            // An error is a scheduler that was dropped: stop as well.
            let _ = stopped.await;
        };
        let mut stopped = std::pin::pin!(stopped);
        let api = self.connect.exchange()?;
        let server = self
            .listening
            .as_ref()
            .map(|listening| listening.url(self.connect.server()));
        if let Some(listening) = self.listening {
            serve(listening, api.clone(), self.handle)?;
        }
        let Some(election) = self.election else {
            stopped.await;
            return Ok(());
        };
        let mut candidate = Candidate::new(
            election,
            api.clone(),
            shared.mandate.clone(),
            server,
            self.seen,
        );
        let won: Instant = tokio::select! {
            won = candidate.win() => won?,
            () = &mut stopped => return Ok(()),
        };
        let lead = async {
            fence(&api, &shared.progress, won).await;
            shared
                .metrics
                .fence_duration
                .observe(won.elapsed().as_secs_f64());
            shared.mandate.set_role(Role::Leader);
            tracing::info!(took = ?won.elapsed(), "knows what its predecessor did");
            shared.link.tell(vec![News::Decide(true)]).await;
            std::future::pending::<LeaseError>().await
        };
        let lost = tokio::select! {
            lost = candidate.hold(&self.reporter) => Some(lost),
            lost = lead => Some(lost),
            () = &mut stopped => None,
        };
        match lost {
            Some(lost) => Err(lost.into()),
            None => {
                candidate.release().await;
                candidate.tell(&self.reporter, "stopped leading").await;
                Ok(())
            }
        }
    }
}

/// Begins to answer.
fn serve(listening: Listening, api: Exchange, handle: Handle) -> Result<(), Ended> {
    let listener = TcpListener::from_std(listening.listener).map_err(Ended::Listen)?;
    let guard = listening
        .tls
        .is_some()
        .then(|| Guard::new(api, listening.always_allow));
    let scheme = if listening.tls.is_some() {
        "https"
    } else {
        "http"
    };
    tracing::info!("serving on {scheme}://{}", listening.address);
    tokio::spawn(accept(listener, listening.tls, routes(handle, guard)));
    Ok(())
}
