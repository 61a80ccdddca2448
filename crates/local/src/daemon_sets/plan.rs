//! The plan for a DaemonSet: which nodes get a pod, which pods go, and the next step of a rollout.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};

use super::member::{Fit, hash_of};
use crate::{
    events::Report,
    objects::{DaemonSet, Pod, daemon_set::DaemonSetStatus},
    pod_control::BURST,
    scaled_value::{Rounding, scaled_value},
};

pub(super) struct ObservedDaemons<'a> {
    pub(super) set: &'a DaemonSet,
    /// The pods it owns.
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) nodes: &'a BTreeMap<String, Fit>,
    /// The hash of the present template.
    pub(super) hash: &'a str,
    /// A failed pod is replaced after this time, so that a node that rejects it gets some rest.
    pub(super) retry: Duration,
    pub(super) now: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct DaemonPlan {
    /// The names of nodes that get a pod.
    pub(super) create: Vec<String>,
    pub(super) delete: Vec<Arc<Pod>>,
    pub(super) reports: Vec<Report>,
    /// The status, if it changes.
    pub(super) status: Option<DaemonSetStatus>,
    /// The time until something happens without any event.
    pub(super) recheck: Option<Duration>,
}

/// The pods of each node, oldest first.
type ByNode<'a> = BTreeMap<&'a str, Vec<&'a Arc<Pod>>>;

pub(super) fn plan(observed: &ObservedDaemons<'_>) -> DaemonPlan {
    let set = observed.set;
    let mut by_node: ByNode<'_> = BTreeMap::new();
    for pod in observed.pods {
        by_node
            .entry(pod.target_node().unwrap_or_default())
            .or_default()
            .push(pod);
    }
    for pods in by_node.values_mut() {
        pods.sort_by_key(|pod| {
            let created = pod.metadata.creation_timestamp.clone();
            (!pod.is_bound(), created, pod.metadata.name.clone())
        });
    }
    let mut plan = DaemonPlan::default();
    let status = status(observed, &by_node);
    let desired = status.desired_number_scheduled;
    plan.status = (status != set.status).then_some(status);
    plan.recheck = until_available(observed);
    if set.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let bounds = UpdateBounds::new(set, desired);
    for (node, fit) in observed.nodes {
        let pods = by_node.get(node.as_str()).map_or(&[][..], Vec::as_slice);
        settle(observed, &mut plan, node, *fit, pods, bounds);
    }
    // A pod for a node that is gone before the pod was bound.
    let lost = by_node
        .iter()
        .filter(|(node, _)| !observed.nodes.contains_key(**node));
    let lost = lost.flat_map(|(_, pods)| pods);
    let lost = lost.filter(|pod| !pod.is_bound() && !pod.is_deleting());
    plan.delete.extend(lost.map(|pod| (*pod).clone()));
    let rolls = set.spec.update_strategy.type_.as_deref() != Some("OnDelete");
    if rolls && plan.create.is_empty() && plan.delete.is_empty() {
        roll(observed, &mut plan, &by_node, bounds);
    }
    plan.create.truncate(BURST);
    plan.delete.truncate(BURST);
    plan
}

/// How many nodes a rollout may have with two pods, and with none that is available.
#[derive(Clone, Copy)]
struct UpdateBounds {
    surge: usize,
    unavailable: usize,
}

impl UpdateBounds {
    fn new(set: &DaemonSet, desired: i32) -> Self {
        let rolling = set.spec.update_strategy.rolling_update.as_ref();
        let count = |value| {
            let count = scaled_value(value, desired, Rounding::Up);
            usize::try_from(count).unwrap_or(0)
        };
        let surge = count(rolling.and_then(|rolling| rolling.max_surge.as_ref()));
        let unavailable = count(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()));
        Self {
            surge,
            unavailable: if surge == 0 {
                unavailable.max(1)
            } else {
                unavailable
            },
        }
    }
}

fn is_available(observed: &ObservedDaemons<'_>, pod: &Pod) -> bool {
    let min_ready = observed.set.spec.min_ready_seconds;
    pod.available_in(min_ready, observed.now) == Some(Duration::ZERO)
}

fn until_available(observed: &ObservedDaemons<'_>) -> Option<Duration> {
    let min_ready = observed.set.spec.min_ready_seconds;
    let pods = observed.pods.iter();
    let waits = pods.filter_map(|pod| pod.available_in(min_ready, observed.now));
    waits.filter(|wait| !wait.is_zero()).min()
}

