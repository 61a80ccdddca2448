//! Counts what the cases of a run really exercised, and holds it against a floor.
//!
//! A parity run that never saw a message proves nothing about it. Counting is per case: a message
//! on ten nodes of one case counts once. It looks only at the oracle's answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::admission::is_refused_for;
use super::verdicts::{Cycle, Verdicts};

/// Cases per 1,000 in which each message must be seen and each scorer must give nodes different scores.
const FLOOR: usize = 50;

/// Cases per 1,000 for what happens between plugins.
const BEHAVIOUR_FLOOR: usize = 10;

/// Every text of the filter message index that a pod without resource claims can get.
/// "Insufficient ..." stands for the resources without a name of their own.
const MESSAGES: &[(&str, &str)] = &[
    ("SchedulingGates", "waiting for scheduling gates: ..."),
    ("NodeUnschedulable", "node(s) were unschedulable"),
    ("NodeName", "node(s) didn't match the requested node name"),
    ("TaintToleration", "node(s) had untolerated taint(s)"),
    (
        "NodeAffinity",
        "node(s) didn't match Pod's node affinity/selector",
    ),
    (
        "NodeAffinity",
        "node(s) didn't match scheduler-enforced node affinity",
    ),
    ("NodeAffinity", "pod affinity terms conflict"),
    (
        "NodePorts",
        "node(s) didn't have free ports for the requested pod ports",
    ),
    ("NodeResourcesFit", "Too many pods"),
    ("NodeResourcesFit", "Insufficient cpu"),
    ("NodeResourcesFit", "Insufficient memory"),
    ("NodeResourcesFit", "Insufficient ephemeral-storage"),
    ("NodeResourcesFit", "Insufficient ..."),
    ("VolumeRestrictions", "node(s) had no available disk"),
    (
        "VolumeRestrictions",
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
    ),
    ("NodeVolumeLimits", "node(s) exceed max volume count"),
    (
        "VolumeBinding",
        "node(s) didn't match PersistentVolume's node affinity",
    ),
    (
        "VolumeBinding",
        "node(s) didn't find available persistent volumes to bind",
    ),
    ("VolumeBinding", "node(s) did not have enough free storage"),
    (
        "VolumeBinding",
        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
    ),
    (
        "VolumeBinding",
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    ("VolumeZone", "node(s) had no available volume zone"),
    (
        "PodTopologySpread",
        "node(s) didn't match pod topology spread constraints",
    ),
    (
        "PodTopologySpread",
        "node(s) didn't match pod topology spread constraints (missing required label)",
    ),
    (
        "InterPodAffinity",
        "node(s) didn't match pod affinity rules",
    ),
    (
        "InterPodAffinity",
        "node(s) didn't match pod anti-affinity rules",
    ),
    (
        "InterPodAffinity",
        "node(s) didn't satisfy existing pods anti-affinity rules",
    ),
    (
        "NodeDeclaredFeatures",
        "node(s) didn't match Pod's required features",
    ),
];

/// The score plugins that can give nodes different scores. Not DynamicResources (0 without claims) and not
/// VolumeBinding (its scorer needs a feature gate that is off).
const SCORERS: &[&str] = &[
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
];

/// The plugins that can reject a pod and may be helped by something; DynamicResources only rejects pods with claims, and
/// what helps DefaultPreemption is no event.
const HELPED: &[&str] = &[
    "SchedulingGates",
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeDeclaredFeatures",
];

type Behaviour = (&'static str, fn(&Verdicts) -> bool);

const BEHAVIOURS: &[Behaviour] = &[
    ("the cycle aborts with an error", |v| {
        v.cycle.failure.is_some()
    }),
    ("no node fits", |v| v.cycle.message.is_some()),
    ("one node fits and is not scored", |v| {
        v.cycle.feasible.len() == 1
    }),
    ("several nodes are scored", |v| v.cycle.totals.len() > 1),
    ("a plugin narrows the nodes", |v| {
        v.pre_filter.iter().any(|status| status.nodes.is_some())
    }),
    ("a nominated pod turns a node away", nominated_pod_decides),
    ("PreFilter ends the cycle", |v| v.cycle.pre_filter.is_some()),
    ("PostFilter finds no state", |v| {
        message_ends_with(&v.cycle, ". not found")
    }),
    ("the pod may not preempt", |v| {
        v.cycle.message.is_some() && v.cycle.preemption.is_none()
    }),
    ("evicting helps on no node", |v| {
        preemption(v, |candidates, _| candidates == 0)
    }),
    ("evicting helps on some node", |v| {
        preemption(v, |candidates, _| candidates > 0)
    }),
    ("preemption chooses among nodes", |v| {
        preemption(v, |candidates, _| candidates > 1)
    }),
    ("preemption candidates tie", |v| {
        preemption(v, |_, tied| tied > 1)
    }),
    ("a node needs several victims", |v| {
        any_candidate(v, |victims, _| victims > 1)
    }),
    ("a disruption budget is violated", |v| {
        any_candidate(v, |_, violations| violations > 0)
    }),
    ("a kubelet rejects with OutOfpods", |v| {
        kubelet_rejects_with(v, "OutOfpods")
    }),
    ("a kubelet rejects with OutOfcpu", |v| {
        kubelet_rejects_with(v, "OutOfcpu")
    }),
    ("a kubelet rejects with OutOfmemory", |v| {
        kubelet_rejects_with(v, "OutOfmemory")
    }),
    ("a kubelet rejects with OutOfephemeral-storage", |v| {
        kubelet_rejects_with(v, "OutOfephemeral-storage")
    }),
    ("a kubelet rejects with NodeAffinity", |v| {
        kubelet_rejects_with(v, "NodeAffinity")
    }),
    ("a kubelet rejects with NodeName", |v| {
        kubelet_rejects_with(v, "NodeName")
    }),
    ("a kubelet rejects with NodePorts", |v| {
        kubelet_rejects_with(v, "NodePorts")
    }),
    ("a kubelet rejects with TaintToleration", |v| {
        kubelet_rejects_with(v, "TaintToleration")
    }),
    (
        "a feasible node has another operating system by the label",
        |v| is_refused_for(v, "PodOSSelectorNodeLabelDoesNotMatch"),
    ),
    ("a feasible node has another operating system", |v| {
        is_refused_for(v, "PodOSNotSupported")
    }),
    ("a feasible node does not support the groups policy", |v| {
        is_refused_for(v, "SupplementalGroupsPolicyNotSupported")
    }),
];

/// What a run must have seen, and how often.
pub(crate) struct Floor {
    messages: &'static [(&'static str, &'static str)],
    scorers: &'static [&'static str],
    helped: &'static [&'static str],
    behaviours: &'static [Behaviour],
}

