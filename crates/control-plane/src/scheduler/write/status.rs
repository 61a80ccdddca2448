//! What is written into a pod's status: why it waits, and where room is kept for it.

use api::wire::meta::Time;
use engine::model::Pod;
use engine::scheduler::Nomination;
use http::Method;

use super::requests::{Call, Quoted, STRATEGIC, pod_path, seconds};
use crate::scheduler::pods::Note;

/// Why a pod is not scheduled, in the words of its condition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Why<'a> {
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// The patch that makes the pod say so; `None` if it does already. What it will say is put into the note.
pub(crate) fn patch(
    pod: &Pod,
    note: &mut Note,
    why: Option<Why>,
    nomination: &Nomination,
    now: jiff::Timestamp,
) -> Option<Call> {
    let mut fields = Vec::new();
    if let Some(why) = why
        && !note.says(why.reason, why.message)
    {
        let since = note
            .scheduled
            .filter(|known| known.is_false)
            .and_then(|known| known.since)
            .unwrap_or(Time {
                seconds: now.as_second(),
                nanos: 0,
            });
        fields.push(condition(why, note.generation, since));
        note.say(why.reason, why.message, since);
    }
    match nomination {
        Nomination::Set(node) if note.nominated.as_ref() != Some(node) => {
            fields.push(format!(r#""nominatedNodeName":{}"#, Quoted(node)));
            note.nominated = Some(node.clone());
        }
        Nomination::Clear if note.nominated.is_some() => {
            fields.push(r#""nominatedNodeName":null"#.to_owned());
            note.nominated = None;
        }
        Nomination::Set(_) | Nomination::Clear | Nomination::Keep => {}
    }
    if fields.is_empty() {
        return None;
    }
    let status = fields.join(",");
    Some(status_call(pod, &status))
}

fn condition(why: Why, generation: i64, since: Time) -> String {
    let since = jiff::Timestamp::from_second(since.seconds).unwrap_or_default();
    format!(
        r#""conditions":[{{"type":"PodScheduled","status":"False","reason":{},"message":{},"lastProbeTime":null,"lastTransitionTime":"{}","observedGeneration":{generation}}}]"#,
        Quoted(why.reason),
        Quoted(why.message),
        seconds(since),
    )
}

/// Marks a pod as making room for another one.
pub(crate) fn disruption(victim: &Pod, scheduler: &str, now: jiff::Timestamp) -> Call {
    let message = format!("{scheduler}: preempting to accommodate a higher priority pod");
    let status = format!(
        r#""conditions":[{{"type":"DisruptionTarget","status":"True","reason":"PreemptionByScheduler","message":{},"lastProbeTime":null,"lastTransitionTime":"{}"}}]"#,
        Quoted(&message),
        seconds(now),
    );
    status_call(victim, &status)
}

/// With the uid, so that a new pod of the same name is left alone.
fn status_call(pod: &Pod, status: &str) -> Call {
    let body = format!(
        r#"{{"metadata":{{"uid":{}}},"status":{{{status}}}}}"#,
        Quoted(&pod.uid)
    );
    Call::new(Method::PATCH, pod_path(pod, "/status"), STRATEGIC, body)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const WHY: Why = Why {
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
    fn what_differs_is_written_once() {
        let pod = Pod {
            uid: "u".into(),
            ..Pod::default()
        };
        let mut note = Note {
            generation: 3,
            ..Note::default()
        };
        let node = Nomination::Set("n".into());
        let first = body(patch(&pod, &mut note, Some(WHY), &node, now()));
        assert_eq!(first["metadata"]["uid"], "u");
        let condition = &first["status"]["conditions"][0];
        assert_eq!(condition["message"], WHY.message);
        assert_eq!(condition["lastTransitionTime"], "2026-01-02T03:04:05Z");
        assert_eq!(condition["observedGeneration"], 3);
        assert_eq!(first["status"]["nominatedNodeName"], "n");
        assert!(patch(&pod, &mut note, Some(WHY), &node, now()).is_none());
        assert!(patch(&pod, &mut note, Some(WHY), &Nomination::Keep, now()).is_none());

        let cleared = body(patch(&pod, &mut note, Some(WHY), &Nomination::Clear, now()));
        assert!(cleared["status"]["nominatedNodeName"].is_null());
        assert!(cleared["status"].get("conditions").is_none());
    }

    #[test]
    fn the_time_stays_while_the_status_does() {
        let pod = Pod::default();
        let mut note = Note::default();
        patch(&pod, &mut note, Some(WHY), &Nomination::Keep, now());
        let other = Why {
            message: "0/2 nodes",
            ..WHY
        };
        let later = jiff::Timestamp::from_second(1_767_329_999).unwrap();
        let second = body(patch(
            &pod,
            &mut note,
            Some(other),
            &Nomination::Keep,
            later,
        ));
        let condition = &second["status"]["conditions"][0];
        assert_eq!(condition["message"], "0/2 nodes");
        assert_eq!(condition["lastTransitionTime"], "2026-01-02T03:04:05Z");
    }
}
