//! The work queue: each key at most once, never two workers on one key, failures retried later.
//!
//! It knows nothing of Kubernetes.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    fmt::{Debug, Display},
    future::Future,
    hash::Hash,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

/// When to reconcile a key again that a worker has just reconciled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// When something changes.
    OnChange,
    /// After this time, or when something changes.
    After(Duration),
}

/// The first retry is soon, because most failures are conflicts; later ones spare a broken server.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// A key that took this long rests for as long as it took, so that it gets at most half of the time. Under load everything
/// takes longer, and a controller that makes the load slows down.
const LONG: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_secs(2);
/// Rests that are over are forgotten when there are so many.
const MOST_RESTS: usize = 1_000;

/// A clock has an end, and objects may ask for more.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// A failure that lasts for so many attempts is more than a conflict.
const LASTING: u32 = 6;

/// The keys that a controller must reconcile.
pub struct WorkQueue<K> {
    name: &'static str,
    state: Mutex<State<K>>,
    changed: Notify,
}

/// The numbers of a work queue, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueStats {
    pub name: &'static str,
    /// Keys that wait for a worker.
    pub depth: usize,
    /// Keys added since the start.
    pub adds: u64,
    /// Failures that are retried, since the start.
    pub retries: u64,
}

struct State<K> {
    ready: VecDeque<K>,
    /// The members of `ready`.
    waiting: HashSet<K>,
    /// With the time at which the worker began.
    running: HashMap<K, Instant>,
    /// Keys that took long, and until when they rest.
    resting: HashMap<K, Instant>,
    /// Running keys that changed meanwhile and must run again.
    again: HashSet<K>,
    later: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
    adds: u64,
    retries: u64,
}

impl<K> Default for State<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            waiting: HashSet::new(),
            running: HashMap::new(),
            resting: HashMap::new(),
            again: HashSet::new(),
            later: BTreeSet::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            adds: 0,
            retries: 0,
        }
    }
}

