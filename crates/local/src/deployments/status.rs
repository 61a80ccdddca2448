//! The status and conditions of a rollout, as `kubectl rollout status` and `kubectl wait` read them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::apps::v1::DeploymentCondition, apimachinery::pkg::apis::meta::v1::Time};

use super::{
    plan::{Bounds, Observed},
    sets,
};
use crate::objects::{
    ReplicaSet,
    deployment::{DeploymentSpec, DeploymentStatus},
};

const DONE: &str = "NewReplicaSetAvailable";
const MOVING: &str = "ReplicaSetUpdated";
const CREATED: &str = "NewReplicaSetCreated";
const LATE: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";
const RESUMED: &str = "DeploymentResumed";

pub(super) struct Progress<'a> {
    /// The set of the current template.
    pub(super) current: Option<&'a ReplicaSet>,
    /// The name of the set that is being created.
    pub(super) creates: Option<String>,
    pub(super) bounds: Bounds,
}

pub(super) fn of(observed: &Observed<'_>, progress: &Progress<'_>) -> DeploymentStatus {
    let (spec, before) = (&observed.deployment.spec, &observed.deployment.status);
    let sum = |count| sets::sum(observed.sets, count);
    let available = sum(sets::available);
    let mut status = DeploymentStatus {
        replicas: sum(|set| set.status.replicas),
        updated_replicas: progress.current.map_or(0, |set| set.status.replicas),
        ready_replicas: sum(|set| set.status.ready_replicas),
        available_replicas: available,
        unavailable_replicas: (sum(|set| set.spec.replicas) - available).max(0),
        observed_generation: observed.deployment.metadata.generation.unwrap_or(0),
        collision_count: before.collision_count,
        conditions: before.conditions.clone(),
    };
    let (truth, reason, message) = if available >= spec.replicas - progress.bounds.unavailable {
        (
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
    } else {
        (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    set_condition(
        &mut status,
        "Available",
        truth,
        reason,
        message.into(),
        observed.now,
    );
    if let Some((truth, reason, message)) = progressing(observed, progress, before, &status) {
        set_condition(
            &mut status,
            "Progressing",
            truth,
            reason,
            message,
            observed.now,
        );
    }
    status
}

/// The condition `Progressing`, if it changes.
fn progressing(
    observed: &Observed<'_>,
    progress: &Progress<'_>,
    before: &DeploymentStatus,
    now: &DeploymentStatus,
) -> Option<(&'static str, &'static str, String)> {
    let reason = condition(before)
        .and_then(|c| c.reason.as_deref())
        .unwrap_or("");
    if observed.deployment.spec.paused {
        return (reason != PAUSED).then(|| ("Unknown", PAUSED, "Deployment is paused".into()));
    }
    if let Some(name) = &progress.creates {
        return Some((
            "True",
            CREATED,
            format!("Created new replica set \"{name}\""),
        ));
    }
    let name = progress
        .current
        .and_then(|set| set.metadata.name.as_deref());
    let subject = match name {
        Some(name) => format!("ReplicaSet \"{name}\""),
        None => "Deployment".into(),
    };
    if is_complete(&observed.deployment.spec, now) {
        return (reason != DONE).then(|| {
            (
                "True",
                DONE,
                format!("{subject} has successfully progressed."),
            )
        });
    }
    // A finished rollout stays finished when a pod fails later; only a new template starts another.
    let same_rollout =
        before.replicas == before.updated_replicas && now.replicas == now.updated_replicas;
    if reason == DONE && same_rollout {
        return None;
    }
    if reason == PAUSED {
        return Some(("Unknown", RESUMED, "Deployment is resumed".into()));
    }
    let old = |status: &DeploymentStatus| status.replicas - status.updated_replicas;
    let moved = now.updated_replicas > before.updated_replicas
        || old(now) < old(before)
        || now.ready_replicas > before.ready_replicas
        || now.available_replicas > before.available_replicas;
    if moved || reason.is_empty() || reason == DONE {
        return Some(("True", MOVING, format!("{subject} is progressing.")));
    }
    let late =
        until_deadline(&observed.deployment.spec, before, observed.now) == Some(Duration::ZERO);
    (late && reason != LATE).then(|| {
        (
            "False",
            LATE,
            format!("{subject} has timed out progressing."),
        )
    })
}

fn condition(status: &DeploymentStatus) -> Option<&DeploymentCondition> {
    status.conditions.iter().find(|c| c.type_ == "Progressing")
}

/// Every pod is of the current template and available, and no old pod is left.
pub(super) fn is_complete(spec: &DeploymentSpec, status: &DeploymentStatus) -> bool {
    [
        status.updated_replicas,
        status.replicas,
        status.available_replicas,
    ]
    .iter()
    .all(|count| *count == spec.replicas)
}

/// The time left until the progress deadline; zero after it.
pub(super) fn until_deadline(
    spec: &DeploymentSpec,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    let deadline = spec
        .progress_deadline_seconds
        .filter(|&seconds| seconds != i32::MAX)?;
    let condition = condition(status)?;
    let waiting = [MOVING, CREATED, RESUMED].contains(&condition.reason.as_deref()?);
    let updated = condition.last_update_time.as_ref().filter(|_| waiting)?;
    let left = SignedDuration::from_secs(deadline.into()) - now.duration_since(updated.0);
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

fn set_condition(
    status: &mut DeploymentStatus,
    type_: &str,
    truth: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) {
    let conditions = &mut status.conditions;
    let old = conditions.iter().position(|c| c.type_ == type_);
    let mut since = Time(now);
    if let Some(at) = old {
        let old = &conditions[at];
        let same = old.status == truth
            && old.reason.as_deref() == Some(reason)
            && old.message.as_deref() == Some(message.as_str());
        // Progress renews the time of the condition, otherwise the deadline would pass.
        if same && type_ != "Progressing" {
            return;
        }
        if old.status == truth {
            since = old.last_transition_time.clone().unwrap_or(since);
        }
    }
    let condition = DeploymentCondition {
        type_: type_.into(),
        status: truth.into(),
        reason: Some(reason.into()),
        message: Some(message),
        last_transition_time: Some(since),
        last_update_time: Some(Time(now)),
    };
    match old {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{Deployment, pod::testing::merge};
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    /// Writes the status of a two-replica Deployment whose one set has `live` pods, of which `available` are available.
    /// Returns the conditions, and whether anything changed.
    fn next(web: &mut Deployment, live: i32, available: i32, now: i64) -> (String, String, bool) {
        let set: ReplicaSet = serde_json::from_value(json!({
            "metadata": {"name": "web-1"},
            "spec": {"replicas": 2, "selector": {}},
            "status": {"replicas": live, "readyReplicas": available, "availableReplicas": available},
        }))
        .unwrap();
        let sets = [Arc::new(set)];
        let observed = Observed {
            deployment: web,
            sets: &sets,
            has_pods: &|_| false,
            now: at(now),
        };
        let bounds = Bounds {
            surge: 1,
            unavailable: 0,
        };
        let status = of(
            &observed,
            &Progress {
                current: Some(&sets[0]),
                creates: None,
                bounds,
            },
        );
        let find = |type_: &str| {
            let condition = status.conditions.iter().find(|c| c.type_ == type_).unwrap();
            format!(
                "{} {}",
                condition.status,
                condition.reason.as_deref().unwrap()
            )
        };
        let told = (find("Available"), find("Progressing"), status != web.status);
        web.status = status;
        told
    }

    fn deployment(spec: Value) -> Deployment {
        let mut whole = json!({
            "metadata": {"name": "web", "generation": 4},
            "spec": {"replicas": 2, "selector": {}, "template": {}, "progressDeadlineSeconds": 60},
        });
        merge(&mut whole["spec"], spec);
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn conditions_tell_a_rollout_from_start_to_end() {
        let mut web = deployment(json!({}));
        let (less, enough) = (
            "False MinimumReplicasUnavailable",
            "True MinimumReplicasAvailable",
        );
        for (case, live, available, now, ready, progress, changed) in [
            ("starting", 0, 0, 0, less, "True ReplicaSetUpdated", true),
            (
                "waiting changes nothing",
                0,
                0,
                10,
                less,
                "True ReplicaSetUpdated",
                false,
            ),
            (
                "a pod appears",
                1,
                0,
                20,
                less,
                "True ReplicaSetUpdated",
                true,
            ),
            (
                "the deadline counts from the last move",
                1,
                0,
                79,
                less,
                "True ReplicaSetUpdated",
                false,
            ),
            (
                "too late",
                1,
                0,
                80,
                less,
                "False ProgressDeadlineExceeded",
                true,
            ),
            (
                "late but done",
                2,
                2,
                90,
                enough,
                "True NewReplicaSetAvailable",
                true,
            ),
            (
                "a pod dies later",
                2,
                1,
                99,
                less,
                "True NewReplicaSetAvailable",
                true,
            ),
        ] {
            let got = next(&mut web, live, available, now);
            assert_eq!(got, (ready.into(), progress.into(), changed), "{case}");
        }
        assert_eq!(web.status.observed_generation, 4);
    }

    #[test]
    fn pausing_stops_the_clock() {
        let mut web = deployment(json!({"paused": true}));
        assert_eq!(next(&mut web, 1, 0, 0).1, "Unknown DeploymentPaused");
        assert_eq!(next(&mut web, 1, 0, 1000).1, "Unknown DeploymentPaused");
        web.spec.paused = false;
        assert_eq!(next(&mut web, 1, 0, 1001).1, "Unknown DeploymentResumed");
        assert_eq!(
            next(&mut web, 1, 0, 1062).1,
            "False ProgressDeadlineExceeded"
        );
    }
}
