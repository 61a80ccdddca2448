//! Applies events as event hooks show them, and carries out the actions that hooks request.

use super::{Input, Scheduler, world};
use crate::cluster::UpdateError;
use crate::cluster::kinds::{Kind, Update};
use crate::model::Timestamp;
use crate::scheduling::event_hooks::{EventContext, HookAction};

impl Scheduler {
    /// An error may also name an object that a hook made; everything else is applied then.
    pub(super) fn apply_with_hooks(
        &mut self,
        event: Input,
        now: Timestamp,
    ) -> Result<(), UpdateError> {
        let (event, is_hidden) = self.event_hooks.rewrite(event, &self.event_context(now));
        if is_hidden {
            return self.apply_input(event, now);
        }
        self.apply_input(event.clone(), now)?;
        let actions = self.event_hooks.after(&event, &self.event_context(now));
        let mut result = Ok(());
        for action in actions {
            result = result.and(self.carry_out(action, now));
        }
        result
    }

    fn event_context(&self, now: Timestamp) -> EventContext<'_> {
        EventContext {
            cluster: &self.cluster,
            now,
            queue: &self.queue,
        }
    }

    fn carry_out(&mut self, action: HookAction, now: Timestamp) -> Result<(), UpdateError> {
        let event = match action {
            HookAction::Try(uid) => {
                let world = world(&self.profiles, &self.cluster, now);
                self.queue.activate(&uid, world);
                return Ok(());
            }
            HookAction::Pod(pod) => Input::Pod(pod),
            HookAction::HidePod(uid) => Input::PodGone(uid),
            HookAction::Node(node) => Input::Object(node.into()),
            HookAction::HideNode(name) => Input::Object(Update::Delete(Kind::Node, name.into())),
            HookAction::Report(report) => Input::Object(report.into()),
            HookAction::HideReport(node) => {
                Input::Object(Update::Delete(Kind::CustomNodeResource, node.into()))
            }
        };
        self.apply_input(event, now)
    }
}
