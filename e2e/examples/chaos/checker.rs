//! The checker: replays the history in etcd and finds what a scheduler must never do. It shares no code with the scheduler.
//!
//! | rule | meaning |
//! |---|---|
//! | `bound twice` | a pod is bound at most once per uid |
//! | `uid` | every bind has the uid of its pod |
//! | `placement` | a pod is bound to a node that it selects |
//! | `overcommit` | no bind exceeds a node's native capacity |
//! | `reclaimed overcommit` | no bind exceeds what the node lent, as far as its scheduler could know |
//! | `Lease` | every bind, patch and deletion is sent by the holder of the Lease |
//! | `lost` | no pod vanishes, except by us or as a victim of lower priority |

mod leases;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::cluster::URGENT_PRIORITY;
use crate::evidence::{AuditedWrite, HistoryEvent, StoredPod};
use crate::journal::{Micros, Records, SentWrite};
use leases::Leases;

/// The bind of a decision is sent within this time: requests that hang for want of an answer may delay it.
const DECISION: Micros = 10_000_000;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    pub(crate) rule: &'static str,
    pub(crate) text: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.rule, self.text)
    }
}

/// All that is known of a run.
pub(crate) struct Evidence<'a> {
    pub(crate) history: &'a [(u64, HistoryEvent)],
    pub(crate) audit: &'a [AuditedWrite],
    pub(crate) records: &'a Records,
    /// Uids of pods that the run itself deleted.
    pub(crate) deleted: &'a BTreeSet<String>,
    pub(crate) lease_duration: Micros,
}

/// What happened, for the table.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) pods: u64,
    pub(crate) bound: u64,
    pub(crate) preempted: u64,
    pub(crate) leaders: u64,
}

pub(crate) fn check(evidence: &Evidence<'_>) -> (Tally, Vec<Violation>) {
    let mut replay = Replay::new(evidence);
    for (revision, event) in evidence.history {
        replay.apply(*revision, event);
    }
    let leases = Leases::new(evidence);
    replay.tally.leaders = leases.leaders();
    let mut violations = replay.violations;
    violations.extend(check_audit(evidence));
    violations.extend(leases.violations(evidence));
    (replay.tally, violations)
}

/// Every accepted bind has a uid, and no uid is in two.
fn check_audit(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut accepted: BTreeMap<&str, u64> = BTreeMap::new();
    let mut violations = Vec::new();
    for write in evidence.audit {
        match write.uid.as_deref() {
            Some("") => violations.push(Violation {
                rule: "uid",
                text: format!(
                    "request {} binds pod {} without its uid",
                    write.id, write.name
                ),
            }),
            Some(uid) if write.code == 201 => *accepted.entry(uid).or_default() += 1,
            _ => {}
        }
    }
    let twice = accepted.iter().filter(|(_, times)| **times > 1);
    violations.extend(twice.map(|(uid, times)| Violation {
        rule: "bound twice",
        text: format!("{times} binds of the pod with uid {uid} were accepted"),
    }));
    violations
}

#[derive(Default)]
struct KnownNode {
    cpu: i64,
    pods: i64,
    group: String,
    /// What it lent, with the revisions.
    reports: Vec<(u64, i64)>,
}

struct Replay<'a> {
    evidence: &'a Evidence<'a>,
    nodes: BTreeMap<String, KnownNode>,
    /// By name.
    pods: BTreeMap<String, StoredPod>,
    /// Binds that were sent, by pod name and node.
    binds: BTreeMap<(String, String), Vec<&'a SentWrite>>,
    /// Uids of pods that a scheduler deleted.
    evicted: BTreeSet<String>,
    tally: Tally,
    violations: Vec<Violation>,
}

impl<'a> Replay<'a> {
    fn new(evidence: &'a Evidence<'a>) -> Self {
        let mut binds: BTreeMap<(String, String), Vec<&SentWrite>> = BTreeMap::new();
        let mut evicted = BTreeSet::new();
        for write in &evidence.records.writes {
            let Some((_, rest)) = write.path.split_once("/pods/") else {
                continue;
            };
            match rest.split_once('/') {
                Some((name, "binding")) => {
                    let node = text(&write.body["target"]["name"]);
                    binds
                        .entry((name.to_owned(), node))
                        .or_default()
                        .push(write);
                }
                Some(_) => {}
                None => {
                    evicted.insert(text(&write.body["preconditions"]["uid"]));
                }
            }
        }
        Self {
            evidence,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            binds,
            evicted,
            tally: Tally::default(),
            violations: Vec::new(),
        }
    }

    fn violate(&mut self, rule: &'static str, text: String) {
        self.violations.push(Violation { rule, text });
    }

