//! Pods that hold their room and wait until somebody allows them, for so long.

use std::time::Duration;

use super::binding::Stage;
use super::{Failure, PermitVerdict, Scheduler};
use crate::framework::Rejection;
use crate::model::{Name, Timestamp};

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
            let time = go_duration(time);
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

/// As Go prints it: `1m30s`, `500ms`, `1h0m0s`.
fn go_duration(duration: Duration) -> String {
    let fraction = |nanos: u128, unit: u128| {
        let digits = unit.ilog10() as usize;
        let text = format!("{}.{:0digits$}", nanos / unit, nanos % unit);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let nanos = duration.as_nanos();
    match nanos {
        0 => "0s".into(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}\u{b5}s", fraction(nanos, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", fraction(nanos, 1_000_000)),
        _ => {
            let (minutes, rest) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
            let seconds = fraction(rest, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (nanos, want) in [
            (0, "0s"),
            (1_500, "1.5µs"),
            (500_000_000, "500ms"),
            (1_000_000_000, "1s"),
            (1_500_000_000, "1.5s"),
            (60_000_000_000, "1m0s"),
            (900_000_000_000, "15m0s"),
            (3_600_000_000_000, "1h0m0s"),
        ] {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), want);
        }
    }
}
