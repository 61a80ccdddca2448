//! One decision: every node, every plugin, and whoever outside has a say. Nothing is changed by it.

use std::sync::Arc;

use super::Scheduler;
use super::room::{self, Room};
use super::talk::{Answered, Talk};
use crate::evaluate::{Diagnosis, Outcome as Verdict, Scan};
use crate::extender::Question;
use crate::framework::Point;
use crate::model::{Pod, Timestamp};
use crate::preemption::Wanted;

#[expect(
    clippy::large_enum_variant,
    reason = "made once per decision and taken apart at once"
)]
pub(super) enum Decision {
    Node {
        slot: usize,
    },
    NoNode {
        diagnosis: Diagnosis,
        room: Room,
    },
    Ask(Vec<Question>),
    /// Something broke.
    Broken(String),
    /// There are no nodes at all.
    NoCluster,
}

impl Scheduler {
    /// Decides about the pod as hooks show it, on nodes as hooks show them.
    pub(super) fn decide(&mut self, pod: &Arc<Pod>, now: Timestamp) -> Decision {
        if self.cluster.nodes().is_empty() {
            self.talk = None;
            return Decision::NoCluster;
        }
        let Some(profile) = self.profiles.find(&pod.scheduler_name) else {
            self.talk = None;
            return Decision::Broken(format!("no profile is named `{}`", pod.scheduler_name));
        };
        let seen = self.hooks.pod(pod);
        self.hooks.before(Point::PreFilter, &seen);
        let disguise = self.hooks.disguise(&mut self.cluster, &seen);
        let mut talk = self.talk.take();
        let decision = self.evaluate(profile, &seen, &mut talk, now);
        match talk {
            Some(talk) if matches!(decision, Decision::Ask(_)) => self.talk = Some(talk),
            Some(talk) => self.remember(talk),
            None => {}
        }
        self.hooks.reveal(&mut self.cluster, disguise);
        self.tell_hooks(&seen, &decision);
        decision
    }

    fn evaluate(
        &self,
        profile: usize,
        pod: &Arc<Pod>,
        talk: &mut Option<Talk>,
        now: Timestamp,
    ) -> Decision {
        let profile = self.profiles.get(profile);
        let mut scan = Scan::new(&self.cluster, profile, pod);
        let interested = self
            .extenders
            .iter()
            .any(|extender| extender.is_interested(pod));
        let answered = if interested {
            let talk = talk.get_or_insert_with(|| Talk::new(pod.uid.clone()));
            match talk.go_on(&mut scan, &self.cluster, pod, &self.extenders, self.cursor) {
                Ok(answered) => answered,
                Err(text) => return Decision::Broken(text),
            }
        } else {
            match scan.decide(self.cursor) {
                Verdict::Chosen { slot, .. } => Answered::Node(slot),
                Verdict::Rejected(diagnosis) => Answered::None(diagnosis),
                Verdict::Failed(text) => return Decision::Broken(text),
            }
        };
        let diagnosis = match answered {
            Answered::Node(slot) => return Decision::Node { slot },
            Answered::Ask(questions) => return Decision::Ask(questions),
            Answered::None(diagnosis) => diagnosis,
        };
        let wanted = match talk {
            Some(_) => Wanted::All,
            None => Wanted::Best,
        };
        let mut found =
            room::post_filter(&self.cluster, &scan, profile, pod, &diagnosis, wanted, now);
        if let (Some(talk), Some(search)) = (talk, &mut found.search) {
            match talk.about_room(&mut search.candidates, pod, &self.extenders) {
                Ok(None) => {}
                Ok(Some(questions)) => return Decision::Ask(questions),
                Err(text) => found.give_up(text),
            }
        }
        let room = found.room(now);
        Decision::NoNode { diagnosis, room }
    }

    fn tell_hooks(&self, pod: &Pod, decision: &Decision) {
        let (pre_filter, filter) = match decision {
            Decision::Ask(_) | Decision::NoCluster => return,
            Decision::Node { .. } => (Ok(()), Ok(())),
            Decision::Broken(text) => (Err(text.clone()), Ok(())),
            Decision::NoNode { diagnosis, .. } => match &diagnosis.pre_filter {
                Some(said) => (Err(said.clone()), Ok(())),
                None => (Ok(()), Err(diagnosis.message(""))),
            },
        };
        for (point, result) in [(Point::PreFilter, pre_filter), (Point::Filter, filter)] {
            if point != Point::PreFilter {
                self.hooks.before(point, pod);
            }
            self.hooks
                .after(point, pod, result.as_ref().copied().map_err(|text| &**text));
            if result.is_err() {
                return;
            }
        }
        for point in [Point::PreScore, Point::Score] {
            self.hooks.before(point, pod);
            self.hooks.after(point, pod, Ok(()));
        }
    }
}
