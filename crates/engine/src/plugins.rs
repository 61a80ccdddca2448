//! Every plugin: one file each, and this list.
//!
//! A profile picks from it by name. To add one: `plugins/<name>.rs`, its `mod` line and its `Entry` line here, and a
//! scenario. A plugin imports `framework` and `model` only.

pub mod default_preemption;
pub mod node_resources_fit;
pub mod pod_topology_spread;
pub mod resource_strategy;
pub mod taint_toleration;

use crate::framework::Entry;

/// In the order in which kube-scheduler runs them by default.
pub const ALL: &[Entry] = &[
    Entry::of::<taint_toleration::TaintToleration>(),
    Entry::of::<node_resources_fit::NodeResourcesFit>(),
    Entry::of::<pod_topology_spread::PodTopologySpread>(),
    Entry::of::<default_preemption::DefaultPreemption>(),
];

pub fn find(name: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.name == name)
}
