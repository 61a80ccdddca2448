//! The plan for a StatefulSet: which pods to create and delete next.
//!
//! With the policy OrderedReady one pod is created or deleted at a time, and only while all pods before it are available.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;

use super::member::{ordinal_of, revision_of};
use crate::{
    objects::{Pod, StatefulSet, stateful_set::StatefulSetStatus},
    pod_control::BURST,
    scaled_value::{Rounding, scaled_value},
};

pub(super) struct ObservedSet<'a> {
    pub(super) set: &'a StatefulSet,
    /// The pods it owns.
    pub(super) pods: &'a [Arc<Pod>],
    /// The names of the revision that is being replaced, and of the present template's. They are equal after a rollout.
    pub(super) current: &'a str,
    pub(super) update: &'a str,
    pub(super) now: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct SetPlan {
    /// Ordinals.
    pub(super) create: Vec<i64>,
    pub(super) delete: Vec<Arc<Pod>>,
    /// The pods beyond the wanted number, whether they can go yet or not.
    pub(super) condemned: Vec<Arc<Pod>>,
    /// The status, if it changes.
    pub(super) status: Option<StatefulSetStatus>,
    /// The time until a pod becomes available without any event.
    pub(super) recheck: Option<Duration>,
}

pub(super) fn plan(observed: &ObservedSet<'_>) -> SetPlan {
    let set = observed.set;
    let mut plan = SetPlan {
        recheck: recheck(observed),
        ..SetPlan::default()
    };
    let status = status(observed);
    plan.status = (status != set.status).then_some(status);

    let wanted = set.start()..set.start() + i64::from(set.spec.replicas.max(0));
    let mut members: BTreeMap<i64, &Arc<Pod>> = BTreeMap::new();
    let mut condemned: BTreeMap<i64, &Arc<Pod>> = BTreeMap::new();
    for pod in observed.pods {
        match ordinal_of(set, pod) {
            Some(ordinal) if wanted.contains(&ordinal) => members.insert(ordinal, pod),
            Some(ordinal) => condemned.insert(ordinal, pod),
            None => None,
        };
    }
    plan.condemned = condemned.values().map(|pod| (*pod).clone()).collect();
    if set.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let ordered = set.spec.pod_management_policy != "Parallel";
    let is_available = |pod: &Pod| is_available(observed, pod);

    for ordinal in wanted {
        match members.get(&ordinal) {
            None => plan.create.push(ordinal),
            // The pod is replaced when it is gone.
            Some(pod) if pod.is_finished() => {
                plan.delete.extend(live(pod));
                if ordered {
                    return plan;
                }
            }
            Some(pod) if ordered && !is_available(pod) => return plan,
            Some(_) => continue,
        }
        if ordered || plan.create.len() >= BURST {
            return plan;
        }
    }

    let first_unavailable = condemned.values().find(|pod| !is_available(pod));
    for pod in condemned.values().rev() {
        // An unavailable pod goes only when it is the first one, or else two would be missing.
        let waits = !is_available(pod) && first_unavailable.is_some_and(|it| !Arc::ptr_eq(it, pod));
        if ordered && (pod.is_deleting() || waits) {
            return plan;
        }
        plan.delete.extend(live(pod));
        if ordered || plan.delete.len() >= BURST {
            return plan;
        }
    }

    if set.rolls() {
        let mut budget = max_unavailable(set).saturating_sub(plan.create.len());
        for (_, pod) in members.range(set.partition()..).rev() {
            if budget == 0 {
                break;
            }
            if revision_of(pod) != observed.update && !pod.is_deleting() && !pod.is_finished() {
                plan.delete.push((*pod).clone());
                budget -= 1;
            } else if !is_available(pod) {
                budget -= 1;
            }
        }
    }
    plan
}

/// The pod, unless it is being deleted already.
fn live(pod: &Arc<Pod>) -> Option<Arc<Pod>> {
    (!pod.is_deleting()).then(|| pod.clone())
}

