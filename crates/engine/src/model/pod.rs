//! A pod, as far as decisions read it.

use std::sync::Arc;

use super::{
    Labels, Name, NumaBinding, OpenPriority, PodRequests, PodTerm, PreferredNodeTerm,
    PreferredPodTerm, QosClass, QosLevel, RequiredNodes, Selector, Timestamp, Toleration, ZoneSet,
};

/// The controller of a pod or claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    pub api_version: Name,
    pub kind: Name,
    pub name: Name,
    pub uid: Name,
}

/// What the author of a pod without a node wrote into annotations that belong to a scheduler. Nothing of it counts, but a Binding
/// without these keys would leave it on the bound pod, where it looks like a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AuthorClaims {
    /// The zones in [`super::NUMA_ZONES`]; empty if the text is not valid.
    pub zones: Option<ZoneSet>,
    /// There is a [`super::POLICY_UNIT`].
    pub unit: bool,
}

impl AuthorClaims {
    pub fn keys(self) -> impl Iterator<Item = &'static str> {
        let zones = self.zones.map(|_| super::NUMA_ZONES);
        let unit = self.unit.then_some(super::POLICY_UNIT);
        zones.into_iter().chain(unit)
    }
}

/// One pod. What other pods' decisions can see of it is its [`PodKind`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pod {
    pub name: Name,
    pub uid: Name,
    pub kind: Arc<PodKind>,
    /// `spec.nodeName`: where it is bound.
    pub node: Option<Name>,
    /// `status.nominatedNodeName`.
    pub nominated_node: Option<Name>,
    pub scheduler_name: Name,
    pub priority: i32,
    /// If the API server has not filled the priority in.
    pub open_priority: Option<OpenPriority>,
    pub preemption_policy: PreemptionPolicy,
    pub requests: PodRequests,
    pub nodes: RequiredNodes,
    pub preferred_nodes: Option<Vec<PreferredNodeTerm>>,
    pub tolerations: Vec<Toleration>,
    pub spread: Vec<SpreadConstraint>,
    pub scheduling_gates: Vec<Name>,
    pub owner: Option<Owner>,
    /// Images of init and regular containers, in that order, as written.
    pub images: Vec<Name>,
    pub image_volumes: Vec<Name>,
    pub volumes: Vec<Volume>,
    /// Names of `spec.resourceClaims`.
    pub resource_claims: Vec<Name>,
    /// Those of them that were made for the pod, with the name of what was made; from `status.resourceClaimStatuses`.
    pub generated_claims: Vec<(Name, Name)>,
    /// Features a node must declare, inferred from the spec.
    pub needed_features: Vec<Name>,
    pub qos: QosClass,
    /// As the annotation says; the same in `requests`.
    pub level: QosLevel,
    pub enhancements: Enhancements,
    /// Guaranteed by Kubernetes, and every container requests whole cores: the kubelet may pin it.
    pub pinned_cores: bool,
    /// The NUMA zones that it was given; `None` before it has a node.
    pub zones: Option<ZoneSet>,
    pub claims: AuthorClaims,
    pub created: Timestamp,
    /// `status.startTime`.
    pub started: Option<Timestamp>,
    /// Terminating because a scheduler preempted it.
    pub preempted: bool,
    /// What does not parse in pod affinity, as `requiredAffinityTerms: ...`. A group of terms with a fault is empty.
    pub affinity_errors: Vec<String>,
    /// What does not parse in spread constraints of either kind. Such a constraint selects nothing.
    pub spread_errors: Vec<(Unsatisfiable, String)>,
    /// Warnings for the owner of the pod: invalid values, and what is used instead.
    pub warnings: Vec<String>,
    /// It has the annotation [`super::DELETION_COST`], from its owner or from us.
    pub has_deletion_cost: bool,
    /// The number of nodes whose scores are logged when the pod gets a node, if the pod itself sets it; 0 for none.
    pub show_scores: Option<u16>,
}

/// What a pod requests beyond its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Enhancements {
    /// All its cores and memory from as few NUMA zones as possible.
    pub numa_binding: bool,
    /// No other pod in those; `None` if the pod does not say.
    pub numa_exclusive: Option<bool>,
}

impl Enhancements {
    /// How a pod of this level and class uses NUMA zones, if it has zones at all. They are exclusive unless the pod says
    /// otherwise. A pod on borrowed capacity has none, whatever its annotations say.
    pub fn binding(self, level: QosLevel, class: QosClass) -> Option<NumaBinding> {
        let is_dedicated = level == QosLevel::Dedicated && class < QosClass::MidLatencySensitive;
        (is_dedicated && self.numa_binding).then_some(match self.numa_exclusive {
            Some(false) => NumaBinding::Shared,
            Some(true) | None => NumaBinding::Exclusive,
        })
    }
}

