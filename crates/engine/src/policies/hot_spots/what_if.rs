//! Asks the scheduler where it would place a pod that leaves its node.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{HotSpotInputs, Marks, NodeLoad};
use crate::cluster::Cluster;
use crate::model::{Name, Pod, Timestamp};
use crate::node::CpuMemory;
use crate::scheduling::hooks::Hooks;
use crate::scheduling::profile::Profile;
use crate::scheduling::scheduler::Cycle;

/// The cluster as it will be after the moves of this round.
pub(super) struct WhatIf<'a> {
    cluster: Cluster,
    profiles: &'a [Profile],
    loads: BTreeMap<Name, NodeLoad>,
    high: Marks,
    now: Timestamp,
    trials: usize,
}

impl<'a> WhatIf<'a> {
    pub(super) fn new(
        observed: &HotSpotInputs<'a>,
        loads: BTreeMap<Name, NodeLoad>,
        high: Marks,
        now: Timestamp,
    ) -> Self {
        Self {
            cluster: observed.cluster.clone(),
            profiles: observed.profiles,
            loads,
            high,
            now,
            trials: 0,
        }
    }

    pub(super) fn load(&self, node: &Name) -> Option<&NodeLoad> {
        self.loads.get(node)
    }

    /// How many pods were tried.
    pub(super) fn trials(&self) -> usize {
        self.trials
    }

    /// Moves the pod to where the scheduler places it, and returns the node with its use then; the coolest if several are
    /// equal. None if no node fits, if the pod could come back or bring a node above the mark, or if nothing is known of the
    /// use of the nodes where it could go.
    pub(super) fn move_away(&mut self, pod: &Arc<Pod>, usage: CpuMemory) -> Option<(Name, Marks)> {
        self.trials += 1;
        let from = pod.node.clone()?;
        let waiting = Arc::new(Pod {
            node: None,
            nominated_node: None,
            zones: None,
            ..(**pod).clone()
        });
        self.cluster.remove_pod(&pod.uid);
        let to = self.target(&waiting, &from, usage);
        // Neither fails: the pod has a uid and a node, and is not placed now.
        let Some(to) = to else {
            let _ = self.cluster.set_pod(pod.clone());
            return None;
        };
        let _ = self.cluster.assume(waiting, to.clone());
        if let Some(load) = self.loads.get_mut(&from) {
            load.leave(usage);
        }
        let load = self.loads.get_mut(&to)?;
        load.arrive(usage);
        Some((to, load.expected_percent()))
    }

    fn target(&self, pod: &Arc<Pod>, from: &Name, usage: CpuMemory) -> Option<Name> {
        let is_its = |it: &&Profile| it.scheduler_name == pod.scheduler_name;
        let profile = self.profiles.iter().find(is_its);
        let profile = profile.or(self.profiles.first())?;
        let hooks = Hooks::default();
        let mut cycle = Cycle::new(&self.cluster, profile, pod, &hooks, self.now);
        // A plugin that fails places the pod nowhere.
        let slots = cycle.choices().ok()?;
        let mut coolest = None;
        for slot in slots {
            let node = &self.cluster.nodes().get(slot)?.node.spec.name;
            let load = self.loads.get(node);
            if node == from || load.is_some_and(|it| !it.stays_below(usage, self.high)) {
                return None;
            }
            let heat = load.map(|it| (it.expected_heat(self.high), node));
            coolest = coolest.into_iter().chain(heat).min();
        }
        coolest.map(|(_, node)| node.clone())
    }
}
