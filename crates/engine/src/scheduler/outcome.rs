//! What comes in and what goes out: news from the shell, and instructions that leave it nothing to decide.

use std::sync::Arc;

use crate::cluster::Update;
use crate::extender::{Answer, Question};
use crate::framework::Preparation;
use crate::model::{Name, Pod, Timestamp};

/// News for the scheduler. News about pods that nothing is known of, or that came too late, changes nothing.
#[derive(Debug, Clone)]
pub enum Input {
    /// A pod as the API shows it: pending or bound, ours or not.
    Pod(Arc<Pod>),
    /// A pod ended, finished or was deleted.
    PodGone(Name),
    /// Anything else that became known.
    Object(Update),
    /// [`Outcome::Bind`] was carried out, or was refused with these words.
    Bound {
        uid: Name,
        result: Result<(), String>,
    },
    /// [`Outcome::Prepare`] was carried out, or failed at this plugin with these words.
    Prepared {
        uid: Name,
        result: Result<(), (Name, String)>,
    },
    /// Somebody decided about a pod that waits on permit at this plugin.
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
    /// The evictions of [`Outcome::Preempt`] were asked for; not all of them, if it failed.
    PreemptionDone { uid: Name, failed: bool },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermitVerdict {
    Allow,
    Reject(String),
}

/// An instruction. The pod is named by its uid; namespace and name are for the shell's requests.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Bind the pod to the node, once, and report [`Input::Bound`].
    Bind {
        pod: Arc<Pod>,
        node: Name,
        by: Binder,
    },
    /// Do this work, plugin by plugin, and report [`Input::Prepared`]. First write the node into
    /// `status.nominatedNodeName`.
    Prepare {
        pod: Arc<Pod>,
        node: Name,
        work: Vec<(&'static str, Preparation)>,
    },
    /// The pod holds its room until every one of these plugins allows it, or the first time is over. Write the node into
    /// `status.nominatedNodeName`.
    Wait {
        pod: Arc<Pod>,
        node: Name,
        plugins: Vec<(&'static str, Timestamp)>,
    },
    /// The pod waits again: write its condition and an event.
    Park(Failure),
    /// The same, and room is made for it: evict the victims, the last one after all others, then report
    /// [`Input::PreemptionDone`].
    Preempt {
        failure: Failure,
        node: Name,
        /// Pods to evict, most important first; those that are on their way out, or not yet bound, are not in it.
        victims: Vec<Arc<Pod>>,
        /// Pods of lower priority that must wait for another node: clear their `status.nominatedNodeName`.
        displaced: Vec<Arc<Pod>>,
    },
    /// The pod is being deleted: write an event, nothing else.
    Skip { pod: Arc<Pod>, message: String },
    /// Something about the pod means nothing, and this is done instead: write an event, nothing else.
    Warn { pod: Arc<Pod>, message: String },
    /// Ask these extenders, all at once, and report [`Input::Extender`] for each. Nothing else is decided before.
    Ask {
        pod: Arc<Pod>,
        questions: Vec<Question>,
    },
}

/// Who writes the binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binder {
    /// A Bind plugin: POST to pods/binding.
    Plugin(&'static str),
    /// The extender at this position.
    Extender(usize),
}

/// Why a pod waits again.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    pub pod: Arc<Pod>,
    pub reason: FailureReason,
    /// In full; an event has room for 1,024 bytes of it.
    pub message: String,
    /// Plugins that said no; nobody if something broke.
    pub rejected_by: Vec<&'static str>,
    /// Those of them that only wait for something on its way.
    pub pending: Vec<&'static str>,
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

/// What to write into `status.nominatedNodeName`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nomination {
    Keep,
    Clear,
    Set(Name),
}
