//! Hot-spot relief: which pods leave a node whose pods use too much of it.
//!
//! A node is hot while its use is above a high mark. After some rounds in a row the plan moves pods away, weakest class first,
//! each only if the scheduler would place it on another node that stays below the mark. Decides only; the controller of hot
//! spots reads the objects and evicts the pods.

mod history;
mod load;
mod what_if;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::model::{Name, Pod, QosClass, Timestamp};
use crate::node::CpuMemory;
use crate::policies::tiers::NodeMetric;
use crate::scheduling::profile::Profile;
pub use history::History;
pub use load::{Marks, NodeLoad};
use what_if::WhatIf;

/// When a node is hot, and how fast it is relieved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotSpotSettings {
    /// A node whose use of one resource is above is hot.
    pub high: Marks,
    /// A node whose use of both resources is not above is cool. Without a cool node no pod is moved.
    pub low: Marks,
    /// Pods are moved from a node that is hot in so many rounds in a row.
    pub rounds: u32,
    /// Pods of one node that are on their way at a time.
    pub per_node: usize,
    /// The time between two moves of pods of one workload.
    pub workload_pause: Duration,
    /// The time between two moves of Mid+BE pods of one workload.
    pub mid_best_effort_pause: Duration,
    /// Pods that are moved in a minute, in the whole cluster.
    pub per_minute: usize,
}

impl Default for HotSpotSettings {
    fn default() -> Self {
        Self {
            high: Marks {
                cpu: 75,
                memory: 80,
            },
            low: Marks {
                cpu: 45,
                memory: 55,
            },
            rounds: 6,
            per_node: 2,
            workload_pause: Duration::from_secs(300),
            mid_best_effort_pause: Duration::from_secs(600),
            per_minute: 10,
        }
    }
}

/// What is observed of the cluster.
#[derive(Clone, Copy)]
pub struct HotSpotInputs<'a> {
    pub cluster: &'a Cluster,
    /// By node.
    pub metrics: &'a BTreeMap<Name, NodeMetric>,
    /// The profiles of the scheduler. A pod whose scheduler has none is evaluated with the first one.
    pub profiles: &'a [Profile],
}

/// A pod that leaves its node, and the figures behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotSpotMove {
    pub namespace: Name,
    pub name: Name,
    pub uid: Name,
    pub class: QosClass,
    /// What the pod uses.
    pub usage: CpuMemory,
    pub from: Name,
    /// What `from` uses before the move, in percent of its allocatable.
    pub from_percent: Marks,
    /// The node where the scheduler would place the pod.
    pub to: Name,
    /// What `to` would use then.
    pub to_percent: Marks,
    /// Rounds in a row in which `from` was hot.
    pub rounds: u32,
}

/// The result of one round.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HotSpotPlan {
    pub moves: Vec<HotSpotMove>,
    /// Nodes above a high mark in this round.
    pub hot: usize,
    /// Nodes below both low marks.
    pub cool: usize,
    /// Nodes with a current NodeMetric.
    pub known: usize,
    /// Pods that could not be moved: the scheduler would place them nowhere else, or would heat that node.
    pub unplaceable: usize,
}

/// The scheduler is asked about so many pods in a round. Each question evaluates all nodes.
const MOST_TRIALS: usize = 100;

/// Plans one round. `history` has what earlier rounds saw and did.
pub fn plan(
    observed: &HotSpotInputs<'_>,
    settings: &HotSpotSettings,
    history: &mut History,
    now: Timestamp,
) -> HotSpotPlan {
    history.forget(observed.cluster, now);
    let loads = load::loads(observed, history, now);
    let hot = history.count(&loads, settings);
    let found = HotSpotPlan {
        hot: hot.len(),
        cool: loads.values().filter(|it| it.is_cool(settings.low)).count(),
        known: loads.len(),
        ..HotSpotPlan::default()
    };
    let due: Vec<(Name, u32)> = hot
        .into_iter()
        .filter(|(_, rounds)| *rounds >= settings.rounds)
        .collect();
    if due.is_empty() || found.cool == 0 {
        return found;
    }
    let mut round = Round {
        observed,
        settings,
        history,
        what_if: WhatIf::new(observed, loads, settings.high, now),
        now,
        found,
    };
    for (node, rounds) in due {
        round.relieve(&node, rounds);
    }
    round.found
}

struct Round<'a> {
    observed: &'a HotSpotInputs<'a>,
    settings: &'a HotSpotSettings,
    history: &'a mut History,
    what_if: WhatIf<'a>,
    now: Timestamp,
    found: HotSpotPlan,
}

impl Round<'_> {
    /// Moves pods of one node until it is below the mark or a limit is reached.
    fn relieve(&mut self, node: &Name, rounds: u32) {
        let high = self.settings.high;
        let leaving = self.history.leaving(self.observed.cluster, node);
        let mut left = self.settings.per_node.saturating_sub(leaving);
        let load = self.what_if.load(node);
        let victims = load.map(|load| victims(self.observed.cluster, node, load, high));
        for Victim { pod, usage } in victims.unwrap_or_default() {
            let Some(load) = self.what_if.load(node) else {
                return;
            };
            let has_room = left > 0 && self.history.has_room(self.now);
            if !has_room || !load.is_hot(high) || self.what_if.trials() == MOST_TRIALS {
                return;
            }
            let helps = load.short(usage, high) > 0;
            let from_percent = load.percent();
            let pause = self.history.movable(&pod, self.settings, self.now);
            let Some(pause) = pause.filter(|_| helps) else {
                continue;
            };
            let Some((to, to_percent)) = self.what_if.move_away(&pod, usage) else {
                self.found.unplaceable += 1;
                continue;
            };
            let cluster = self.observed.cluster;
            self.history.record(&pod, pause, cluster, self.now);
            left -= 1;
            self.found.moves.push(HotSpotMove {
                namespace: pod.namespace().clone(),
                name: pod.name.clone(),
                uid: pod.uid.clone(),
                class: pod.qos,
                usage,
                from: node.clone(),
                from_percent,
                to,
                to_percent,
                rounds,
            });
        }
    }
}

struct Victim {
    pod: Arc<Pod>,
    usage: CpuMemory,
}

/// Pods of the node that may leave, in the order in which they do: by class, then by their use of what is short.
fn victims(cluster: &Cluster, node: &Name, load: &NodeLoad, high: Marks) -> Vec<Victim> {
    let slot = cluster.nodes().slot(node);
    let pods = slot.into_iter().flat_map(|slot| cluster.pods_on(slot));
    let mut victims: Vec<Victim> = pods
        .filter(|placed| rank(placed.pod.qos).is_some() && !placed.pod.kind.terminating)
        .filter_map(|placed| {
            Some(Victim {
                usage: load.usage_of(&placed.pod)?,
                pod: placed.pod.clone(),
            })
        })
        .collect();
    victims.sort_by_cached_key(|it| {
        let short = std::cmp::Reverse(load.short(it.usage, high));
        let name = (it.pod.namespace().clone(), it.pod.name.clone());
        (rank(it.pod.qos), short, name, it.pod.uid.clone())
    });
    victims
}

/// Which class leaves first; `None` for services, which stay.
fn rank(class: QosClass) -> Option<u8> {
    match class {
        QosClass::Free => Some(0),
        QosClass::Lent => Some(1),
        QosClass::MidLatencySensitive => Some(2),
        QosClass::MidBestEffort => Some(3),
        QosClass::System | QosClass::Dedicated | QosClass::Online => None,
    }
}

#[cfg(test)]
mod tests;
