//! NUMA zones of pods: given when a pod is assumed, and checked when a bound pod is observed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Outcome, Scheduler};
use crate::cluster::NodeZones;
use crate::model::{NUMA_ZONES, Pod, Resource};

/// The NUMA zones of a pod, for explanations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZonesReport {
    /// Ids, separated by commas.
    pub zones: String,
    /// Why fewer zones do not suffice; `None` for one zone, and where the size of the zones is not the reason.
    pub why: Option<String>,
}

impl ZonesReport {
    /// `None` if the pod has no zones.
    pub(super) fn new(pod: &Pod, node: Option<&NodeZones>) -> Option<Self> {
        let zones = pod.zones.filter(|_| pod.numa_binding().is_some())?;
        let fewer = zones.len().saturating_sub(1);
        let too_small = |resource: Resource| {
            let sizes = node?.topology().zones().iter();
            let mut sizes: Vec<i64> = sizes.map(|it| it.allocatable.get(&resource)).collect();
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            let largest: i64 = sizes.iter().take(fewer).sum();
            let wanted = pod.requests.wanted.get(&resource);
            (largest < wanted && fewer > 0).then(|| {
                let (most, wanted) = (resource.quantity(largest), resource.quantity(wanted));
                let name = resource.name();
                let have = if fewer == 1 { "zone has" } else { "zones have" };
                format!("it requests {wanted} of {name}, and {fewer} {have} at most {most}")
            })
        };
        Some(Self {
            zones: zones.to_string(),
            why: too_small(Resource::Cpu).or_else(|| too_small(Resource::Memory)),
        })
    }
}

impl Scheduler {
    /// The pod with the NUMA zones that it gets on the node. From here on they are the pod's: there is nothing to give back
    /// but the pod itself.
    pub(super) fn with_zones(&self, profile: usize, pod: &Arc<Pod>, slot: usize) -> Arc<Pod> {
        let node = self.cluster.zones_of(slot);
        match self.profiles.get(profile).zones(pod, node) {
            None => pod.clone(),
            zones => Arc::new(Pod {
                zones,
                ..(**pod).clone()
            }),
        }
    }

    /// Warns about an annotation that is new to us and does not hold. `before` is the pod as it was known.
    pub(super) fn warn_of_zones(&mut self, pod: &Arc<Pod>, before: Option<&Arc<Pod>>) {
        let is_known = before
            .is_some_and(|before| (before.zones, &before.warnings) == (pod.zones, &pod.warnings));
        let is_ours = self.profiles.find(&pod.scheduler_name).is_some();
        if is_known || !is_ours || pod.numa_binding().is_none() {
            return;
        }
        let invalid = pod.warnings.iter().filter(|text| text.contains(NUMA_ZONES));
        let mut messages: Vec<String> = invalid.cloned().collect();
        let slot = pod
            .node
            .as_ref()
            .and_then(|it| self.cluster.nodes().slot(it));
        let holders = slot.and_then(|slot| Some(self.cluster.zones_of(slot)?.holders()));
        let holder = holders.into_iter().flatten().find(|it| it.uid == pod.uid);
        if let Some(refused) = holder.map(|it| it.refused).filter(|it| !it.is_empty()) {
            messages.push(format!(
                "the pod does not get NUMA zone {refused} of its annotation {NUMA_ZONES}: an older pod has it"
            ));
        }
        for message in messages {
            let pod = pod.clone();
            self.ready.push_back(Outcome::Warn { pod, message });
        }
    }
}
