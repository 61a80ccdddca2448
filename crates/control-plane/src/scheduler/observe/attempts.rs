//! What decisions cost and come to, for metrics and for the log. It decides nothing and is not asked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::model::{Name, Pod, Timestamp};
use engine::profile::Profiles;
use engine::queue::{Cause, Part};
use engine::scheduler::{Failure, FailureReason, Input, Outcome, Scheduler};
use prometheus_client::metrics::gauge::Gauge;

use super::timings::Stopwatch;
use crate::scheduler::observe::metrics::{
    self, AttemptResult, Incoming, Metrics, ProfileName, Rejector,
};

/// A decision that took longer is told with its steps.
const SLOW: Duration = Duration::from_millis(100);
/// An attempt of which nothing was heard for so long has an end that nobody told.
const FORGOTTEN: Duration = Duration::from_secs(15 * 60);
/// How many of them are kept before the old ones are looked for.
const MANY: usize = 10_000;

pub(crate) struct Observer {
    metrics: Arc<Metrics>,
    steps: Arc<Stopwatch>,
    /// By the position of the profile.
    profiles: Vec<ProfileName>,
    /// Pods that were decided about and are not bound yet.
    begun: HashMap<Name, Begun>,
    /// Who rejected the pods that wait.
    rejected: HashMap<Name, (usize, Vec<&'static str>)>,
}

struct Begun {
    at: Instant,
    profile: usize,
    attempts: u32,
    first_tried: Option<Timestamp>,
    /// Since when it waits on permit.
    waits: Option<Instant>,
}

impl Observer {
    pub(crate) fn new(metrics: Arc<Metrics>, steps: Arc<Stopwatch>, profiles: &Profiles) -> Self {
        let names = profiles.iter().map(|it| it.scheduler_name.clone());
        Self {
            profiles: names.collect(),
            metrics,
            steps,
            begun: HashMap::new(),
            rejected: HashMap::new(),
        }
    }

    /// A decision begins.
    pub(crate) fn begin(&self, at: Instant) {
        self.steps.begin(at);
    }

    /// There was nothing to decide.
    pub(crate) fn end(&self) {
        self.steps.end();
    }

    /// It came to this. Returns the time, which is that of the next decision.
    pub(crate) fn decided(
        &mut self,
        engine: &Scheduler,
        outcome: &Outcome,
        begun: Instant,
    ) -> Instant {
        let now = Instant::now();
        let took = now.saturating_duration_since(begun);
        if took >= SLOW {
            let (pod, steps) = (pod_of(outcome), self.steps.tell(now));
            let (namespace, name) = (pod.namespace(), &pod.name);
            tracing::warn!(
                pod = %format_args!("{namespace}/{name}"),
                took_ms = took.as_millis() as u64,
                %steps,
                "a slow decision"
            );
        }
        self.steps.end();
        match outcome {
            Outcome::Bind { pod, .. } | Outcome::Prepare { pod, .. } => {
                self.chosen(engine, pod, begun);
                self.permitted(pod, "Success");
            }
            Outcome::Wait { pod, .. } => {
                self.chosen(engine, pod, begun);
                if let Some(known) = self.begun.get_mut(&pod.uid) {
                    known.waits = Some(now);
                }
            }
            Outcome::Park(failure) => self.failed(engine, failure, begun),
            Outcome::Preempt {
                failure, victims, ..
            } => {
                self.metrics
                    .preemption_victims
                    .observe(victims.len() as f64);
                self.failed(engine, failure, begun);
            }
            Outcome::Skip { pod, .. } => self.accept(&pod.uid),
            Outcome::Ask { .. } | Outcome::Warn { .. } => {}
        }
        now
    }

    /// A node was chosen, now or by the answer that let the pod go on.
    fn chosen(&mut self, engine: &Scheduler, pod: &Arc<Pod>, begun: Instant) {
        self.accept(&pod.uid);
        if self.begun.contains_key(&pod.uid) {
            return;
        }
        let Some(profile) = engine.profiles().find(&pod.scheduler_name) else {
            return;
        };
        let ticket = engine.ticket(&pod.uid);
        self.forget_old();
        self.begun.insert(
            pod.uid.clone(),
            Begun {
                at: begun,
                profile,
                attempts: ticket.map_or(1, |ticket| ticket.attempts),
                first_tried: ticket.and_then(|ticket| ticket.first_tried),
                waits: None,
            },
        );
    }

