//! The path of a pod through the scheduler. Start here, then read `cycle.rs`.
//!
//! A driver reports what happened ([`Scheduler::apply`]), carries out the next instruction
//! ([`Scheduler::schedule_next`]), and waits if there is none ([`Scheduler::idle_until`]). The scheduler makes one decision
//! at a time, on the observed cluster state. A pod that got a node uses capacity there from then on. If the driver reports
//! a failure, the pod releases the capacity and waits again. A pod is always in the queue, in its binding cycle, or gone.

mod binding;
mod cycle;
mod decide;
mod event_hooks;
mod explain;
mod extenders;
mod inputs;
mod known_rejections;
mod permit;
mod post_filter;
mod priority;
mod scores;
#[cfg(test)]
mod tests;
mod zones;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use indexmap::IndexMap;

pub use crate::scheduling::instructions::{
    Annotations, Binder, Failure, FailureReason, Input, Nomination, Outcome, PermitVerdict,
};
pub use cycle::{Cycle, CycleResult};
pub use explain::{
    AttemptReport, CandidateReport, Decision, ExtenderReport, HeldBy, NodeReport, PodReport,
    PodState, PreemptionReport, UnhelpfulReport,
};
pub use post_filter::PostFilterResult;
pub use scores::{NodeScores, ScoreCountError, Scores, score_count};
pub use zones::ZonesReport;

use crate::cluster::Cluster;
pub use crate::scheduling::evaluate::{NodeAmount, Shortage};
pub use crate::scheduling::preemption::PreemptionOutcome;

use crate::model::{Name, Pod, Timestamp};
use crate::scheduling::evaluate::{Cursor, Diagnosis};
use crate::scheduling::event_hooks::EventHooks;
use crate::scheduling::extender::Extender;
use crate::scheduling::framework::{Event, Rejection, Status};
use crate::scheduling::hooks::Hooks;
use crate::scheduling::profile::{Profile, Profiles, ProfilesError, Unoffered};
use crate::scheduling::queue::{
    Attempt, Audience, Cause, Queue, Rejectors, Sizes, SubQueue, Ticket, Timing, World,
};
use binding::{BindingCycle, Wait};
use extenders::Conversation;
use known_rejections::KnownRejections;
use post_filter::Preempting;

/// The settings of a scheduler besides its profiles.
#[derive(Clone, Default)]
pub struct Settings {
    pub timing: Timing,
    /// Ignorable extenders after the others; each group in its order.
    pub extenders: Vec<Extender>,
    pub hooks: Hooks,
    pub event_hooks: EventHooks,
    /// How to choose among the best nodes.
    pub cursor: Cursor,
    /// For tests: panics after a step if [`Scheduler::check`] fails.
    pub checks_itself: bool,
}