/// Brings one node to one pod, or to two while a rollout surges.
fn settle(
    observed: &ObservedDaemons<'_>,
    plan: &mut DaemonPlan,
    node: &str,
    fit: Fit,
    pods: &[&Arc<Pod>],
    bounds: UpdateBounds,
) {
    let live: Vec<&Arc<Pod>> = pods
        .iter()
        .copied()
        .filter(|pod| !pod.is_deleting())
        .collect();
    if !fit.stays {
        plan.delete.extend(live.into_iter().cloned());
        return;
    }
    let (finished, running): (Vec<_>, Vec<_>) = live.into_iter().partition(|pod| pod.is_finished());
    for pod in finished {
        replace(observed, plan, node, pod);
    }
    let surges = bounds.surge > 0;
    // Without a surge the old pod must be gone before the new one comes.
    let free = if surges {
        running.is_empty()
    } else {
        pods.is_empty()
    };
    if free && fit.runs {
        plan.create.push(node.to_owned());
    }
    if !surges {
        plan.delete.extend(running.into_iter().skip(1).cloned());
        return;
    }
    let (new, old): (Vec<_>, Vec<_>) = running
        .into_iter()
        .partition(|pod| hash_of(pod) == observed.hash);
    let replaced = match (new.first(), old.first()) {
        (Some(new), Some(old)) => !old.is_ready() || is_available(observed, new),
        _ => false,
    };
    plan.delete.extend(new.into_iter().skip(1).cloned());
    plan.delete
        .extend(old.into_iter().skip(usize::from(!replaced)).cloned());
}

/// Deletes a pod that ended, so that the node gets another.
fn replace(observed: &ObservedDaemons<'_>, plan: &mut DaemonPlan, node: &str, pod: &Arc<Pod>) {
    let key = reconcile::Key::of(&pod.metadata);
    if pod.status.phase == "Succeeded" {
        let message =
            format!("Found succeeded daemon pod {key} on node {node}, will try to delete it");
        plan.reports
            .push(Report::normal("SucceededDaemonPod", message));
        plan.delete.push(pod.clone());
        return;
    }
    let created = pod.metadata.creation_timestamp.as_ref();
    let age = created.map(|created| observed.now.duration_since(created.0));
    let retry = SignedDuration::try_from(observed.retry).unwrap_or(SignedDuration::MAX);
    let left = age.map_or(SignedDuration::ZERO, |age| retry.saturating_sub(age));
    match Duration::try_from(left) {
        Ok(left) if !left.is_zero() => {
            plan.recheck = plan.recheck.into_iter().chain([left]).min();
        }
        _ => {
            let message =
                format!("Found failed daemon pod {key} on node {node}, will try to kill it");
            plan.reports
                .push(Report::warning("FailedDaemonPod", message));
            plan.delete.push(pod.clone());
        }
    }
}

/// The next step of a rollout: replaces old pods that do not work, and as many others as the bounds allow.
fn roll(
    observed: &ObservedDaemons<'_>,
    plan: &mut DaemonPlan,
    by_node: &ByNode<'_>,
    bounds: UpdateBounds,
) {
    let (mut busy, mut broken, mut working) = (0, Vec::new(), Vec::new());
    for (node, pods) in by_node {
        let mut live = pods.iter().filter(|pod| !pod.is_deleting());
        // After `settle` a node has one pod, or two while it surges.
        let (first, second) = (live.next(), live.next());
        match (first, second) {
            (Some(pod), None) if hash_of(pod) == observed.hash => {
                busy += usize::from(!is_available(observed, pod) && bounds.surge == 0);
            }
            (Some(pod), None) if is_available(observed, pod) => working.push((*node, *pod)),
            (Some(pod), None) => broken.push((*node, *pod)),
            _ => busy += 1,
        }
    }
    let runs = |node: &str| observed.nodes.get(node).is_some_and(|fit| fit.runs);
    if bounds.surge > 0 {
        let free = bounds.surge.saturating_sub(busy);
        let next = broken.iter().chain(working.iter().take(free));
        let next = next.filter(|(node, _)| runs(node));
        plan.create.extend(next.map(|(node, _)| (*node).to_owned()));
    } else {
        let free = bounds.unavailable.saturating_sub(busy + broken.len());
        let next = broken.iter().chain(working.iter().take(free));
        plan.delete.extend(next.map(|(_, pod)| (*pod).clone()));
    }
}

