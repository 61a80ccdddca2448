//! Decides on which node each pod runs and explains why; decides what admission, the controllers and the node agent do.
//!
//! The engine has no I/O, no async code, no threads, no clock and no randomness. Time is an argument, and the result is
//! an instruction that leaves the caller nothing to decide. The same inputs always give the same outputs.
//!
//! | module | what it is |
//! |---|---|
//! | [`model`] | the types: quantities, pods, nodes, selectors, taints; no behaviour of plugins |
//! | [`kinds`] | one file per watched kind, and the list of them |
//! | [`cluster`] | the observed cluster state, kept from typed updates |
//! | [`framework`] | all that the author of a plugin reads |
//! | [`plugins`] | one file per plugin, and the list of them |
//! | [`profile`] | which plugins a scheduler name runs, where, in which order, with which weights |
//! | [`evaluate`] | evaluates a pod against every node: feasible nodes, scores, reasons |
//! | [`scheduler`] | the path of a pod, from inputs to instructions; `scheduler/cycle.rs` is the scheduling cycle. Start here |
//! | [`preemption`] | the search for pods to evict so that another pod fits |
//! | [`queue`] | pods that wait: their order, their backoff, and the events that can help them |
//! | [`extender`] | extenders: the questions to them and their answers |
//! | [`hooks`] | probes, rewrites and event hooks: code that a program adds around extension points and events |
//! | [`kubelet`] | whether a node's kubelet would admit a pod, with the kubelet's messages |
//! | [`gate`] | whether a bind may be committed: judges the binds of all schedulers of a cluster |
//! | [`resource_policy`] | what the controller of ResourcePolicies writes: deletion costs and status |
//! | `capacity` | tables that were large give their memory back |
//! | [`admission`] | what admission changes in a pod and which pods it refuses: colocation profiles, tier resources, the panorama |
//! | [`agents`] | which agents are silent, and what the controller of agents does about their nodes |
//! | [`eviction_rate`] | how many pods a controller evicts in a span of time |
//! | [`hot_spots`] | which pods leave a node whose pods use too much of it |
//! | [`schedulers`] | which schedulers run, by their Leases, and pods that wait for one that does not |
//! | [`tiers`] | the capacity of the mid and batch tiers of a node, and when the tier controller writes it |
//! | [`node`] | one node: what its agent measures, and the cgroup settings that the agent applies |
//! | [`testing`] | short ways to write clusters and pods in tests and benchmarks |

pub mod admission;
pub mod agents;
mod capacity;
pub mod cluster;
pub mod evaluate;
pub mod eviction_rate;
pub mod extender;
pub mod framework;
pub mod gate;
pub mod hooks;
pub mod hot_spots;
pub mod kinds;
pub mod kubelet;
pub mod model;
pub mod node;
pub mod plugins;
pub mod preemption;
pub mod profile;
pub mod queue;
pub mod resource_policy;
pub mod scheduler;
pub mod schedulers;
pub mod testing;
pub mod tiers;
