//! What a running scheduler says of itself: the answer of `GET /apis/v1/status`, and nothing that is a secret.

use serde::{Deserialize, Serialize};

pub use crate::election::leadership::Role;

/// The answer of `GET /apis/v1/status`. Fields may be added; none is renamed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub version: String,
    /// `second`, `primary` or `observe`.
    pub mode: String,
    pub role: Role,
    /// Who this process is on the Lease.
    pub identity: String,
    /// `namespace/name`; absent without leader election.
    pub lease: Option<String>,
    /// Who has the Lease, as last seen; absent without leader election and while nobody has it.
    pub leader: Option<Leader>,
    pub uptime_seconds: f64,
    /// Pods with one of these as `spec.schedulerName` are ours.
    pub schedulers: Vec<String>,
    /// Whether pods are being decided about.
    pub deciding: bool,
    pub cluster: ClusterSize,
    pub queue: Queue,
    /// The pod that waits longest; absent if none does, or if there was no time to look.
    pub oldest_waiting: Option<Waiting>,
    /// The first of the CustomNodeResources without a node, by name; none if there was no time to look.
    #[serde(default)]
    pub first_reports_without_node: Vec<String>,
    pub since_start: SinceStart,
    /// One entry per kind, by name.
    pub watches: Vec<Watch>,
    /// What of the configuration does not suit the cluster, a sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leader {
    pub identity: String,
    /// Where its HTTP server is, if it says so.
    pub server: Option<String>,
}

/// What the deciding thread knows of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSize {
    pub nodes: u64,
    /// Pods that are bound to a node.
    pub placed_pods: u64,
    /// Pods that a node is decided for, and that have not been seen there yet: they wait on permit, are prepared or bound.
    #[serde(default)]
    pub assumed_pods: u64,
    /// CustomNodeResources of nodes that are not known.
    pub reports_without_node: u64,
}

/// Pods that wait, by place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    pub active: u64,
    pub backoff: u64,
    pub unschedulable: u64,
    pub gated: u64,
    /// Being decided about.
    pub in_flight: u64,
}

/// A pod that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    pub namespace: String,
    pub name: String,
    /// When it could first be tried, or when it came if it never could (RFC 3339).
    pub since: String,
    pub waiting_seconds: f64,
    /// What the last attempt came to, or what keeps it from being tried.
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SinceStart {
    pub bound: u64,
    pub bind_failures: u64,
    /// Binds whose answer was lost, so that the pod had to be read.
    pub bind_unknown: u64,
    pub events_written: u64,
    pub events_dropped: u64,
    pub status_patches: u64,
    pub victims: u64,
}

/// How one kind is followed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Watch {
    /// The plural.
    pub kind: String,
    /// Everything up to here is known; empty before the first list.
    pub resource_version: String,
    /// It has been listed once, or the API server does not have it.
    pub synced: bool,
    /// The API server does not have it.
    pub missing: bool,
    /// Since the last word of it; absent before the first.
    pub silent_seconds: Option<f64>,
    /// Why it cannot be followed at present.
    pub trouble: Option<String>,
}