pub(crate) const KUBE: Floor = Floor {
    messages: MESSAGES,
    scorers: SCORERS,
    helped: HELPED,
    behaviours: BEHAVIOURS,
};

/// The rest is in [`KUBE`], which nearly the same cases are run with.
pub(crate) const UP: Floor = Floor {
    messages: &[],
    scorers: SCORERS,
    helped: &[],
    behaviours: &[
        ("several nodes are scored", |v| v.cycle.totals.len() > 1),
        ("evicting helps on some node", |v| {
            preemption(v, |candidates, _| candidates > 0)
        }),
    ],
};

/// Its two plugins score, and nothing else.
pub(crate) const KOORDINATOR: Floor = Floor {
    messages: &[],
    scorers: &["NodeResourcesFitPlus", "ScarceResourceAvoidance"],
    helped: &[],
    behaviours: &[("several nodes are scored", |v| v.cycle.totals.len() > 1)],
};

pub(crate) const KATALYST: Floor = Floor {
    messages: &[
        ("QoSAwareNodeResourcesFit", "Insufficient ..."),
        (
            "QoSAwareNodeResourcesFit",
            "node not found in the extended cache",
        ),
    ],
    scorers: &[
        "QoSAwareNodeResourcesFit",
        "QoSAwareNodeResourcesBalancedAllocation",
    ],
    helped: &[],
    behaviours: &[
        ("reclaimed cpu is short", |v| {
            is_short(v, "reclaimed_millicpu")
        }),
        ("reclaimed memory is short", |v| {
            is_short(v, "reclaimed_memory")
        }),
        ("no node fits", |v| v.cycle.message.is_some()),
        ("several nodes are scored", |v| v.cycle.totals.len() > 1),
    ],
};

