//! The HTTP API of a scheduler: its paths, its answers and its errors, for the server and for the command line.
//!
//! Fields may be added; none is renamed. A missing field of [`SchedulerStatus`] has its default, because the two sides may have
//! different versions.

use std::collections::BTreeMap;

use engine::cluster::{NodeState, UnknownNode};
use engine::scheduling::scheduler::{self, Scores};
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Answers a [`SchedulerStatus`].
///
/// No path begins with `/api` or `/apis`: the role `system:discovery` lets every authenticated user get those.
pub const STATUS: &str = "/tidepool/v1/status";
/// The paths below are about one pod each.
pub const PODS: &str = "/tidepool/v1/pods";
/// Answers a [`CacheDump`]; with `/NODE` a [`NodeDump`].
pub const CACHE: &str = "/debug/cache";
/// Answers [`RecordedScores`].
pub const SCORES: &str = "/debug/scores";

/// Answers a [`PodReport`].
pub fn explain_path(namespace: &str, name: &str) -> String {
    format!("{PODS}/{namespace}/{name}/explain")
}

/// The report about a pod as a client reads it. The server sends the engine's.
pub type PodReport = scheduler::PodReport<String, Timestamp>;

/// Amounts by resource as a client reads them.
pub type Quantities = BTreeMap<String, String>;

/// An answer without success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    pub code: ErrorCode,
    /// For people.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ErrorCode {
    BadRequest,
    Unauthorized,
    Forbidden,
    /// There is no such path.
    NotFound,
    PodNotFound,
    NodeNotFound,
    MethodNotAllowed,
    TooManyRequests,
    Internal,
    Unavailable,
    /// A code of another version.
    #[serde(other)]
    Unknown,
}

impl ErrorCode {
    pub fn status(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound | Self::PodNotFound | Self::NodeNotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::Internal | Self::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The state of all nodes at one instant. The server has the engine's times `T` and amounts `A`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheDump<T = Timestamp, A = Quantities> {
    pub time: T,
    /// Every kind had been listed.
    pub synced: bool,
    pub pods: i64,
    /// Nodes that pods are bound to, and that the scheduler does not know.
    pub unknown_nodes: Vec<UnknownNode>,
    /// By name. The last field, because the server appends to it.
    pub nodes: Vec<NodeState<A>>,
}

/// The state of one node at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDump<T = Timestamp, A = Quantities> {
    pub time: T,
    pub synced: bool,
    #[serde(flatten)]
    pub node: NodeState<A>,
}

/// The scores of the latest decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedScores<S = Scores<String, Timestamp>> {
    /// The number of nodes whose scores are recorded; 0 for none.
    pub top: u16,
    /// Newest first; absent in the answer to a PUT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scores: Option<Vec<S>>,
}

/// The role of a process among its replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Runs without leader election.
    Alone,
    /// Decides and writes nothing.
    Observer,
    /// Has not tried to take the Lease yet.
    Candidate,
    /// Another replica holds the Lease.
    Standby,
    /// Holds the Lease, and reads what the previous leader wrote last.
    CatchingUp,
    Leader,
    /// Held the Lease before.
    Former,
    /// A role of another version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Role {
    /// All that a process can have, with their names on the wire.
    pub const ALL: [(Self, &str); 7] = [
        (Self::Alone, "alone"),
        (Self::Observer, "observer"),
        (Self::Candidate, "candidate"),
        (Self::Standby, "standby"),
        (Self::CatchingUp, "catchingUp"),
        (Self::Leader, "leader"),
        (Self::Former, "former"),
    ];
}

/// The status of a running scheduler. It contains no secret.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulerStatus {
    pub version: String,
    /// `second`, `primary` or `observe`.
    pub mode: String,
    pub role: Role,
    /// The holder identity of this process on the Lease.
    pub identity: String,
    /// `namespace/name`; absent without leader election.
    pub lease: Option<String>,
    /// The holder of the Lease, as last seen; absent without leader election and while the Lease is free.
    pub leader: Option<Leader>,
    pub uptime_seconds: f64,
    /// Values of `spec.schedulerName` whose pods it schedules.
    pub schedulers: Vec<String>,
    /// Whether it decides about pods.
    pub deciding: bool,
    pub cluster: ClusterSize,
    pub queue: Queue,
    /// The pod that is pending longest; absent if there is none, or if the engine did not answer in time.
    pub oldest_waiting: Option<Waiting>,
    /// The first CustomNodeResources without a node, by name; empty if the engine did not answer in time.
    pub first_reports_without_node: Vec<String>,
    pub since_start: SinceStart,
    /// One entry per kind, by name.
    pub watches: Vec<Watch>,
    /// Settings of the configuration that do not fit the cluster, one sentence each.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Leader {
    pub identity: String,
    /// The URL of its HTTP server, if the Lease has it.
    pub server: Option<String>,
}

/// The objects that the engine knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSize {
    pub nodes: u64,
    /// Pods that are bound to a node.
    pub placed_pods: u64,
    /// Pods with a chosen node that are not bound yet: they wait on Permit, are prepared or being bound.
    pub assumed_pods: u64,
    /// CustomNodeResources without a node.
    pub reports_without_node: u64,
}

/// Pending pods, by queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Queue {
    pub active: u64,
    pub backoff: u64,
    pub unschedulable: u64,
    pub gated: u64,
    /// In a scheduling cycle.
    pub in_flight: u64,
}

/// A pending pod.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Waiting {
    pub namespace: String,
    pub name: String,
    /// The time of its first attempt, or of its creation if it had none (RFC 3339).
    pub since: String,
    pub waiting_seconds: f64,
    /// The result of the last attempt, or why there was none.
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SinceStart {
    pub bound: u64,
    pub bind_failures: u64,
    /// Binds whose response was lost, so that the pod had to be read.
    pub bind_unknown: u64,
    pub events_written: u64,
    pub events_dropped: u64,
    pub status_patches: u64,
    pub victims: u64,
}

/// The watch of one kind.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Watch {
    /// The plural.
    pub kind: String,
    /// The latest known resource version; empty before the first list.
    pub resource_version: String,
    /// It has been listed, or is missing.
    pub synced: bool,
    /// The API server does not have it, or does not allow to list it.
    pub missing: bool,
    /// Since the last update; absent before the first.
    pub silent_seconds: Option<f64>,
    /// Why it cannot be listed or watched at present.
    pub trouble: Option<String>,
}
