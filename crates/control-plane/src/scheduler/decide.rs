//! The deciding thread: messages into the engine, outcomes to the executor.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use engine::cluster::kinds::Kind;
use engine::model::{Name, Resource, Timestamp};
use engine::scheduling::scheduler::{Input, Scheduler};

use super::handle::EngineStats;
use super::write::requests::seconds;
use super::{DECIDE_THREAD, ScoreRecorder, Shared};
use crate::scheduler::channel::{Channel, EngineDump, Message, Overview, Query, WaitFor};
use crate::scheduler::kinds;
use crate::scheduler::observe::attempts::Attempts;
use api::http::Waiting;
use reconcile::planted::{PlantedFault, is_planted};

/// Outcomes are handed over at least this often, so that binding begins while the next pods are decided.
const SLICE: Duration = Duration::from_millis(3);
/// Slices of decisions between two queries. An answer takes as long as a slice or two, so that queries take at most a
/// tenth of the time from pending pods.
const SLICES_PER_QUERY: u32 = 12;
/// CustomNodeResources without a node that are named.
const MOST_NAMED: usize = 5;
/// The shortest sleep, if the engine's time is over.
const SHORTEST_SLEEP: Duration = Duration::from_millis(5);

pub(super) fn start(
    engine: Scheduler,
    shared: &Shared,
    attempts: Attempts,
    stats: Arc<EngineStats>,
    decide: bool,
) -> std::io::Result<JoinHandle<()>> {
    let (channel, recorder) = (shared.channel.clone(), shared.scores.clone());
    std::thread::Builder::new()
        .name(DECIDE_THREAD.into())
        .spawn(move || {
            // The I/O thread must stop, too, even after a panic.
            let _close = CloseAtEnd(&channel);
            let mut driver = Driver {
                engine,
                attempts,
                recorder,
                stats,
                clock: Clock::new(),
                missing: kinds::WATCHED.iter().map(|(_, it)| it.name()).collect(),
                decide,
                queries: VecDeque::new(),
                slices_before_query: 0,
                nodes_changed: false,
                warned: BTreeSet::new(),
            };
            driver.run(&channel);
        })
}

struct CloseAtEnd<'a>(&'a Channel);

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct Driver {
    engine: Scheduler,
    attempts: Attempts,
    recorder: Arc<ScoreRecorder>,
    stats: Arc<EngineStats>,
    clock: Clock,
    /// Kinds that have not been listed yet. Nothing is decided without them.
    missing: Vec<&'static str>,
    decide: bool,
    queries: VecDeque<Query>,
    /// Slices until the next query is answered.
    slices_before_query: u32,
    /// Since the last check of their resources.
    nodes_changed: bool,
    /// Resources without a node that have been logged.
    warned: BTreeSet<Resource>,
}

impl Driver {
    fn run(&mut self, channel: &Channel) {
        let mut until = WaitFor::Message;
        while let Some(messages) = channel.receive(until) {
            until = self.turn(messages, channel);
        }
    }

    fn turn(&mut self, messages: Vec<Message>, channel: &Channel) -> WaitFor {
        let sleeps_on = is_planted(PlantedFault::LostWakeUp)
            && !messages.is_empty()
            && messages.iter().all(is_report);
        for message in messages {
            self.handle(message);
        }
        self.warn_unoffered();
        if self.slices_before_query == 0 && self.answer_query() {
            self.slices_before_query = SLICES_PER_QUERY;
        }
        let until = if self.decides() && !sleeps_on {
            self.decide_slice(channel)
        } else {
            self.slices_before_query = 0;
            WaitFor::Message
        };
        self.attempts.moved(self.engine.take_arrivals());
        self.stats.update(&self.engine, self.decides());
        if self.slices_before_query == 0 && !self.queries.is_empty() {
            WaitFor::Time(Instant::now())
        } else {
            until
        }
    }

    /// Whether a query was answered.
    fn answer_query(&mut self) -> bool {
        let now = self.clock.now();
        let query = std::iter::from_fn(|| self.queries.pop_front()).find(Query::is_awaited);
        // The caller may have given up.
        match query {
            None => return false,
            Some(Query::Pod {
                namespace,
                name,
                answer,
            }) => {
                let _ = answer.send(self.engine.explain(&namespace, &name, now));
            }
            Some(Query::Cache { node, answer }) => {
                let cluster = self.engine.cluster();
                let view = match node {
                    None => Some(cluster.view()),
                    Some(node) => cluster.view_of(&node),
                };
                let synced = self.missing.is_empty();
                let _ = answer.send(view.map(|view| EngineDump {
                    at: now,
                    synced,
                    view,
                }));
            }
        }
        true
    }

