//! What people are told of decisions: conditions of pods, nominations and events.
//!
//! Without a leadership nobody is told anything: another may lead, and it has its own view.

use std::sync::Arc;
use std::time::Instant;

use engine::model::{Name, Pod};
use engine::scheduler::{Failure, FailureReason, Nomination};

use super::{CarryOut, MENTION, MOST_HELD};
use crate::election::leadership;
use crate::scheduler::observe::metrics;
use crate::scheduler::pods::Note;
use crate::scheduler::write::events::{About, Report, What};
use crate::scheduler::write::requests::Call;
use crate::scheduler::write::status::{self, Why};
use crate::scheduler::{Counters, Mode};
use crate::watch::{Unreadable, Whom};

impl CarryOut {
    pub(super) fn tell_failure(&mut self, failure: &Failure) {
        let pod = &failure.pod;
        if failure.message.ends_with(leadership::OVER) {
            // About us, not about the pod; the leadership may be back by now.
            return self.patch(pod, None, &failure.nomination);
        }
        self.record(
            pod.clone(),
            self.version(pod),
            What::FailedScheduling,
            failure.message.clone(),
        );
        let why = Why {
            reason: failure.reason.text(),
            message: &failure.message,
        };
        self.patch(pod, Some(why), &failure.nomination);
    }

    /// Said at once if we may write, and later otherwise.
    pub(super) fn hold(&mut self, complaint: Unreadable) {
        if self.held.len() < MOST_HELD {
            self.held.push(complaint);
        }
        self.tell_held();
    }

    pub(super) fn tell_held(&mut self) {
        if self.mode != Mode::Observe && self.may_tell() {
            for complaint in std::mem::take(&mut self.held) {
                self.tell_unreadable(complaint);
            }
        }
    }

    fn may_tell(&self) -> bool {
        self.writer.leadership.left().is_some()
    }

    fn tell_unreadable(&mut self, complaint: Unreadable) {
        match complaint.whom {
            Whom::Nobody => {}
            Whom::Pod(pod, note) => self.tell_of_pod(pod, note, complaint.text),
            Whom::Report(name, uid, version) => self.report(Report {
                about: About::Report(name, uid),
                version,
                scheduler: self.notes.first(),
                what: What::Misreported,
                note: complaint.text,
            }),
        }
    }

    /// The pod cannot be scheduled, and whoever made it should know why.
    fn tell_of_pod(&mut self, pod: Arc<Pod>, note: Note, text: String) {
        if !self.notes.is_ours(&pod.scheduler_name) {
            return;
        }
        let version = note.version.clone();
        self.notes.set(&pod.uid, note);
        self.record(pod.clone(), version, What::FailedScheduling, text.clone());
        let why = Why {
            reason: FailureReason::SchedulerError.text(),
            message: &text,
        };
        self.patch(&pod, Some(why), &Nomination::Keep);
    }

    pub(super) fn nominate(&mut self, pod: &Arc<Pod>, node: Name) {
        self.patch(pod, None, &Nomination::Set(node));
    }

    pub(super) fn patch(&mut self, pod: &Arc<Pod>, why: Option<Why>, nomination: &Nomination) {
        if !self.may_tell() {
            return;
        }
        let mut note = self.notes.get(&pod.uid);
        let now = jiff::Timestamp::now();
        let Some(call) = status::patch(pod, &mut note, why, nomination, now) else {
            return;
        };
        self.notes.update(&pod.uid, note);
        self.line.patch(pod.clone(), call, Instant::now());
    }

    pub(super) fn record(&mut self, pod: Arc<Pod>, version: Name, what: What, text: String) {
        let report = Report {
            version,
            scheduler: pod.scheduler_name.clone(),
            about: About::Pod(pod),
            what,
            note: text,
        };
        self.report(report);
    }

    pub(super) fn count_event(&self, result: &'static str) {
        self.metrics
            .events
            .get_or_create(&metrics::Outcome { result })
            .inc();
    }

    pub(super) fn report(&mut self, report: Report) {
        if !self.may_tell() {
            return;
        }
        let now = Instant::now();
        let call: Option<Call> = self.recorder.record(report, now, jiff::Timestamp::now());
        let Some(call) = call else {
            return;
        };
        if self.line.event(call, now) {
            return;
        }
        Counters::add(&self.counters.events_dropped);
        self.count_event("dropped");
        let lately = |at: Instant| now.duration_since(at) < MENTION;
        if !self.mentioned.is_some_and(lately) {
            self.mentioned = Some(now);
            tracing::warn!("too many events wait to be written: the oldest are dropped");
        }
    }
}