fn is_running_and_ready(pod: &Pod) -> bool {
    pod.status.phase == "Running" && pod.is_ready()
}

fn is_available(observed: &ObservedSet<'_>, pod: &Pod) -> bool {
    let min_ready = observed.set.spec.min_ready_seconds;
    let wait = pod.available_in(min_ready, observed.now);
    is_running_and_ready(pod) && !pod.is_deleting() && wait == Some(Duration::ZERO)
}

fn recheck(observed: &ObservedSet<'_>) -> Option<Duration> {
    let min_ready = observed.set.spec.min_ready_seconds;
    let pods = observed.pods.iter();
    let waits = pods.filter_map(|pod| pod.available_in(min_ready, observed.now));
    waits.filter(|wait| !wait.is_zero()).min()
}

/// How many pods a rollout may have too few; at least one, or it would never move.
fn max_unavailable(set: &StatefulSet) -> usize {
    let rolling = set.spec.update_strategy.rolling_update.as_ref();
    let count = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
    let count = scaled_value(count, set.spec.replicas, Rounding::Down);
    usize::try_from(count).unwrap_or(0).max(1)
}

fn status(observed: &ObservedSet<'_>) -> StatefulSetStatus {
    let set = observed.set;
    let count = |counts: &dyn Fn(&Pod) -> bool| {
        let pods = observed.pods.iter();
        i32::try_from(pods.filter(|pod| counts(pod)).count()).unwrap_or(i32::MAX)
    };
    let of = |revision: &str| count(&|pod| revision_of(pod) == revision && !pod.is_deleting());
    let mut status = StatefulSetStatus {
        replicas: count(&|_| true),
        ready_replicas: count(&is_running_and_ready),
        available_replicas: count(&|pod| {
            let wait = pod.available_in(set.spec.min_ready_seconds, observed.now);
            is_running_and_ready(pod) && wait == Some(Duration::ZERO)
        }),
        current_replicas: of(observed.current),
        updated_replicas: of(observed.update),
        current_revision: observed.current.to_owned(),
        update_revision: observed.update.to_owned(),
        observed_generation: set.metadata.generation.unwrap_or(0),
        collision_count: set.status.collision_count,
    };
    let done = [
        status.replicas,
        status.ready_replicas,
        status.updated_replicas,
    ];
    if set.rolls() && done.iter().all(|count| *count == set.spec.replicas) {
        status.current_replicas = status.updated_replicas;
        status.current_revision.clone_from(&status.update_revision);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::pod::testing::{merge, pod};
    use serde_json::{Value, json};

    fn set(spec: Value) -> StatefulSet {
        let mut whole = json!({
            "metadata": {"name": "db", "generation": 3},
            "spec": {"replicas": 3, "selector": {}, "template": {}},
        });
        merge(&mut whole["spec"], spec);
        serde_json::from_value(whole).unwrap()
    }

    /// `0 1! 2~ 3+ 4x`: a pod is available, not ready, being deleted, of the new revision, or failed.
    fn pods(text: &str) -> Vec<Arc<Pod>> {
        let pods = text.split_whitespace().map(|word| {
            let ordinal = word.trim_end_matches(['!', '~', '+', 'x']);
            let has = |mark| word.contains(mark);
            let ready = if has('!') { "False" } else { "True" };
            let mut parts = json!({
                "metadata": {"labels": {crate::revisions::HASH: if has('+') { "new" } else { "old" }}},
                "status": {
                    "phase": if has('x') { "Failed" } else { "Running" },
                    "conditions": [{"type": "Ready", "status": ready}],
                },
            });
            if has('~') {
                parts["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            Arc::new(pod(&format!("db-{ordinal}"), parts))
        });
        pods.collect()
    }

    fn planned(set: &StatefulSet, text: &str, update: &str) -> (Vec<i64>, Vec<i64>) {
        let pods = pods(text);
        let plan = plan(&ObservedSet {
            set,
            pods: &pods,
            current: "old",
            update,
            now: Timestamp::UNIX_EPOCH,
        });
        let deleted = plan.delete.iter();
        let deleted = deleted.map(|pod| ordinal_of(set, pod).unwrap());
        (plan.create, deleted.collect())
    }

    #[test]
    fn pods_come_and_go_in_order() {
        for (case, replicas, text, create, delete) in [
            ("the first", 3, "", vec![0], vec![]),
            ("waits for the first", 3, "0!", vec![], vec![]),
            ("the next", 3, "0", vec![1], vec![]),
            ("a gap", 3, "0 2", vec![1], vec![]),
            ("a failed pod", 3, "0 1x 2", vec![], vec![1]),
            ("a pod that leaves", 3, "0 1~ 2", vec![], vec![]),
            ("the last goes", 1, "0 1 2", vec![], vec![2]),
            ("one at a time", 1, "0 1 2~", vec![], vec![]),
            (
                "a broken one waits for another",
                1,
                "0 1! 2!",
                vec![],
                vec![],
            ),
            ("the first broken one goes", 1, "0 1 2!", vec![], vec![2]),
        ] {
            let set = set(json!({"replicas": replicas}));
            assert_eq!(planned(&set, text, "old"), (create, delete), "{case}");
        }
    }

    #[test]
    fn in_parallel_none_waits_for_another() {
        for (case, replicas, text, create, delete) in [
            ("all at once", 3, "", vec![0, 1, 2], vec![]),
            ("gaps", 4, "1!", vec![0, 2, 3], vec![]),
            ("all go", 1, "0 1! 2", vec![], vec![2, 1]),
        ] {
            let set = set(json!({"replicas": replicas, "podManagementPolicy": "Parallel"}));
            assert_eq!(planned(&set, text, "old"), (create, delete), "{case}");
        }
        let huge = set(json!({"replicas": i32::MAX, "podManagementPolicy": "Parallel"}));
        assert_eq!(planned(&huge, "", "old").0.len(), BURST);
        let shifted = set(json!({"replicas": 2, "ordinals": {"start": 5}}));
        assert_eq!(planned(&shifted, "5", "old").0, [6]);
    }

    #[test]
    fn a_rollout_goes_from_the_last_pod_to_the_partition() {
        let rolling = |parts: Value| set(json!({"updateStrategy": {"rollingUpdate": parts}}));
        for (case, set, text, delete) in [
            ("the last first", rolling(json!({})), "0 1 2", vec![2]),
            ("waits for it", rolling(json!({})), "0 1 2+!", vec![]),
            ("the next", rolling(json!({})), "0 1 2+", vec![1]),
            ("done", rolling(json!({})), "0+ 1+ 2+", vec![]),
            (
                "a partition",
                rolling(json!({"partition": 2})),
                "0 1 2+",
                vec![],
            ),
            (
                "two at a time",
                rolling(json!({"maxUnavailable": 2})),
                "0 1 2",
                vec![2, 1],
            ),
            (
                "by hand",
                set(json!({"updateStrategy": {"type": "OnDelete"}})),
                "0 1 2",
                vec![],
            ),
        ] {
            assert_eq!(planned(&set, text, "new"), (vec![], delete), "{case}");
        }
    }

    #[test]
    fn the_status_ends_a_rollout() {
        let at = |text: &str| {
            let (set, pods) = (set(json!({})), pods(text));
            let status = status(&ObservedSet {
                set: &set,
                pods: &pods,
                current: "old",
                update: "new",
                now: Timestamp::UNIX_EPOCH,
            });
            let counts = [
                status.replicas,
                status.ready_replicas,
                status.current_replicas,
                status.updated_replicas,
            ];
            (counts, status.current_revision)
        };
        assert_eq!(at("0 1 2+!"), ([3, 2, 2, 1], "old".into()));
        assert_eq!(at("0+ 1+ 2+"), ([3, 3, 3, 3], "new".into()));
    }
}
