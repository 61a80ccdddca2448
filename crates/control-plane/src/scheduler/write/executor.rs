//! The executor: carries out the engine's outcomes and reports the results.
//!
//! One task owns the [`WriteQueue`], the requests in flight, and the [`EventRecorder`]. Requests of the queue are short;
//! long work (evictions, volumes, extenders) runs outside of it.

mod report;

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::model::{Name, Pod};
use engine::scheduling::extender::{Question, Verb};
use engine::scheduling::framework::Preparation;
use engine::scheduling::scheduler::{Binder, Input, Nomination, Outcome};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::StatusCode;
use indexmap::IndexSet;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Semaphore, mpsc};

use super::bind::{self, BindOutcome, BindResult};
use super::events::{EventObject, EventReason, EventRecorder, NewEvent};
use super::evict::{self, Evicted};
use super::extenders::Extenders;
use super::queue::{BindRequest, Write, WriteKind, WriteQueue};
use super::requests::{LimitedWriter, Writer};
use super::volumes::{self, PrepareError};
use crate::client::{Exchange, Refusal};
use crate::scheduler::channel::Channel;
use crate::scheduler::claim_waits::{ClaimWaits, Preparing};
use crate::scheduler::kinds::InvalidObject;
use crate::scheduler::observe::log::{self, Named};
use crate::scheduler::observe::metrics::{Metrics, OperationLabel, PointLabels};
use crate::scheduler::pods::PendingPods;
use crate::scheduler::{Counters, Mode, Shared};
use reconcile::planted::{PlantedFault, is_planted};

/// Binds that may wait here; more wait in the channel, and then in the engine.
const MAX_BINDS: usize = 256;
/// Requests at a time outside of the queue: volumes and evictions.
const MAX_LIMITED: usize = 32;
/// Binds at a time by extenders.
const MAX_EXTENDER_BINDS: usize = 64;
/// How often old series and deferred events are checked.
const SWEEP: Duration = Duration::from_secs(1);
/// How often dropped events are logged.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// Events about unreadable objects that wait until this process is the leader.
const MAX_DEFERRED: usize = 1_000;
/// Pods whose write was not sent and whose failure is not reported yet.
const MAX_NOT_LEADER: usize = 10_000;
/// Victims that are remembered. A pod is chosen again only while it terminates.
const MAX_VICTIMS_REPORTED: usize = 10_000;

/// Counts an operation while it is in progress.
struct InProgress(Gauge);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.dec();
    }
}

type Work = Pin<Box<dyn Future<Output = Completion> + Send>>;

pub(crate) struct Executor {
    writer: Writer,
    limited: LimitedWriter,
    extender_binds: Arc<Semaphore>,
    channel: Arc<Channel>,
    claim_waits: Arc<ClaimWaits>,
    pods: Arc<PendingPods>,
    counters: Arc<Counters>,
    metrics: Arc<Metrics>,
    mode: Mode,
    extenders: Extenders,
    queue: WriteQueue,
    recorder: EventRecorder,
    in_flight: FuturesUnordered<Work>,
    warned: Option<Instant>,
    /// Victims that have an event, by uid, the latest last.
    victims_reported: IndexSet<Name>,
    /// Invalid objects whose event waits until this process is the leader.
    deferred: Vec<InvalidObject>,
    /// Pods whose write was not sent because this process was not the leader. That is no failure of the pod.
    not_leader: HashSet<Name>,
}

/// Finished work.
enum Completion {
    /// With the resource version that the pod had before.
    Bind(Arc<Pod>, Name, Name, BindResult),
    Patch(Arc<Pod>, Result<(), Refusal>),
    Event(Result<(), Refusal>),
    Evict {
        preemptor: Arc<Pod>,
        node: Name,
        evicted: Evicted,
    },
    Prepare {
        pod: Arc<Pod>,
        preparing: Preparing,
        took: Duration,
        /// `None` if it was withdrawn.
        result: Option<Result<(), (Name, PrepareError)>>,
    },
    /// `None` if the extender failed and is ignorable: the scheduler binds the pod.
    ExtenderBind(BindRequest, Name, Option<BindOutcome>),
    /// An input for the engine.
    Input(Box<Input>),
}

