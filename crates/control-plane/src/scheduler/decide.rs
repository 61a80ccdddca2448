//! The deciding thread: news into the engine, instructions out.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use engine::cluster::Update;
use engine::model::{Name, Resource, Timestamp};
use engine::scheduler::{Input, Scheduler};

use super::handle::Board;
use super::write::requests::seconds;
use super::{DECIDE_THREAD, Recorder, Shared};
use crate::scheduler::channel::{Dump, Link, Look, News, Question, Until};
use crate::scheduler::observe::attempts::Observer;
use crate::status::Waiting;
use crate::watch;

/// Decisions are handed over at the latest after this time, so that binding begins while the next ones are made.
const SLICE: Duration = Duration::from_millis(3);
/// Slices of decisions that come before the next answer. An answer takes as long as a slice or two, so that people who
/// ask take a tenth of the time at most from pods that wait.
const SLICES_PER_ANSWER: u32 = 12;
/// Reports without a node that are named.
const MOST_NAMED: usize = 5;
/// The shortest sleep, should the engine ask for a time that is over.
const SHORTEST_SLEEP: Duration = Duration::from_millis(5);

pub(super) fn start(
    engine: Scheduler,
    shared: &Shared,
    observer: Observer,
    board: Arc<Board>,
    decide: bool,
) -> std::io::Result<JoinHandle<()>> {
    let (link, recorder) = (shared.link.clone(), shared.recorder.clone());
    std::thread::Builder::new()
        .name(DECIDE_THREAD.into())
        .spawn(move || {
            // However this ends, the other thread must know.
            let _close = CloseAtEnd(&link);
            let mut driver = Driver {
                engine,
                observer,
                recorder,
                board,
                clock: Clock::new(),
                missing: watch::ALL.iter().map(|kind| kind.name).collect(),
                decide,
                questions: VecDeque::new(),
                owed: 0,
                nodes_changed: false,
                warned: BTreeSet::new(),
            };
            driver.run(&link);
        })
}

struct CloseAtEnd<'a>(&'a Link);

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct Driver {
    engine: Scheduler,
    observer: Observer,
    recorder: Arc<Recorder>,
    board: Arc<Board>,
    clock: Clock,
    /// Kinds that have not been told in full yet. Deciding without them would be guessing.
    missing: Vec<&'static str>,
    decide: bool,
    questions: VecDeque<Question>,
    /// Slices that pods come first.
    owed: u32,
    /// Since it was last looked which resources they have.
    nodes_changed: bool,
    /// Resources that no node had, of which people were told.
    warned: BTreeSet<Resource>,
}

impl Driver {
    fn run(&mut self, link: &Link) {
        let mut until = Until::News;
        while let Some(news) = link.news(until) {
            until = self.turn(news, link);
        }
    }

    fn turn(&mut self, news: Vec<News>, link: &Link) -> Until {
        for news in news {
            self.hear(news);
        }
        self.look_for_unoffered();
        if self.owed == 0 && self.answer_one() {
            self.owed = SLICES_PER_ANSWER;
        }
        let until = if self.decides() {
            self.go_on(link)
        } else {
            self.owed = 0;
            Until::News
        };
        self.observer.moved(self.engine.take_arrivals());
        self.board.show(&self.engine, self.decides());
        if self.owed == 0 && !self.questions.is_empty() {
            Until::Time(Instant::now())
        } else {
            until
        }
    }

    /// Whether somebody waited for an answer.
    fn answer_one(&mut self) -> bool {
        let now = self.clock.now();
        let awaited = std::iter::from_fn(|| self.questions.pop_front()).find(Question::is_awaited);
        // Nobody may be waiting for it any more.
        match awaited {
            None => return false,
            Some(Question::Pod {
                namespace,
                name,
                answer,
            }) => {
                let _ = answer.send(self.engine.explain(&namespace, &name, now));
            }
            Some(Question::Cache { node, answer }) => {
                let cluster = self.engine.cluster();
                let view = match node {
                    None => Some(cluster.view()),
                    Some(node) => cluster.view_of(&node),
                };
                let synced = self.missing.is_empty();
                let _ = answer.send(view.map(|view| Dump {
                    at: now,
                    synced,
                    view,
                }));
            }
        }
        true
    }

    /// Says once of each resource that the configuration names that no node has it; the board shows what is so now.
    fn look_for_unoffered(&mut self) {
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
        self.board
            .warn(unoffered.iter().map(ToString::to_string).collect());
    }

    fn decides(&self) -> bool {
        self.decide && self.missing.is_empty()
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Input(input) => {
                let now = self.clock.now();
                self.nodes_changed |= is_about_nodes(&input);
                self.observer.hear(&input, now);
                let waits = match &input {
                    Input::Pod(pod) if pod.node.is_none() => Some(pod.uid.clone()),
                    _ => None,
                };
                if let Err(error) = self.engine.apply(input, now) {
                    tracing::warn!("an object cannot be used: {error}");
                }
                if let Some(uid) = waits {
                    self.observer.queued(&self.engine, &uid);
                }
            }
            News::Synced(kind) => {
                self.missing.retain(|missing| *missing != kind);
                if self.missing.is_empty() {
                    let nodes = self.engine.cluster().nodes().len();
                    tracing::info!(nodes, "the cluster is known");
                }
            }
            News::Decide(decide) => self.decide = decide,
            News::Question(question) => self.questions.push_back(question),
            News::Look(answer) => {
                let homeless = self.engine.cluster().first_homeless_reports(MOST_NAMED);
                // Nobody may be waiting for it any more.
                let _ = answer.send(Look {
                    oldest: self.oldest(),
                    homeless: homeless.iter().map(Name::to_string).collect(),
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
                (Some(gate), _) => format!("{gate} keeps it out of the queue"),
                (None, Some(attempt)) => attempt.message.clone(),
                (None, None) => "it has not been tried yet".to_owned(),
            },
        })
    }