    fn apply(&mut self, revision: u64, event: &HistoryEvent) {
        match event {
            HistoryEvent::Node {
                name,
                cpu,
                pods,
                group,
            } => {
                let node = self.nodes.entry(name.clone()).or_default();
                (node.cpu, node.pods, node.group) = (*cpu, *pods, group.clone());
            }
            HistoryEvent::Report { node, amount } => {
                let node = self.nodes.entry(node.clone()).or_default();
                node.reports.push((revision, *amount));
            }
            HistoryEvent::Lease { .. } => {}
            HistoryEvent::Pod(pod) => self.pod(revision, pod),
            HistoryEvent::PodDeleted(name) => {
                if let Some(pod) = self.pods.remove(name) {
                    self.deleted(&pod);
                }
            }
        }
    }

    fn deleted(&mut self, pod: &StoredPod) {
        if self.evidence.deleted.contains(&pod.uid) {
            return;
        }
        let StoredPod { name, uid, .. } = pod;
        if !self.evicted.contains(uid) {
            self.violate("lost", format!("pod {name} ({uid}) vanished"));
        } else if pod.priority >= URGENT_PRIORITY {
            self.violate(
                "lost",
                format!("pod {name} ({uid}) was evicted in spite of its priority"),
            );
        } else {
            self.tally.preempted += 1;
        }
    }

    fn pod(&mut self, revision: u64, pod: &StoredPod) {
        let before = self.pods.insert(pod.name.clone(), pod.clone());
        let before = before.filter(|before| before.uid == pod.uid);
        self.tally.pods += u64::from(before.is_none());
        let was_on = before.map(|before| before.node).unwrap_or_default();
        if was_on == pod.node {
            return;
        }
        if !was_on.is_empty() {
            let text = format!(
                "pod {} ({}) went from {was_on} to {}",
                pod.name, pod.uid, pod.node
            );
            return self.violate("bound twice", text);
        }
        self.tally.bound += 1;
        self.bound(revision, pod);
    }

    fn bound(&mut self, revision: u64, pod: &StoredPod) {
        let StoredPod { name, uid, .. } = pod;
        let on_node = self.pods.values().filter(|it| it.node == pod.node);
        let (mut cpu, mut reclaimed, mut count) = (0, 0, 0);
        for other in on_node {
            cpu += other.cpu;
            reclaimed += other.reclaimed;
            count += 1;
        }
        let Some(node) = self.nodes.get(&pod.node) else {
            let text = format!(
                "pod {name} ({uid}) was bound to {}, which does not exist",
                pod.node
            );
            return self.violate("placement", text);
        };
        let mut found = Vec::new();
        if !pod.group.is_empty() && pod.group != node.group {
            let text = format!(
                "pod {name} ({uid}) selects group {} and was bound to {}",
                pod.group, pod.node
            );
            found.push(("placement", text));
        }
        if cpu > node.cpu || count > node.pods {
            let text = format!(
                "revision {revision} binds pod {name} ({uid}) to {}: {cpu} of {} millicpu, {count} of {} pods",
                pod.node, node.cpu, node.pods
            );
            found.push(("overcommit", text));
        }
        let lent = if pod.reclaimed == 0 {
            i64::MAX
        } else {
            self.lent(revision, pod, node)
        };
        if reclaimed > lent {
            let text = format!(
                "revision {revision} binds pod {name} ({uid}) to {}: {} of {} reclaimed millicpu",
                pod.node,
                reclaimed / 1_000,
                lent / 1_000
            );
            found.push(("reclaimed overcommit", text));
        }
        for (rule, text) in found {
            self.violate(rule, text);
        }
    }

    /// The most that the node lent from the newest report that the scheduler must have known on.
    fn lent(&self, revision: u64, pod: &StoredPod, node: &KnownNode) -> i64 {
        let key = (pod.name.clone(), pod.node.clone());
        let binds = self.binds.get(&key).into_iter().flatten();
        let mine = |write: &&&SentWrite| {
            let uid = text(&write.body["metadata"]["uid"]);
            uid.is_empty() || uid == pod.uid
        };
        let Some(first) = binds.filter(mine).min_by_key(|write| write.sent) else {
            // Not by one of our schedulers.
            return i64::MIN;
        };
        let reports = self.evidence.records.reports.iter();
        let mut delivered = reports.filter(|it| it.to == first.by && it.node == pod.node);
        let decided = first.sent.saturating_sub(DECISION);
        let first_delivered = delivered.clone().next().map_or(0, |it| it.revision);
        // Events of a watch are delivered in order; a list may repeat an older one.
        let known = delivered.by_ref().take_while(|it| it.at <= decided);
        let known = known.map(|it| it.revision).max().unwrap_or(first_delivered);
        let since = node
            .reports
            .iter()
            .filter(|(at, _)| *at >= known && *at <= revision);
        let most = since.map(|(_, amount)| *amount).max();
        most.unwrap_or(i64::MIN)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
