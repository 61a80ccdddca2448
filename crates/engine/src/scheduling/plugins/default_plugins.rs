//! The plugins that each version of the configuration enables by default, as kube-scheduler does.

use crate::scheduling::framework::ConfigVersion::{V1, V1beta1, V1beta2, V1beta3};
use crate::scheduling::framework::{ConfigVersion, Point};

/// Names of plugins with the weights of their scores.
pub type DefaultPlugins = &'static [(&'static str, i64)];

/// The plugins that a version enables at all points they have.
pub fn multi_point(version: ConfigVersion) -> DefaultPlugins {
    match version {
        V1beta1 | V1beta2 => &[],
        V1beta3 => V1BETA3,
        V1 => DEFAULT,
    }
}

/// The plugins that a version enables at one point.
pub fn at(version: ConfigVersion, point: Point) -> DefaultPlugins {
    match (version, point) {
        (V1, _) => &[],
        // Kubernetes added resource claims later, but a pod that has some must wait for its devices in every version.
        (V1beta3, Point::PreFilter | Point::Filter) => &[("DynamicResources", 0)],
        (V1beta3, _) => &[],
        // Kubernetes added scheduling gates later, but the API server refuses to bind a pod that has one. Preemption
        // waits for evictions at PreEnqueue.
        (_, Point::PreEnqueue) => &[("SchedulingGates", 0), ("DefaultPreemption", 0)],
        (_, Point::QueueSort) => &[("PrioritySort", 0)],
        (_, Point::PreFilter) => PRE_FILTER,
        (_, Point::Filter) => FILTER,
        (_, Point::PostFilter) => &[("DefaultPreemption", 0)],
        (_, Point::PreScore) => PRE_SCORE,
        (V1beta1, Point::Score) => SCORE_V1BETA1,
        (V1beta2, Point::Score) => SCORE_V1BETA2,
        (_, Point::Reserve | Point::PreBind) => &[("VolumeBinding", 0)],
        (_, Point::Bind) => &[("DefaultBinder", 0)],
        (_, Point::Permit | Point::PostBind) => &[],
    }
}

/// v1, and the order in which plugins run.
pub const DEFAULT: DefaultPlugins = &[
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
];

/// Kubernetes 1.28.
const V1BETA3: DefaultPlugins = &[
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

/// Kubernetes 1.22, with VolumeZone of 1.27, which rejects nothing that Filter would accept, and DynamicResources as in
/// [`at`].
const PRE_FILTER: DefaultPlugins = &[
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

const FILTER: DefaultPlugins = &[
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

const PRE_SCORE: DefaultPlugins = &[
    ("InterPodAffinity", 0),
    ("PodTopologySpread", 0),
    ("TaintToleration", 0),
    ("NodeAffinity", 0),
];

const SCORE_V1BETA1: DefaultPlugins = &[
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("InterPodAffinity", 1),
    ("NodeResourcesLeastAllocated", 1),
    ("NodeAffinity", 1),
    ("NodePreferAvoidPods", 10_000),
    ("PodTopologySpread", 2),
    ("TaintToleration", 1),
];

const SCORE_V1BETA2: DefaultPlugins = &[
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("InterPodAffinity", 1),
    ("NodeResourcesFit", 1),
    ("NodeAffinity", 1),
    ("PodTopologySpread", 2),
    ("TaintToleration", 1),
];
