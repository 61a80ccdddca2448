//! Durations of extension points, and evaluations of plugins.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::model::{Name, Pod};
use engine::scheduling::framework::{Point, Points, Status};
use engine::scheduling::hooks::{PointResult, Probe};
use engine::scheduling::profile::Profile;
use prometheus_client::metrics::counter::Counter;

use crate::scheduler::observe::metrics::{EvaluationLabels, Metrics, PointLabels, ProfileName};

/// The points at which kube-scheduler counts plugins.
const COUNTED: [Point; 4] = [
    Point::PreFilter,
    Point::Filter,
    Point::PreScore,
    Point::Score,
];
/// Their PostFilter is an attempt to preempt. A profile has one of them.
const PREEMPTION: [&str; 2] = ["DefaultPreemption", "QoSAwarePreemption"];

/// Measures the extension points of the current decision, and counts evaluations.
pub(crate) struct Timings {
    metrics: Arc<Metrics>,
    profiles: Vec<EvaluationCounters>,
    decision: Mutex<Decision>,
}

/// The counters of one profile.
struct EvaluationCounters {
    name: ProfileName,
    /// For each point of [`COUNTED`]: the counters by plugin index; `None` for plugins that are not enabled there.
    points: [Vec<Option<Counter>>; 4],
    /// The indexes of the preemption plugins.
    preemption: Vec<usize>,
}

struct Decision {
    begun: Instant,
    /// Whether a decision is in progress. Pods are queued between decisions, too.
    is_on: bool,
    steps: Vec<Step>,
    /// The start of Unreserve.
    unreserves: Option<Instant>,
}

struct Step {
    point: Point,
    uid: Name,
    from: Instant,
    to: Option<Instant>,
}

impl Decision {
    /// The pod's unfinished step.
    fn open(&mut self, point: Point, pod: &Pod) -> Option<&mut Step> {
        let mut steps = self.steps.iter_mut().rev();
        steps.find(|it| it.point == point && it.uid == pod.uid && it.to.is_none())
    }
}

impl EvaluationCounters {
    fn new(metrics: &Metrics, profile: &Profile) -> Self {
        let name = &profile.scheduler_name;
        let at = |point: Point| {
            let plugins = profile.plugins().iter().enumerate();
            let counters = plugins.map(|(index, plugin)| {
                // A plugin that never runs is shown as 0, as in kube-scheduler.
                profile.at(point).contains(&index).then(|| {
                    metrics.evaluations.get_or_create_owned(&EvaluationLabels {
                        plugin: plugin.name,
                        extension_point: label(point),
                        profile: name.clone(),
                    })
                })
            });
            counters.collect()
        };
        let preempts = |index: &usize| PREEMPTION.contains(&profile.plugins()[*index].name);
        let post_filter = profile.at(Point::PostFilter).iter().copied();
        Self {
            name: name.clone(),
            points: COUNTED.map(at),
            preemption: post_filter.filter(preempts).collect(),
        }
    }
}

impl Timings {
    pub(crate) fn new(metrics: Arc<Metrics>, profiles: &[Profile]) -> Self {
        let counters = profiles
            .iter()
            .map(|it| EvaluationCounters::new(&metrics, it));
        Self {
            profiles: counters.collect(),
            decision: Mutex::new(Decision {
                begun: Instant::now(),
                is_on: false,
                steps: Vec::new(),
                unreserves: None,
            }),
            metrics,
        }
    }

    pub(crate) fn begin(&self, at: Instant) {
        let mut decision = self.lock();
        decision.begun = at;
        decision.is_on = true;
        decision.steps.clear();
    }

    pub(crate) fn end(&self) {
        let mut decision = self.lock();
        decision.is_on = false;
        decision.steps.clear();
    }

