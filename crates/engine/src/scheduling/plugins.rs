//! All plugins: one file each, and this list.
//!
//! A profile enables plugins by name. To add one: `plugins/<name>.rs`, its `mod` line and its `Entry` line here, and a
//! scenario. The file also has the rules by which configurations treat the plugin. A plugin imports `framework` and
//! `model` only.

pub mod allocation_scorers;
mod csi_migration;
pub mod default_binder;
pub mod default_plugins;
pub mod default_preemption;
pub mod dynamic_resources;
pub mod elsewhere;
pub mod image_locality;
pub mod inter_pod_affinity;
pub mod mid_prod_no_over_allocation;
pub mod node_affinity;
pub mod node_declared_features;
pub mod node_name;
pub mod node_ports;
pub mod node_resource_topology;
pub mod node_resources_balanced_allocation;
pub mod node_resources_fit;
pub mod node_resources_fit_plus;
pub mod node_unschedulable;
pub mod node_volume_limits;
mod pod_claims;
pub mod pod_topology_spread;
pub mod priority_sort;
pub mod qos_aware_node_resources_balanced_allocation;
pub mod qos_aware_node_resources_fit;
pub mod qos_aware_preemption;
pub mod qos_aware_taint_toleration;
mod reclaimed_resources;
pub mod resource_policy;
pub mod resource_strategy;
pub mod retired;
pub mod scarce_resource_avoidance;
pub mod scheduling_gates;
pub mod taint_toleration;
pub mod tier_resources_fit;
pub mod volume_binding;
pub mod volume_restrictions;
pub mod volume_zone;

pub use default_plugins::DEFAULT;

use crate::scheduling::framework::Entry;

/// All plugins, in the order in which kube-scheduler runs them by default.
pub const ALL: &[Entry] = &[
    Entry::of::<scheduling_gates::SchedulingGates>(),
    Entry::of::<priority_sort::PrioritySort>(),
    Entry::of::<node_unschedulable::NodeUnschedulable>(),
    Entry::of::<node_name::NodeName>(),
    Entry::of::<taint_toleration::TaintToleration>(),
    Entry::of::<node_affinity::NodeAffinity>(),
    Entry::of::<node_ports::NodePorts>(),
    Entry::of::<node_resources_fit::NodeResourcesFit>(),
    Entry::of::<volume_restrictions::VolumeRestrictions>(),
    Entry::of::<node_volume_limits::NodeVolumeLimits>(),
    Entry::of::<volume_binding::VolumeBinding>(),
    Entry::of::<volume_zone::VolumeZone>(),
    Entry::of::<pod_topology_spread::PodTopologySpread>(),
    Entry::of::<inter_pod_affinity::InterPodAffinity>(),
    Entry::of::<dynamic_resources::DynamicResources>(),
    Entry::of::<default_preemption::DefaultPreemption>(),
    Entry::of::<node_resources_balanced_allocation::NodeResourcesBalancedAllocation>(),
    Entry::of::<image_locality::ImageLocality>(),
    Entry::of::<default_binder::DefaultBinder>(),
    Entry::of::<node_declared_features::NodeDeclaredFeatures>(),
    // Not enabled by default: for clusters with scarce resources such as GPUs.
    Entry::of::<node_resources_fit_plus::NodeResourcesFitPlus>(),
    Entry::of::<scarce_resource_avoidance::ScarceResourceAvoidance>(),
    // Not enabled by default: only v1beta1 configurations have these.
    Entry::of::<allocation_scorers::NodeResourcesLeastAllocated>(),
    Entry::of::<allocation_scorers::NodeResourcesMostAllocated>(),
    Entry::of::<allocation_scorers::RequestedToCapacityRatio>(),
    // Not enabled by default: co-location on reclaimed resources.
    Entry::of::<qos_aware_node_resources_fit::QoSAwareNodeResourcesFit>(),
    Entry::of::<
        qos_aware_node_resources_balanced_allocation::QoSAwareNodeResourcesBalancedAllocation,
    >(),
    Entry::of::<qos_aware_taint_toleration::QoSAwareTaintToleration>(),
    Entry::of::<qos_aware_preemption::QoSAwarePreemption>(),
    Entry::of::<node_resource_topology::NodeResourceTopology>(),
    // Not enabled by default: mid and batch tiers.
    Entry::of::<tier_resources_fit::TierResourcesFit>(),
    Entry::of::<mid_prod_no_over_allocation::MidProdNoOverAllocation>(),
    // Not enabled by default: acts only where there are ResourcePolicies.
    Entry::of::<resource_policy::ResourcePolicyPlugin>(),
];

/// A plugin by name, including retired ones.
pub fn find(name: &str) -> Option<&'static Entry> {
    let mut known = ALL.iter().chain(retired::RETIRED);
    known.find(|entry| entry.name == name)
}