/// The second machine takes every pod, so it is the first one that matters.
pub(crate) const ZONES: Floor = Floor {
    messages: &[("NodeResourceTopology", "cannot align container")],
    scorers: &["NodeResourceTopology"],
    helped: &[],
    behaviours: &[
        ("several nodes are scored", |v| v.cycle.totals.len() > 1),
        ("the cycle aborts with an error", |v| {
            v.cycle.failure.is_some()
        }),
    ],
};

fn is_short(verdicts: &Verdicts, resource: &str) -> bool {
    let statuses = verdicts.filter.iter().flatten();
    let mut reasons = statuses.flat_map(|status| &status.reasons);
    reasons.any(|reason| reason.ends_with(resource))
}

/// Cases seen so far, by what they showed.
pub(crate) struct Coverage {
    floor: &'static Floor,
    cases: usize,
    seen: BTreeMap<String, usize>,
}

impl Coverage {
    pub(crate) fn new(floor: &'static Floor) -> Self {
        Self {
            floor,
            cases: 0,
            seen: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, verdicts: &Verdicts) {
        self.cases += 1;
        let mut shown: BTreeSet<String> = BTreeSet::new();
        let own_answers = verdicts
            .pre_enqueue
            .iter()
            .chain(verdicts.pre_filter.iter().map(|answer| &answer.status))
            .chain(verdicts.filter.iter().flatten());
        for status in own_answers {
            for reason in &status.reasons {
                shown.insert(message_key(&status.plugin, general(&status.plugin, reason)));
            }
        }
        for scores in &verdicts.cycle.scores {
            if scores.normalized.iter().any(|s| *s != scores.normalized[0]) {
                shown.insert(scorer_key(&scores.plugin));
            }
        }
        let helped = verdicts.hints.iter().flat_map(|hint| hint.helps.keys());
        shown.extend(helped.map(|plugin| helped_key(plugin)));
        for (name, holds) in self.floor.behaviours {
            if holds(verdicts) {
                shown.insert((*name).to_owned());
            }
        }
        for key in shown {
            *self.seen.entry(key).or_default() += 1;
        }
    }

    /// What was seen too seldom, one line each; empty for small runs.
    pub(crate) fn below_floor(&self) -> Vec<String> {
        self.floor
            .wanted()
            .filter(|(key, floor)| self.per_thousand(key) < *floor)
            .map(|(key, floor)| {
                let count = self.per_thousand(&key);
                format!("{key}: in {count} of 1,000 cases, wanted {floor}")
            })
            .collect()
    }

    fn per_thousand(&self, key: &str) -> usize {
        self.seen.get(key).copied().unwrap_or(0) * 1000 / self.cases.max(1)
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seen per 1,000 cases (wanted):")?;
        for (key, floor) in self.floor.wanted() {
            writeln!(f, "{:>5} ({floor:>2})  {key}", self.per_thousand(&key))?;
        }
        let listed: BTreeSet<String> = self.floor.wanted().map(|(key, _)| key).collect();
        for key in self.seen.keys().filter(|key| !listed.contains(*key)) {
            writeln!(f, "{:>5}       {key}", self.per_thousand(key))?;
        }
        Ok(())
    }
}

impl Floor {
    /// All keys with their floors, in the order of the lists above.
    fn wanted(&self) -> impl Iterator<Item = (String, usize)> {
        let messages = self.messages.iter();
        let messages = messages.map(|(plugin, text)| (message_key(plugin, text), FLOOR));
        let scorers = self.scorers.iter();
        let scorers = scorers.map(|plugin| (scorer_key(plugin), FLOOR));
        let helped = self.helped.iter();
        let helped = helped.map(|plugin| (helped_key(plugin), BEHAVIOUR_FLOOR));
        let behaviours = self.behaviours.iter();
        let behaviours = behaviours.map(|(name, _)| ((*name).to_owned(), BEHAVIOUR_FLOOR));
        messages.chain(scorers).chain(helped).chain(behaviours)
    }
}

fn message_key(plugin: &str, text: &str) -> String {
    format!("{plugin}: {text}")
}

fn scorer_key(plugin: &str) -> String {
    format!("{plugin} scores nodes differently")
}

fn helped_key(plugin: &str) -> String {
    format!("something helps a pod that {plugin} rejected")
}

/// The reason without the names that differ from case to case.
fn general<'a>(plugin: &str, reason: &'a str) -> &'a str {
    if MESSAGES.contains(&(plugin, reason)) {
        return reason;
    }
    for (start, shown) in [
        (
            "waiting for scheduling gates: ",
            "waiting for scheduling gates: ...",
        ),
        ("Insufficient ", "Insufficient ..."),
        ("persistentvolumeclaim ", "persistentvolumeclaim ..."),
        ("persistentvolume ", "persistentvolume ..."),
        ("storageclass", "storageclass ..."),
        ("looking up PVC ", "looking up PVC ..."),
        ("waiting for ephemeral ", "waiting for ephemeral ..."),
        ("PVC ", "PVC ..."),
    ] {
        if reason.starts_with(start) {
            return shown;
        }
    }
    reason
}

