//! Results of plugins at the extension points after Filter and Score.

use std::time::Duration;

use super::verdict::Reason;
use crate::model::Name;

/// The result of PostFilter for a pod that fits on no node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostFilter {
    /// This plugin cannot help; the next plugin runs.
    Nothing(Reason),
    /// An error; no other plugin runs.
    Failed(Reason),
    /// Search for pods of lower priority whose eviction lets the pod fit.
    Preempt,
}

/// The result of Permit for a pod that is not rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    Go,
    /// Keep the pod waiting on its node until it is allowed; after this time it is rejected.
    Wait(Duration),
}

/// API writes and waits that must finish before the pod can be bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preparation {
    pub steps: Vec<Step>,
    /// The timeout until all results are observed.
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
    /// Request a new volume for the claim that this node can reach.
    ProvisionVolume {
        namespace: Name,
        claim: Name,
        node: Name,
    },
    /// Wait until the claim is bound.
    AwaitClaim { namespace: Name, claim: Name },
}
