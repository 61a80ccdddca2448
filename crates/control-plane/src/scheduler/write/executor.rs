//! Carries out what the engine decided, and reports what came of it.
//!
//! One task owns all of it: what waits ([`Line`]), what is under way, and what has been said ([`Recorder`]). Requests
//! that take their turn in the line are short; work that may take long (evictions, volumes, extenders) goes beside it.

mod report;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::extender::{Question, Verb};
use engine::framework::Preparation;
use engine::model::{Name, Pod};
use engine::scheduler::{Binder, Input, Nomination, Outcome};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::StatusCode;
use indexmap::IndexSet;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Semaphore, mpsc};

use super::bind::{self, Bound, Verdict};
use super::events::{About, Recorder, Report, What};
use super::evict::{self, Evicted};
use super::extenders::Extenders;
use super::queue::{Class, Job, Line};
use super::requests::{Turns, Writer};
use super::volumes;
use crate::client::{Exchange, Refusal};
use crate::election::leadership;
use crate::scheduler::channel::Link;
use crate::scheduler::claim_waits::{Awaited, Wanted};
use crate::scheduler::observe::log::{self, Named};
use crate::scheduler::observe::metrics::{self, AtPoint, Metrics, Operation};
use crate::scheduler::pods::Notes;
use crate::scheduler::{Counters, Mode, Shared};
use crate::watch::Unreadable;

/// Binds that may wait here; more wait in the link, and then in the engine.
const MOST_BINDS: usize = 256;
/// Requests at a time for what goes beside the line: volumes and evictions.
const MOST_BESIDE: usize = 32;
/// Binds at a time that extenders are asked for.
const MOST_OUTSIDE: usize = 64;
/// How often what grew old is looked at.
const SWEEP: Duration = Duration::from_secs(1);
/// How often dropped events are mentioned.
const MENTION: Duration = Duration::from_secs(60);
/// Complaints that wait until we may write.
const MOST_HELD: usize = 1_000;
/// Victims that are remembered. They are chosen again only while they are leaving.
const MOST_TOLD: usize = 10_000;

/// Work of a kind, counted while it is under way.
struct Busy(Gauge);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.dec();
    }
}

type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

pub(crate) struct CarryOut {
    writer: Writer,
    turns: Turns,
    outside: Arc<Semaphore>,
    link: Arc<Link>,
    awaited: Arc<Awaited>,
    notes: Arc<Notes>,
    counters: Arc<Counters>,
    metrics: Arc<Metrics>,
    mode: Mode,
    extenders: Extenders,
    line: Line,
    recorder: Recorder,
    under_way: FuturesUnordered<Work>,
    mentioned: Option<Instant>,
    /// Victims that were told so, by uid, the latest last.
    told: IndexSet<Name>,
    /// What is to be said once we may.
    held: Vec<Unreadable>,
}

/// What ended.
enum Done {
    /// With the version that the pod had before.
    Bind(Arc<Pod>, Name, Name, Verdict),
    Patch(Arc<Pod>, Result<(), Refusal>),
    Event(Result<(), Refusal>),
    Evict {
        preemptor: Arc<Pod>,
        node: Name,
        evicted: Evicted,
    },
    /// What must be done before binding.
    Prepare {
        pod: Arc<Pod>,
        wanted: Wanted,
        took: Duration,
        /// `None` if it was withdrawn.
        result: Option<Result<(), (Name, String)>>,
    },
    /// By an extender; `None` leaves it to us.
    BoundOutside(Arc<Pod>, Name, Name, Option<Result<(), String>>),
    /// News for the engine, and nothing else to do.
    News(Box<Input>),
}

impl CarryOut {
    pub(crate) fn new(
        api: Exchange,
        shared: Shared,
        extenders: Extenders,
        mode: Mode,
        host: &str,
    ) -> Self {
        let writer = Writer {
            exchange: api,
            leadership: shared.leadership,
        };
        Self {
            turns: Turns::new(writer.clone(), MOST_BESIDE),
            writer,
            outside: Arc::new(Semaphore::new(MOST_OUTSIDE)),
            link: shared.link,
            awaited: shared.awaited,
            notes: shared.notes,
            counters: shared.counters,
            metrics: shared.metrics,
            mode,
            extenders,
            line: Line::new(),
            recorder: Recorder::new(host),
            under_way: FuturesUnordered::new(),
            mentioned: None,
            told: IndexSet::new(),
            held: Vec::new(),
        }
    }