    /// `queue 0.1ms, PreFilter 3.2ms, ...`, and the rest after the last step.
    pub(crate) fn describe(&self, end: Instant) -> String {
        let decision = self.lock();
        let mut text = String::new();
        let mut at = decision.begun;
        let mut add = |step: &str, time: Duration| {
            let comma = if text.is_empty() { "" } else { ", " };
            text += &format!("{comma}{step} {:.1}ms", time.as_secs_f64() * 1_000.0);
        };
        for (index, step) in decision.steps.iter().enumerate() {
            let gap = step.from.saturating_duration_since(at);
            if index == 0 {
                add("queue", gap);
            } else if gap > Duration::from_millis(1) {
                add("between", gap);
            }
            let to = step.to.unwrap_or(end);
            let took = to.saturating_duration_since(step.from);
            add(label(step.point), took);
            at = to;
        }
        add("rest", end.saturating_duration_since(at));
        text
    }

    fn took(&self, extension_point: &'static str, status: &'static str, pod: &Pod, time: Duration) {
        let at = PointLabels {
            extension_point,
            status,
            profile: pod.scheduler_name.clone(),
        };
        let duration = self.metrics.point_duration.get_or_create(&at);
        duration.observe(time.as_secs_f64());
    }

    fn lock(&self) -> MutexGuard<'_, Decision> {
        self.decision.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Probe for Timings {
    /// The executor measures Bind.
    fn points(&self) -> Points {
        Points::ALL.without(Point::QueueSort).without(Point::Bind)
    }

    fn before(&self, point: Point, pod: &Pod) {
        let mut decision = self.lock();
        if !decision.is_on {
            // Only the last step is kept.
            decision.steps.clear();
        }
        decision.steps.push(Step {
            point,
            uid: pod.uid.clone(),
            from: Instant::now(),
            to: None,
        });
    }

    fn evaluated(&self, point: Point, pod: &Pod, plugins: &[(usize, usize)]) {
        if point == Point::PreBind {
            // kube-scheduler has an extension point of its own for this check.
            let status = if plugins.is_empty() {
                "Skip"
            } else {
                "Success"
            };
            let since = self.lock().open(point, pod).map(|step| step.from);
            if let Some(since) = since {
                self.took("PreBindPreFlight", status, pod, since.elapsed());
            }
            return;
        }
        let mut profiles = self.profiles.iter();
        let Some(profile) = profiles.find(|it| it.name == pod.scheduler_name) else {
            return;
        };
        if point == Point::PostFilter {
            let preempts = |(index, _): &(usize, usize)| profile.preemption.contains(index);
            if plugins.iter().any(preempts) {
                self.metrics.preemption_attempts.inc();
            }
            return;
        }
        let Some(at) = COUNTED.iter().position(|it| *it == point) else {
            return;
        };
        for (index, nodes) in plugins {
            if let Some(Some(counter)) = profile.points[at].get(*index) {
                counter.inc_by(*nodes as u64);
            }
        }
    }

    fn after(&self, point: Point, pod: &Pod, result: &PointResult) {
        let now = Instant::now();
        let mut decision = self.lock();
        // A step of another decision is measured elsewhere.
        let Some(step) = decision.open(point, pod) else {
            return;
        };
        step.to = Some(now);
        let took = now.saturating_duration_since(step.from);
        drop(decision);
        self.took(label(point), status(point, result), pod, took);
    }

    fn before_unreserve(&self, _: &Pod) {
        self.lock().unreserves = Some(Instant::now());
    }

    fn after_unreserve(&self, pod: &Pod) {
        if let Some(since) = self.lock().unreserves.take() {
            self.took("Unreserve", "Success", pod, since.elapsed());
        }
    }
}

/// The name of a status, as kube-scheduler labels it.
fn status(point: Point, result: &PointResult) -> &'static str {
    match result {
        PointResult::Success => "Success",
        PointResult::Wait => "Wait",
        // A filter without a node has not failed, and a gated pod is not counted here.
        PointResult::Rejected(no) if point == Point::Filter && !no.is_failure() => "Success",
        PointResult::Rejected(_) if point == Point::PreEnqueue => "Success",
        PointResult::Rejected(no) => match no.status {
            Status::Error => "Error",
            Status::Unschedulable => "Unschedulable",
            Status::Unresolvable => "UnschedulableAndUnresolvable",
            Status::Pending => "Pending",
        },
    }
}

