//! Pods that wait at Permit until all plugins allow them or their time is over.

use std::time::Duration;

use super::binding::{BindingCycle, Stage};
use super::{Failure, PermitVerdict, Scheduler};
use crate::model::{Name, Timestamp, write_duration};
use crate::scheduling::framework::Rejection;

impl Scheduler {
    /// [`super::Input::Permit`].
    pub(super) fn permit_answered(
        &mut self,
        uid: &Name,
        plugin: &str,
        verdict: PermitVerdict,
        now: Timestamp,
    ) {
        let Some(binding) = self.binding.get_mut(uid) else {
            return;
        };
        let Stage::Waiting(waits) = &mut binding.stage else {
            return;
        };
        let Some(position) = waits.iter().position(|(name, ..)| *name == plugin) else {
            return;
        };
        match verdict {
            PermitVerdict::Allow => {
                let (plugin, until, _) = waits.remove(position);
                self.held.remove(&(until, uid.clone(), plugin));
                if waits.is_empty() {
                    self.prepare(uid, now);
                }
            }
            PermitVerdict::Reject(text) => {
                let name = waits[position].0;
                self.permit_rejected(uid, name, text, now);
            }
        }
    }

    fn permit_rejected(&mut self, uid: &Name, plugin: &'static str, text: String, now: Timestamp) {
        let Some(binding) = self.binding.get(uid) else {
            return;
        };
        let rejection = Rejection::unschedulable(text);
        let failure = Failure::refused(binding.pod.clone(), "Permit", plugin, &rejection);
        self.end_and_requeue(uid, failure, now);
    }

    /// Rejects pods whose time is over.
    pub(super) fn expire_permits(&mut self, now: Timestamp) {
        while self.held.first().is_some_and(|(until, ..)| *until <= now)
            && let Some((_, uid, plugin)) = self.held.pop_first()
        {
            let waits = self.binding.get(&uid).map_or(&[][..], BindingCycle::waits);
            let wait = waits.iter().find(|(name, ..)| *name == plugin);
            let time = wait.map_or(Duration::ZERO, |(.., time)| *time);
            let time = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
            let time = write_duration(time);
            let text = format!("rejected due to timeout after waiting {time} at plugin {plugin}");
            self.permit_rejected(&uid, plugin, text, now);
        }
    }
}