pub struct Scheduler {
    cluster: Cluster,
    queue: Queue,
    profiles: Profiles,
    extenders: Arc<[Extender]>,
    event_hooks: EventHooks,
    /// Which of the best nodes is next.
    cursor: Cursor,
    /// Pods that have a node and that the API server does not show there yet.
    binding: IndexMap<Name, BindingCycle>,
    /// When the time of pods that Permit holds is over.
    held: BTreeSet<(Timestamp, Name, &'static str)>,
    /// The extender calls of the pod that is being scheduled.
    conversation: Option<Conversation>,
    preempting: Preempting,
    /// Pods whose nomination by this scheduler the API server does not show yet.
    unconfirmed: BTreeSet<Name>,
    known_rejections: KnownRejections,
    /// Cycles that ran.
    evaluations: u64,
    /// Whether there ever was a pod without a priority.
    has_open_priorities: bool,
    /// Instructions for the driver.
    ready: VecDeque<Outcome>,
    /// The latest answers of extenders, for explanations.
    extender_reports: VecDeque<(Name, Vec<ExtenderReport>)>,
    /// The number of nodes in a score table.
    show_scores: u16,
    /// The score table of the last decision.
    scores: Option<Box<Scores>>,
    checks_itself: bool,
}

impl Scheduler {
    pub fn new(profiles: Vec<Profile>, settings: Settings) -> Result<Self, ProfilesError> {
        Ok(Self {
            cluster: Cluster::new(),
            queue: Queue::new(settings.timing),
            profiles: Profiles::new(profiles)?.with_hooks(settings.hooks),
            extenders: settings.extenders.into(),
            event_hooks: settings.event_hooks,
            cursor: settings.cursor,
            binding: IndexMap::new(),
            held: BTreeSet::new(),
            conversation: None,
            preempting: Preempting::default(),
            unconfirmed: BTreeSet::new(),
            known_rejections: KnownRejections::default(),
            evaluations: 0,
            has_open_priorities: false,
            ready: VecDeque::new(),
            extender_reports: VecDeque::new(),
            show_scores: 0,
            scores: None,
            checks_itself: settings.checks_itself,
        })
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// Resources that the configuration names and no node has; empty while there are no nodes.
    pub fn unoffered(&self) -> Vec<Unoffered> {
        match self.cluster.nodes().is_empty() {
            true => Vec::new(),
            false => Unoffered::among(self.profiles.iter(), &self.cluster.catalog().offered()),
        }
    }

    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// A pod that waits or is being scheduled, with its history.
    pub fn waiting(&self, uid: &str) -> Option<&Ticket> {
        self.queue.get(uid)
    }

    /// The pod that waits longest. Goes through all of them.
    pub fn oldest(&self) -> Option<&Ticket> {
        self.queue.oldest()
    }

    /// The history of a pod that waits, is being scheduled, or is in its binding cycle.
    pub fn ticket(&self, uid: &str) -> Option<&Ticket> {
        let binding = self.binding.get(uid).and_then(BindingCycle::ticket);
        binding.or_else(|| self.queue.get(uid))
    }

    /// How many pods wait, and where.
    pub fn sizes(&self) -> Sizes {
        self.queue.sizes()
    }

    /// How many pods are in their binding cycle.
    pub fn assumed_pods(&self) -> usize {
        self.binding.len()
    }

    /// How often pods entered each part of the queue, and why, since the last call.
    pub fn take_arrivals(&mut self) -> Vec<(SubQueue, Cause, u64)> {
        self.queue.take_arrivals()
    }

    /// Decisions since the start that evaluated the cluster, and those whose rejection was known from an equal pod.
    pub fn evaluations(&self) -> (u64, u64) {
        (self.evaluations, self.known_rejections.answered())
    }

    /// The next instruction; `None` if there is nothing to do until [`Scheduler::idle_until`] or the next input.
    pub fn schedule_next(&mut self, now: Timestamp) -> Option<Outcome> {
        let outcome = self.next_outcome(now);
        self.check_if_wanted();
        outcome
    }

    fn next_outcome(&mut self, now: Timestamp) -> Option<Outcome> {
        self.expire_permits(now);
        loop {
            if let Some(outcome) = self.ready.pop_front() {
                return Some(outcome);
            }
            let pod = self.next_pod(now)?;
            if pod.kind.terminating || self.cluster.placed(&pod.uid).is_some() {
                self.drop_pod(pod, now);
                continue;
            }
            match self.decide(&pod, now) {
                Ok(CycleResult::Node { slot, .. }) => self.commit(pod, slot, now),
                Ok(CycleResult::NoNode {
                    diagnosis,
                    post_filter,
                }) => self.park(pod, diagnosis, post_filter, now),
                Ok(CycleResult::Ask(questions)) => {
                    self.ready.push_back(Outcome::Ask { pod, questions });
                }
                Err(failure) => self.fail(failure, now),
            }
        }
    }

    /// When there is something to do without an input; `None` if never.
    pub fn idle_until(&self, now: Timestamp) -> Option<Timestamp> {
        if !self.ready.is_empty()
            || self
                .conversation
                .as_ref()
                .is_some_and(Conversation::is_answered)
        {
            return Some(now);
        }
        let permits = self.held.first().map(|(until, ..)| *until);
        let queue = match self.conversation {
            Some(_) => None,
            None => self.queue.due(now),
        };
        permits.into_iter().chain(queue).min()
    }

    /// The next pod to schedule: the one whose extenders answered, or the first of the queue.
    fn next_pod(&mut self, now: Timestamp) -> Option<Arc<Pod>> {
        if let Some(conversation) = &self.conversation {
            match self.queue.get(&conversation.uid) {
                Some(_) if !conversation.is_answered() => return None,
                Some(ticket) => return Some(ticket.pod.clone()),
                None => self.conversation = None,
            }
        }
        let world = world(&self.profiles, &self.cluster, now);
        Some(self.queue.pop(world)?.pod.clone())
    }

    /// The pod needs no node: it is being deleted, or it has one.
    fn drop_pod(&mut self, pod: Arc<Pod>, now: Timestamp) {
        self.conversation = None;
        let world = world(&self.profiles, &self.cluster, now);
        self.queue.remove(&pod.uid, world);
        if pod.kind.terminating {
            let message = format!(
                "skip schedule deleting pod: {}/{}",
                pod.namespace(),
                pod.name
            );
            self.ready.push_back(Outcome::Skip { pod, message });
        }
    }

    /// No node fits: the pod waits again, possibly for a preemption.
    fn park(
        &mut self,
        pod: Arc<Pod>,
        diagnosis: Diagnosis,
        post_filter: PostFilterResult,
        now: Timestamp,
    ) {
        let failure = Failure::no_node(pod, &diagnosis, &post_filter);
        match post_filter.candidate {
            Some(candidate) => self.preempt(failure, candidate, now),
            None => self.fail(failure, now),
        }
    }

    /// Puts the pod back into the queue and reports the failure. Does nothing if the pod is gone.
    fn fail(&mut self, failure: Failure, now: Timestamp) {
        if self.wait_again(&failure, &[], None, now) {
            self.ready.push_back(Outcome::Park(failure));
        }
    }

    /// Returns false if the pod is gone. `ticket` is that of a pod that already left the queue.
    fn wait_again(
        &mut self,
        failure: &Failure,
        victims: &[Arc<Pod>],
        ticket: Option<Ticket>,
        now: Timestamp,
    ) -> bool {
        let uid = failure.pod.uid.clone();
        let Some(known) = ticket.as_ref().or(self.queue.get(&uid)) else {
            return false;
        };
        let known = known.pod.clone();
        // Its class may have changed during the binding cycle.
        let known = self.with_priority(known);
        let pod = self.nominate(&known, &failure.nomination);
        let rejectors = Rejectors {
            plugins: failure.rejected_by.clone(),
            pending: failure.pending.clone(),
            is_unresolvable: failure.is_unresolvable,
            is_conflict: failure.is_conflict,
        };
        let attempt = Arc::new(Attempt {
            at: now,
            reason: failure.reason.text(),
            message: failure.message.clone(),
            post_filter_at: failure.post_filter_at,
            evicted: victims.iter().map(full_name).collect(),
        });
        let world = world(&self.profiles, &self.cluster, now);
        match ticket {
            Some(mut ticket) => {
                ticket.pod = pod;
                ticket.last = Some(attempt);
                self.queue.take_back(ticket, rejectors, world);
            }
            None => {
                self.queue.rewrite(pod);
                self.queue.note(&uid, attempt);
                self.queue.give_back(&uid, rejectors, world);
            }
        }
        true
    }

    /// Records a nomination and returns the pod with it.
    fn nominate(&mut self, pod: &Arc<Pod>, nomination: &Nomination) -> Arc<Pod> {
        let node = match nomination {
            Nomination::Keep => pod.nominated_node.clone(),
            Nomination::Clear => None,
            Nomination::Set(node) => Some(node.clone()),
        };
        let pod = match *nomination {
            Nomination::Keep => pod.clone(),
            _ => Arc::new(Pod {
                nominated_node: node.clone(),
                ..(**pod).clone()
            }),
        };
        match (nomination, node) {
            (_, None) => {
                self.unconfirmed.remove(&pod.uid);
                self.cluster.remove_nomination(&pod.uid);
            }
            (kind, Some(node)) => {
                if matches!(kind, Nomination::Set(_)) {
                    self.unconfirmed.insert(pod.uid.clone());
                }
                // A pod without uid, or one that is placed, cannot have been in the queue.
                let _ = self.cluster.nominate(pod.clone(), node);
            }
        }
        pod
    }

    fn notify(&mut self, events: &[Event], audience: &Audience, now: Timestamp) {
        for event in events {
            let world = world(&self.profiles, &self.cluster, now);
            self.queue.notify(event, audience, world);
        }
    }

    fn check_if_wanted(&self) {
        if self.checks_itself {
            assert_eq!(self.check(), Ok(()));
        }
    }

    /// Checks that every pod is where it should be, and that every count follows from the objects. For tests; slow.
    pub fn check(&self) -> Result<(), String> {
        self.queue.check()?;
        self.cluster.check().map_err(|error| error.to_string())?;
        let mut held = 0;
        for (uid, binding) in &self.binding {
            held += binding.waits().len();
            let known =
                |(plugin, until, _): &Wait| self.held.contains(&(*until, uid.clone(), *plugin));
            if !binding.waits().iter().all(known) {
                return Err(format!("pod {uid} waits at Permit without a deadline"));
            }
            let assumed = self
                .cluster
                .placed(uid)
                .is_some_and(|placed| placed.assumed);
            if !assumed {
                return Err(format!("pod {uid} is in its binding cycle and not assumed"));
            }
            if self.queue.get(uid).is_some() != binding.is_waiting() {
                return Err(format!(
                    "pod {uid} is in its binding cycle and in the queue"
                ));
            }
        }
        if held != self.held.len() {
            return Err("a pod that does not wait at Permit has a deadline".to_owned());
        }
        Ok(())
    }
}

fn world<'a>(profiles: &'a Profiles, cluster: &'a Cluster, now: Timestamp) -> World<'a> {
    World {
        profiles,
        catalog: cluster.catalog(),
        now,
    }
}

fn full_name(pod: &Arc<Pod>) -> String {
    format!("{}/{}", pod.namespace(), pod.name)
}

impl Failure {
    fn unschedulable(pod: Arc<Pod>, message: String) -> Self {
        Self {
            pod,
            reason: FailureReason::Unschedulable,
            post_filter_at: message.len(),
            message,
            rejected_by: Vec::new(),
            pending: Vec::new(),
            is_unresolvable: false,
            is_conflict: false,
            nomination: Nomination::Clear,
        }
    }

