//! Between the thread that talks to the world and the thread that decides: news one way, instructions the other.
//!
//! Both are handed over in batches, with one wake-up each. Whoever brings news of the world waits while the engine is
//! behind; results of instructions never wait, as there are no more of them than instructions.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::cluster::View;
use engine::model::Timestamp;
use engine::scheduler::{Input, Outcome, PodReport};
use tokio::sync::{Notify, oneshot};

use crate::status::Waiting;

/// News that may wait for the engine: a few pages of lists.
const MOST_NEWS: usize = 4_096;
/// Instructions that may wait to be taken up, beyond those under way.
const MOST_OUTCOMES: usize = 512;
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all news are inputs: a box each would cost more than the room"
)]
pub(crate) enum News {
    Input(Input),
    /// A kind has been told in full for the first time.
    Synced(&'static str),
    /// Decide, or do not decide any more.
    Decide(bool),
    /// Somebody wants to know something.
    Question(Question),
    /// Somebody wants to know what only a look at everything shows.
    Look(oneshot::Sender<Look>),
}

/// What a look at everything shows.
#[derive(Debug)]
pub(crate) struct Look {
    /// The pod that waits longest.
    pub(crate) oldest: Option<Waiting>,
    /// The first reports without a node, by name.
    pub(crate) homeless: Vec<String>,
}

/// What is not known is answered with `None`. Whoever asks may have gone.
#[derive(Debug)]
pub(crate) enum Question {
    Pod {
        namespace: String,
        name: String,
        answer: oneshot::Sender<Option<PodReport>>,
    },
    /// About one node, or about all.
    Cache {
        node: Option<String>,
        answer: oneshot::Sender<Option<Dump>>,
    },
}

impl Question {
    /// Somebody still waits for the answer.
    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Pod { answer, .. } => !answer.is_closed(),
            Self::Cache { answer, .. } => !answer.is_closed(),
        }
    }
}

/// Nodes as the engine knew them at one instant, between two decisions.
#[derive(Debug)]
pub(crate) struct Dump {
    pub(crate) at: Timestamp,
    /// Every kind had been told in full before.
    pub(crate) synced: bool,
    pub(crate) view: View,
}

/// What the engine waits for besides news.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    News,
    Time(Instant),
    /// It has more to say than the world has taken.
    Room,
}

#[derive(Default)]
pub(crate) struct Link {
    state: Mutex<State>,
    /// Something for the engine.
    to_engine: Condvar,
    /// Something for the world.
    to_world: Notify,
    /// The engine has taken its news.
    taken: Notify,
}

#[derive(Default)]
struct State {
    news: Vec<News>,
    outcomes: VecDeque<Outcome>,
    closed: bool,
}

impl Link {
    /// Brings news of the world, once there is room for them.
    pub(crate) async fn tell(&self, news: Vec<News>) {
        let mut news = Some(news);
        loop {
            let mut taken = std::pin::pin!(self.taken.notified());
            taken.as_mut().enable();
            {
                let mut state = self.lock();
                if state.closed {
                    return;
                }
                if state.news.len() < MOST_NEWS {
                    return self.put(&mut state, news.take().unwrap_or_default());
                }
            }
            taken.await;
        }
    }

    /// Brings the result of an instruction.
    pub(crate) fn report(&self, input: Input) {
        let mut state = self.lock();
        self.put(&mut state, vec![News::Input(input)]);
    }

    /// Asks something. Whoever does sees to it that not too many do.
    pub(crate) fn ask(&self, question: Question) {
        let mut state = self.lock();
        self.put(&mut state, vec![News::Question(question)]);
    }

    /// Asks for a look at everything. Whoever does sees to it that not too many do.
    pub(crate) fn ask_for_a_look(&self, answer: oneshot::Sender<Look>) {
        let mut state = self.lock();
        self.put(&mut state, vec![News::Look(answer)]);
    }

    fn put(&self, state: &mut State, news: Vec<News>) {
        if state.news.is_empty() {
            self.to_engine.notify_one();
        }
        state.news.extend(news);
    }

