//! One line per decision.

use std::fmt;

use engine::model::Pod;
use engine::scheduler::Outcome;

use crate::scheduler::Mode;

/// `namespace/name`.
pub(crate) struct Named<'a>(pub(crate) &'a Pod);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.namespace(), self.0.name)
    }
}

/// What was decided about a pod. Questions to extenders are no decision yet.
pub(crate) fn decision(mode: Mode, outcome: &Outcome) {
    // Nobody should take for done what is only thought.
    let would = match mode {
        Mode::Observe => "would ",
        Mode::Second | Mode::Primary => "",
    };
    match outcome {
        Outcome::Bind { pod, node, .. } => {
            tracing::info!(pod = %Named(pod), %node, "{would}bind");
        }
        Outcome::Prepare { pod, node, .. } => {
            tracing::info!(pod = %Named(pod), %node, "prepare volumes");
        }
        Outcome::Wait { pod, node, plugins } => {
            let plugins: Vec<_> = plugins.iter().map(|(plugin, _)| *plugin).collect();
            tracing::info!(pod = %Named(pod), %node, plugins = plugins.join(","), "wait on permit");
        }
        Outcome::Park(failure) => {
            let (reason, why) = (failure.reason.text(), &failure.message);
            tracing::info!(pod = %Named(&failure.pod), reason, %why, "wait");
        }
        Outcome::Preempt {
            failure,
            node,
            victims,
            ..
        } => {
            let victims: Vec<_> = victims.iter().map(|it| Named(it).to_string()).collect();
            let (pod, why) = (Named(&failure.pod), &failure.message);
            tracing::info!(%pod, %node, victims = victims.join(","), %why, "{would}preempt");
        }
        Outcome::Skip { pod, message: why } => {
            tracing::info!(pod = %Named(pod), %why, "skip");
        }
        Outcome::Warn { pod, message: why } => {
            tracing::warn!(pod = %Named(pod), %why, "misunderstood");
        }
        Outcome::Ask { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine::scheduler::{Failure, FailureReason, Nomination};
    use serde::Deserialize;

    use super::*;
    use crate::testing::Log;

    /// A line of the log as programs read it. A key that is there twice is an error.
    #[derive(Deserialize)]
    struct Line {
        fields: Fields,
    }

    #[derive(Deserialize)]
    struct Fields {
        message: String,
        pod: String,
        why: String,
    }

    #[test]
    fn no_key_is_there_twice() {
        let pod = Arc::new(Pod::default());
        let failure = || Failure {
            pod: pod.clone(),
            reason: FailureReason::Unschedulable,
            message: "no room".into(),
            rejected_by: vec![],
            pending: vec![],
            nomination: Nomination::Keep,
        };
        let (message, node) = ("no room".to_owned(), "n".into());
        for (outcome, want) in [
            (Outcome::Park(failure()), "wait"),
            (
                Outcome::Preempt {
                    failure: failure(),
                    node,
                    victims: vec![pod.clone()],
                    displaced: vec![],
                },
                "preempt",
            ),
            (
                Outcome::Skip {
                    pod: pod.clone(),
                    message: message.clone(),
                },
                "skip",
            ),
            (
                Outcome::Warn {
                    pod: pod.clone(),
                    message,
                },
                "misunderstood",
            ),
        ] {
            let log = Log::begin_json();
            decision(Mode::Second, &outcome);
            let line: Line = serde_json::from_str(&log.lines()[0]).unwrap();
            let Fields { message, pod, why } = line.fields;
            assert_eq!(
                (&message[..], &pod[..], &why[..]),
                (want, "/", "no room"),
                "{want}"
            );
        }
    }
}