    /// Warns once of each resource of the configuration that no node has; the status has the current ones.
    fn warn_unoffered(&mut self) {
        if !self.nodes_changed || !self.missing.is_empty() {
            return;
        }
        self.nodes_changed = false;
        let unoffered = self.engine.unoffered();
        for it in &unoffered {
            if self.warned.insert(it.resource.clone()) {
                tracing::warn!("{it}");
            }
        }
        self.stats
            .set_warnings(unoffered.iter().map(ToString::to_string).collect());
    }

    fn decides(&self) -> bool {
        self.decide && self.missing.is_empty()
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Input(input) => {
                let now = self.clock.now();
                self.nodes_changed |= changes_nodes(&input);
                self.attempts.observe(&input, now);
                let waits = match &input {
                    Input::Pod(pod) if pod.node.is_none() => Some(pod.uid.clone()),
                    _ => None,
                };
                if let Err(error) = self.engine.apply(input, now) {
                    tracing::warn!("ignoring an invalid object: {error}");
                }
                if let Some(uid) = waits {
                    self.attempts.queued(&self.engine, &uid);
                }
            }
            Message::Synced(kind) => {
                self.missing.retain(|missing| *missing != kind);
                if self.missing.is_empty() {
                    let nodes = self.engine.cluster().nodes().len();
                    tracing::info!(nodes, "listed all objects of the cluster");
                }
            }
            Message::Decide(decide) => self.decide = decide,
            Message::Query(query) => self.queries.push_back(query),
            Message::Overview(answer) => {
                let without_node = self.engine.cluster().first_reports_without_node(MOST_NAMED);
                // The caller may have given up.
                let _ = answer.send(Overview {
                    oldest: self.oldest(),
                    without_node: without_node.iter().map(Name::to_string).collect(),
                });
            }
        }
    }

    fn oldest(&self) -> Option<Waiting> {
        let ticket = self.engine.oldest()?;
        let since = ticket.waits_since();
        let time = jiff::Timestamp::from_nanosecond(i128::from(since.0)).ok()?;
        let waited = self.clock.now().0.saturating_sub(since.0);
        Some(Waiting {
            namespace: ticket.pod.namespace().to_string(),
            name: ticket.pod.name.to_string(),
            since: seconds(time),
            waiting_seconds: Duration::from_nanos(u64::try_from(waited).unwrap_or(0)).as_secs_f64(),
            why: match (ticket.gate(), &ticket.last) {
                (Some(gate), _) => format!("gated by {gate}"),
                (None, Some(attempt)) => attempt.reasons().to_owned(),
                (None, None) => "not tried yet".to_owned(),
            },
        })
    }

    /// Decides for one slice, and returns what to wait for.
    fn decide_slice(&mut self, channel: &Channel) -> WaitFor {
        let mut now = Instant::now();
        let end = now + SLICE;
        let capacity = channel.capacity();
        self.engine.show_scores(self.recorder.top());
        let mut outcomes = Vec::new();
        while outcomes.len() < capacity && now < end {
            self.attempts.begin(now);
            match self.engine.schedule_next(self.clock.at(now)) {
                Some(outcome) => {
                    now = self.attempts.decided(&self.engine, &outcome, now);
                    if let Some(scores) = self.engine.take_scores() {
                        self.recorder.add(scores);
                    }
                    outcomes.push(outcome);
                }
                None => {
                    self.attempts.end();
                    self.slices_before_query = 0;
                    channel.send_outcomes(outcomes);
                    return self.idle();
                }
            }
        }
        // With the channel full, a query delays no pod.
        self.slices_before_query = match outcomes.len() {
            0 => 0,
            _ => self.slices_before_query.saturating_sub(1),
        };
        channel.send_outcomes(outcomes);
        WaitFor::Capacity
    }

    fn idle(&self) -> WaitFor {
        let now = self.clock.now();
        match self.engine.idle_until(now) {
            None => WaitFor::Message,
            Some(time) => {
                let nanos = u64::try_from(time.0.saturating_sub(now.0)).unwrap_or(0);
                let wait = Duration::from_nanos(nanos).max(SHORTEST_SLEEP);
                WaitFor::Time(Instant::now() + wait)
            }
        }
    }
}

fn is_report(message: &Message) -> bool {
    matches!(message, Message::Input(Input::Object(update)) if update.kind() == Kind::CustomNodeResource)
}

