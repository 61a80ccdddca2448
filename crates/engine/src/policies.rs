//! The plans of the controllers: from what they observe to what they write.
//!
//! | module | what it is |
//! |---|---|
//! | [`hot_spots`] | which pods leave a node whose pods use too much of it |
//! | [`tiers`] | the capacity of the mid and batch tiers of a node, and when the tier controller writes it |
//! | [`agents`] | which agents are silent, and what the controller of agents does about their nodes |
//! | [`resource_policy`] | what the controller of ResourcePolicies writes: deletion costs and status |
//! | [`schedulers`] | which schedulers run, by their Leases, and pods that wait for one that does not |
//! | [`eviction_rate`] | how many pods a controller evicts in a span of time |

pub mod agents;
pub mod eviction_rate;
pub mod hot_spots;
pub mod resource_policy;
pub mod schedulers;
pub mod tiers;
