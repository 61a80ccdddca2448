//! Patches of a pod's status: the conditions and the nominated node.

use api::wire::meta::Time;
use engine::model::Pod;
use engine::scheduling::scheduler::Nomination;
use http::Method;
use serde::Serialize;

use super::requests::{Call, Metadata, STRATEGIC, pod_path, seconds};
use crate::scheduler::pods::PendingPod;

/// Reason and message of the condition `PodScheduled=False`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unscheduled<'a> {
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// The patch that changes the pod's status; `None` if there is nothing to change. Updates `pending` accordingly.
pub(crate) fn patch(
    pod: &Pod,
    pending: &mut PendingPod,
    unscheduled: Option<Unscheduled>,
    nomination: &Nomination,
    now: jiff::Timestamp,
) -> Option<Call> {
    let mut status = StatusPatch::default();
    if let Some(unscheduled) = unscheduled
        && !pending.has_condition(unscheduled.reason, unscheduled.message)
    {
        let since = pending
            .scheduled
            .filter(|known| known.is_false)
            .and_then(|known| known.since)
            .unwrap_or(Time {
                seconds: now.as_second(),
                nanos: 0,
            });
        status.conditions = Some([Condition {
            kind: "PodScheduled",
            status: "False",
            reason: unscheduled.reason,
            message: unscheduled.message,
            last_probe_time: (),
            last_transition_time: seconds(
                jiff::Timestamp::from_second(since.seconds).unwrap_or_default(),
            ),
            observed_generation: Some(pending.generation),
        }]);
        pending.set_condition(unscheduled.reason, unscheduled.message, since);
    }
    match nomination {
        Nomination::Set(node) if pending.nominated.as_ref() != Some(node) => {
            status.nominated_node_name = Some(Some(node));
            pending.nominated = Some(node.clone());
        }
        Nomination::Clear if pending.nominated.is_some() => {
            status.nominated_node_name = Some(None);
            pending.nominated = None;
        }
        Nomination::Set(_) | Nomination::Clear | Nomination::Keep => {}
    }
    let changes = status.conditions.is_some() || status.nominated_node_name.is_some();
    changes.then(|| status_call(pod, status))
}

/// Marks a pod as a victim of preemption.
pub(crate) fn disruption(victim: &Pod, scheduler: &str, now: jiff::Timestamp) -> Call {
    let message = format!("{scheduler}: preempting to accommodate a higher priority pod");
    let status = StatusPatch {
        conditions: Some([Condition {
            kind: "DisruptionTarget",
            status: "True",
            reason: "PreemptionByScheduler",
            message: &message,
            last_probe_time: (),
            last_transition_time: seconds(now),
            observed_generation: None,
        }]),
        nominated_node_name: None,
    };
    status_call(victim, status)
}

/// With the uid, so that a new pod of the same name is not changed.
fn status_call(pod: &Pod, status: StatusPatch) -> Call {
    let body = PodPatch {
        metadata: Metadata {
            uid: &pod.uid,
            ..Metadata::default()
        },
        status,
    };
    Call::new(Method::PATCH, pod_path(pod, "/status"), STRATEGIC, &body)
}

#[derive(Serialize)]
struct PodPatch<'a> {
    metadata: Metadata<'a>,
    status: StatusPatch<'a>,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct StatusPatch<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    conditions: Option<[Condition<'a>; 1]>,
    /// `Some(None)` removes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    nominated_node_name: Option<Option<&'a str>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Condition<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    status: &'static str,
    reason: &'a str,
    message: &'a str,
    /// Always null, as kube-scheduler writes it.
    last_probe_time: (),
    last_transition_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_generation: Option<i64>,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const UNSCHEDULED: Unscheduled = Unscheduled {
        reason: "Unschedulable",
        message: "0/1 nodes are available: 1 \"x\".",
    };

    fn now() -> jiff::Timestamp {
        jiff::Timestamp::from_second(1_767_323_045).unwrap()
    }

    fn body(call: Option<Call>) -> Value {
        serde_json::from_slice(&call.unwrap().body).unwrap()
    }

    #[test]
    fn changes_are_written_once() {
        let pod = Pod {
            uid: "u".into(),
            ..Pod::default()
        };
        let mut pending = PendingPod {
            generation: 3,
            ..PendingPod::default()
        };
        let node = Nomination::Set("n".into());
        let first = body(patch(&pod, &mut pending, Some(UNSCHEDULED), &node, now()));
        assert_eq!(first["metadata"]["uid"], "u");
        let condition = &first["status"]["conditions"][0];
        assert_eq!(condition["message"], UNSCHEDULED.message);
        assert_eq!(condition["lastTransitionTime"], "2026-01-02T03:04:05Z");
        assert_eq!(condition["observedGeneration"], 3);
        assert_eq!(first["status"]["nominatedNodeName"], "n");
        assert!(patch(&pod, &mut pending, Some(UNSCHEDULED), &node, now()).is_none());
        assert!(
            patch(
                &pod,
                &mut pending,
                Some(UNSCHEDULED),
                &Nomination::Keep,
                now()
            )
            .is_none()
        );

        let cleared = body(patch(
            &pod,
            &mut pending,
            Some(UNSCHEDULED),
            &Nomination::Clear,
            now(),
        ));
        assert!(cleared["status"]["nominatedNodeName"].is_null());
        assert!(cleared["status"].get("conditions").is_none());
    }

    #[test]
    fn the_transition_time_stays_while_the_status_does() {
        let pod = Pod::default();
        let mut pending = PendingPod::default();
        patch(
            &pod,
            &mut pending,
            Some(UNSCHEDULED),
            &Nomination::Keep,
            now(),
        );
        let other = Unscheduled {
            message: "0/2 nodes",
            ..UNSCHEDULED
        };
        let later = jiff::Timestamp::from_second(1_767_329_999).unwrap();
        let second = body(patch(
            &pod,
            &mut pending,
            Some(other),
            &Nomination::Keep,
            later,
        ));
        let condition = &second["status"]["conditions"][0];
        assert_eq!(condition["message"], "0/2 nodes");
        assert_eq!(condition["lastTransitionTime"], "2026-01-02T03:04:05Z");
    }
}
