//! The path of a pod. Read this first.
//!
//! The shell tells what happened ([`Scheduler::apply`]), asks for the next instruction ([`Scheduler::schedule_next`]),
//! and sleeps when there is none ([`Scheduler::idle_until`]). One decision is made at a time, on the truth as it is; a
//! pod that got a node holds its room from then on. What fails in the world comes back as an [`Input`], gives the room
//! back and lets the pod wait again. No pod is ever forgotten: it is in the queue, under way, or gone.

mod binding;
mod cycle;
mod decide;
mod event_hooks;
mod explain;
mod extenders;
mod inputs;
mod outcome;
mod permit;
mod post_filter;
mod priority;
mod scores;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use indexmap::IndexMap;

pub use cycle::{Cycle, CycleResult};
pub use explain::{
    CandidateReport, Decision, ExtenderReport, HeldBy, NodeReport, PodReport, PodState,
    PreemptionReport, UnhelpfulReport,
};
pub use outcome::{Binder, Failure, FailureReason, Input, Nomination, Outcome, PermitVerdict};
pub use post_filter::PostFilterResult;
pub use scores::{NodeScores, ScoreCountError, Scores, score_count};

use crate::cluster::Cluster;
use crate::evaluate::{Cursor, Diagnosis};
use crate::extender::Extender;
use crate::framework::{Event, Rejection, Status};
use crate::hooks::{EventHooks, Hooks};
use crate::model::{Name, Pod, Timestamp};
use crate::profile::{Profile, Profiles, ProfilesError, Unoffered};
use crate::queue::{
    Attempt, Audience, Cause, Part, Queue, Rejectors, Sizes, Ticket, Timing, World,
};
use binding::{UnderWay, Wait};
use extenders::Conversation;

/// What a scheduler is made of besides its profiles.
#[derive(Clone, Default)]
pub struct Settings {
    pub timing: Timing,
    /// Those that may be ignored after the others; each group in its order.
    pub extenders: Vec<Extender>,
    pub hooks: Hooks,
    pub event_hooks: EventHooks,
    /// For tests: panics at the first step after which [`Scheduler::check`] finds something.
    pub checks_itself: bool,
}