impl Executor {
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
            limited: LimitedWriter::new(writer.clone(), MAX_LIMITED),
            writer,
            extender_binds: Arc::new(Semaphore::new(MAX_EXTENDER_BINDS)),
            channel: shared.channel,
            claim_waits: shared.claim_waits,
            pods: shared.pods,
            counters: shared.counters,
            metrics: shared.metrics,
            mode,
            extenders,
            queue: WriteQueue::new(),
            recorder: EventRecorder::new(host),
            in_flight: FuturesUnordered::new(),
            warned: None,
            victims_reported: IndexSet::new(),
            deferred: Vec::new(),
            not_leader: HashSet::new(),
        }
    }

    /// Runs until it is dropped.
    pub(crate) async fn run(&mut self, mut problems: mpsc::Receiver<InvalidObject>) {
        let channel = self.channel.clone();
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            self.send_writes();
            let capacity = MAX_BINDS.saturating_sub(self.queue.waiting_binds());
            tokio::select! {
                Some(done) = self.in_flight.next() => {
                    self.finished(done);
                    // One wake-up for all that ended.
                    while let Some(Some(done)) = self.in_flight.next().now_or_never() {
                        self.finished(done);
                    }
                }
                outcomes = channel.receive_outcomes(capacity), if capacity > 0 => {
                    outcomes.into_iter().for_each(|outcome| self.execute(outcome));
                    // The engine may always have more, and the watches are on this thread.
                    tokio::task::yield_now().await;
                }
                Some(problem) = problems.recv() => self.defer(problem),
                _ = sweep.tick() => {
                    self.recorder.sweep(Instant::now());
                    self.write_deferred();
                }
            }
        }
    }

    /// Accepts no new outcome; returns when all waiting requests have ended.
    pub(crate) async fn finish(&mut self) {
        loop {
            self.send_writes();
            if self.queue.is_idle() {
                return;
            }
            match self.in_flight.next().await {
                Some(done) => self.finished(done),
                None => return,
            }
        }
    }

    fn send_writes(&mut self) {
        let now = Instant::now();
        while let Some(job) = self.queue.next(now) {
            let writer = self.writer.clone();
            self.in_flight.push(match job {
                Write::Bind(request) => {
                    let BindRequest {
                        pod,
                        node,
                        annotations,
                    } = request;
                    let (version, busy) = (self.version(&pod), self.busy("binding"));
                    Box::pin(async move {
                        let result = bind::bind(&writer, &pod, &node, &annotations).await;
                        drop(busy);
                        Completion::Bind(pod, node, version, result)
                    })
                }
                Write::Patch { pod, call } => Box::pin(async move {
                    let result = call.send_retrying(&writer).await;
                    Completion::Patch(pod, result.map(drop))
                }),
                Write::Event(call) => Box::pin(async move {
                    Completion::Event(match call.send_retrying_tracked(&writer).await {
                        // Event names are unique: the response was lost, and the event exists.
                        (Err(refusal), true) if exists(&refusal) => Ok(()),
                        (result, _) => result.map(drop),
                    })
                }),
            });
        }
    }

    /// Counts as an operation in progress until it is dropped.
    fn busy(&self, operation: &'static str) -> InProgress {
        let operations = &self.metrics.goroutines;
        let gauge = operations.get_or_create_owned(&OperationLabel { operation });
        gauge.inc();
        InProgress(gauge)
    }

    fn execute(&mut self, outcome: Outcome) {
        log::decision(self.mode, &outcome, self.is_known(&outcome));
        if self.mode == Mode::Observe {
            return self.simulate(outcome);
        }
        match outcome {
            Outcome::Bind {
                pod,
                node,
                by,
                annotations,
            } => {
                let request = BindRequest {
                    pod,
                    node,
                    annotations,
                };
                match by {
                    Binder::Plugin(_) => self.queue.bind(request),
                    Binder::Extender(index) => self.bind_by_extender(request, index),
                }
            }
            Outcome::Prepare { pod, node, work } => {
                self.nominate(&pod, node);
                self.prepare(pod, work);
            }
            Outcome::Wait { pod, node, .. } => self.nominate(&pod, node),
            Outcome::Park(failure) => {
                // Its node may have been given to another pod while it was prepared.
                self.claim_waits.withdraw(&failure.pod.uid);
                self.report_failure(&failure);
            }
            Outcome::Preempt {
                failure,
                node,
                victims,
                displaced,
            } => {
                self.report_failure(&failure);
                for pod in displaced {
                    self.patch(&pod, None, &Nomination::Clear);
                }
                self.evict(failure.pod, node, victims);
            }
            Outcome::Skip { pod, message } => {
                let version = self.version(&pod);
                self.record_pod_event(pod, version, EventReason::FailedScheduling, message);
            }
            Outcome::Warn { pod, message } => {
                let version = self.version(&pod);
                self.record_pod_event(pod, version, EventReason::InvalidSettings, message);
            }
            Outcome::Ask { pod, questions } => self.ask(&pod, questions),
        }
    }

    /// Reports success without a write, so that the engine goes on. The watches bring what really happens.
    fn simulate(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Bind { pod, .. } => {
                let (uid, result) = (pod.uid.clone(), Ok(()));
                self.channel.send_result(Input::Bound { uid, result });
            }
            Outcome::Prepare { pod, .. } => {
                let (uid, result) = (pod.uid.clone(), Ok(()));
                self.channel.send_result(Input::Prepared { uid, result });
            }
            Outcome::Preempt { failure, .. } => {
                let uid = failure.pod.uid.clone();
                self.channel
                    .send_result(Input::PreemptionDone { uid, failed: false });
            }
            Outcome::Ask { pod, questions } => self.ask(&pod, questions),
            Outcome::Wait { .. }
            | Outcome::Park(_)
            | Outcome::Skip { .. }
            | Outcome::Warn { .. } => {}
        }
    }

    fn prepare(&mut self, pod: Arc<Pod>, work: Vec<(&'static str, Preparation)>) {
        let (limited, claim_waits) = (self.limited.clone(), self.claim_waits.clone());
        let busy = self.busy("PreBind");
        let mut preparing = self.claim_waits.pod(&pod.uid);
        // The deletion may have been seen before this outcome. The engine gets it, too.
        let terminating = self.pods.is_terminating(&pod.uid);
        if terminating == Some(true) {
            self.claim_waits.withdraw(&pod.uid);
        }
        let api = self.writer.exchange.clone();
        self.in_flight.push(Box::pin(async move {
            let begun = Instant::now();
            let all = async {
                if terminating.is_none() && !bind::is_unbound(&api, &pod).await {
                    return None;
                }
                for (plugin, preparation) in work {
                    let done = volumes::prepare(&limited, &claim_waits, &preparation).await;
                    if let Err(error) = done {
                        return Some(Err((plugin.into(), error)));
                    }
                }
                Some(Ok(()))
            };
            let result = tokio::select! {
                biased;
                () = preparing.withdrawn() => None,
                result = all => result,
            };
            drop(busy);
            Completion::Prepare {
                pod,
                preparing,
                took: begun.elapsed(),
                result,
            }
        }));
    }

    /// The engine waits for the answers about one pod before it sends questions about the next.
    fn ask(&mut self, pod: &Arc<Pod>, questions: Vec<Question>) {
        for question in questions {
            let Some(extender) = self.extenders.get(question.extender) else {
                continue;
            };
            let (api, pod) = (self.writer.exchange.clone(), pod.clone());
            let prioritizes = matches!(question.verb, Verb::Prioritize { .. });
            let busy = prioritizes.then(|| self.busy("prioritizing_extender"));
            self.in_flight.push(Box::pin(async move {
                let answer = extender.ask(&api, &pod, question.verb).await;
                drop(busy);
                input(Input::Extender {
                    uid: pod.uid.clone(),
                    extender: question.extender,
                    answer,
                })
            }));
        }
    }

    fn bind_by_extender(&mut self, request: BindRequest, index: usize) {
        let Some(extender) = self.extenders.get(index) else {
            return self.queue.bind(request);
        };
        let (leadership, extender_binds) =
            (self.writer.leadership.clone(), self.extender_binds.clone());
        let version = self.version(&request.pod);
        self.in_flight.push(Box::pin(async move {
            let _turn = extender_binds.acquire().await;
            let result = match leadership.left() {
                None => Some(BindOutcome::NotLeader),
                Some(_) => match extender.bind(&request.pod, &request.node).await {
                    Ok(()) => Some(BindOutcome::Done),
                    Err(_) if extender.is_ignorable() => None,
                    Err(text) => Some(BindOutcome::Refused(text)),
                },
            };
            Completion::ExtenderBind(request, version, result)
        }));
    }

    fn evict(&mut self, preemptor: Arc<Pod>, node: Name, victims: Vec<Arc<Pod>>) {
        let (limited, busy) = (self.limited.clone(), self.busy("DefaultPreemption"));
        self.in_flight.push(Box::pin(async move {
            let evicted = evict::evict(&limited, &preemptor.scheduler_name, victims).await;
            drop(busy);
            Completion::Evict {
                preemptor,
                node,
                evicted,
            }
        }));
    }

    fn finished(&mut self, done: Completion) {
        match done {
            Completion::Bind(pod, node, version, result) => {
                self.queue.done(WriteKind::Bind);
                self.queue.took(result.took, Instant::now());
                self.bound(pod, node, version, result);
            }
            Completion::Patch(pod, result) => {
                self.queue.done(WriteKind::Patch);
                match result {
                    Ok(()) => Counters::add(&self.counters.patches),
                    // The pod is gone, or another pod has its name.
                    Err(refusal) if is_gone(&refusal) => {}
                    Err(Refusal::NotLeader) => self.pods.forget_condition(&pod.uid),
                    Err(refusal) => {
                        tracing::warn!(pod = %Named(&pod), "cannot write the status: {refusal}");
                        // Write it again after the next failure.
                        self.pods.forget_condition(&pod.uid);
                    }
                }
            }
            Completion::Event(result) => {
                self.queue.done(WriteKind::Event);
                match result {
                    Ok(()) => {
                        Counters::add(&self.counters.events_written);
                        self.count_event("written");
                    }
                    // The namespace is terminating, or the event of a series is gone.
                    Err(refusal) => {
                        self.count_event("refused");
                        tracing::debug!("cannot write an event: {refusal}");
                    }
                }
            }
            Completion::Evict {
                preemptor,
                node,
                evicted,
            } => self.evicted(&preemptor, &node, evicted),
            Completion::ExtenderBind(request, _, None) => self.queue.bind(request),
            Completion::ExtenderBind(request, version, Some(bound)) => {
                let BindRequest { pod, node, .. } = request;
                let result = BindResult {
                    bound,
                    throttled: false,
                    answer_lost: false,
                    took: Duration::ZERO,
                };
                self.bound(pod, node, version, result);
            }
            Completion::Prepare {
                pod,
                preparing,
                took,
                result,
            } => {
                let still_preparing = self.claim_waits.prepared(preparing);
                let Some(result) = result.filter(|_| still_preparing) else {
                    return;
                };
                let status = if result.is_ok() { "Success" } else { "Error" };
                self.time("PreBind", status, &pod, took);
                let uid = pod.uid.clone();
                if matches!(result, Err((_, PrepareError::NotLeader))) {
                    self.note_not_leader(&uid);
                }
                let result = result.map_err(|(plugin, error)| (plugin, error.to_string()));
                self.channel.send_result(Input::Prepared { uid, result });
            }
            Completion::Input(input) => self.channel.send_result(*input),
        }
    }

    /// The duration of an extension point that ends with a request.
    fn time(&self, extension_point: &'static str, status: &'static str, pod: &Pod, took: Duration) {
        let at = PointLabels {
            extension_point,
            status,
            profile: pod.scheduler_name.clone(),
        };
        let duration = self.metrics.point_duration.get_or_create(&at);
        duration.observe(took.as_secs_f64());
    }

    /// The resource version of a pending pod, as the watch had it last; empty for other pods.
    fn version(&self, pod: &Pod) -> Name {
        self.pods.get(&pod.uid).version
    }

    fn bound(&mut self, pod: Arc<Pod>, node: Name, version: Name, result: BindResult) {
        if result.throttled {
            self.queue.throttle(Instant::now());
        }
        if result.answer_lost {
            Counters::add(&self.counters.bind_unknown);
        }
        self.measure(&pod, &result);
        let uid = pod.uid.clone();
        let result = match result.bound {
            BindOutcome::Done => {
                self.queue.relax();
                Counters::add(&self.counters.bound);
                self.recorder.forget(&uid);
                self.queue.forget(&uid);
                let (namespace, name) = (pod.namespace(), &pod.name);
                let text = format!("Successfully assigned {namespace}/{name} to {node}");
                self.record_pod_event(pod, version, EventReason::Scheduled, text);
                Ok(())
            }
            BindOutcome::Elsewhere(seen) => {
                Counters::add(&self.counters.bind_failures);
                return self.channel.send_result(Input::Pod(seen));
            }
            BindOutcome::Gone => {
                Counters::add(&self.counters.bind_failures);
                self.recorder.forget(&uid);
                self.queue.forget(&uid);
                return self.channel.send_result(Input::PodGone(uid));
            }
            BindOutcome::Refused(text) => {
                Counters::add(&self.counters.bind_failures);
                tracing::warn!(pod = %Named(&pod), %node, "cannot bind pod: {text}");
                if is_planted(PlantedFault::AssumedForever) {
                    return;
                }
                Err(text)
            }
            // Another scheduler was faster. The pod waits again, with a short backoff.
            BindOutcome::Conflict(message) => {
                Counters::add(&self.counters.bind_failures);
                tracing::info!(pod = %Named(&pod), %node, "the gate refused the bind: {message}");
                return self.channel.send_result(Input::Conflict { uid, message });
            }
            BindOutcome::NotLeader => {
                Counters::add(&self.counters.bind_failures);
                self.note_not_leader(&uid);
                Err(Refusal::NotLeader.to_string())
            }
        };
        self.channel.send_result(Input::Bound { uid, result });
    }

    fn note_not_leader(&mut self, uid: &Name) {
        if self.not_leader.len() >= MAX_NOT_LEADER {
            self.not_leader.clear();
        }
        self.not_leader.insert(uid.clone());
    }

    fn evicted(&mut self, preemptor: &Arc<Pod>, node: &Name, evicted: Evicted) {
        for (victim, version) in evicted.victims {
            if !self.victims_reported.insert(victim.uid.clone()) {
                // A victim of two pods: the event exists.
                continue;
            }
            if self.victims_reported.len() > MAX_VICTIMS_REPORTED {
                self.victims_reported.drain(..MAX_VICTIMS_REPORTED / 2);
            }
            Counters::add(&self.counters.victims);
            let text = format!("Preempted by pod {} on node {node}", preemptor.uid);
            let report = NewEvent {
                object: EventObject::Pod(victim),
                version,
                scheduler: preemptor.scheduler_name.clone(),
                reason: EventReason::Preempted,
                note: text,
                is_repeated: false,
            };
            self.record(report);
        }
        if let Some(text) = &evicted.failure {
            tracing::warn!(pod = %Named(preemptor), "cannot evict all victims: {text}");
        }
        self.channel.send_result(Input::PreemptionDone {
            uid: preemptor.uid.clone(),
            failed: evicted.failure.is_some(),
        });
    }
}

fn input(input: Input) -> Completion {
    Completion::Input(Box::new(input))
}

fn exists(refusal: &Refusal) -> bool {
    refusal.status() == Some(StatusCode::CONFLICT)
}

fn is_gone(refusal: &Refusal) -> bool {
    matches!(
        refusal.status(),
        Some(StatusCode::NOT_FOUND | StatusCode::CONFLICT)
    )
}
