//! The channel between the I/O thread and the deciding thread: messages one way, outcomes the other.
//!
//! Both are handed over in batches, with one wake-up each. A watch waits while the engine is behind; results of writes
//! never wait, because there are no more of them than outcomes.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::cluster::Snapshot;
use engine::model::Timestamp;
use engine::scheduling::scheduler::{Input, Outcome, PodReport};
use tokio::sync::{Notify, oneshot};

use api::http::Waiting;

/// Messages that may wait for the engine: a few pages of lists.
const MAX_MESSAGES: usize = 4_096;
/// Outcomes that may wait for the executor, beyond those it has taken.
const MAX_OUTCOMES: usize = 512;
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all messages are inputs: a box each would cost more than the memory"
)]
pub(crate) enum Message {
    Input(Input),
    /// A kind has been listed for the first time.
    Synced(&'static str),
    /// Start or stop deciding.
    Decide(bool),
    Query(Query),
    /// A query that needs no slice of its own.
    Overview(oneshot::Sender<Overview>),
}

/// The part of the status that only the engine knows.
#[derive(Debug)]
pub(crate) struct Overview {
    /// The pod that has been pending longest.
    pub(crate) oldest: Option<Waiting>,
    /// The first CustomNodeResources without a node, by name.
    pub(crate) without_node: Vec<String>,
}

/// A query of the HTTP API. The answer is `None` for an unknown object.
#[derive(Debug)]
pub(crate) enum Query {
    Pod {
        namespace: String,
        name: String,
        answer: oneshot::Sender<Option<PodReport>>,
    },
    /// The state of one node, or of all.
    Cache {
        node: Option<String>,
        answer: oneshot::Sender<Option<EngineDump>>,
    },
}

impl Query {
    /// The caller still waits for the answer.
    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Pod { answer, .. } => !answer.is_closed(),
            Self::Cache { answer, .. } => !answer.is_closed(),
        }
    }
}

/// Nodes as the engine knew them at one instant, between two decisions.
#[derive(Debug)]
pub(crate) struct EngineDump {
    pub(crate) at: Timestamp,
    /// Every kind had been listed before.
    pub(crate) synced: bool,
    pub(crate) view: Snapshot,
}

/// What the engine waits for, besides a message.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitFor {
    Message,
    Time(Instant),
    /// The executor takes outcomes.
    Capacity,
}

#[derive(Default)]
pub(crate) struct Channel {
    state: Mutex<ChannelState>,
    /// A message for the engine.
    to_engine: Condvar,
    /// An outcome for the executor.
    to_writer: Notify,
    /// The engine has taken its messages.
    taken: Notify,
}

#[derive(Default)]
struct ChannelState {
    messages: Vec<Message>,
    outcomes: VecDeque<Outcome>,
    closed: bool,
}

impl Channel {
    /// Sends messages of watches, once there is capacity.
    pub(crate) async fn send(&self, messages: Vec<Message>) {
        let mut messages = Some(messages);
        loop {
            let mut taken = std::pin::pin!(self.taken.notified());
            taken.as_mut().enable();
            {
                let mut state = self.lock();
                if state.closed {
                    return;
                }
                if state.messages.len() < MAX_MESSAGES {
                    return self.put(&mut state, messages.take().unwrap_or_default());
                }
            }
            taken.await;
        }
    }

    /// Sends the result of an outcome.
    pub(crate) fn send_result(&self, input: Input) {
        let mut state = self.lock();
        self.put(&mut state, vec![Message::Input(input)]);
    }

    /// Sends a query. The caller limits their number.
    pub(crate) fn query(&self, question: Query) {
        let mut state = self.lock();
        self.put(&mut state, vec![Message::Query(question)]);
    }

    /// Asks for an overview. The caller limits their number.
    pub(crate) fn query_overview(&self, answer: oneshot::Sender<Overview>) {
        let mut state = self.lock();
        self.put(&mut state, vec![Message::Overview(answer)]);
    }

    fn put(&self, state: &mut ChannelState, messages: Vec<Message>) {
        if state.messages.is_empty() {
            self.to_engine.notify_one();
        }
        state.messages.extend(messages);
    }

