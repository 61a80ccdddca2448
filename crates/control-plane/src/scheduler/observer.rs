//! What decisions cost and come to, for metrics and for the log. It decides nothing and is not asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::framework::Point;
use engine::hooks::Hook;
use engine::model::{Name, Pod, Timestamp};
use engine::profile::Profiles;
use engine::queue::{Cause, Part};
use engine::scheduler::{Failure, FailureReason, Input, Outcome, Scheduler};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::{
    self, AtPoint, AttemptResult, Evaluation, Incoming, Metrics, ProfileName, Rejector,
};

/// A decision that took longer is told with its steps.
const SLOW: Duration = Duration::from_millis(100);
/// An attempt of which nothing was heard for so long has an end that nobody told.
const FORGOTTEN: Duration = Duration::from_secs(15 * 60);
/// How many of them are kept before the old ones are looked for.
const MANY: usize = 10_000;

pub(super) struct Observer {
    metrics: Arc<Metrics>,
    steps: Arc<Stopwatch>,
    profiles: Vec<Observed>,
    /// Pods that were decided about and are not bound yet.
    begun: HashMap<Name, Begun>,
    /// Who rejected the pods that wait.
    rejected: HashMap<Name, (usize, Vec<&'static str>)>,
}

/// A profile's name, and the plugins that have a turn in every attempt.
struct Observed {
    name: ProfileName,
    filters: Vec<Counter>,
    scorers: Vec<Counter>,
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
    pub(super) fn new(metrics: Arc<Metrics>, steps: Arc<Stopwatch>, profiles: &Profiles) -> Self {
        let observed = profiles.iter().map(|profile| {
            let name: ProfileName = profile.scheduler_name.clone();
            let counters = |points: [(Point, &'static str); 2]| {
                let at = points.into_iter().flat_map(|(point, label)| {
                    let plugins = profile.at(point).iter();
                    plugins.map(move |index| (profile.plugins()[*index].name, label))
                });
                at.map(|(plugin, extension_point)| {
                    metrics.evaluations.get_or_create_owned(&Evaluation {
                        plugin,
                        extension_point,
                        profile: name.clone(),
                    })
                })
                .collect()
            };
            let filters = counters([(Point::PreFilter, "PreFilter"), (Point::Filter, "Filter")]);
            let scorers = counters([(Point::PreScore, "PreScore"), (Point::Score, "Score")]);
            Observed {
                name,
                filters,
                scorers,
            }
        });
        Self {
            profiles: observed.collect(),
            metrics,
            steps,
            begun: HashMap::new(),
            rejected: HashMap::new(),
        }
    }

    /// A decision begins.
    pub(super) fn begin(&self, at: Instant) {
        self.steps.begin(at);
    }

    /// It came to this. Returns the time, which is that of the next decision.
    pub(super) fn decided(
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
        match outcome {
            Outcome::Bind { pod, .. } | Outcome::Prepare { pod, .. } => {
                self.chosen(engine, pod, begun);
                self.permitted(pod, "success");
            }
            Outcome::Wait { pod, .. } => {
                self.chosen(engine, pod, begun);
                if let Some(known) = self.begun.get_mut(&pod.uid) {
                    known.waits = Some(now);
                }
            }
            Outcome::Park(failure) => {
                let evaluated = !failure.rejected_by.is_empty();
                self.failed(engine, failure, begun, evaluated);
            }
            Outcome::Preempt {
                failure, victims, ..
            } => {
                self.metrics
                    .preemption_victims
                    .observe(victims.len() as f64);
                self.failed(engine, failure, begun, true);
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
        let observed = &self.profiles[profile];
        observed
            .filters
            .iter()
            .chain(&observed.scorers)
            .for_each(|it| {
                it.inc();
            });
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

    fn failed(&mut self, engine: &Scheduler, failure: &Failure, begun: Instant, evaluated: bool) {
        let pod = &failure.pod;
        let Some(profile) = engine.profiles().find(&pod.scheduler_name) else {
            return;
        };
        self.permitted(pod, "unschedulable");
        self.accept(&pod.uid);
        let known = self.begun.remove(&pod.uid);
        let observed = &self.profiles[profile];
        let result = match failure.reason {
            FailureReason::Unschedulable => AttemptResult::unschedulable,
            FailureReason::SchedulerError => AttemptResult::error,
        };
        if known.is_none() && evaluated {
            // It failed in the decision itself, where making room is the last attempt.
            observed.filters.iter().for_each(|it| {
                it.inc();
            });
            self.metrics.preemption_attempts.inc();
        }
        let at = known.map_or(begun, |known| known.at);
        self.metrics.attempt(&observed.name, result, at.elapsed());
        for plugin in &failure.rejected_by {
            self.waiting_for(profile, plugin).inc();
        }
        if !failure.rejected_by.is_empty() {
            let rejected = (profile, failure.rejected_by.clone());
            self.rejected.insert(pod.uid.clone(), rejected);
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
                profile: self.profiles[profile].name.clone(),
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
    pub(super) fn hear(&mut self, input: &Input, now: Timestamp) {
        match input {
            Input::Bound {
                uid,
                result: Ok(()),
            } => {
                let Some(known) = self.begun.remove(uid) else {
                    return;
                };
                let name = &self.profiles[known.profile].name;
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
    pub(super) fn moved(&self, arrivals: Vec<(Part, Cause, u64)>) {
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

/// Times the extension points of the decision that is being made.
pub(super) struct Stopwatch {
    metrics: Arc<Metrics>,
    decision: Mutex<Decision>,
}

struct Decision {
    begun: Instant,
    steps: Vec<(Point, Instant, Option<Instant>)>,
}

impl Stopwatch {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        let decision = Mutex::new(Decision {
            begun: Instant::now(),
            steps: Vec::new(),
        });
        Self { metrics, decision }
    }

    fn begin(&self, at: Instant) {
        let mut decision = self.lock();
        decision.begun = at;
        decision.steps.clear();
    }

    /// `queue 0.1ms, PreFilter 3.2ms, ...`, and what comes after the last step.
    fn tell(&self, end: Instant) -> String {
        let decision = self.lock();
        let mut text = String::new();
        let mut at = decision.begun;
        let mut say = |what: &str, time: Duration| {
            let comma = if text.is_empty() { "" } else { ", " };
            text += &format!("{comma}{what} {:.1}ms", time.as_secs_f64() * 1_000.0);
        };
        for (index, (point, from, to)) in decision.steps.iter().enumerate() {
            let gap = from.saturating_duration_since(at);
            if index == 0 {
                say("queue", gap);
            } else if gap > Duration::from_millis(1) {
                say("between", gap);
            }
            let to = to.unwrap_or(end);
            say(&format!("{point:?}"), to.saturating_duration_since(*from));
            at = to;
        }
        say("rest", end.saturating_duration_since(at));
        text
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Decision> {
        self.decision.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hook for Stopwatch {
    fn rewrites(&self) -> bool {
        false
    }

    fn before(&self, point: Point, _pod: &Pod) {
        self.lock().steps.push((point, Instant::now(), None));
    }

    fn after(&self, point: Point, pod: &Pod, said: Result<(), &str>) {
        let now = Instant::now();
        let mut decision = self.lock();
        let step = decision.steps.iter_mut().rev();
        let open = step
            .into_iter()
            .find(|step| step.0 == point && step.2.is_none());
        // What began in another decision is not its time.
        let Some((_, from, to)) = open else {
            return;
        };
        *to = Some(now);
        let took = now.saturating_duration_since(*from);
        drop(decision);
        self.metrics
            .point_duration
            .get_or_create(&AtPoint {
                extension_point: name(point),
                status: if said.is_ok() {
                    "Success"
                } else {
                    "Unschedulable"
                },
                profile: pod.scheduler_name.clone(),
            })
            .observe(took.as_secs_f64());
    }
}

fn name(point: Point) -> &'static str {
    match point {
        Point::PreEnqueue => "PreEnqueue",
        Point::QueueSort => "QueueSort",
        Point::PreFilter => "PreFilter",
        Point::Filter => "Filter",
        Point::PostFilter => "PostFilter",
        Point::PreScore => "PreScore",
        Point::Score => "Score",
        Point::Reserve => "Reserve",
        Point::Permit => "Permit",
        Point::PreBind => "PreBind",
        Point::Bind => "Bind",
        Point::PostBind => "PostBind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_decision_is_told_with_its_steps() {
        let stopwatch = Stopwatch::new(Arc::new(Metrics::new()));
        let (begun, pod) = (Instant::now(), Pod::default());
        stopwatch.begin(begun);
        let pause = || std::thread::sleep(Duration::from_millis(3));
        pause();
        stopwatch.before(Point::PreFilter, &pod);
        pause();
        stopwatch.after(Point::PreFilter, &pod, Ok(()));
        pause();
        stopwatch.before(Point::Bind, &pod);
        pause();
        let text = stopwatch.tell(Instant::now());
        let steps: Vec<(&str, f64)> = text
            .split(", ")
            .map(|step| {
                let (name, time) = step.split_once(' ').unwrap();
                (name, time.strip_suffix("ms").unwrap().parse().unwrap())
            })
            .collect();
        let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["queue", "PreFilter", "between", "Bind", "rest"]);
        // What has not ended takes until now, so that nothing is left.
        assert!(steps[..4].iter().all(|(_, time)| *time >= 3.0), "{text}");
        assert_eq!(steps[4].1, 0.0, "{text}");
        // The next decision begins anew.
        stopwatch.begin(Instant::now());
        assert!(stopwatch.tell(Instant::now()).starts_with("rest"));
    }

    #[test]
    fn what_began_in_another_decision_is_not_measured() {
        let metrics = Arc::new(Metrics::new());
        let stopwatch = Stopwatch::new(metrics.clone());
        stopwatch.after(Point::Bind, &Pod::default(), Ok(()));
        assert!(!metrics.text().contains("extension_point=\"Bind\""));
        stopwatch.before(Point::Filter, &Pod::default());
        stopwatch.after(Point::Filter, &Pod::default(), Err("no"));
        let line = "extension_point=\"Filter\",status=\"Unschedulable\"";
        assert!(metrics.text().contains(line));
    }
}
