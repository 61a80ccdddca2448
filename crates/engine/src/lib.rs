//! Decides on which node each pod runs and explains why; decides what admission, the controllers and the node agent do.
//!
//! The engine has no I/O, no async code, no threads, no clock and no randomness. Time is an argument, and the result is
//! an instruction that leaves the caller nothing to decide. The same inputs always give the same outputs.
//!
//! A room uses only itself and the rooms below it; `cargo xtask test` checks it.
//!
//! | room | what it is |
//! |---|---|
//! | [`testing`] | short ways to write clusters and pods in tests and benchmarks |
//! | [`admission`] | what admission changes in a pod and which pods it refuses: colocation profiles, tier resources, the panorama |
//! | [`policies`] | the plans of the controllers: ResourcePolicies, tiers, agents, hot spots, the registry of schedulers |
//! | [`binding`] | whether a bind may be committed, and whether a node's kubelet would admit the pod |
//! | [`scheduling`] | on which node a pod runs, and why: plugins, queue, evaluation, preemption, the scheduler. Start here |
//! | [`node`] | one node: what its agent measures, and the cgroup settings that the agent applies |
//! | [`cluster`] | the observed state of the cluster, kept from typed updates, with one file per watched kind |
//! | [`model`] | the types: quantities, pods, nodes, selectors, taints; no behaviour of plugins |

pub mod admission;
pub mod binding;
pub mod cluster;
pub mod model;
pub mod node;
pub mod policies;
pub mod scheduling;
pub mod testing;
