//! Who held the Lease when, and the writes of others.

use std::collections::BTreeMap;

use super::{Evidence, Violation, text};
use crate::evidence::HistoryEvent;
use crate::journal::{Incarnation, Micros, SentWrite};

/// A write of the Lease that is in its history.
struct Renewal {
    /// Its place in the history.
    index: usize,
    sent: Micros,
    forwarded: Micros,
}

pub(super) struct Leases {
    /// The holder after each write, in the order of the history, and when its answer came.
    holders: Vec<(String, Option<Micros>)>,
    identities: BTreeMap<Incarnation, String>,
    renewals: BTreeMap<Incarnation, Vec<Renewal>>,
}

impl Leases {
    pub(super) fn new(evidence: &Evidence<'_>) -> Self {
        let versions = evidence
            .history
            .iter()
            .filter_map(|(_, event)| match event {
                HistoryEvent::Lease { holder, renewed } => Some((holder, renewed)),
                _ => None,
            });
        let mut leases = Self {
            holders: Vec::new(),
            identities: BTreeMap::new(),
            renewals: BTreeMap::new(),
        };
        let mut writes: BTreeMap<(String, String), &SentWrite> = BTreeMap::new();
        for write in &evidence.records.writes {
            if write.path.contains("/leases") {
                let spec = &write.body["spec"];
                let holder = text(&spec["holderIdentity"]);
                if !holder.is_empty() {
                    leases.identities.insert(write.by, holder.clone());
                }
                // A write may be sent again.
                let key = (holder, text(&spec["renewTime"]));
                writes.entry(key).or_insert(write);
            }
        }
        for (holder, renewed) in versions {
            let write = writes.get(&(holder.clone(), renewed.clone()));
            // Without a holder it was released.
            if let Some(write) = write.filter(|_| !holder.is_empty()) {
                let renewal = Renewal {
                    index: leases.holders.len(),
                    sent: write.sent,
                    forwarded: write.forwarded,
                };
                let of_writer = leases.renewals.entry(write.by);
                of_writer.or_default().push(renewal);
            }
            let answered = write.and_then(|write| write.answered);
            leases.holders.push((holder.clone(), answered));
        }
        leases
    }

    /// How often the Lease got another holder.
    pub(super) fn leaders(&self) -> u64 {
        let holders = self.holders.iter().map(|(holder, _)| holder);
        let mut holders: Vec<&String> = holders.filter(|holder| !holder.is_empty()).collect();
        holders.dedup();
        u64::try_from(holders.len()).unwrap_or(0)
    }

    pub(super) fn violations(&self, evidence: &Evidence<'_>) -> Vec<Violation> {
        let writes: BTreeMap<u64, &SentWrite> = evidence
            .records
            .writes
            .iter()
            .map(|it| (it.id, it))
            .collect();
        let mut violations = Vec::new();
        for audited in evidence.audit {
            let Some(write) = writes.get(&audited.id) else {
                continue;
            };
            if let Some(why) = self.unlawful(write, evidence.lease_duration) {
                let (verb, resource, name) = (&audited.verb, &audited.resource, &audited.name);
                violations.push(Violation {
                    rule: "Lease",
                    text: format!("{} sent {verb} {resource} {name} {why}", write.by),
                });
            }
        }
        violations
    }

    /// Why the write was not allowed, if it was not.
    fn unlawful(&self, write: &SentWrite, lease_duration: Micros) -> Option<String> {
        let renewals = self.renewals.get(&write.by).into_iter().flatten();
        let before = renewals.filter(|it| it.sent <= write.sent);
        let Some(last) = before.max_by_key(|it| it.index) else {
            return Some("and never had the Lease".to_owned());
        };
        let since = write.sent.saturating_sub(last.forwarded);
        if since > lease_duration {
            return Some(format!("{} ms after its last renewal", since / 1_000));
        }
        let ours = self.identities.get(&write.by);
        let later = self.holders.iter().skip(last.index + 1);
        let mut others = later.filter(|(holder, _)| Some(holder) != ours);
        let taken = others.next().and_then(|(_, answered)| *answered)?;
        (write.sent > taken).then(|| {
            let late = (write.sent - taken) / 1_000;
            format!("{late} ms after the Lease had another holder")
        })
    }
}