/// A node that no plugin rejects by itself can only fail with nominated pods added.
fn nominated_pod_decides(verdicts: &Verdicts) -> bool {
    verdicts.cycle.rejected.iter().any(|rejected| {
        verdicts
            .nodes
            .iter()
            .position(|node| *node == rejected.node)
            .is_some_and(|position| verdicts.filter[position].is_empty())
    })
}

fn message_ends_with(cycle: &Cycle, end: &str) -> bool {
    cycle
        .message
        .as_ref()
        .is_some_and(|text| text.ends_with(end))
}

fn preemption(verdicts: &Verdicts, holds: fn(candidates: usize, tied: usize) -> bool) -> bool {
    let found = verdicts.cycle.preemption.as_ref();
    found.is_some_and(|found| holds(found.candidates.len(), found.tied.len()))
}

fn any_candidate(verdicts: &Verdicts, holds: fn(victims: usize, violations: i64) -> bool) -> bool {
    let found = verdicts.cycle.preemption.as_ref();
    found.is_some_and(|found| {
        let mut candidates = found.candidates.iter();
        candidates.any(|candidate| holds(candidate.victims.len(), candidate.pdb_violations))
    })
}

fn kubelet_rejects_with(verdicts: &Verdicts, reason: &str) -> bool {
    let mut answers = verdicts.kubelet.iter();
    answers.any(|answer| answer.reason == reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdicts() -> Verdicts {
        let unschedulable = json!([{
            "plugin": "NodeUnschedulable",
            "code": "UnschedulableAndUnresolvable",
            "reasons": ["node(s) were unschedulable"],
        }]);
        serde_json::from_value(json!({
            "nodes": ["a", "b", "c", "d"],
            "preFilter": [],
            "filter": [unschedulable, unschedulable, [], []],
            "kubelet": [],
            "cycle": {
                "feasible": ["c", "d"],
                "scores": [
                    {"plugin": "ImageLocality", "weight": 1, "raw": [3, 4], "normalized": [3, 4]},
                    {"plugin": "NodeAffinity", "weight": 2, "raw": [1, 1], "normalized": [100, 100]},
                ],
                "totals": [203, 204],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_message_counts_once_per_case_and_equal_scores_do_not_count() {
        let mut coverage = Coverage::new(&KUBE);
        coverage.add(&verdicts());
        assert_eq!(
            coverage.per_thousand("NodeUnschedulable: node(s) were unschedulable"),
            1000
        );
        assert_eq!(
            coverage.seen["NodeUnschedulable: node(s) were unschedulable"],
            1
        );
        assert_eq!(coverage.seen["ImageLocality scores nodes differently"], 1);
        assert!(
            !coverage
                .seen
                .contains_key("NodeAffinity scores nodes differently")
        );
    }

    #[test]
    fn the_floor_names_what_is_missing() {
        let mut coverage = Coverage::new(&KUBE);
        for _ in 0..1_000 {
            coverage.add(&verdicts());
        }
        let below = coverage.below_floor();
        assert!(below.contains(&"NodePorts: node(s) didn't have free ports for the requested pod ports: in 0 of 1,000 cases, wanted 50".to_owned()), "{below:?}");
        assert!(
            !below.iter().any(|line| line.starts_with("ImageLocality")),
            "{below:?}"
        );
    }
}
