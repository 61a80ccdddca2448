//! One decision: a scheduling cycle, with the extenders that are interested in the pod.

use std::sync::Arc;

use super::cycle::{Cycle, CycleResult, NO_NODES, POINTS};
use super::extenders::Conversation;
use super::known_rejections::KnownRejections;
use super::{Failure, Scheduler};
use crate::model::{Pod, PodShape, Timestamp};
use crate::scheduling::preemption::SearchScope;

impl Scheduler {
    /// The result of the pod's cycle; a failure if there is none. Changes only what the scheduler keeps for extenders and
    /// for the score table.
    pub(super) fn decide(
        &mut self,
        pod: &Arc<Pod>,
        now: Timestamp,
    ) -> Result<CycleResult, Failure> {
        let conversation = self.conversation.take();
        if let Some(text) = self.unknown_class(pod) {
            return Err(Failure::unknown_class(pod.clone(), text));
        }
        if self.cluster.nodes().is_empty() {
            return Err(Failure::unschedulable(pod.clone(), NO_NODES.to_owned()));
        }
        let Some(profile) = self.profiles.find(&pod.scheduler_name) else {
            let text = format!("no profile is named `{}`", pod.scheduler_name);
            return Err(Failure::error(pod.clone(), text));
        };
        let is_interested = || self.extenders.iter().any(|it| it.is_interested(pod));
        let mut conversation = conversation.or_else(|| {
            is_interested().then(|| Conversation::new(pod.uid.clone(), self.extenders.clone()))
        });
        let rewrites = self.profiles.hooks().rewrite(POINTS);
        let shape = PodShape::of(pod);
        let shape = (conversation.is_none() && !rewrites && KnownRejections::concerns(&shape))
            .then_some(shape);
        if let Some(shape) = &shape {
            let (version, hooks) = (self.cluster.version(), self.profiles.hooks());
            let known = &mut self.known_rejections;
            if let Some(failure) = known.find(version, profile, shape, hooks) {
                if self.checks_itself {
                    assert_eq!(
                        self.evaluated_anew(profile, pod, now),
                        Some(failure.clone())
                    );
                }
                return Err(failure);
            }
        }
        let result = self.run_cycle(profile, pod, conversation.as_mut(), shape, now);
        match conversation {
            Some(conversation) if matches!(result, Ok(CycleResult::Ask(_))) => {
                self.conversation = Some(conversation);
            }
            Some(conversation) => self.remember(conversation),
            None => {}
        }
        result.map_err(|text| Failure::error(pod.clone(), text))
    }

    /// For tests: the failure without what is known.
    fn evaluated_anew(&self, profile: usize, pod: &Arc<Pod>, now: Timestamp) -> Option<Failure> {
        let (profile, hooks) = (self.profiles.get(profile), self.profiles.hooks());
        let hooks = hooks.without_probes();
        let mut cycle = Cycle::new(&self.cluster, profile, pod, &hooks, now);
        match cycle.run(self.cursor, SearchScope::Best) {
            Ok(CycleResult::NoNode {
                diagnosis,
                post_filter,
            }) => Some(Failure::no_node(pod.clone(), &diagnosis, &post_filter)),
            _ => None,
        }
    }

    fn run_cycle(
        &mut self,
        profile: usize,
        pod: &Arc<Pod>,
        mut conversation: Option<&mut Conversation>,
        shape: Option<PodShape>,
        now: Timestamp,
    ) -> Result<CycleResult, String> {
        self.evaluations += 1;
        let index = profile;
        let scope = match &mut conversation {
            Some(conversation) => {
                conversation.take_answers()?;
                SearchScope::All
            }
            None => SearchScope::Best,
        };
        let (profile, hooks) = (self.profiles.get(profile), self.profiles.hooks());
        let mut cycle = Cycle::new(&self.cluster, profile, pod, hooks, now);
        let result = cycle.run_with(conversation, self.cursor, scope)?;
        match (&result, shape) {
            (CycleResult::Node { slot, nodes, .. }, _) => {
                self.scores = self.score_table(&mut cycle, pod, *slot, nodes, now);
            }
            (
                CycleResult::NoNode {
                    diagnosis,
                    post_filter,
                },
                Some(shape),
            ) if post_filter.candidate.is_none() => {
                let failure = Failure::no_node(pod.clone(), diagnosis, post_filter);
                let traces = cycle.traces(diagnosis, post_filter);
                let version = self.cluster.version();
                let known = &mut self.known_rejections;
                known.add(version, index, shape, failure, traces);
            }
            _ => {}
        }
        Ok(result)
    }
}