    fn failed(&mut self, engine: &Scheduler, failure: &Failure, begun: Instant) {
        let pod = &failure.pod;
        let Some(profile) = engine.profiles().find(&pod.scheduler_name) else {
            return;
        };
        self.permitted(pod, "Unschedulable");
        self.accept(&pod.uid);
        let known = self.begun.remove(&pod.uid);
        let result = match failure.reason {
            FailureReason::Unschedulable => AttemptResult::unschedulable,
            FailureReason::SchedulerError => AttemptResult::error,
        };
        let at = known.map_or(begun, |known| known.at);
        self.metrics
            .attempt(&self.profiles[profile], result, at.elapsed());
        self.reject(&pod.uid, profile, failure.rejected_by.clone());
    }

    /// A pod came to wait, or changed while it waits: something may keep it out of the queue.
    pub(crate) fn queued(&mut self, engine: &Scheduler, uid: &Name) {
        if let Some(ticket) = engine.waiting(uid)
            && let Some(gate) = ticket.gate()
            && !self.rejected.contains_key(uid)
        {
            self.reject(uid, ticket.profile, vec![gate]);
        }
    }

    fn reject(&mut self, uid: &Name, profile: usize, plugins: Vec<&'static str>) {
        for plugin in &plugins {
            self.waiting_for(profile, plugin).inc();
        }
        if !plugins.is_empty() {
            self.rejected.insert(uid.clone(), (profile, plugins));
        }
    }

    /// Nobody rejects the pod any more, or it is gone.
    fn accept(&mut self, uid: &str) {
        if let Some((profile, plugins)) = self.rejected.remove(uid) {
            for plugin in plugins {
                self.waiting_for(profile, plugin).dec();
            }
        }
    }

    fn waiting_for(&self, profile: usize, plugin: &'static str) -> Gauge {
        self.metrics
            .unschedulable_pods
            .get_or_create_owned(&Rejector {
                plugin,
                profile: self.profiles[profile].clone(),
            })
    }

    /// The pod waits on permit no more.
    fn permitted(&mut self, pod: &Pod, result: &'static str) {
        let waits = self
            .begun
            .get_mut(&pod.uid)
            .and_then(|known| known.waits.take());
        if let Some(since) = waits {
            let labels = metrics::Outcome { result };
            let waited = since.elapsed().as_secs_f64();
            self.metrics
                .permit_wait
                .get_or_create(&labels)
                .observe(waited);
        }
    }

    /// News, before the engine hears of it.
    pub(crate) fn hear(&mut self, input: &Input, now: Timestamp) {
        match input {
            Input::Bound {
                uid,
                result: Ok(()),
            } => {
                let Some(known) = self.begun.remove(uid) else {
                    return;
                };
                let name = &self.profiles[known.profile];
                self.metrics
                    .attempt(name, AttemptResult::scheduled, known.at.elapsed());
                let waited = known.first_tried.map(|first| {
                    let nanos = u64::try_from(now.0.saturating_sub(first.0)).unwrap_or(0);
                    Duration::from_nanos(nanos)
                });
                self.metrics.bound(known.attempts, waited);
            }
            Input::PodGone(uid) => {
                self.begun.remove(uid);
                self.accept(uid);
            }
            Input::Pod(pod) if pod.node.is_some() => self.accept(&pod.uid),
            _ => {}
        }
    }

    /// Pods came into the queue, or moved in it.
    pub(crate) fn moved(&self, arrivals: Vec<(Part, Cause, u64)>) {
        for (part, cause, count) in arrivals {
            let labels = Incoming {
                queue: part.name(),
                event: cause.to_string(),
            };
            self.metrics.incoming.get_or_create(&labels).inc_by(count);
        }
    }

    fn forget_old(&mut self) {
        if self.begun.len() >= MANY && self.begun.len().is_power_of_two() {
            self.begun.retain(|_, begun| begun.at.elapsed() < FORGOTTEN);
        }
    }
}

fn pod_of(outcome: &Outcome) -> &Arc<Pod> {
    match outcome {
        Outcome::Bind { pod, .. }
        | Outcome::Prepare { pod, .. }
        | Outcome::Wait { pod, .. }
        | Outcome::Skip { pod, .. }
        | Outcome::Warn { pod, .. }
        | Outcome::Ask { pod, .. } => pod,
        Outcome::Park(failure) | Outcome::Preempt { failure, .. } => &failure.pod,
    }
}