fn changes_nodes(input: &Input) -> bool {
    matches!(input, Input::Object(update) if update.kind() == Kind::Node)
}

/// The time of day at start, continued by a monotonic clock.
struct Clock {
    begun: Instant,
    at: Timestamp,
}

impl Clock {
    fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            begun: Instant::now(),
            at: Timestamp::default().plus(since_epoch.unwrap_or_default()),
        }
    }

    fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }

    fn at(&self, time: Instant) -> Timestamp {
        self.at.plus(time.saturating_duration_since(self.begun))
    }
}

#[cfg(test)]
mod tests {
    use engine::scheduling::plugins;
    use engine::scheduling::profile::{Enabled, Profile};
    use engine::scheduling::scheduler::Settings;
    use engine::testing::{node, pod};
    use tokio::sync::oneshot;

    use super::*;
    use crate::scheduler::observe::metrics::Metrics;
    use crate::scheduler::observe::timings::Timings;

    /// A driver with one node and so many pods that fit there.
    fn driver(pods: usize) -> Driver {
        let enabled = plugins::DEFAULT.iter().map(|(name, weight)| {
            let entry = plugins::find(name).unwrap();
            Enabled::new(entry, (*weight).max(1)).unwrap()
        });
        let profile = Profile::new("default-scheduler", enabled.collect());
        let mut engine = Scheduler::new(vec![profile], Settings::default()).unwrap();
        let (metrics, clock) = (Arc::new(Metrics::new()), Clock::new());
        let now = clock.now();
        let big = node("n").allocatable("cpu=1M pods=1M").build();
        engine.apply(Input::Object(big.into()), now).unwrap();
        for index in 0..pods {
            let pod = pod(&format!("p{index}")).container("cpu=1m").build();
            engine.apply(Input::Pod(pod), now).unwrap();
        }
        let timings = Arc::new(Timings::new(metrics.clone(), &[]));
        Driver {
            attempts: Attempts::new(metrics, timings, engine.profiles()),
            engine,
            recorder: ScoreRecorder::new(0).0,
            stats: Arc::default(),
            clock,
            missing: Vec::new(),
            decide: true,
            queries: VecDeque::new(),
            slices_before_query: 0,
            nodes_changed: false,
            warned: BTreeSet::new(),
        }
    }

    fn query() -> (Message, oneshot::Receiver<Option<EngineDump>>) {
        let (answer, answered) = oneshot::channel();
        let query = Query::Cache { node: None, answer };
        (Message::Query(query), answered)
    }

    #[tokio::test]
    async fn pending_pods_come_before_queries() {
        let (mut driver, channel) = (driver(20_000), Channel::default());
        let (mut messages, mut waiting): (Vec<_>, VecDeque<_>) = (0..40).map(|_| query()).unzip();
        let (mut placed, mut answered, mut turns) = (0, 0, 0);
        while placed < 20_000 {
            driver.turn(std::mem::take(&mut messages), &channel);
            turns += 1;
            placed += channel.receive_outcomes(usize::MAX).await.len();
            while waiting.front_mut().is_some_and(|it| it.try_recv().is_ok()) {
                waiting.pop_front();
                answered += 1;
            }
        }
        let share = SLICES_PER_QUERY as usize;
        assert!(answered >= 1, "no query was answered in {turns} turns");
        assert!(
            answered <= turns / share + 1,
            "{answered} answers in {turns} turns"
        );
        // With nothing to decide, one answer follows the other.
        let left = waiting.len();
        for _ in 0..left {
            assert!(matches!(
                driver.turn(Vec::new(), &channel),
                WaitFor::Time(_) | WaitFor::Message
            ));
        }
        let all = waiting.iter_mut().all(|it| it.try_recv().is_ok());
        assert!(all, "{left} queries were left");
    }

    #[tokio::test]
    async fn queries_are_answered_while_the_channel_is_full() {
        let (mut driver, channel) = (driver(20_000), Channel::default());
        let (messages, mut waiting): (Vec<_>, Vec<_>) = (0..3).map(|_| query()).unzip();
        // Outcomes are not taken until the channel is full.
        while channel.capacity() > 0 {
            driver.turn(Vec::new(), &channel);
        }
        driver.turn(messages, &channel);
        driver.turn(Vec::new(), &channel);
        driver.turn(Vec::new(), &channel);
        let all = waiting.iter_mut().all(|it| it.try_recv().is_ok());
        assert!(all, "a query waits for outcomes to be taken");
    }
}
