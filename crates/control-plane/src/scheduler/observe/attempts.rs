//! Scheduling attempts: their results and durations, for metrics and the log.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::model::{Name, Pod, Timestamp};
use engine::scheduling::profile::Profiles;
use engine::scheduling::queue::{Cause, SubQueue};
use engine::scheduling::scheduler::{Failure, FailureReason, Input, Outcome, Scheduler};
use prometheus_client::metrics::gauge::Gauge;

use super::timings::Timings;
use crate::scheduler::observe::metrics::{
    AttemptResult, IncomingLabels, Metrics, ProfileName, RejectionLabels, ResultLabel,
};

/// A longer decision is logged with its steps.
const SLOW: Duration = Duration::from_millis(100);
/// An attempt without a result for so long is dropped.
const FORGOTTEN: Duration = Duration::from_secs(15 * 60);
/// Attempts that are kept before old ones are dropped.
const MANY: usize = 10_000;

pub(crate) struct Attempts {
    metrics: Arc<Metrics>,
    steps: Arc<Timings>,
    /// By the position of the profile.
    profiles: Vec<ProfileName>,
    /// Pods with a decision that are not bound yet.
    begun: HashMap<Name, Attempt>,
    /// The profile and the plugins that rejected each pending pod.
    rejected: HashMap<Name, (usize, Vec<&'static str>)>,
}

struct Attempt {
    at: Instant,
    profile: usize,
    attempts: u32,
    first_tried: Option<Timestamp>,
    /// Since when it waits on Permit.
    waits: Option<Instant>,
}

impl Attempts {
    pub(crate) fn new(metrics: Arc<Metrics>, steps: Arc<Timings>, profiles: &Profiles) -> Self {
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

    /// A decision ends. Returns the time, at which the next one begins.
    pub(crate) fn decided(
        &mut self,
        engine: &Scheduler,
        outcome: &Outcome,
        begun: Instant,
    ) -> Instant {
        let now = Instant::now();
        let took = now.saturating_duration_since(begun);
        if took >= SLOW {
            let (pod, steps) = (pod_of(outcome), self.steps.describe(now));
            let (namespace, name) = (pod.namespace(), &pod.name);
            tracing::warn!(
                pod = %format_args!("{namespace}/{name}"),
                took_ms = took.as_millis() as u64,
                %steps,
                "slow scheduling decision"
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

    /// A node was chosen, in this decision or an earlier one.
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
            Attempt {
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

    /// A pending pod was added or changed; a plugin may gate it.
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

    /// The pod is not rejected any more, or is gone.
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
            .get_or_create_owned(&RejectionLabels {
                plugin,
                profile: self.profiles[profile].clone(),
            })
    }

    /// The pod's wait on Permit has ended.
    fn permitted(&mut self, pod: &Pod, result: &'static str) {
        let waits = self
            .begun
            .get_mut(&pod.uid)
            .and_then(|known| known.waits.take());
        if let Some(since) = waits {
            let labels = ResultLabel { result };
            let waited = since.elapsed().as_secs_f64();
            self.metrics
                .permit_wait
                .get_or_create(&labels)
                .observe(waited);
        }
    }

    /// An input, before the engine gets it.
    pub(crate) fn observe(&mut self, input: &Input, now: Timestamp) {
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

    /// Pods were added to the queue, or moved in it.
    pub(crate) fn moved(&self, arrivals: Vec<(SubQueue, Cause, u64)>) {
        for (part, cause, count) in arrivals {
            let labels = IncomingLabels {
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