fn status(observed: &ObservedDaemons<'_>, by_node: &ByNode<'_>) -> DaemonSetStatus {
    let set = observed.set;
    let mut status = DaemonSetStatus {
        observed_generation: set.metadata.generation.unwrap_or(0),
        collision_count: set.status.collision_count,
        ..DaemonSetStatus::default()
    };
    for (node, fit) in observed.nodes {
        let pod = by_node.get(node.as_str()).and_then(|pods| pods.first());
        if !fit.runs {
            status.number_misscheduled += i32::from(pod.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        if let Some(pod) = pod {
            status.current_number_scheduled += 1;
            status.number_ready += i32::from(pod.is_ready());
            status.number_available += i32::from(is_available(observed, pod));
            status.updated_number_scheduled += i32::from(hash_of(pod) == observed.hash);
        }
    }
    status.number_unavailable = status.desired_number_scheduled - status.number_available;
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{objects::pod::testing::pod, revisions::HASH};
    use serde_json::{Value, json};

    fn set(rolling: Value) -> DaemonSet {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        let set = json!({"metadata": {"name": "d"}, "spec": {"template": {}, "updateStrategy": strategy}});
        serde_json::from_value(set).unwrap()
    }

    /// `a b! c~ d+ ex`: the pod of node a is available, of b not ready, of c being deleted, of d new, of e failed.
    fn pods(text: &str) -> Vec<Arc<Pod>> {
        let pods = text.split_whitespace().enumerate().map(|(at, word)| {
            let node = word.trim_end_matches(['!', '~', '+', 'x']);
            let has = |mark| word.contains(mark);
            let ready = if has('!') || has('x') {
                "False"
            } else {
                "True"
            };
            let mut parts = json!({
                "metadata": {
                    "labels": {HASH: if has('+') { "new" } else { "old" }},
                    "creationTimestamp": "1970-01-01T00:00:00Z",
                },
                "spec": {"nodeName": node},
                "status": {
                    "phase": if has('x') { "Failed" } else { "Running" },
                    "conditions": [{"type": "Ready", "status": ready}],
                },
            });
            if has('~') {
                parts["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            Arc::new(pod(&format!("{word}-{at}"), parts))
        });
        pods.collect()
    }

    /// `nodes` are `a b? c-`: b gets no pod, but one may stay; c has none.
    fn planned(
        set: &DaemonSet,
        nodes: &str,
        text: &str,
        seconds: i64,
    ) -> (Vec<String>, Vec<String>) {
        let nodes = nodes.split_whitespace().map(|word| {
            let name = word.trim_end_matches(['?', '-']);
            let fit = Fit {
                runs: name == word,
                stays: !word.contains('-'),
            };
            (name.to_owned(), fit)
        });
        let plan = plan(&ObservedDaemons {
            set,
            pods: &pods(text),
            nodes: &nodes.collect(),
            hash: "new",
            retry: Duration::from_secs(10),
            now: Timestamp::from_second(seconds).unwrap(),
        });
        let deleted = plan.delete.iter().map(|pod| pod.spec.node_name.clone());
        (plan.create, deleted.collect())
    }

    #[test]
    fn every_node_that_fits_has_one_pod() {
        let none = Vec::<&str>::new;
        for (case, nodes, pods, now, create, delete) in [
            ("new nodes", "a b? c-", "", 0, vec!["a"], none()),
            ("complete", "a b", "a+ b+", 0, none(), none()),
            ("wrong places", "a? b-", "a+ b+", 0, none(), vec!["b"]),
            ("two pods", "a", "a+ a+", 0, none(), vec!["a"]),
            ("one that leaves", "a", "a+~", 0, none(), none()),
            ("a failed pod rests", "a", "a+x", 9, none(), none()),
            ("and is replaced", "a", "a+x", 10, none(), vec!["a"]),
        ] {
            let got = planned(&set(json!({})), nodes, pods, now);
            let want = |all: Vec<&str>| all.into_iter().map(str::to_owned).collect();
            assert_eq!(got, (want(create), want(delete)), "{case}");
        }
    }

    #[test]
    fn a_rollout_keeps_its_bounds() {
        let none = Vec::<&str>::new;
        let (one, two) = (
            json!({"maxUnavailable": 1}),
            json!({"maxUnavailable": "50%"}),
        );
        let surge = json!({"maxSurge": 1, "maxUnavailable": 0});
        for (case, rolling, pods, create, delete) in [
            ("one at a time", &one, "a b c", none(), vec!["a"]),
            ("waits for it", &one, "a+! b c", none(), none()),
            ("then the next", &one, "a+ b c", none(), vec!["b"]),
            ("half of them", &two, "a b c", none(), vec!["a", "b"]),
            ("a broken one goes first", &one, "a b! c", none(), vec!["b"]),
            ("a second pod", &surge, "a b c", vec!["a"], none()),
            ("which must be ready", &surge, "a a+! b c", none(), none()),
            (
                "before the old one goes",
                &surge,
                "a a+ b c",
                none(),
                vec!["a"],
            ),
            ("and the next", &surge, "a+ b c", vec!["b"], none()),
            ("done", &one, "a+ b+ c+", none(), none()),
        ] {
            let got = planned(&set(rolling.clone()), "a b c", pods, 0);
            let want = |all: Vec<&str>| all.into_iter().map(str::to_owned).collect();
            assert_eq!(got, (want(create), want(delete)), "{case}");
        }
    }
}
