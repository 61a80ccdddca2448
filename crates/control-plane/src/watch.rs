//! What the cluster looks like, as a stream of news for the engine.
//!
//! Every kind has one follower ([`follow`]): it has everything streamed (or lists in pages, where the server is too old
//! for that), then watches, resumes where it stood when the stream ends, and lists again when the server has forgotten
//! that place. Objects are read into the engine's types at once and
//! dropped; what is kept per object is its name, uid and version, to find what vanished while nobody was watching.
//! Nothing is decided here.

mod follow;
mod frames;
mod kinds;
mod known;
mod pages;
mod progress;

use std::sync::Arc;

use engine::scheduler::Input;
use tokio::sync::mpsc;

use crate::scheduler::channel::{Channel, Message};
use crate::scheduler::claim_waits::ClaimWaits;
use crate::scheduler::pods::PendingPods;

pub(crate) use follow::follow;
pub(crate) use kinds::{ALL, Unreadable, Whom};
pub use progress::{Kind as KindProgress, Progress};

/// Where followers put what they see.
#[derive(Clone)]
pub(crate) struct Sink {
    pub(crate) channel: Arc<Channel>,
    pub(crate) pods: Arc<PendingPods>,
    pub(crate) claim_waits: Arc<ClaimWaits>,
    pub(crate) unreadable: mpsc::Sender<Unreadable>,
    pub(crate) progress: Arc<Progress>,
}

impl Sink {
    /// Waits while the engine is too far behind.
    async fn tell(&self, inputs: Vec<Input>) {
        if !inputs.is_empty() {
            self.claim_waits.observe(&inputs);
            let news = inputs.into_iter().map(Message::Input).collect();
            self.channel.send(news).await;
        }
    }

    fn complain(&self, unreadable: Unreadable) {
        tracing::warn!("{}", unreadable.text);
        let is_told = !matches!(unreadable.whom, Whom::Nobody);
        if is_told && self.unreadable.try_send(unreadable).is_err() {
            tracing::warn!("too many objects cannot be read: some get no event");
        }
    }
}