impl<K: Clone + Eq + Hash + Ord + Debug> State<K> {
    fn add(&mut self, key: K) {
        if self.running.contains_key(&key) {
            self.again.insert(key);
        } else if self.waiting.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    /// An object of the key changed, perhaps by half of a failed attempt: the backoff starts again.
    fn change(&mut self, key: K, now: Instant) {
        self.failures.remove(&key);
        self.adds += 1;
        self.add_rested(key, now);
    }

    fn add_rested(&mut self, key: K, now: Instant) {
        match self.resting.get(&key) {
            Some(&until) if until > now => self.add_at(key, until),
            _ => self.add(key),
        }
    }

    /// Keeps an earlier time.
    fn add_at(&mut self, key: K, at: Instant) {
        if let Some(&due) = self.due.get(&key) {
            if due <= at {
                return;
            }
            self.later.remove(&(due, key.clone()));
        }
        self.due.insert(key.clone(), at);
        self.later.insert((at, key));
    }

    fn pop(&mut self, now: Instant) -> Option<K> {
        while let Some((due, key)) = self.later.first().cloned()
            && due <= now
        {
            self.later.pop_first();
            self.due.remove(&key);
            self.add(key);
        }
        let key = self.ready.pop_front()?;
        self.waiting.remove(&key);
        // The worker looks at everything, so the delayed entry is done with it; the worker returns the next one.
        if let Some(due) = self.due.remove(&key) {
            self.later.remove(&(due, key.clone()));
        }
        self.resting.remove(&key);
        self.running.insert(key.clone(), now);
        Some(key)
    }

    fn done<E>(&mut self, key: K, result: &Result<Requeue, E>, now: Instant) {
        let began = self.running.remove(&key).unwrap_or(now);
        let took = now.saturating_duration_since(began);
        if took >= LONG {
            if self.resting.len() >= MOST_RESTS {
                self.resting.retain(|_, until| *until > now);
            }
            let until = now + took.min(LONGEST_REST);
            self.resting.insert(key.clone(), until);
        }
        match result {
            Ok(next) => {
                self.failures.remove(&key);
                if let Requeue::After(wait) = next {
                    self.add_at(key.clone(), now + (*wait).min(LONGEST_WAIT));
                }
                if self.again.remove(&key) {
                    self.add_rested(key, now);
                }
            }
            Err(_) => {
                // A change that came meanwhile waits too: it would fail in the same way.
                self.again.remove(&key);
                let failures = self.failures.entry(key.clone()).or_default();
                let wait = FIRST_RETRY * 2u32.pow((*failures).min(10));
                *failures += 1;
                self.retries += 1;
                self.add_at(key, now + wait.min(LONGEST_RETRY));
            }
        }
    }
}

impl<K> WorkQueue<K>
where
    K: Clone + Eq + Hash + Ord + Debug + Display + Send + 'static,
{
    /// `name` is that of the controller, for logs and metrics.
    pub fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self {
            name,
            state: Mutex::default(),
            changed: Notify::new(),
        })
    }

    pub fn add(&self, key: K) {
        self.lock().change(key, Instant::now());
        self.changed.notify_one();
    }

    /// Works on up to `workers` keys at a time until cancelled; then it drops the running ones.
    pub async fn run<F, E>(
        self: Arc<Self>,
        workers: usize,
        cancel: CancellationToken,
        work: impl Fn(K) -> F,
    ) where
        F: Future<Output = Result<Requeue, E>> + Send,
        E: Display,
    {
        let mut running = FuturesUnordered::new();
        loop {
            let next_due = {
                let mut state = self.lock();
                while running.len() < workers
                    && let Some(key) = state.pop(Instant::now())
                {
                    let attempt = AssertUnwindSafe(work(key.clone())).catch_unwind();
                    running.push(attempt.map(move |result| (key, result)));
                }
                state.later.first().map(|(due, _)| *due)
            };
            tokio::select! {
                () = cancel.cancelled() => return,
                Some((key, result)) = running.next() => {
                    let mut state = self.lock();
                    let Ok(result) = result else {
                        // One object that the controller cannot cope with must not stop it for all others.
                        tracing::error!(controller = self.name, %key, "panic while reconciling; retrying");
                        state.done(key, &Err(()), Instant::now());
                        continue;
                    };
                    if let Err(error) = &result {
                        // Most failures are conflicts, which the next attempt resolves.
                        if state.failures.get(&key) == Some(&LASTING) {
                            tracing::warn!(controller = self.name, %key, %error, "cannot reconcile; retrying");
                        } else {
                            tracing::debug!(controller = self.name, %key, %error, "reconcile failed; retrying");
                        }
                    }
                    state.done(key, &result, Instant::now());
                }
                () = self.changed.notified() => {}
                () = sleep_until(next_due), if running.len() < workers => {}
            }
        }
    }

    pub fn stats(&self) -> QueueStats {
        let state = self.lock();
        QueueStats {
            name: self.name,
            depth: state.ready.len(),
            adds: state.adds,
            retries: state.retries,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<K>> {
        self.state.lock().expect("no panic while held")
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const OK: Result<Requeue, ()> = Ok(Requeue::OnChange);

    #[test]
    fn a_key_waits_once_and_runs_again_when_it_changed_while_running() {
        let (mut state, now) = (State::default(), Instant::now());
        state.add("a");
        state.add("b");
        state.add("a");
        assert_eq!(state.pop(now), Some("a"));
        state.add("a");
        assert_eq!(state.pop(now), Some("b"));
        assert_eq!(state.pop(now), None, "a is running");
        state.done("a", &OK, now);
        assert_eq!(state.pop(now), Some("a"));
        state.done("a", &OK, now);
        assert_eq!(state.pop(now), None);
    }

    #[test]
    fn the_earliest_delay_counts() {
        let (mut state, now) = (State::default(), Instant::now());
        state.add_at("a", now + 2 * SECOND);
        state.add_at("a", now + SECOND);
        state.add_at("a", now + 3 * SECOND);
        assert_eq!(state.pop(now), None);
        assert_eq!(state.pop(now + SECOND), Some("a"));
        state.done("a", &OK, now + SECOND);
        assert_eq!(
            state.pop(now + 9 * SECOND),
            None,
            "one delayed entry per key"
        );
    }

    #[test]
    fn failures_back_off_and_success_resets_them() {
        let (mut state, mut now) = (State::default(), Instant::now());
        state.add("a");
        for wait in [50, 100, 200, 400] {
            assert_eq!(state.pop(now), Some("a"));
            state.add("a");
            state.done("a", &Err(()), now);
            let wait = Duration::from_millis(wait);
            assert_eq!(state.pop(now + wait - Duration::from_millis(1)), None);
            now += wait;
        }
        assert_eq!(state.pop(now), Some("a"));
        state.done("a", &OK, now);
        assert!(state.failures.is_empty());
        for _ in 0..40 {
            state.add("a");
            state.pop(now);
            state.done("a", &Err(()), now);
        }
        assert_eq!(state.pop(now + LONGEST_RETRY), Some("a"));

        state.change("a", now);
        state.done("a", &Err(()), now);
        assert_eq!(state.pop(now + FIRST_RETRY), Some("a"), "it got further");
    }

    #[tokio::test]
    async fn a_panic_and_an_endless_wait_concern_one_key_only() {
        let queue = WorkQueue::new("test");
        let (cancel, done) = (CancellationToken::new(), Mutex::new(Vec::new()));
        for key in ["broken", "endless", "fine"] {
            queue.add(key);
        }
        let work = async |key| {
            done.lock().unwrap().push(key);
            assert_ne!(key, "broken", "as planned");
            Ok::<_, String>(Requeue::After(Duration::MAX))
        };
        let run = queue.clone().run(1, cancel.clone(), work);
        let time = tokio::time::timeout(SECOND, run).await;
        assert!(time.is_err(), "it goes on until it is cancelled");
        let done = done.into_inner().unwrap();
        let count = |key: &str| done.iter().filter(|it| **it == key).count();
        assert_eq!((count("endless"), count("fine")), (1, 1));
        assert!(count("broken") > 1, "it is tried again: {done:?}");
    }

    #[test]
    fn a_key_that_took_long_rests_for_as_long() {
        let (mut state, now) = (State::default(), Instant::now());
        for (took, rest) in [
            (LONG / 2, Duration::ZERO),
            (2 * LONG, 2 * LONG),
            (60 * SECOND, LONGEST_REST),
        ] {
            state.add("a");
            assert_eq!(state.pop(now), Some("a"));
            // One change while it runs, and one while it rests.
            state.change("a", now);
            state.done("a", &OK, now + took);
            state.change("a", now + took);
            let rested = now + took + rest;
            if !rest.is_zero() {
                let before = rested - Duration::from_millis(1);
                assert_eq!(state.pop(before), None, "it took {took:?}");
            }
            assert_eq!(state.pop(rested), Some("a"), "it took {took:?}");
            state.done("a", &OK, rested);
        }
        assert_eq!(state.pop(now + 600 * SECOND), None);
    }

    #[tokio::test]
    async fn workers_are_bounded_and_stop_when_cancelled() {
        let (queue, cancel) = (WorkQueue::new("test"), CancellationToken::new());
        let busy = Arc::new(Mutex::new((0, 0)));
        for key in 0..10 {
            queue.add(key);
        }
        let run = queue.clone().run(3, cancel.clone(), |_: i32| {
            let busy = busy.clone();
            async move {
                {
                    let mut busy = busy.lock().unwrap();
                    busy.0 += 1;
                    busy.1 = busy.1.max(busy.0);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
                busy.lock().unwrap().0 -= 1;
                Ok::<_, String>(Requeue::OnChange)
            }
        });
        let stop = async {
            while !queue.lock().ready.is_empty() || !queue.lock().running.is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            cancel.cancel();
        };
        tokio::join!(run, stop);
        assert_eq!(
            *busy.lock().unwrap(),
            (0, 3),
            "none is left, and never more than three ran"
        );
        let stats = queue.stats();
        assert_eq!((stats.depth, stats.adds, stats.retries), (0, 10, 0));
    }
}
