//! The versions of the configuration, and the plugins each of them turns on by itself.

use std::fmt;

use engine::framework::Point;

const GROUP: &str = "kubescheduler.config.k8s.io";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Kubernetes 1.19 to 1.22.
    V1beta1,
    /// Kubernetes 1.22 to 1.27.
    V1beta2,
    /// Kubernetes 1.23 to 1.28.
    V1beta3,
    /// Kubernetes 1.25 and later.
    V1,
}

impl Version {
    pub const ALL: [Self; 4] = [Self::V1beta1, Self::V1beta2, Self::V1beta3, Self::V1];

    pub fn short(self) -> &'static str {
        match self {
            Self::V1beta1 => "v1beta1",
            Self::V1beta2 => "v1beta2",
            Self::V1beta3 => "v1beta3",
            Self::V1 => "v1",
        }
    }

    pub(super) fn parse(api_version: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.to_string() == api_version)
    }

    /// Names that later versions refuse, with the version that began to.
    pub(super) fn removed(plugin: &str) -> Option<Self> {
        match plugin {
            "NodeLabel"
            | "ServiceAffinity"
            | "NodePreferAvoidPods"
            | "NodeResourcesLeastAllocated"
            | "NodeResourcesMostAllocated"
            | "RequestedToCapacityRatio" => Some(Self::V1beta2),
            "SelectorSpread" | "AzureDiskLimits" | "CinderLimits" | "EBSLimits" | "GCEPDLimits" => {
                Some(Self::V1)
            }
            _ => None,
        }
    }

    /// What is on at all points that the plugins have, with weights.
    pub(super) fn multi_point(self) -> &'static [(&'static str, i32)] {
        match self {
            Self::V1beta1 | Self::V1beta2 => &[],
            Self::V1beta3 => V1BETA3,
            Self::V1 => engine::plugins::DEFAULT,
        }
    }

    /// What is on at one point.
    pub(super) fn at(self, point: Point) -> &'static [(&'static str, i32)] {
        match (self, point) {
            (Self::V1, _) => &[],
            // Claims are younger than this version, but a pod that has some must wait for its devices all the same.
            (Self::V1beta3, Point::PreFilter | Point::Filter) => &[("DynamicResources", 0)],
            (Self::V1beta3, _) => &[],
            // v1beta1 is older than gates, but the API server refuses to bind a pod that has one. Waiting for evictions
            // at PreEnqueue is how preemption works here.
            (_, Point::PreEnqueue) => &[("SchedulingGates", 0), ("DefaultPreemption", 0)],
            (_, Point::QueueSort) => &[("PrioritySort", 0)],
            (_, Point::PreFilter) => PRE_FILTER,
            (_, Point::Filter) => FILTER,
            (_, Point::PostFilter) => &[("DefaultPreemption", 0)],
            (_, Point::PreScore) => PRE_SCORE,
            (Self::V1beta1, Point::Score) => SCORE_V1BETA1,
            (Self::V1beta2, Point::Score) => SCORE_V1BETA2,
            (_, Point::Reserve | Point::PreBind) => &[("VolumeBinding", 0)],
            (_, Point::Bind) => &[("DefaultBinder", 0)],
            (_, Point::Permit | Point::PostBind) => &[],
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{GROUP}/{}", self.short())
    }
}

/// Of Kubernetes 1.28.
const V1BETA3: &[(&str, i32)] = &[
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("EBSLimits", 0),
    ("GCEPDLimits", 0),
    ("NodeVolumeLimits", 0),
    ("AzureDiskLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("SchedulingGates", 0),
];

/// Of Kubernetes 1.22, and VolumeZone of 1.27, which rejects nothing here that Filter would not. DynamicResources is of
/// later days, as at [`Version::at`].
const PRE_FILTER: &[(&str, i32)] = &[
    ("NodeResourcesFit", 0),
    ("NodePorts", 0),
    ("PodTopologySpread", 0),
    ("InterPodAffinity", 0),
    ("VolumeBinding", 0),
    ("NodeAffinity", 0),
    ("VolumeRestrictions", 0),
    ("VolumeZone", 0),
    ("DynamicResources", 0),
];

const FILTER: &[(&str, i32)] = &[
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 0),
    ("NodeAffinity", 0),
    ("NodePorts", 0),
    ("NodeResourcesFit", 0),
    ("VolumeRestrictions", 0),
    ("EBSLimits", 0),
    ("GCEPDLimits", 0),
    ("NodeVolumeLimits", 0),
    ("AzureDiskLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 0),
    ("InterPodAffinity", 0),
    ("DynamicResources", 0),
];

const PRE_SCORE: &[(&str, i32)] = &[
    ("InterPodAffinity", 0),
    ("PodTopologySpread", 0),
    ("TaintToleration", 0),
    ("NodeAffinity", 0),
];

const SCORE_V1BETA1: &[(&str, i32)] = &[
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("InterPodAffinity", 1),
    ("NodeResourcesLeastAllocated", 1),
    ("NodeAffinity", 1),
    ("NodePreferAvoidPods", 10_000),
    ("PodTopologySpread", 2),
    ("TaintToleration", 1),
];

const SCORE_V1BETA2: &[(&str, i32)] = &[
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("InterPodAffinity", 1),
    ("NodeResourcesFit", 1),
    ("NodeAffinity", 1),
    ("PodTopologySpread", 2),
    ("TaintToleration", 1),
];
