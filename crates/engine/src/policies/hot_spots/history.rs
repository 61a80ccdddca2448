//! What earlier rounds saw and did: how long nodes are hot, and which pods were moved.
//!
//! Times are of the caller's clock. The time in a NodeMetric is of the node's clock, which may be wrong: it is only compared
//! with the one before.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{HotSpotMove, HotSpotSettings, NodeLoad};
use crate::cluster::Cluster;
use crate::model::{Name, Owner, Pod, QosClass, Timestamp};
use crate::policies::eviction_rate::EvictionRate;
use crate::policies::tiers::NodeMetric;

/// A NodeMetric that does not change for so long says nothing about now. The same time as of Koordinator's descheduler.
const METRIC_EXPIRES: Duration = Duration::from_secs(180);
/// Pods that replace a moved one stay for so long.
const REMEMBERED: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

/// It has an entry per node, and one per pod and workload that was moved in the last hour.
#[derive(Debug, Clone)]
pub struct History {
    /// Rounds in a row in which a node was hot.
    rounds: BTreeMap<Name, u32>,
    /// The time in the NodeMetric of a node, and when the caller saw it first.
    metrics: BTreeMap<Name, (Option<Timestamp>, Timestamp)>,
    /// Pods that were moved and are still on their node, by uid.
    leaving: BTreeSet<Name>,
    /// By the uid of the owner.
    workloads: BTreeMap<Name, MovedWorkload>,
    rate: EvictionRate,
    began: Timestamp,
}

#[derive(Debug, Clone)]
struct MovedWorkload {
    moved: Timestamp,
    paused_until: Timestamp,
    /// When the newest pod of the cluster was created, by the clock of the API server. Later pods replace moved ones.
    newest: Timestamp,
}

impl History {
    /// Nothing is known of moves before `began`, by the process that led then: workloads wait for their pause first.
    pub fn new(settings: &HotSpotSettings, began: Timestamp) -> Self {
        Self {
            rounds: BTreeMap::new(),
            metrics: BTreeMap::new(),
            leaving: BTreeSet::new(),
            workloads: BTreeMap::new(),
            rate: EvictionRate::new(settings.per_minute, MINUTE),
            began,
        }
    }

    /// The pod stays on its node: a PodDisruptionBudget protects it, or the request failed. Its workload is not tried again
    /// before the pause is over.
    pub fn stayed(&mut self, pod: &HotSpotMove) {
        if self.leaving.remove(&pod.uid) {
            self.rate.give_back();
        }
    }

    /// Drops what is about pods and workloads that do not matter any more.
    pub(super) fn forget(&mut self, cluster: &Cluster, now: Timestamp) {
        self.leaving.retain(|uid| cluster.placed(uid).is_some());
        self.workloads
            .retain(|_, it| it.moved.plus(REMEMBERED) > now || it.paused_until > now);
        let exists = |node: &Name| cluster.nodes().slot(node).is_some();
        self.metrics.retain(|node, _| exists(node));
    }

    /// Whether the metric has changed in the last time, or is new to us.
    pub(super) fn is_current(&mut self, node: &Name, metric: &NodeMetric, now: Timestamp) -> bool {
        let seen = self
            .metrics
            .entry(node.clone())
            .or_insert((metric.updated, now));
        if seen.0 != metric.updated {
            *seen = (metric.updated, now);
        }
        metric.updated.is_some() && seen.1.plus(METRIC_EXPIRES) > now
    }

    /// Counts a round. Returns the nodes that are hot, the hottest first, and for how many rounds.
    pub(super) fn count(
        &mut self,
        loads: &BTreeMap<Name, NodeLoad>,
        settings: &HotSpotSettings,
    ) -> Vec<(Name, u32)> {
        let mut hot: Vec<(&Name, &NodeLoad)> = loads
            .iter()
            .filter(|(_, load)| load.is_hot(settings.high))
            .collect();
        // The order of names stays for nodes that are equally hot.
        hot.sort_by_key(|(_, load)| Reverse(load.heat(settings.high)));
        let before = std::mem::take(&mut self.rounds);
        let counted: Vec<(Name, u32)> = hot
            .into_iter()
            .map(|(node, _)| {
                let rounds = before.get(node).copied().unwrap_or(0).saturating_add(1);
                (node.clone(), rounds)
            })
            .collect();
        self.rounds.extend(counted.iter().cloned());
        counted
    }

    /// How many pods that were moved are still on the node.
    pub(super) fn leaving(&self, cluster: &Cluster, node: &Name) -> usize {
        let on_node = |uid: &&Name| cluster.placed(uid).is_some_and(|it| it.node == *node);
        self.leaving.iter().filter(on_node).count()
    }

    pub(super) fn has_room(&mut self, now: Timestamp) -> bool {
        self.rate.room(now).is_ok()
    }

    /// The pause of the workload after a move; `None` if the pod may not be moved now.
    pub(super) fn movable(
        &self,
        pod: &Pod,
        settings: &HotSpotSettings,
        now: Timestamp,
    ) -> Option<Duration> {
        let owner = owner(pod)?;
        let workload = self.workloads.get(&owner.uid);
        let is_paused = workload.is_some_and(|it| it.paused_until > now);
        let is_new = workload.is_some_and(|it| pod.created > it.newest);
        if self.leaving.contains(&pod.uid) || is_paused || is_new {
            return None;
        }
        let pause = match pod.qos {
            QosClass::MidBestEffort => settings.mid_best_effort_pause,
            _ => settings.workload_pause,
        };
        (self.began.plus(pause) <= now).then_some(pause)
    }

    pub(super) fn record(&mut self, pod: &Pod, pause: Duration, cluster: &Cluster, now: Timestamp) {
        let Some(owner) = owner(pod) else {
            return;
        };
        // The caller has asked whether there is room.
        let _ = self.rate.take(now);
        self.leaving.insert(pod.uid.clone());
        let newest = cluster.all_placed().map(|it| it.pod.created).max();
        let workload = self.workloads.entry(owner.uid.clone());
        // The first move in a row sets `newest`: what replaced that pod stays, too.
        let workload = workload.or_insert_with(|| MovedWorkload {
            moved: now,
            paused_until: now,
            newest: newest.unwrap_or(pod.created),
        });
        (workload.moved, workload.paused_until) = (now, now.plus(pause));
    }
}

/// The controller that creates the pod again on another node. Pods of a DaemonSet and static pods belong to their node; a pod
/// without a controller would be lost.
fn owner(pod: &Pod) -> Option<&Owner> {
    let owner = pod.owner.as_ref()?;
    (!matches!(&*owner.kind, "DaemonSet" | "Node")).then_some(owner)
}