    /// For the engine: waits for news, or for what else it waits for. `None` if it is over.
    pub(crate) fn news(&self, until: Until) -> Option<Vec<News>> {
        let mut state = self.lock();
        loop {
            let is_time = match until {
                Until::News => false,
                Until::Time(time) => time <= Instant::now(),
                Until::Room => state.outcomes.len() < MOST_OUTCOMES,
            };
            if state.closed {
                return None;
            }
            if !state.news.is_empty() || is_time {
                self.taken.notify_waiters();
                return Some(std::mem::take(&mut state.news));
            }
            let wait = match until {
                Until::Time(time) => time.saturating_duration_since(Instant::now()),
                // Whoever brings news or makes room says so; looking up once in a while costs nothing.
                Until::News | Until::Room => LONGEST_SLEEP,
            };
            let waited = self.to_engine.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// For the engine: hands over instructions.
    pub(crate) fn instruct(&self, outcomes: Vec<Outcome>) {
        if outcomes.is_empty() {
            return;
        }
        self.lock().outcomes.extend(outcomes);
        self.to_world.notify_one();
    }

    /// How many more instructions the world takes now.
    pub(crate) fn room(&self) -> usize {
        MOST_OUTCOMES.saturating_sub(self.lock().outcomes.len())
    }

    /// For the world: waits for instructions and takes up to `most` of them.
    pub(crate) async fn outcomes(&self, most: usize) -> Vec<Outcome> {
        loop {
            {
                let mut state = self.lock();
                if !state.outcomes.is_empty() {
                    let count = most.min(state.outcomes.len());
                    if state.outcomes.len() >= MOST_OUTCOMES {
                        self.to_engine.notify_one();
                    }
                    return state.outcomes.drain(..count).collect();
                }
            }
            self.to_world.notified().await;
        }
    }

    /// The engine stops after what it is doing.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.to_engine.notify_all();
        self.taken.notify_waiters();
    }

    /// Returns once it is over, whoever ended it.
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn some(count: usize) -> Vec<News> {
        let news = |_| News::Input(Input::PodGone("u".into()));
        (0..count).map(news).collect()
    }

    #[tokio::test]
    async fn who_brings_news_waits_for_a_slow_engine() {
        let link = Arc::new(Link::default());
        link.tell(some(MOST_NEWS)).await;
        let late = tokio::spawn({
            let link = link.clone();
            async move { link.tell(some(1)).await }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!late.is_finished());
        // Results do not wait.
        link.report(Input::PodGone("v".into()));
        assert_eq!(link.news(Until::News).unwrap().len(), MOST_NEWS + 1);
        late.await.unwrap();
        assert_eq!(link.news(Until::News).unwrap().len(), 1);
    }

    #[test]
    fn the_engine_waits_no_longer_than_it_asked() {
        let link = Link::default();
        let begun = Instant::now();
        let until = begun + Duration::from_millis(20);
        assert!(link.news(Until::Time(until)).unwrap().is_empty());
        assert!(begun.elapsed() >= Duration::from_millis(20));
        assert!(link.news(Until::Time(until)).unwrap().is_empty());
    }

    #[tokio::test]
    async fn the_engine_waits_while_the_world_is_behind() {
        let link = Arc::new(Link::default());
        let skip = || Outcome::Skip {
            pod: Arc::default(),
            message: String::new(),
        };
        link.instruct((0..MOST_OUTCOMES).map(|_| skip()).collect());
        assert_eq!(link.room(), 0);
        let engine = std::thread::spawn({
            let link = link.clone();
            move || link.news(Until::Room)
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!engine.is_finished());
        assert_eq!(link.outcomes(10).await.len(), 10);
        assert!(engine.join().unwrap().unwrap().is_empty());
    }

    #[test]
    fn closing_wakes_the_engine() {
        let link = Arc::new(Link::default());
        let engine = std::thread::spawn({
            let link = link.clone();
            move || link.news(Until::News).is_none()
        });
        link.close();
        assert!(engine.join().unwrap());
    }
}