    /// For the engine: waits for messages, or for `until`. `None` if the channel is closed.
    pub(crate) fn receive(&self, until: WaitFor) -> Option<Vec<Message>> {
        let mut state = self.lock();
        loop {
            let is_time = match until {
                WaitFor::Message => false,
                WaitFor::Time(time) => time <= Instant::now(),
                WaitFor::Capacity => state.outcomes.len() < MAX_OUTCOMES,
            };
            if state.closed {
                return None;
            }
            if !state.messages.is_empty() || is_time {
                self.taken.notify_waiters();
                return Some(std::mem::take(&mut state.messages));
            }
            let wait = match until {
                WaitFor::Time(time) => time.saturating_duration_since(Instant::now()),
                // Senders notify; waking up once in a while costs nothing.
                WaitFor::Message | WaitFor::Capacity => LONGEST_SLEEP,
            };
            let waited = self.to_engine.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// For the engine: hands over outcomes.
    pub(crate) fn send_outcomes(&self, outcomes: Vec<Outcome>) {
        if outcomes.is_empty() {
            return;
        }
        self.lock().outcomes.extend(outcomes);
        self.to_writer.notify_one();
    }

    /// How many more outcomes fit now.
    pub(crate) fn capacity(&self) -> usize {
        MAX_OUTCOMES.saturating_sub(self.lock().outcomes.len())
    }

    /// For the executor: waits for outcomes and takes up to `most` of them.
    pub(crate) async fn receive_outcomes(&self, most: usize) -> Vec<Outcome> {
        loop {
            {
                let mut state = self.lock();
                if !state.outcomes.is_empty() {
                    let count = most.min(state.outcomes.len());
                    if state.outcomes.len() >= MAX_OUTCOMES {
                        self.to_engine.notify_one();
                    }
                    return state.outcomes.drain(..count).collect();
                }
            }
            self.to_writer.notified().await;
        }
    }

    /// The engine stops after its current decision.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.to_engine.notify_all();
        self.taken.notify_waiters();
    }

    /// Returns when the channel is closed.
    pub(crate) async fn closed(&self) {
        loop {
            let mut taken = std::pin::pin!(self.taken.notified());
            taken.as_mut().enable();
            if self.lock().closed {
                return;
            }
            taken.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn some(count: usize) -> Vec<Message> {
        let messages = |_| Message::Input(Input::PodGone("u".into()));
        (0..count).map(messages).collect()
    }

    #[tokio::test]
    async fn a_watch_waits_for_a_slow_engine() {
        let channel = Arc::new(Channel::default());
        channel.send(some(MAX_MESSAGES)).await;
        let late = tokio::spawn({
            let channel = channel.clone();
            async move { channel.send(some(1)).await }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!late.is_finished());
        // Results do not wait.
        channel.send_result(Input::PodGone("v".into()));
        assert_eq!(
            channel.receive(WaitFor::Message).unwrap().len(),
            MAX_MESSAGES + 1
        );
        late.await.unwrap();
        assert_eq!(channel.receive(WaitFor::Message).unwrap().len(), 1);
    }

    #[test]
    fn the_engine_waits_no_longer_than_its_timeout() {
        let channel = Channel::default();
        let begun = Instant::now();
        let until = begun + Duration::from_millis(20);
        assert!(channel.receive(WaitFor::Time(until)).unwrap().is_empty());
        assert!(begun.elapsed() >= Duration::from_millis(20));
        assert!(channel.receive(WaitFor::Time(until)).unwrap().is_empty());
    }

    #[tokio::test]
    async fn the_engine_waits_while_the_executor_is_behind() {
        let channel = Arc::new(Channel::default());
        let skip = || Outcome::Skip {
            pod: Arc::default(),
            message: String::new(),
        };
        channel.send_outcomes((0..MAX_OUTCOMES).map(|_| skip()).collect());
        assert_eq!(channel.capacity(), 0);
        let engine = std::thread::spawn({
            let channel = channel.clone();
            move || channel.receive(WaitFor::Capacity)
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!engine.is_finished());
        assert_eq!(channel.receive_outcomes(10).await.len(), 10);
        assert!(engine.join().unwrap().unwrap().is_empty());
    }

    #[test]
    fn closing_wakes_the_engine() {
        let channel = Arc::new(Channel::default());
        let engine = std::thread::spawn({
            let channel = channel.clone();
            move || channel.receive(WaitFor::Message).is_none()
        });
        channel.close();
        assert!(engine.join().unwrap());
    }
}