    /// Decides for a while, and returns what to wait for.
    fn go_on(&mut self, link: &Link) -> Until {
        let mut now = Instant::now();
        let end = now + SLICE;
        let room = link.room();
        self.engine.show_scores(self.recorder.top());
        let mut outcomes = Vec::new();
        while outcomes.len() < room && now < end {
            self.observer.begin(now);
            match self.engine.schedule_next(self.clock.at(now)) {
                Some(outcome) => {
                    now = self.observer.decided(&self.engine, &outcome, now);
                    if let Some(scores) = self.engine.take_scores() {
                        self.recorder.add(scores);
                    }
                    outcomes.push(outcome);
                }
                None => {
                    self.observer.end();
                    self.owed = 0;
                    link.instruct(outcomes);
                    return self.idle();
                }
            }
        }
        // Pods that wait for others than us lose nothing by an answer.
        self.owed = match outcomes.len() {
            0 => 0,
            _ => self.owed.saturating_sub(1),
        };
        link.instruct(outcomes);
        Until::Room
    }

    fn idle(&self) -> Until {
        let now = self.clock.now();
        match self.engine.idle_until(now) {
            None => Until::News,
            Some(time) => {
                let nanos = u64::try_from(time.0.saturating_sub(now.0)).unwrap_or(0);
                let wait = Duration::from_nanos(nanos).max(SHORTEST_SLEEP);
                Until::Time(Instant::now() + wait)
            }
        }
    }
}

fn is_about_nodes(input: &Input) -> bool {
    matches!(input, Input::Object(Update::Node(_) | Update::NodeGone(_)))
}

/// The time of day at the start, and a clock that never jumps since.
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
    use engine::plugins;
    use engine::profile::{Enabled, Profile};
    use engine::scheduler::Settings;
    use engine::testing::{node, pod};
    use tokio::sync::oneshot;

    use super::*;
    use crate::scheduler::observe::metrics::Metrics;
    use crate::scheduler::observe::timings::Stopwatch;

    /// One that knows a node and these many pods that all find room there.
    fn driver(pods: usize) -> Driver {
        let enabled = plugins::DEFAULT.iter().map(|(name, weight)| {
            let entry = plugins::find(name).unwrap();
            Enabled::new(entry, (*weight).max(1)).unwrap()
        });
        let profile = Profile::new("default-scheduler", enabled.collect());
        let mut engine = Scheduler::new(vec![profile], Settings::default()).unwrap();
        let (metrics, clock) = (Arc::new(Metrics::new()), Clock::new());
        let now = clock.now();
        let room = node("n").allocatable("cpu=1M pods=1M").build();
        engine
            .apply(Input::Object(Update::Node(room)), now)
            .unwrap();
        for index in 0..pods {
            let pod = pod(&format!("p{index}")).container("cpu=1m").build();
            engine.apply(Input::Pod(pod), now).unwrap();
        }
        let stopwatch = Arc::new(Stopwatch::new(metrics.clone(), &[]));
        Driver {
            observer: Observer::new(metrics, stopwatch, engine.profiles()),
            engine,
            recorder: Recorder::new(0).0,
            board: Arc::default(),
            clock,
            missing: Vec::new(),
            decide: true,
            questions: VecDeque::new(),
            owed: 0,
            nodes_changed: false,
            warned: BTreeSet::new(),
        }
    }

    fn question() -> (News, oneshot::Receiver<Option<Dump>>) {
        let (answer, answered) = oneshot::channel();
        let question = Question::Cache { node: None, answer };
        (News::Question(question), answered)
    }

    #[tokio::test]
    async fn pods_that_wait_come_before_people_who_ask() {
        let (mut driver, link) = (driver(20_000), Link::default());
        let (mut news, mut waiting): (Vec<_>, VecDeque<_>) = (0..40).map(|_| question()).unzip();
        let (mut placed, mut answered, mut turns) = (0, 0, 0);
        while placed < 20_000 {
            driver.turn(std::mem::take(&mut news), &link);
            turns += 1;
            placed += link.outcomes(usize::MAX).await.len();
            while waiting.front_mut().is_some_and(|it| it.try_recv().is_ok()) {
                waiting.pop_front();
                answered += 1;
            }
        }
        let share = SLICES_PER_ANSWER as usize;
        assert!(answered >= 1, "nobody was answered in {turns} turns");
        assert!(
            answered <= turns / share + 1,
            "{answered} answers in {turns} turns"
        );
        // With nothing to decide, one answer follows the other.
        let left = waiting.len();
        for _ in 0..left {
            assert!(matches!(
                driver.turn(Vec::new(), &link),
                Until::Time(_) | Until::News
            ));
        }
        let all = waiting.iter_mut().all(|it| it.try_recv().is_ok());
        assert!(all, "{left} questions were left");
    }

    #[tokio::test]
    async fn who_waits_for_others_can_answer() {
        let (mut driver, link) = (driver(20_000), Link::default());
        let (news, mut waiting): (Vec<_>, Vec<_>) = (0..3).map(|_| question()).unzip();
        // Nobody takes what is decided, until there is no room for more.
        while link.room() > 0 {
            driver.turn(Vec::new(), &link);
        }
        driver.turn(news, &link);
        driver.turn(Vec::new(), &link);
        driver.turn(Vec::new(), &link);
        let all = waiting.iter_mut().all(|it| it.try_recv().is_ok());
        assert!(all, "a question waits for instructions to be taken");
    }
}
