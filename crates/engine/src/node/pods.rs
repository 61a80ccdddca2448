//! The node and its pods as the API server describes them, and which pods are the agent's own.

use std::collections::BTreeMap;

use super::{CpuMemory, CpuSet, GroupClaim, PodQos};
use crate::model::{
    Labels, Name, NumaBinding, QosClass, QosLabels, Quantity, ReclaimedResource, Resource,
    TierAccount, Timestamp, ZoneSet,
};

/// The node, as far as the agent needs its object.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LocalNode {
    pub name: Name,
    pub labels: Labels,
    pub capacity: CpuMemory,
    /// Before amplification: the annotation `node.koordinator.sh/raw-allocatable` where it exists.
    pub allocatable: CpuMemory,
    /// What the annotation `node.koordinator.sh/reservation` reserves.
    pub reserved: CpuMemory,
    /// The CPUs that the annotation `node.koordinator.sh/reservation` names; no own pod runs there.
    pub reserved_cpus: CpuSet,
}

impl LocalNode {
    /// What is kept for the system: the kubelet's reservation or the annotation's, whichever is larger.
    pub fn system_reserve(&self) -> CpuMemory {
        let kubelet = self.capacity.minus(self.allocatable).positive();
        kubelet.max(self.reserved)
    }
}

/// A pod that is bound to the node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LocalPod {
    pub namespace: Name,
    pub name: Name,
    /// The uid of the object; the precondition of an eviction.
    pub uid: Name,
    /// The uid in the name of the cgroup: for a static pod the hash of its file. By [`super::groups::settle`].
    pub group: Name,
    /// The group that the pod itself names.
    pub claim: Option<GroupClaim>,
    /// By [`class`].
    pub class: QosClass,
    pub qos: PodQos,
    pub phase: PodPhase,
    pub terminating: bool,
    /// A mirror pod: the kubelet would start it again.
    pub is_static: bool,
    pub created: Timestamp,
    /// The uid of its controller.
    pub owner: Option<Name>,
    pub priority: i32,
    /// As `spec.overhead`.
    pub overhead: CpuMemory,
    /// Init containers and sidecars in their order, then regular ones.
    pub containers: Vec<LocalContainer>,
    /// CPUs that the pod is bound to, by the kubelet's static CPU manager or, if that is believed, by Koordinator's allocation.
    pub bound_cpus: CpuSet,
    /// No other pod may use them: QoS class LSE, or dedicated with exclusive NUMA nodes.
    pub is_exclusive: bool,
    /// How a `dedicated_cores` pod with `numa_binding` uses its zones.
    pub numa_binding: Option<NumaBinding>,
    /// The zones in the annotation `tidepool.io/numa-zones`. They have no effect without `numa_binding`.
    pub zones: ZoneSet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PodPhase {
    Pending,
    #[default]
    Running,
    /// Succeeded or Failed.
    Finished,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct LocalContainer {
    pub name: Name,
    /// Without the runtime's prefix; none before its first start.
    pub id: Option<Name>,
    pub role: ContainerRole,
    /// `cpu` and `memory`.
    pub native: ResourcePair,
    /// Amounts of tiers.
    pub tiers: BTreeMap<TierAccount, ResourcePair>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContainerRole {
    #[default]
    Regular,
    /// It ends before regular containers start.
    Init,
    /// An init container that keeps running.
    Sidecar,
}

/// More than any machine has. A request may be any number, and what is beyond this counts as this.
const MOST_REQUESTED: i64 = 1 << 50;

/// Zero where a resource is not named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourcePair {
    pub requests: CpuMemory,
    pub limits: CpuMemory,
}

impl LocalContainer {
    /// Adds one entry of `resources.requests`. Resources that are neither native cpu or memory nor of a tier are ignored.
    pub fn add_request(&mut self, resource: &str, quantity: Quantity) {
        self.add(resource, quantity, |pair| &mut pair.requests);
    }

    /// Adds one entry of `resources.limits`.
    pub fn add_limit(&mut self, resource: &str, quantity: Quantity) {
        self.add(resource, quantity, |pair| &mut pair.limits);
    }

    fn add(
        &mut self,
        resource: &str,
        quantity: Quantity,
        side: fn(&mut ResourcePair) -> &mut CpuMemory,
    ) {
        let bounded = |amount: i64| amount.clamp(0, MOST_REQUESTED);
        match resource {
            "cpu" => side(&mut self.native).milli_cpu = bounded(Resource::Cpu.integer(quantity)),
            "memory" => side(&mut self.native).memory = bounded(Resource::Memory.integer(quantity)),
            _ => {
                let Some((tier, kind)) = TierAccount::parse(resource) else {
                    return;
                };
                let amounts = side(self.tiers.entry(tier).or_default());
                match kind {
                    // The unit of a tier's cpu is a thousandth of a core.
                    ReclaimedResource::Cpu => amounts.milli_cpu = bounded(quantity.units()),
                    ReclaimedResource::Memory => amounts.memory = bounded(quantity.units()),
                }
            }
        }
    }

    /// The amounts that the container lives on in a pod of the class: of the tier's names, or native.
    pub fn amounts(&self, class: QosClass) -> ResourcePair {
        let of = |tier| self.tiers.get(&tier).copied().unwrap_or_default();
        match class {
            QosClass::MidLatencySensitive | QosClass::MidBestEffort => of(TierAccount::Mid),
            // A pod names one of them; where it names both, each counts.
            QosClass::Lent => {
                let (batch, reclaimed) = (of(TierAccount::Batch), of(TierAccount::Reclaimed));
                ResourcePair {
                    requests: batch.requests.plus(reclaimed.requests),
                    limits: batch.limits.plus(reclaimed.limits),
                }
            }
            QosClass::Free => ResourcePair::default(),
            QosClass::System | QosClass::Dedicated | QosClass::Online => self.native,
        }
    }
}

impl LocalPod {
    /// Whether the agent may write its cgroups, suppress and evict it: mid, lent and free pods.
    pub fn is_own(&self) -> bool {
        self.class >= QosClass::MidLatencySensitive
    }

    /// Whether it runs on what the threshold of suppression leaves: own pods but Mid+LS.
    pub fn is_suppressed(&self) -> bool {
        self.class >= QosClass::MidBestEffort
    }

    /// Whether it counts against the headroom: batch, reclaimed and free pods.
    pub fn is_lent(&self) -> bool {
        self.class >= QosClass::Lent
    }

    /// It holds or will hold resources.
    pub fn is_active(&self) -> bool {
        self.phase != PodPhase::Finished
    }

    /// The workload, for limits per workload: the controller, or the pod itself.
    pub fn workload(&self) -> &Name {
        self.owner.as_ref().unwrap_or(&self.uid)
    }

    /// What the pod requests by the names of one tier.
    pub fn tier_request(&self, tier: TierAccount) -> CpuMemory {
        super::cgroup::pod_total(self, |container| {
            container
                .tiers
                .get(&tier)
                .copied()
                .unwrap_or_default()
                .requests
        })
    }

    /// What the pod requests of the resources it lives on.
    pub fn request(&self) -> CpuMemory {
        super::cgroup::pod_total(self, |container| container.amounts(self.class).requests)
    }
}

/// The class of a pod on its node. A pod that names resources of a tier runs on borrowed capacity whatever its labels say, so of
/// the two the weaker class holds.
pub fn class(labels: &QosLabels<'_>) -> QosClass {
    let Some(account) = labels.account else {
        return labels.class();
    };
    let by_resources = QosLabels {
        // The only label by which pods of one account differ.
        koordinator_class: labels.koordinator_class.filter(|it| *it == "LS"),
        account: Some(account),
        ..QosLabels::default()
    };
    labels.class().max(by_resources.class())
}

#[cfg(test)]
mod tests {
    use super::*;
    use QosClass::*;

    #[test]
    fn pods_are_own_by_resources_labels_and_annotations_but_not_by_a_number() {
        let plain = QosLabels::default();
        let tier = |account| QosLabels {
            account: Some(account),
            ..plain
        };
        let koord = |class, band| QosLabels {
            koordinator_class: class,
            koordinator_band: band,
            ..plain
        };
        for (case, labels, want) in [
            ("no marks", plain, Online),
            ("mid resources", tier(TierAccount::Mid), MidBestEffort),
            (
                "mid resources, LS",
                QosLabels {
                    koordinator_class: Some("LS"),
                    ..tier(TierAccount::Mid)
                },
                MidLatencySensitive,
            ),
            (
                "mid resources, BE",
                QosLabels {
                    koordinator_class: Some("BE"),
                    ..tier(TierAccount::Mid)
                },
                MidBestEffort,
            ),
            (
                "mid resources, unknown class",
                QosLabels {
                    koordinator_class: Some("gold"),
                    ..tier(TierAccount::Mid)
                },
                MidBestEffort,
            ),
            (
                "batch resources, LS in prod",
                QosLabels {
                    account: Some(TierAccount::Batch),
                    ..koord(Some("LS"), Some("koord-prod"))
                },
                Lent,
            ),
            ("batch resources", tier(TierAccount::Batch), Lent),
            ("reclaimed resources", tier(TierAccount::Reclaimed), Lent),
            (
                "reclaimed resources of a system pod",
                QosLabels {
                    katalyst_level: Some("system_cores"),
                    ..tier(TierAccount::Reclaimed)
                },
                Lent,
            ),
            (
                "annotation",
                QosLabels {
                    katalyst_level: Some("reclaimed_cores"),
                    ..plain
                },
                Lent,
            ),
            ("label BE", koord(Some("BE"), None), Lent),
            (
                "LS and band mid",
                koord(Some("LS"), Some("koord-mid")),
                MidLatencySensitive,
            ),
            ("band free", koord(None, Some("koord-free")), Free),
            (
                "PriorityClass koord-batch",
                QosLabels {
                    priority_class: Some("koord-batch"),
                    ..plain
                },
                Lent,
            ),
            (
                "another PriorityClass",
                QosLabels {
                    priority_class: Some("system-node-critical"),
                    ..plain
                },
                Online,
            ),
            ("LSE", koord(Some("LSE"), None), Dedicated),
            ("prod", koord(Some("LS"), Some("koord-prod")), Online),
        ] {
            assert_eq!(class(&labels), want, "{case}");
        }
    }

    #[test]
    fn units_of_tiers() {
        let quantity = |text| Quantity::parse(text).unwrap();
        let mut container = LocalContainer::default();
        container.add_request("cpu", quantity("1500m"));
        container.add_limit("memory", quantity("1Gi"));
        container.add_request("kubernetes.io/mid-cpu", quantity("1500"));
        container.add_limit("kubernetes.io/mid-memory", quantity("2Gi"));
        container.add_request("katalyst.kubewharf.io/reclaimed_millicpu", quantity("250"));
        container.add_request("nvidia.com/gpu", quantity("1"));
        assert_eq!(container.native.requests, CpuMemory::new(1500, 0));
        assert_eq!(container.native.limits, CpuMemory::new(0, 1 << 30));
        let mid = container.amounts(MidBestEffort);
        assert_eq!(mid.requests, CpuMemory::new(1500, 0));
        assert_eq!(mid.limits, CpuMemory::new(0, 2 << 30));
        assert_eq!(container.amounts(Lent).requests.milli_cpu, 250);
        assert_eq!(container.tiers.len(), 2);
    }
}
