//! The inputs of the scheduler and its instructions to the driver, which leave the driver nothing to decide.

use std::sync::Arc;

use crate::cluster::Update;
use crate::model::{Name, Pod, Timestamp};
use crate::scheduling::extender::{Answer, Question};
use crate::scheduling::framework::Preparation;

/// What the driver reports. A result for a pod that is unknown, or that comes too late, changes nothing.
#[derive(Debug, Clone)]
pub enum Input {
    /// A pod as the API server shows it: pending or bound, of this scheduler or another.
    Pod(Arc<Pod>),
    /// A pod finished or was deleted.
    PodGone(Name),
    /// Any other object.
    Object(Update),
    /// The result of [`Outcome::Bind`]; an error has the message.
    Bound {
        uid: Name,
        result: Result<(), String>,
    },
    /// The other result of [`Outcome::Bind`]: the gate refused it, because another scheduler was faster.
    Conflict { uid: Name, message: String },
    /// The result of [`Outcome::Prepare`]; an error has the plugin and the message.
    Prepared {
        uid: Name,
        result: Result<(), (Name, String)>,
    },
    /// A decision about a pod that this plugin holds at Permit.
    Permit {
        uid: Name,
        plugin: Name,
        verdict: PermitVerdict,
    },
    /// The answer to one question of [`Outcome::Ask`].
    Extender {
        uid: Name,
        extender: usize,
        answer: Answer,
    },
    /// The evictions of [`Outcome::Preempt`] are requested; `failed` if not all of them.
    PreemptionDone { uid: Name, failed: bool },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermitVerdict {
    Allow,
    Reject(String),
}

/// An instruction for the driver. The uid identifies the pod; namespace and name are for requests.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Bind the pod to the node, once, and report [`Input::Bound`].
    Bind {
        pod: Arc<Pod>,
        node: Name,
        by: Binder,
        /// The annotations of the Binding: the API server copies them to the pod.
        annotations: Annotations,
    },
    /// Do this work, plugin by plugin, and report [`Input::Prepared`]. First write the node into
    /// `status.nominatedNodeName`.
    Prepare {
        pod: Arc<Pod>,
        node: Name,
        work: Vec<(&'static str, Preparation)>,
    },
    /// The pod waits at Permit until all of these plugins allow it, or the first time is over. Write the node into
    /// `status.nominatedNodeName`.
    Wait {
        pod: Arc<Pod>,
        node: Name,
        plugins: Vec<(&'static str, Timestamp)>,
    },
    /// The pod waits again: write its condition and an event.
    Park(Failure),
    /// The pod waits again, after a preemption: write its condition and an event, evict the victims, the last one after all
    /// others, then report [`Input::PreemptionDone`].
    Preempt {
        failure: Failure,
        node: Name,
        /// Pods to evict, most important first, without those that terminate already or are not bound yet.
        victims: Vec<Arc<Pod>>,
        /// Pods of lower priority that lose their nomination: clear their `status.nominatedNodeName`.
        displaced: Vec<Arc<Pod>>,
    },
    /// The pod is being deleted: write an event, nothing else.
    Skip { pod: Arc<Pod>, message: String },
    /// A setting of the pod is invalid and ignored: write an event, nothing else.
    Warn { pod: Arc<Pod>, message: String },
    /// Call these extenders, all at once, and report [`Input::Extender`] for each. No other decision is made before.
    Ask {
        pod: Arc<Pod>,
        questions: Vec<Question>,
    },
}

/// Keys and values; plugins of PreBind give them.
pub type Annotations = Vec<(&'static str, String)>;

/// What writes the binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binder {
    /// A Bind plugin: POST to pods/binding.
    Plugin(&'static str),
    /// The extender at this position.
    Extender(usize),
}

/// A failed attempt: why a pod waits again.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    pub pod: Arc<Pod>,
    pub reason: FailureReason,
    /// The whole message; an event takes 1,024 bytes of it.
    pub message: String,
    /// Where the message of PostFilter begins in `message`, with the space before it.
    pub post_filter_at: usize,
    /// Plugins that rejected the pod; empty after an error.
    pub rejected_by: Vec<&'static str>,
    /// Those of them that wait for something that is already on its way.
    pub pending: Vec<&'static str>,
    /// The pod was [`Status::Unresolvable`](crate::scheduling::framework::Status::Unresolvable) on every node.
    pub is_unresolvable: bool,
    /// Another scheduler was faster.
    pub is_conflict: bool,
    pub nomination: Nomination,
}

/// `reason` of the condition PodScheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureReason {
    Unschedulable,
    SchedulerError,
}

impl FailureReason {
    pub fn text(self) -> &'static str {
        match self {
            Self::Unschedulable => "Unschedulable",
            Self::SchedulerError => "SchedulerError",
        }
    }
}

/// What becomes of `status.nominatedNodeName`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nomination {
    Keep,
    Clear,
    Set(Name),
}
