//! Pods that hold their room and wait until somebody allows them, for so long.

use std::time::Duration;

use super::binding::Stage;
use super::{Failure, PermitVerdict, Scheduler};
use crate::framework::Rejection;
use crate::model::{Name, Timestamp, write_duration};

impl Scheduler {
    /// [`super::Input::Permit`].
    pub(super) fn permit_answered(
        &mut self,
        uid: &Name,
        plugin: &str,
        verdict: PermitVerdict,
        now: Timestamp,
    ) {
        let Some(under_way) = self.under_way.get_mut(uid) else {
            return;
        };
        let Stage::Waiting(waits) = &mut under_way.stage else {
            return;
        };
        let Some(position) = waits.iter().position(|(name, ..)| *name == plugin) else {
            return;
        };
        match verdict {
            PermitVerdict::Allow => {
                waits.remove(position);
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
        let Some(under_way) = self.under_way.get(uid) else {
            return;
        };
        let rejection = Rejection::unschedulable(text);
        let failure = Failure::refused(under_way.pod.clone(), "Permit", plugin, &rejection);
        self.come_to_nothing(uid, failure, now);
    }

    /// Pods that were held for too long.
    pub(super) fn expire_permits(&mut self, now: Timestamp) {
        while let Some((until, uid, plugin, time)) = self.first_permit()
            && until <= now
        {
            let time = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
            let time = write_duration(time);
            let text = format!("rejected due to timeout after waiting {time} at plugin {plugin}");
            self.permit_rejected(&uid, plugin, text, now);
        }
    }

    pub(super) fn first_permit_deadline(&self) -> Option<Timestamp> {
        Some(self.first_permit()?.0)
    }

    fn first_permit(&self) -> Option<(Timestamp, Name, &'static str, Duration)> {
        let waiting = self.under_way.iter().flat_map(|(uid, known)| {
            let waits = match &known.stage {
                Stage::Waiting(waits) => &waits[..],
                _ => &[],
            };
            waits.iter().map(move |wait| (uid, wait))
        });
        let first = waiting.min_by_key(|(_, (_, until, _))| *until);
        first.map(|(uid, (plugin, until, time))| (*until, uid.clone(), *plugin, *time))
    }
}