    /// For ever.
    pub(crate) async fn run(&mut self, mut unreadable: mpsc::Receiver<Unreadable>) {
        let link = self.link.clone();
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            self.send_what_may_go();
            let room = MOST_BINDS.saturating_sub(self.line.waiting_binds());
            tokio::select! {
                Some(done) = self.under_way.next() => {
                    self.finished(done);
                    // One wake-up for all that ended.
                    while let Some(Some(done)) = self.under_way.next().now_or_never() {
                        self.finished(done);
                    }
                }
                outcomes = link.outcomes(room), if room > 0 => {
                    outcomes.into_iter().for_each(|outcome| self.take_up(outcome));
                }
                Some(complaint) = unreadable.recv() => self.hold(complaint),
                _ = sweep.tick() => {
                    self.recorder.sweep(Instant::now());
                    self.tell_held();
                }
            }
        }
    }

    /// Takes up nothing new and returns when everything that waits or is under way has ended.
    pub(crate) async fn finish(&mut self) {
        loop {
            self.send_what_may_go();
            if self.line.is_idle() {
                return;
            }
            match self.under_way.next().await {
                Some(done) => self.finished(done),
                None => return,
            }
        }
    }

    fn send_what_may_go(&mut self) {
        let now = Instant::now();
        while let Some(job) = self.line.next(now) {
            let writer = self.writer.clone();
            self.under_way.push(match job {
                Job::Bind { pod, node } => {
                    let (version, busy) = (self.version(&pod), self.busy("binding"));
                    Box::pin(async move {
                        let verdict = bind::bind(&writer, &pod, &node).await;
                        drop(busy);
                        Done::Bind(pod, node, version, verdict)
                    })
                }
                Job::Patch { pod, call } => Box::pin(async move {
                    let result = call.send_repeatedly(&writer).await;
                    Done::Patch(pod, result.map(drop))
                }),
                Job::Event(call) => Box::pin(async move {
                    Done::Event(match call.send_until_told(&writer).await {
                        // Its name is its own: an answer was lost, and it is there.
                        (Err(refusal), true) if is_there(&refusal) => Ok(()),
                        (result, _) => result.map(drop),
                    })
                }),
            });
        }
    }

    /// Counts as work under way until it is dropped.
    fn busy(&self, operation: &'static str) -> Busy {
        let operations = &self.metrics.goroutines;
        let gauge = operations.get_or_create_owned(&Operation { operation });
        gauge.inc();
        Busy(gauge)
    }

    fn take_up(&mut self, outcome: Outcome) {
        log::decision(self.mode, &outcome);
        if self.mode == Mode::Observe {
            return self.pretend(outcome);
        }
        match outcome {
            Outcome::Bind { pod, node, by } => match by {
                Binder::Plugin(_) => self.line.bind(pod, node),
                Binder::Extender(index) => self.bind_outside(pod, node, index),
            },
            Outcome::Prepare { pod, node, work } => {
                self.nominate(&pod, node);
                self.prepare(pod, work);
            }
            Outcome::Wait { pod, node, .. } => self.nominate(&pod, node),
            Outcome::Park(failure) => {
                // Its room may have been given away while it was prepared.
                self.awaited.withdraw(&failure.pod.uid);
                self.tell_failure(&failure);
            }
            Outcome::Preempt {
                failure,
                node,
                victims,
                displaced,
            } => {
                self.tell_failure(&failure);
                for pod in displaced {
                    self.patch(&pod, None, &Nomination::Clear);
                }
                self.make_room(failure.pod, node, victims);
            }
            Outcome::Skip { pod, message } => {
                let version = self.version(&pod);
                self.record(pod, version, What::FailedScheduling, message);
            }
            Outcome::Warn { pod, message } => {
                let version = self.version(&pod);
                self.record(pod, version, What::Misunderstood, message);
            }
            Outcome::Ask { pod, questions } => self.ask(&pod, questions),
        }
    }

    /// As if it had been done, so that the engine goes on; what really happens, the watches will tell.
    fn pretend(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Bind { pod, .. } => {
                let (uid, result) = (pod.uid.clone(), Ok(()));
                self.link.report(Input::Bound { uid, result });
            }
            Outcome::Prepare { pod, .. } => {
                let (uid, result) = (pod.uid.clone(), Ok(()));
                self.link.report(Input::Prepared { uid, result });
            }
            Outcome::Preempt { failure, .. } => {
                let uid = failure.pod.uid.clone();
                self.link
                    .report(Input::PreemptionDone { uid, failed: false });
            }
            Outcome::Ask { pod, questions } => self.ask(&pod, questions),
            Outcome::Wait { .. }
            | Outcome::Park(_)
            | Outcome::Skip { .. }
            | Outcome::Warn { .. } => {}
        }
    }

    fn prepare(&mut self, pod: Arc<Pod>, work: Vec<(&'static str, Preparation)>) {
        let (turns, awaited) = (self.turns.clone(), self.awaited.clone());
        let busy = self.busy("PreBind");
        let mut wanted = self.awaited.pod(&pod.uid);
        // Its end may have been seen before this was taken up. The engine hears of it, too.
        let stays = self.notes.stays(&pod.uid);
        if stays == Some(false) {
            self.awaited.withdraw(&pod.uid);
        }
        let api = self.writer.exchange.clone();
        self.under_way.push(Box::pin(async move {
            let begun = Instant::now();
            let all = async {
                if stays.is_none() && !bind::waits(&api, &pod).await {
                    return None;
                }
                for (plugin, preparation) in work {
                    let done = volumes::prepare(&turns, &awaited, &preparation).await;
                    if let Err(text) = done {
                        return Some(Err((plugin.into(), text)));
                    }
                }
                Some(Ok(()))
            };
            let result = tokio::select! {
                biased;
                () = wanted.withdrawn() => None,
                result = all => result,
            };
            drop(busy);
            Done::Prepare {
                pod,
                wanted,
                took: begun.elapsed(),
                result,
            }
        }));
    }

    /// The engine has one pod's questions answered before it asks the next one's.
    fn ask(&mut self, pod: &Arc<Pod>, questions: Vec<Question>) {
        for question in questions {
            let Some(extender) = self.extenders.get(question.extender) else {
                continue;
            };
            let (api, pod) = (self.writer.exchange.clone(), pod.clone());
            let prioritizes = matches!(question.verb, Verb::Prioritize { .. });
            let busy = prioritizes.then(|| self.busy("prioritizing_extender"));
            self.under_way.push(Box::pin(async move {
                let answer = extender.ask(&api, &pod, question.verb).await;
                drop(busy);
                news(Input::Extender {
                    uid: pod.uid.clone(),
                    extender: question.extender,
                    answer,
                })
            }));
        }
    }

    fn bind_outside(&mut self, pod: Arc<Pod>, node: Name, index: usize) {
        let Some(extender) = self.extenders.get(index) else {
            return self.line.bind(pod, node);
        };
        let (leadership, outside) = (self.writer.leadership.clone(), self.outside.clone());
        let version = self.version(&pod);
        self.under_way.push(Box::pin(async move {
            let _turn = outside.acquire().await;
            let result = match leadership.left() {
                None => Some(Err(leadership::OVER.to_owned())),
                Some(_) => match extender.bind(&pod, &node).await {
                    // Whoever may be ignored is replaced by ourselves.
                    Err(_) if extender.is_ignorable() => None,
                    result => Some(result),
                },
            };
            Done::BoundOutside(pod, node, version, result)
        }));
    }

    fn make_room(&mut self, preemptor: Arc<Pod>, node: Name, victims: Vec<Arc<Pod>>) {
        let (turns, busy) = (self.turns.clone(), self.busy("DefaultPreemption"));
        self.under_way.push(Box::pin(async move {
            let evicted = evict::evict(&turns, &preemptor.scheduler_name, victims).await;
            drop(busy);
            Done::Evict {
                preemptor,
                node,
                evicted,
            }
        }));
    }

    fn finished(&mut self, done: Done) {
        match done {
            Done::Bind(pod, node, version, verdict) => {
                self.line.done(Class::Bind);
                self.line.took(verdict.took, Instant::now());
                self.bound(pod, node, version, verdict);
            }
            Done::Patch(pod, result) => {
                self.line.done(Class::Patch);
                match result {
                    Ok(()) => Counters::add(&self.counters.patches),
                    // It is gone, or another pod has its name.
                    Err(refusal) if is_gone(&refusal) => {}
                    Err(Refusal::NoMandate) => self.notes.doubt(&pod.uid),
                    Err(refusal) => {
                        let (namespace, name) = (pod.namespace(), &pod.name);
                        tracing::warn!("status of pod {namespace}/{name}: {refusal}");
                        // It does not say what we believe: say it again next time.
                        self.notes.doubt(&pod.uid);
                    }
                }
            }
            Done::Event(result) => {
                self.line.done(Class::Event);
                match result {
                    Ok(()) => {
                        Counters::add(&self.counters.events_written);
                        self.count_event("written");
                    }
                    // The namespace is going, or the event of a series is gone.
                    Err(refusal) => {
                        self.count_event("refused");
                        tracing::debug!("an event was not written: {refusal}");
                    }
                }
            }
            Done::Evict {
                preemptor,
                node,
                evicted,
            } => self.evicted(&preemptor, &node, evicted),
            Done::BoundOutside(pod, node, _, None) => self.line.bind(pod, node),
            Done::BoundOutside(pod, node, version, Some(result)) => {
                let bound = match result {
                    Ok(()) => Bound::Done,
                    Err(text) => Bound::Refused(text),
                };
                let verdict = Verdict {
                    bound,
                    pressed: false,
                    unknown: false,
                    took: Duration::ZERO,
                };
                self.bound(pod, node, version, verdict);
            }
            Done::Prepare {
                pod,
                wanted,
                took,
                result,
            } => {
                let still_wanted = self.awaited.prepared(wanted);
                let Some(result) = result.filter(|_| still_wanted) else {
                    return;
                };
                let status = if result.is_ok() { "Success" } else { "Error" };
                self.time("PreBind", status, &pod, took);
                let uid = pod.uid.clone();
                self.link.report(Input::Prepared { uid, result });
            }
            Done::News(input) => self.link.report(*input),
        }
    }

    /// An extension point that ends in the world.
    fn time(&self, extension_point: &'static str, status: &'static str, pod: &Pod, took: Duration) {
        let at = AtPoint {
            extension_point,
            status,
            profile: pod.scheduler_name.clone(),
        };
        let duration = self.metrics.point_duration.get_or_create(&at);
        duration.observe(took.as_secs_f64());
    }

    /// What the watch showed last of a pod that waits; nothing is known of others.
    fn version(&self, pod: &Pod) -> Name {
        self.notes.get(&pod.uid).version
    }

    fn bound(&mut self, pod: Arc<Pod>, node: Name, version: Name, verdict: Verdict) {
        if verdict.pressed {
            self.line.press(Instant::now());
        }
        if verdict.unknown {
            Counters::add(&self.counters.bind_unknown);
        }
        self.measure(&pod, &verdict);
        let uid = pod.uid.clone();
        let result = match verdict.bound {
            Bound::Done => {
                self.line.ease();
                Counters::add(&self.counters.bound);
                self.recorder.forget(&uid);
                let (namespace, name) = (pod.namespace(), &pod.name);
                let text = format!("Successfully assigned {namespace}/{name} to {node}");
                self.record(pod, version, What::Scheduled, text);
                Ok(())
            }
            Bound::Elsewhere(seen) => {
                Counters::add(&self.counters.bind_failures);
                return self.link.report(Input::Pod(seen));
            }
            Bound::Gone => {
                Counters::add(&self.counters.bind_failures);
                self.recorder.forget(&uid);
                return self.link.report(Input::PodGone(uid));
            }
            Bound::Refused(text) => {
                Counters::add(&self.counters.bind_failures);
                tracing::warn!(pod = %Named(&pod), %node, "not bound: {text}");
                Err(text)
            }
        };
        self.link.report(Input::Bound { uid, result });
    }

    fn measure(&self, pod: &Pod, verdict: &Verdict) {
        let (result, status) = match &verdict.bound {
            Bound::Done => ("bound", "Success"),
            Bound::Elsewhere(_) => ("elsewhere", "Error"),
            Bound::Gone => ("gone", "Error"),
            Bound::Refused(_) => ("refused", "Error"),
        };
        self.metrics
            .binds
            .get_or_create(&metrics::Outcome { result })
            .inc();
        self.time("Bind", status, pod, verdict.took);
    }

    fn evicted(&mut self, preemptor: &Arc<Pod>, node: &Name, evicted: Evicted) {
        for (victim, version) in evicted.victims {
            if !self.told.insert(victim.uid.clone()) {
                // It goes for two pods, and was told when it went for the first.
                continue;
            }
            if self.told.len() > MOST_TOLD {
                self.told.drain(..MOST_TOLD / 2);
            }
            Counters::add(&self.counters.victims);
            let text = format!("Preempted by pod {} on node {node}", preemptor.uid);
            let report = Report {
                about: About::Pod(victim),
                version,
                scheduler: preemptor.scheduler_name.clone(),
                what: What::Preempted,
                note: text,
            };
            self.report(report);
        }
        if let Some(text) = &evicted.failure {
            let (namespace, name) = (preemptor.namespace(), &preemptor.name);
            tracing::warn!("making room for pod {namespace}/{name}: {text}");
        }
        self.link.report(Input::PreemptionDone {
            uid: preemptor.uid.clone(),
            failed: evicted.failure.is_some(),
        });
    }
}

fn news(input: Input) -> Done {
    Done::News(Box::new(input))
}

fn is_there(refusal: &Refusal) -> bool {
    refusal.status() == Some(StatusCode::CONFLICT)
}

fn is_gone(refusal: &Refusal) -> bool {
    matches!(
        refusal.status(),
        Some(StatusCode::NOT_FOUND | StatusCode::CONFLICT)
    )
}
