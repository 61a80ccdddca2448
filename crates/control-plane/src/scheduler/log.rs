//! One line per decision.

use std::fmt;

use engine::model::Pod;
use engine::scheduler::Outcome;

/// `namespace/name`.
pub(super) struct Named<'a>(pub(super) &'a Pod);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.namespace(), self.0.name)
    }
}

/// What was decided about a pod. Questions to extenders are no decision yet.
pub(super) fn decision(outcome: &Outcome) {
    match outcome {
        Outcome::Bind { pod, node, .. } => {
            tracing::info!(pod = %Named(pod), %node, "bind");
        }
        Outcome::Prepare { pod, node, .. } => {
            tracing::info!(pod = %Named(pod), %node, "prepare volumes");
        }
        Outcome::Wait { pod, node, plugins } => {
            let plugins: Vec<_> = plugins.iter().map(|(plugin, _)| *plugin).collect();
            tracing::info!(pod = %Named(pod), %node, plugins = plugins.join(","), "wait on permit");
        }
        Outcome::Park(failure) => {
            let (reason, message) = (failure.reason.text(), &failure.message);
            tracing::info!(pod = %Named(&failure.pod), reason, %message, "wait");
        }
        Outcome::Preempt {
            failure,
            node,
            victims,
            ..
        } => {
            let victims: Vec<_> = victims.iter().map(|it| Named(it).to_string()).collect();
            let (pod, message) = (Named(&failure.pod), &failure.message);
            tracing::info!(%pod, %node, victims = victims.join(","), %message, "preempt");
        }
        Outcome::Skip { pod, message } => {
            tracing::info!(pod = %Named(pod), %message, "skip");
        }
        Outcome::Warn { pod, message } => {
            tracing::warn!(pod = %Named(pod), %message, "misunderstood");
        }
        Outcome::Ask { .. } => {}
    }
}
