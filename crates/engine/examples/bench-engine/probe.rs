//! A probe that does what the probe of the scheduler's metrics does: it reads the clock before and after each point, books
//! the time into a histogram by point, status and profile, and counts the evaluations of each plugin.

#![expect(
    clippy::disallowed_methods,
    reason = "it reads the clock in place of a driver"
)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use engine::model::{Name, Pod};
use engine::scheduling::framework::{Point, Points, Status};
use engine::scheduling::hooks::{PointResult, Probe};

/// Upper bounds of the buckets, in seconds: kube-scheduler's for extension points.
const BUCKETS: [f64; 12] = [
    0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048,
];
const PLUGINS: usize = 64;

type Label = (Point, &'static str, Name);

#[derive(Default)]
struct Histogram {
    sum: f64,
    buckets: [u64; BUCKETS.len() + 1],
}

pub(crate) struct Timings {
    steps: Mutex<Vec<Step>>,
    durations: RwLock<HashMap<Label, Mutex<Histogram>>>,
    evaluations: [[AtomicU64; PLUGINS]; Point::ALL.len()],
}

struct Step {
    point: Point,
    uid: Name,
    from: Instant,
    to: Option<Instant>,
}

impl Timings {
    pub(crate) fn new() -> Self {
        Self {
            steps: Mutex::default(),
            durations: RwLock::default(),
            evaluations: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
        }
    }

    /// A decision begins.
    pub(crate) fn begin(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Step>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn book(&self, label: Label, took: Duration) {
        let seconds = took.as_secs_f64();
        let known = self.durations.read();
        if let Some(histogram) = known.unwrap_or_else(PoisonError::into_inner).get(&label) {
            let mut histogram = histogram.lock().unwrap_or_else(PoisonError::into_inner);
            histogram.sum += seconds;
            let bucket = BUCKETS.partition_point(|bound| *bound < seconds);
            histogram.buckets[bucket] += 1;
            return;
        }
        let new = self.durations.write();
        let mut new = new.unwrap_or_else(PoisonError::into_inner);
        new.entry(label.clone()).or_default();
        drop(new);
        self.book(label, took);
    }
}

impl Probe for Timings {
    fn points(&self) -> Points {
        Points::ALL.without(Point::QueueSort).without(Point::Bind)
    }

    fn before(&self, point: Point, pod: &Pod) {
        self.lock().push(Step {
            point,
            uid: pod.uid.clone(),
            from: Instant::now(),
            to: None,
        });
    }

    fn evaluated(&self, point: Point, _: &Pod, plugins: &[(usize, usize)]) {
        for (plugin, nodes) in plugins {
            if let Some(count) = self.evaluations[point as usize].get(*plugin) {
                count.fetch_add(*nodes as u64, Ordering::Relaxed);
            }
        }
    }

    fn after(&self, point: Point, pod: &Pod, result: &PointResult) {
        let now = Instant::now();
        let mut steps = self.lock();
        let mut open = steps.iter_mut().rev();
        let open = open.find(|it| it.point == point && it.uid == pod.uid && it.to.is_none());
        let Some(step) = open else {
            return;
        };
        step.to = Some(now);
        let took = now.saturating_duration_since(step.from);
        drop(steps);
        let status = match result {
            PointResult::Success => "Success",
            PointResult::Wait => "Wait",
            PointResult::Rejected(rejection) => match rejection.status {
                Status::Error => "Error",
                Status::Unschedulable => "Unschedulable",
                Status::Unresolvable => "UnschedulableAndUnresolvable",
                Status::Pending => "Pending",
            },
        };
        self.book((point, status, pod.scheduler_name.clone()), took);
    }
}