fn label(point: Point) -> &'static str {
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
    use engine::scheduling::framework::Rejection;

    use super::*;

    fn timings() -> (Timings, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::new());
        (Timings::new(metrics.clone(), &[]), metrics)
    }

    fn pod(uid: &str) -> Pod {
        Pod {
            uid: uid.into(),
            ..Pod::default()
        }
    }

    #[test]
    fn a_slow_decision_is_logged_with_its_steps() {
        let (timings, _) = timings();
        let pod = pod("a");
        timings.begin(Instant::now());
        let pause = || std::thread::sleep(Duration::from_millis(3));
        pause();
        timings.before(Point::PreFilter, &pod);
        pause();
        timings.after(Point::PreFilter, &pod, &PointResult::Success);
        pause();
        timings.before(Point::PreBind, &pod);
        pause();
        let text = timings.describe(Instant::now());
        let steps: Vec<(&str, f64)> = text
            .split(", ")
            .map(|step| {
                let (name, time) = step.split_once(' ').unwrap();
                (name, time.strip_suffix("ms").unwrap().parse().unwrap())
            })
            .collect();
        let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["queue", "PreFilter", "between", "PreBind", "rest"]);
        // An unfinished step lasts until now, so that no rest is left.
        assert!(steps[..4].iter().all(|(_, time)| *time >= 3.0), "{text}");
        assert_eq!(steps[4].1, 0.0, "{text}");
        // The next decision begins anew.
        timings.begin(Instant::now());
        assert!(timings.describe(Instant::now()).starts_with("rest"));
    }

    #[test]
    fn a_step_of_another_decision_is_not_measured() {
        let (timings, metrics) = timings();
        let (a, b) = (pod("a"), pod("b"));
        timings.begin(Instant::now());
        timings.before(Point::PreBind, &a);
        timings.after(Point::PreBind, &b, &PointResult::Success);
        timings.end();
        timings.after(Point::PreBind, &a, &PointResult::Success);
        assert!(!metrics.text().contains("extension_point=\"PreBind\""));
    }

    #[test]
    fn pre_bind_pre_flight_is_measured() {
        let (timings, metrics) = timings();
        for (uid, plugins) in [("a", &[][..]), ("b", &[(0, 1)]), ("c", &[(0, 1)])] {
            timings.before(Point::PreBind, &pod(uid));
            timings.evaluated(Point::PreBind, &pod(uid), plugins);
        }
        for (status, count) in [("Skip", 1), ("Success", 2)] {
            let line = format!(
                "extension_point_duration_seconds_count{{extension_point=\"PreBindPreFlight\",status=\"{status}\",profile=\"\"}} {count}"
            );
            assert!(metrics.text().contains(&line), "{}", metrics.text());
        }
        assert!(!metrics.text().contains("extension_point=\"PreBind\""));
    }

    #[test]
    fn pods_that_are_queued_between_decisions_leave_no_steps() {
        let (timings, metrics) = timings();
        for uid in ["a", "b", "c"] {
            timings.before(Point::PreEnqueue, &pod(uid));
            timings.after(Point::PreEnqueue, &pod(uid), &PointResult::Success);
        }
        assert_eq!(timings.lock().steps.len(), 1);
        let line = "extension_point_duration_seconds_count{extension_point=\"PreEnqueue\",status=\"Success\",profile=\"\"} 3";
        assert!(metrics.text().contains(line), "{}", metrics.text());
    }

    #[test]
    fn statuses_are_kube_schedulers() {
        let no = |status| PointResult::Rejected(Rejection::new(status, "no"));
        for (point, result, want) in [
            (Point::PreFilter, PointResult::Success, "Success"),
            (Point::Permit, PointResult::Wait, "Wait"),
            (Point::Filter, no(Status::Unschedulable), "Success"),
            (Point::Filter, no(Status::Error), "Error"),
            (Point::PreEnqueue, no(Status::Unresolvable), "Success"),
            (
                Point::PostFilter,
                no(Status::Unschedulable),
                "Unschedulable",
            ),
            (
                Point::PreFilter,
                no(Status::Unresolvable),
                "UnschedulableAndUnresolvable",
            ),
            (Point::Reserve, no(Status::Pending), "Pending"),
        ] {
            assert_eq!(status(point, &result), want, "{point:?}");
        }
    }
}
