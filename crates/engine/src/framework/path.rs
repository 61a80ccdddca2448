//! What a plugin says at the points around the choice of a node.

use std::time::Duration;

use super::verdict::Reason;
use crate::model::Name;

/// What can be done for a pod that no node would take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostFilter {
    /// Nothing; the next plugin is asked.
    Nothing(Reason),
    /// Something broke; no other plugin is asked.
    Failed(Reason),
    /// Look for pods of lower priority whose eviction would make room.
    Preempt,
}

/// A yes at Permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    Go,
    /// Hold the pod on its node until somebody allows it; after this long it is rejected.
    Wait(Duration),
}

/// Work in the world that must be done before a pod can be bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preparation {
    pub steps: Vec<Step>,
    /// How long it may take until all of it shows.
    pub within: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Bind this volume to this claim.
    BindVolume {
        volume: Name,
        namespace: Name,
        claim: Name,
    },
    /// Have a volume made for the claim, where this node can reach it.
    ProvisionVolume {
        namespace: Name,
        claim: Name,
        node: Name,
    },
    /// Wait until the claim is bound, whoever does it.
    AwaitClaim { namespace: Name, claim: Name },
}