    fn error(pod: Arc<Pod>, message: String) -> Self {
        Self {
            reason: FailureReason::SchedulerError,
            ..Self::unschedulable(pod, message)
        }
    }

    /// Another scheduler was faster.
    fn conflict(pod: Arc<Pod>, message: String) -> Self {
        Self {
            is_conflict: true,
            ..Self::error(pod, message)
        }
    }

    /// No node fits.
    fn no_node(pod: Arc<Pod>, diagnosis: &Diagnosis, post_filter: &PostFilterResult) -> Self {
        let text = post_filter.message();
        let message = diagnosis.message(&text);
        Self {
            post_filter_at: match text.len() {
                0 => message.len(),
                length => message.len() - length - 1,
            },
            message,
            rejected_by: diagnosis.plugins.clone(),
            pending: diagnosis.pending.clone(),
            is_unresolvable: diagnosis.is_unresolvable(),
            nomination: post_filter.nomination.clone(),
            ..Self::unschedulable(pod, String::new())
        }
    }

    /// A plugin rejected the chosen node.
    fn refused(pod: Arc<Pod>, point: &str, plugin: &'static str, rejection: &Rejection) -> Self {
        if rejection.status == Status::Error {
            let text = format!(
                "running {point} plugin \"{plugin}\": {}",
                rejection.message()
            );
            return Self::error(pod, text);
        }
        let diagnosis = Diagnosis {
            nodes: 1,
            reasons: rejection
                .reasons
                .iter()
                .map(|reason| (reason.clone(), 1))
                .collect(),
            ..Diagnosis::default()
        };
        let pending = (rejection.status == Status::Pending).then_some(plugin);
        Self {
            rejected_by: vec![plugin],
            pending: pending.into_iter().collect(),
            ..Self::unschedulable(pod, diagnosis.message(""))
        }
    }
}