/// All that counting over pods may look at. Pods of one workload usually share one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PodKind {
    pub namespace: Name,
    pub labels: Labels,
    /// `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    pub affinity: Vec<PodTerm>,
    pub anti_affinity: Vec<PodTerm>,
    pub preferred_affinity: Vec<PreferredPodTerm>,
    pub preferred_anti_affinity: Vec<PreferredPodTerm>,
    /// The host ports of sidecars, then of regular containers; only real ones (port above 0), with defaults filled in.
    pub ports: Vec<HostPort>,
    /// Claims named by volumes directly, in order; repeated when two volumes name one.
    pub claims: Vec<Name>,
    /// Inline disks of kinds that cannot be shared freely.
    pub disks: Vec<Disk>,
}

impl Pod {
    pub fn namespace(&self) -> &Name {
        &self.kind.namespace
    }

    pub fn labels(&self) -> &Labels {
        &self.kind.labels
    }

    /// Runs on what others leave idle.
    pub fn is_reclaimed(&self) -> bool {
        self.level == QosLevel::Reclaimed
    }

    /// How it uses NUMA zones, if it has zones at all.
    pub fn numa_binding(&self) -> Option<NumaBinding> {
        self.enhancements.binding(self.level, self.qos)
    }

    /// Whether the pod had NUMA zones before that it does not have now.
    pub fn gave_up_zones(&self, before: &Self) -> bool {
        let zones = before.zones.unwrap_or_default();
        !zones.without(self.zones.unwrap_or_default()).is_empty()
    }

    /// It has NUMA zones alone, with all that the node lends from them.
    pub fn takes_whole_zones(&self) -> bool {
        self.numa_binding() == Some(NumaBinding::Exclusive)
    }

    /// A reclaimed pod can evict only reclaimed pods, and a mid, batch or free pod none of a stronger class, whatever the
    /// priorities.
    pub fn may_harm(&self, other: &Self) -> bool {
        let is_tier = self.qos >= QosClass::MidLatencySensitive;
        (!self.is_reclaimed() || other.is_reclaimed()) && (!is_tier || other.qos >= self.qos)
    }

    /// Whether this pod may evict a victim that an extender or a hook chose.
    pub fn may_evict(&self, other: &Self) -> bool {
        let is_tier = self.qos >= QosClass::MidLatencySensitive;
        let is_bound = self.is_reclaimed() || is_tier;
        self.may_harm(other) && (!is_bound || other.priority < self.priority)
    }

    /// The level of the QoS taints that keep the pod away: pods that an agent suppresses count as reclaimed ones.
    pub fn taint_level(&self) -> QosLevel {
        match self.qos {
            QosClass::MidBestEffort | QosClass::Lent | QosClass::Free => QosLevel::Reclaimed,
            _ => self.level,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    pub ip: Name,
    pub protocol: Name,
    pub port: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PreemptionPolicy {
    #[default]
    LowerPriority,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unsatisfiable {
    DoNotSchedule,
    ScheduleAnyway,
}

/// Whether nodes that the pod could not go to are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inclusion {
    /// Only nodes that pass are counted.
    Honor,
    /// All nodes are counted.
    Ignore,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpreadConstraint {
    pub max_skew: i32,
    pub topology_key: Name,
    pub when_unsatisfiable: Unsatisfiable,
    /// `matchLabelKeys` are merged in.
    pub selector: Selector,
    pub min_domains: i32,
    pub node_affinity: Inclusion,
    pub node_taints: Inclusion,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub name: Name,
    pub source: VolumeSource,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeSource {
    Claim(Name),
    /// A claim made for this pod, named `<pod>-<volume>`.
    Ephemeral,
    /// An inline CSI volume of this driver.
    Csi {
        driver: Name,
    },
    /// An inline volume of an in-tree plugin that has a CSI driver.
    InTree {
        plugin: Name,
        id: Name,
    },
    Other,
}

/// An inline disk, as far as sharing it between pods matters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Disk {
    GcePersistentDisk {
        name: Name,
        read_only: bool,
    },
    AwsElasticBlockStore {
        volume: Name,
    },
    Iscsi {
        iqn: Name,
        read_only: bool,
    },
    Rbd {
        monitors: Vec<Name>,
        pool: Name,
        image: Name,
        read_only: bool,
    },
}
