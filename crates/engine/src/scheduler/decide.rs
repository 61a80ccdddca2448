//! One decision: a scheduling cycle, with the extenders that are interested in the pod.

use std::sync::Arc;

use super::cycle::{Cycle, CycleResult, NO_NODES};
use super::extenders::Conversation;
use super::{Failure, Scheduler};
use crate::model::{Pod, Timestamp};
use crate::preemption::SearchScope;

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
        let result = self.run_cycle(profile, pod, conversation.as_mut(), now);
        match conversation {
            Some(conversation) if matches!(result, Ok(CycleResult::Ask(_))) => {
                self.conversation = Some(conversation);
            }
            Some(conversation) => self.remember(conversation),
            None => {}
        }
        result.map_err(|text| Failure::error(pod.clone(), text))
    }

    fn run_cycle(
        &mut self,
        profile: usize,
        pod: &Arc<Pod>,
        mut conversation: Option<&mut Conversation>,
        now: Timestamp,
    ) -> Result<CycleResult, String> {
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
        if let CycleResult::Node { slot, nodes, .. } = &result {
            self.scores = self.score_table(&mut cycle, pod, *slot, nodes, now);
        }
        Ok(result)
    }
}