pub struct Scheduler {
    cluster: Cluster,
    queue: Queue,
    profiles: Profiles,
    extenders: Arc<[Extender]>,
    event_hooks: EventHooks,
    /// Where the search for equals begins; moved by decisions that hold, and by nothing else.
    cursor: Cursor,
    /// Pods that have a node and are not yet seen there.
    under_way: IndexMap<Name, UnderWay>,
    /// Until when plugins hold pods that are under way.
    held: BTreeSet<(Timestamp, Name, &'static str)>,
    /// The pod that extenders are being asked about.
    conversation: Option<Conversation>,
    /// Pods that room is being made for, and the victim that goes last.
    preempting: IndexMap<Name, Name>,
    /// Pods whose nomination by us the API has not shown yet.
    unconfirmed: BTreeSet<Name>,
    /// Whether a pod ever came without its priority filled in.
    has_open_priorities: bool,
    /// Instructions not yet handed out.
    ready: VecDeque<Outcome>,
    /// What extenders said in the latest conversations, for whoever asks.
    extender_reports: VecDeque<(Name, Vec<ExtenderReport>)>,
    /// Of how many nodes the scores are told.
    show_scores: u16,
    /// Behind the last decision, if somebody wants to see them.
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
            cursor: Cursor::default(),
            under_way: IndexMap::new(),
            held: BTreeSet::new(),
            conversation: None,
            preempting: IndexMap::new(),
            unconfirmed: BTreeSet::new(),
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

    /// Resources that the configuration names and no node has; none while there are no nodes to tell.
    pub fn unoffered(&self) -> Vec<Unoffered> {
        match self.cluster.nodes().is_empty() {
            true => Vec::new(),
            false => Unoffered::among(self.profiles.iter(), &self.cluster.catalog().offered()),
        }
    }

    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// A pod that waits or is being decided about, with its history.
    pub fn waiting(&self, uid: &str) -> Option<&Ticket> {
        self.queue.get(uid)
    }

    /// The pod that waits longest. Looks at all of them.
    pub fn oldest(&self) -> Option<&Ticket> {
        self.queue.oldest()
    }

    /// The history of a pod that waits, is being decided about, or is on its way to a node.
    pub fn ticket(&self, uid: &str) -> Option<&Ticket> {
        let under_way = self.under_way.get(uid).and_then(UnderWay::ticket);
        under_way.or_else(|| self.queue.get(uid))
    }

    /// How many pods wait, and where.
    pub fn sizes(&self) -> Sizes {
        self.queue.sizes()
    }

    /// How many pods have a node and are not yet seen there.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// How often pods came into which part of the queue, and why, since this was last asked.
    pub fn take_arrivals(&mut self) -> Vec<(Part, Cause, u64)> {
        self.queue.take_arrivals()
    }

    /// The next instruction; `None` if there is nothing to do until [`Scheduler::idle_until`] or the next news.
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

    /// When there is something to do without news; `None` if never.
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

    /// The pod whose turn it is: the one that extenders answered about, or the first of the queue.
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

    /// The pod needs no node any more: it is being deleted, or was seen on one.
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

    /// No node would take the pod: it waits again, perhaps for room that is made for it.
    fn park(
        &mut self,
        pod: Arc<Pod>,
        diagnosis: Diagnosis,
        post_filter: PostFilterResult,
        now: Timestamp,
    ) {
        let failure = Failure {
            message: diagnosis.message(&post_filter.message()),
            rejected_by: diagnosis.plugins,
            pending: diagnosis.pending,
            nomination: post_filter.nomination,
            ..Failure::unschedulable(pod, String::new())
        };
        match post_filter.candidate {
            Some(candidate) => self.preempt(failure, candidate, now),
            None => self.fail(failure, now),
        }
    }

    /// Back into the queue, with word to the shell. Nothing if the pod is gone meanwhile.
    fn fail(&mut self, failure: Failure, now: Timestamp) {
        if self.wait_again(&failure, &[], None, now) {
            self.ready.push_back(Outcome::Park(failure));
        }
    }

    /// Returns false if the pod is gone. A pod that was already taken from the queue comes with its ticket.
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
        // Its class may have changed while it was under way.
        let known = self.with_priority(known);
        let pod = self.nominate(&known, &failure.nomination);
        let rejectors = Rejectors {
            plugins: failure.rejected_by.clone(),
            pending: failure.pending.clone(),
        };
        let attempt = Arc::new(Attempt {
            at: now,
            reason: failure.reason.text(),
            message: failure.message.clone(),
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

    /// Writes down what became of a nomination, and returns the pod as it is then.
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
                self.cluster.denominate(&pod.uid);
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

    /// Every pod is where it should be, and every count follows from the objects. For tests; too slow for else.
    pub fn check(&self) -> Result<(), String> {
        self.queue.check()?;
        self.cluster.check().map_err(|error| error.to_string())?;
        let mut held = 0;
        for (uid, under_way) in &self.under_way {
            held += under_way.waits().len();
            let known =
                |(plugin, until, _): &Wait| self.held.contains(&(*until, uid.clone(), *plugin));
            if !under_way.waits().iter().all(known) {
                return Err(format!("pod {uid} is held and its time does not run"));
            }
            let assumed = self
                .cluster
                .placed(uid)
                .is_some_and(|placed| placed.assumed);
            if !assumed {
                return Err(format!("pod {uid} is under way and holds no room"));
            }
            if self.queue.get(uid).is_some() != under_way.is_waiting() {
                return Err(format!("pod {uid} is under way and in the queue"));
            }
        }
        if held != self.held.len() {
            return Err("time runs for a pod that is not held".to_owned());
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
            message,
            rejected_by: Vec::new(),
            pending: Vec::new(),
            nomination: Nomination::Clear,
        }
    }

    fn error(pod: Arc<Pod>, message: String) -> Self {
        Self {
            reason: FailureReason::SchedulerError,
            ..Self::unschedulable(pod, message)
        }
    }

    /// A no of one plugin about the node that was chosen.
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
