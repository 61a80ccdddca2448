//! One log line per decision.

use std::fmt;

use engine::model::Pod;
use engine::scheduling::scheduler::Outcome;

use crate::scheduler::Mode;

/// `namespace/name`.
pub(crate) struct Named<'a>(pub(crate) &'a Pod);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.namespace(), self.0.name)
    }
}

/// Logs a decision about a pod. Questions to extenders are no decision yet. A failure that the pod's condition already
/// shows is only for debugging: pods that wait fail again and again.
pub(crate) fn decision(mode: Mode, outcome: &Outcome, is_known: bool) {
    let would = match mode {
        Mode::Observe => "would ",
        Mode::Second | Mode::Primary => "",
    };
    match outcome {
        Outcome::Bind { pod, node, .. } => {
            tracing::info!(pod = %Named(pod), %node, "{would}bind pod");
        }
        Outcome::Prepare { pod, node, .. } => {
            tracing::info!(pod = %Named(pod), %node, "{would}prepare volumes");
        }
        Outcome::Wait { pod, node, plugins } => {
            let plugins: Vec<_> = plugins.iter().map(|(plugin, _)| *plugin).collect();
            tracing::info!(pod = %Named(pod), %node, plugins = plugins.join(","), "{would}wait on permit");
        }
        Outcome::Park(failure) => {
            let (reason, why) = (failure.reason.text(), &failure.message);
            let pod = Named(&failure.pod);
            if is_known {
                tracing::debug!(%pod, reason, %why, "unschedulable pod");
            } else {
                tracing::info!(%pod, reason, %why, "unschedulable pod");
            }
        }
        Outcome::Preempt {
            failure,
            node,
            victims,
            ..
        } => {
            let victims: Vec<_> = victims.iter().map(|it| Named(it).to_string()).collect();
            let (pod, why) = (Named(&failure.pod), &failure.message);
            tracing::info!(%pod, %node, victims = victims.join(","), %why, "{would}preempt pods");
        }
        Outcome::Skip { pod, message: why } => {
            tracing::info!(pod = %Named(pod), %why, "skip pod");
        }
        Outcome::Warn { pod, message: why } => {
            tracing::warn!(pod = %Named(pod), %why, "ignoring invalid setting");
        }
        Outcome::Ask { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine::scheduling::scheduler::{Failure, FailureReason, Nomination};
    use serde::Deserialize;

    use super::*;
    use reconcile::testing::Log;

    /// A line of the JSON log. A duplicate key is an error.
    #[derive(Deserialize)]
    struct LogLine {
        fields: Fields,
    }

    #[derive(Deserialize)]
    struct Fields {
        message: String,
        pod: String,
        why: String,
    }

    #[test]
    fn log_lines_have_no_duplicate_keys() {
        let pod = Arc::new(Pod::default());
        let failure = || Failure {
            pod: pod.clone(),
            reason: FailureReason::Unschedulable,
            message: "no capacity".into(),
            post_filter_at: 11,
            rejected_by: vec![],
            pending: vec![],
            is_unresolvable: false,
            is_conflict: false,
            nomination: Nomination::Keep,
        };
        let (message, node) = ("no capacity".to_owned(), "n".into());
        for (outcome, want) in [
            (Outcome::Park(failure()), "unschedulable pod"),
            (
                Outcome::Preempt {
                    failure: failure(),
                    node,
                    victims: vec![pod.clone()],
                    displaced: vec![],
                },
                "preempt pods",
            ),
            (
                Outcome::Skip {
                    pod: pod.clone(),
                    message: message.clone(),
                },
                "skip pod",
            ),
            (
                Outcome::Warn {
                    pod: pod.clone(),
                    message,
                },
                "ignoring invalid setting",
            ),
        ] {
            let log = Log::begin_json();
            decision(Mode::Second, &outcome, false);
            let line: LogLine = serde_json::from_str(&log.lines()[0]).unwrap();
            let Fields { message, pod, why } = line.fields;
            assert_eq!(
                (&message[..], &pod[..], &why[..]),
                (want, "/", "no capacity"),
                "{want}"
            );
        }
    }
}
