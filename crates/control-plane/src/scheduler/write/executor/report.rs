//! Conditions, nominations and events about decisions.
//!
//! Nothing is written while this process is not the leader: another replica may lead and decide otherwise.

use std::sync::Arc;
use std::time::Instant;

use engine::model::{Name, Pod};
use engine::scheduling::scheduler::{Failure, FailureReason, Nomination, Outcome};

use super::{Executor, MAX_DEFERRED, WARN_EVERY};
use crate::scheduler::kinds::{EventTarget, InvalidObject};
use crate::scheduler::observe::metrics;
use crate::scheduler::pods::PendingPod;
use crate::scheduler::write::bind::{BindOutcome, BindResult};
use crate::scheduler::write::events::{EventObject, EventReason, NewEvent};
use crate::scheduler::write::requests::Call;
use crate::scheduler::write::status::{self, Unscheduled};
use crate::scheduler::{Counters, Mode};

impl Executor {
    pub(super) fn report_failure(&mut self, failure: &Failure) {
        let pod = &failure.pod;
        if self.not_leader.remove(&pod.uid) {
            // No failure of the pod; this process may be the leader again by now.
            return self.patch(pod, None, &failure.nomination);
        }
        let pending = self.pods.get(&pod.uid);
        self.record(NewEvent {
            is_repeated: pending.is_unschedulable(),
            version: pending.version,
            scheduler: pod.scheduler_name.clone(),
            object: EventObject::Pod(pod.clone()),
            reason: EventReason::FailedScheduling,
            note: failure.message.clone(),
        });
        let unscheduled = Unscheduled {
            reason: failure.reason.text(),
            message: &failure.message,
        };
        self.patch(pod, Some(unscheduled), &failure.nomination);
    }

    /// Whether the condition of the pod already says so.
    pub(super) fn is_known(&self, outcome: &Outcome) -> bool {
        let Outcome::Park(failure) = outcome else {
            return false;
        };
        let pending = self.pods.get(&failure.pod.uid);
        pending.has_condition(failure.reason.text(), &failure.message)
    }

    /// Writes the event now if this process is the leader, and later otherwise.
    pub(super) fn defer(&mut self, problem: InvalidObject) {
        if self.deferred.len() < MAX_DEFERRED {
            self.deferred.push(problem);
        }
        self.write_deferred();
    }

    pub(super) fn write_deferred(&mut self) {
        if self.mode != Mode::Observe && self.may_write() {
            for problem in std::mem::take(&mut self.deferred) {
                self.report_invalid(problem);
            }
        }
    }

    fn may_write(&self) -> bool {
        self.writer.leadership.left().is_some()
    }

    fn report_invalid(&mut self, problem: InvalidObject) {
        match problem.event {
            EventTarget::None => {}
            EventTarget::Pod(pod, pending) => {
                self.report_invalid_pod(pod, pending, problem.message);
            }
            EventTarget::Report(name, uid, version) => self.record(NewEvent {
                object: EventObject::Report(name, uid),
                version,
                scheduler: self.pods.first(),
                reason: EventReason::InvalidReport,
                note: problem.message,
                is_repeated: false,
            }),
        }
    }

    /// The pod cannot be scheduled because it cannot be read.
    fn report_invalid_pod(&mut self, pod: Arc<Pod>, pending: PendingPod, text: String) {
        if !self.pods.is_ours(&pod.scheduler_name) {
            return;
        }
        let version = pending.version.clone();
        self.pods.set(&pod.uid, pending);
        self.record_pod_event(
            pod.clone(),
            version,
            EventReason::FailedScheduling,
            text.clone(),
        );
        let unscheduled = Unscheduled {
            reason: FailureReason::SchedulerError.text(),
            message: &text,
        };
        self.patch(&pod, Some(unscheduled), &Nomination::Keep);
    }

    pub(super) fn nominate(&mut self, pod: &Arc<Pod>, node: Name) {
        self.patch(pod, None, &Nomination::Set(node));
    }

    pub(super) fn patch(
        &mut self,
        pod: &Arc<Pod>,
        unscheduled: Option<Unscheduled>,
        nomination: &Nomination,
    ) {
        if !self.may_write() {
            return;
        }
        let mut pending = self.pods.get(&pod.uid);
        let was_unschedulable = pending.is_unschedulable();
        let nominated = pending.nominated.clone();
        let now = jiff::Timestamp::now();
        let Some(call) = status::patch(pod, &mut pending, unscheduled, nomination, now) else {
            return;
        };
        let is_repeated = was_unschedulable && pending.nominated == nominated;
        self.pods.update(&pod.uid, pending);
        if is_repeated {
            self.queue.patch_again(pod.clone(), call);
        } else if self.queue.patch(pod.clone(), call, Instant::now()) {
            // The message that waited is lost: write it again after the next failure.
            self.pods.forget_condition(&pod.uid);
        }
    }

    pub(super) fn record_pod_event(
        &mut self,
        pod: Arc<Pod>,
        version: Name,
        reason: EventReason,
        text: String,
    ) {
        let report = NewEvent {
            version,
            scheduler: pod.scheduler_name.clone(),
            object: EventObject::Pod(pod),
            reason,
            note: text,
            is_repeated: false,
        };
        self.record(report);
    }

    /// Counts a bind by its result, with its duration.
    pub(super) fn measure(&self, pod: &Pod, result: &BindResult) {
        let (label, status) = match &result.bound {
            BindOutcome::Done => ("bound", "Success"),
            BindOutcome::Elsewhere(_) => ("elsewhere", "Error"),
            BindOutcome::Gone => ("gone", "Error"),
            BindOutcome::Conflict(_) => ("conflict", "Error"),
            BindOutcome::Refused(_) | BindOutcome::NotLeader => ("refused", "Error"),
        };
        self.metrics
            .binds
            .get_or_create(&metrics::ResultLabel { result: label })
            .inc();
        self.time("Bind", status, pod, result.took);
    }

    pub(super) fn count_event(&self, result: &'static str) {
        self.metrics
            .events
            .get_or_create(&metrics::ResultLabel { result })
            .inc();
    }

    pub(super) fn record(&mut self, report: NewEvent) {
        if !self.may_write() {
            return;
        }
        let now = Instant::now();
        let call: Option<Call> = self.recorder.record(report, now, jiff::Timestamp::now());
        let Some(call) = call else {
            return;
        };
        if self.queue.event(call, now) {
            return;
        }
        Counters::add(&self.counters.events_dropped);
        self.count_event("dropped");
        let lately = |at: Instant| now.duration_since(at) < WARN_EVERY;
        if !self.warned.is_some_and(lately) {
            self.warned = Some(now);
            tracing::warn!("too many events are waiting; dropping the oldest");
        }
    }
}
