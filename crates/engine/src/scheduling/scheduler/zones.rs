//! NUMA zones of pods: given when a pod is assumed, and checked when a bound pod is observed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Outcome, Scheduler};
use crate::cluster::NodeZones;
use crate::model::{NUMA_ZONES, Name, NumaBinding, Pod, Resource, ZoneSet};

/// The NUMA zones of a pod, for explanations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ZonesReport {
    /// The node of the pod, or the one that it would be bound to.
    #[serde(default)]
    pub node: Name,
    /// Ids, separated by commas; empty if it has none of those that it claims.
    pub zones: String,
    #[serde(default)]
    pub is_exclusive: bool,
    /// Zones of its annotation that an older pod has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Why fewer zones do not suffice; `None` for one zone.
    pub why: Option<String>,
}

/// How a profile chooses zones; `None` if it gives none.
type Choose<'a> = &'a dyn Fn(&Pod, &NodeZones) -> Option<ZoneSet>;

impl ZonesReport {
    /// The report of a pod that has these zones, or would get them. The node's other pods are in `others`, the pod is not.
    pub(super) fn new(
        pod: &Pod,
        node: &Name,
        zones: ZoneSet,
        others: Option<&NodeZones>,
        choose: Choose,
    ) -> Self {
        Self {
            node: node.clone(),
            zones: zones.to_string(),
            is_exclusive: pod.numa_binding() == Some(NumaBinding::Exclusive),
            refused: None,
            why: others.and_then(|others| why_not_fewer(pod, zones, others, choose)),
        }
    }
}

fn why_not_fewer(pod: &Pod, zones: ZoneSet, others: &NodeZones, choose: Choose) -> Option<String> {
    let fewer = zones.len().checked_sub(1).filter(|fewer| *fewer > 0)?;
    let amount = |resource: &Resource| {
        let wanted = pod.requests.wanted.get(resource);
        format!("{} of {}", resource.quantity(wanted), resource.name())
    };
    for resource in [Resource::Cpu, Resource::Memory] {
        let all = others.topology().zones().iter();
        let mut sizes: Vec<i64> = all.map(|it| it.allocatable.get(&resource)).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let largest: i64 = sizes.iter().take(fewer).sum();
        if largest < pod.requests.wanted.get(&resource) {
            let (wanted, most) = (amount(&resource), resource.quantity(largest));
            let have = if fewer == 1 { "zone has" } else { "zones have" };
            return Some(format!(
                "it requests {wanted}, and {fewer} {have} at most {most}"
            ));
        }
    }
    // Enough of each resource: so it is the other pods, the sockets, or one zone has cpu and the other one memory.
    let idle = others.without_pods();
    let best = choose(pod, &idle)?;
    let enough = |best: ZoneSet| match best.len() {
        1 => format!("{} is enough", best.named()),
        _ => format!("{} are enough", best.named()),
    };
    if best.len() < zones.len() {
        let holders = others.holders().iter();
        let holders = holders.filter(|it| !it.zones.both(best).is_empty());
        let names = holders.map(|it| format!("{}/{}", it.namespace, it.name));
        let names: Vec<String> = names.collect();
        let enough = enough(best);
        return Some(match names.is_empty() {
            false => format!("{enough}, but in use by {}", names.join(", ")),
            true if !others.others_fit_without(best) => {
                format!("{enough}, but then the other pods of the node do not fit")
            }
            true => format!("{enough} now, but not when the pod got its zones"),
        });
    }
    let anywhere = choose(pod, &idle.in_one_socket())?;
    Some(match anywhere.len() < zones.len() {
        true => format!("{}, but of different sockets", enough(anywhere)),
        false => {
            let (cpu, memory) = (amount(&Resource::Cpu), amount(&Resource::Memory));
            match fewer {
                1 => format!("no single zone has both {cpu} and {memory}"),
                _ => format!("no {fewer} zones have both {cpu} and {memory}"),
            }
        }
    })
}

impl Scheduler {
    /// The pod with the NUMA zones that it gets on the node. From here on they are the pod's: there is nothing to give back
    /// but the pod itself.
    pub(super) fn with_zones(&self, profile: usize, pod: &Arc<Pod>, slot: usize) -> Arc<Pod> {
        let profile = self.profiles.get(profile);
        // As in the filters: nominated pods that go before this one get theirs first.
        let mut first = self.cluster.nominated_before(pod, slot).peekable();
        let entry = self.cluster.nodes().get(slot);
        let topology = entry.and_then(|entry| entry.node.spec.topology.as_ref());
        let node = match topology.filter(|_| first.peek().is_some()) {
            Some(topology) => {
                let pods = self.cluster.pods_on(slot).map(|placed| &placed.pod);
                let pods: Vec<&Arc<Pod>> = pods.collect();
                Some(Cow::Owned(profile.zones_with(topology, &pods, first)))
            }
            None => self.cluster.zones_of(slot).map(Cow::Borrowed),
        };
        match profile.zones(pod, node.as_deref()) {
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
        let given = before.and_then(|before| before.zones);
        if let Some(given) = given.filter(|_| messages.is_empty() && pod.zones != given) {
            let now = pod.zones.unwrap_or_default();
            messages.push(format!(
                "annotation {NUMA_ZONES} of the pod changed from `{given}` to `{now}` after the bind: only the scheduler may set it"
            ));
        }
        let node = pod.node.as_ref().and_then(|node| self.zones_on(node));
        let reported = node.map(|node| node.topology().all());
        let missing = reported.map(|reported| pod.zones.unwrap_or_default().without(reported));
        if let Some(missing) = missing.filter(|missing| !missing.is_empty()) {
            messages.push(format!(
                "the node does not report NUMA {} of the pod's annotation {NUMA_ZONES}",
                missing.named()
            ));
        }
        for message in messages {
            let pod = pod.clone();
            self.ready.push_back(Outcome::Warn { pod, message });
        }
    }

    fn zones_on(&self, node: &Name) -> Option<&NodeZones> {
        let slot = self.cluster.nodes().slot(node)?;
        self.cluster.zones_of(slot)
    }

    /// The zones that pods on a node claim and do not get, by uid.
    pub(super) fn refused_zones(&self, node: &Name) -> BTreeMap<Name, ZoneSet> {
        let holders = self.zones_on(node).map_or(&[][..], NodeZones::holders);
        let refused = holders.iter().filter(|it| !it.refused.is_empty());
        refused.map(|it| (it.uid.clone(), it.refused)).collect()
    }

    /// Warns about pods that do not get zones which they were not refused before.
    pub(super) fn warn_of_refused_zones(&mut self, node: &Name, before: &BTreeMap<Name, ZoneSet>) {
        for (uid, refused) in self.refused_zones(node) {
            let Some(placed) = self.cluster.placed(&uid) else {
                continue;
            };
            let pod = placed.pod.clone();
            let is_ours = self.profiles.find(&pod.scheduler_name).is_some();
            if !is_ours || before.get(&uid) == Some(&refused) {
                continue;
            }
            let message = format!(
                "the pod does not get NUMA {} of its annotation {NUMA_ZONES}: an older pod has {}",
                refused.named(),
                if refused.len() == 1 { "it" } else { "them" },
            );
            self.ready.push_back(Outcome::Warn { pod, message });
        }
    }
}
