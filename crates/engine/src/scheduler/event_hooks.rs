//! Events as hooks show them, and what hooks want done after them.

use super::{Input, Scheduler, world};
use crate::cluster::{Update, UpdateError};
use crate::hooks::{Known, Then, Told};
use crate::model::Timestamp;

impl Scheduler {
    /// An error may also name an object that a hook made; everything else has been taken in then.
    pub(super) fn take_in_hooked(
        &mut self,
        event: Input,
        now: Timestamp,
    ) -> Result<(), UpdateError> {
        let event = match self.event_hooks.shown(event, &self.known(now)) {
            Told::Event(event) => event,
            Told::Hidden { end } => return self.take_in(end, now),
        };
        self.take_in(event.clone(), now)?;
        let wishes = self.event_hooks.after(&event, &self.known(now));
        let mut result = Ok(());
        for wish in wishes {
            result = result.and(self.fulfil(wish, now));
        }
        result
    }

    fn known(&self, now: Timestamp) -> Known<'_> {
        Known {
            cluster: &self.cluster,
            now,
            queue: &self.queue,
        }
    }

    fn fulfil(&mut self, wish: Then, now: Timestamp) -> Result<(), UpdateError> {
        let event = match wish {
            Then::Try(uid) => {
                let world = world(&self.profiles, &self.cluster, now);
                self.queue.activate(&uid, world);
                return Ok(());
            }
            Then::Pod(pod) => Input::Pod(pod),
            Then::HidePod(uid) => Input::PodGone(uid),
            Then::Node(node) => Input::Object(Update::Node(node)),
            Then::HideNode(name) => Input::Object(Update::NodeGone(name)),
            Then::Report(report) => Input::Object(Update::CustomNodeResource(report)),
            Then::HideReport(node) => Input::Object(Update::CustomNodeResourceGone(node)),
        };
        self.take_in(event, now)
    }
}
