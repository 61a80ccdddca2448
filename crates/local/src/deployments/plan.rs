//! The plan for a Deployment: the next steps of its rollout.
//!
//! Unlike the real controller, it does not scale old and new ReplicaSets proportionally when a Deployment is resized
//! during a rollout: the rolling rules alone bring it to the new size.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use super::{sets, status};
use crate::{
    objects::{
        Deployment, ReplicaSet,
        deployment::{DeploymentSpec, DeploymentStatus},
    },
    scaled_value::{Rounding, scaled_value},
};

pub(super) struct Observed<'a> {
    pub(super) deployment: &'a Deployment,
    /// The ReplicaSets it owns.
    pub(super) sets: &'a [Arc<ReplicaSet>],
    /// Whether a set still has pods that are not finished, terminating ones included.
    pub(super) has_pods: &'a dyn Fn(&ReplicaSet) -> bool,
    pub(super) now: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct RolloutPlan {
    pub(super) steps: Vec<RolloutStep>,
    /// The status, if it changes.
    pub(super) status: Option<DeploymentStatus>,
    /// The revision to write to the Deployment together with the status.
    pub(super) revision: Option<String>,
    /// The time until the progress deadline, which passes without any event.
    pub(super) recheck: Option<Duration>,
}

#[derive(Debug)]
pub(super) enum RolloutStep {
    Create {
        name: String,
        replicas: i32,
        set: Value,
    },
    Scale {
        set: Arc<ReplicaSet>,
        replicas: i32,
    },
    Annotate {
        set: Arc<ReplicaSet>,
        annotations: BTreeMap<String, String>,
    },
    Delete(Arc<ReplicaSet>),
}

/// How many pods a rollout may have too many and too few.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) surge: i32,
    pub(super) unavailable: i32,
}

pub(super) fn plan(observed: &Observed<'_>) -> RolloutPlan {
    let deployment = observed.deployment;
    if deployment.metadata.deletion_timestamp.is_some() {
        return RolloutPlan::default();
    }
    let spec = &deployment.spec;
    let (current, old) = sets::split(spec, observed.sets);
    let bounds = bounds(spec);
    let newest_old = old.iter().map(|set| sets::revision(set)).max().unwrap_or(0);
    let next = newest_old.saturating_add(1);
    let revision = next.max(current.map_or(0, |set| sets::revision(set)));

    let mut steps = Vec::new();
    if spec.paused {
        steps.extend(resize_newest(spec, observed.sets));
    } else if let Some(step) = current.and_then(|set| annotate(deployment, set, revision)) {
        // Scaling waits for the next plan, which sees the new set.
        steps.push(step);
    } else if spec.strategy.type_.as_deref() == Some("Recreate") {
        steps.extend(recreate(observed, current, &old, revision));
    } else {
        steps.extend(roll(observed, current, &old, bounds, revision));
    }
    let creates = steps.iter().find_map(|step| match step {
        RolloutStep::Create { name, .. } => Some(name.clone()),
        _ => None,
    });
    let progress = status::Progress {
        current: current.map(|set| &**set),
        creates,
        bounds,
    };
    let status = status::of(observed, &progress);
    if status::is_complete(spec, &status) {
        steps.extend(
            sets::beyond_history(spec, &old)
                .into_iter()
                .map(RolloutStep::Delete),
        );
    }
    let recheck = status::until_deadline(spec, &status, observed.now);
    let noted = deployment
        .metadata
        .annotations
        .as_ref()
        .and_then(|a| a.get(sets::REVISION));
    let revision = revision.to_string();
    let revision = (!spec.paused && noted != Some(&revision)).then_some(revision);
    let changed = status != deployment.status || revision.is_some();
    RolloutPlan {
        steps,
        status: changed.then_some(status),
        revision,
        recheck,
    }
}

fn bounds(spec: &DeploymentSpec) -> Bounds {
    let Some(rolling) = &spec.strategy.rolling_update else {
        return Bounds {
            surge: 0,
            unavailable: 0,
        };
    };
    let surge = scaled_value(rolling.max_surge.as_ref(), spec.replicas, Rounding::Up);
    let unavailable = scaled_value(
        rolling.max_unavailable.as_ref(),
        spec.replicas,
        Rounding::Down,
    );
    // With both at zero a rollout never moves. Validation forbids it, but two percentages may round to zero.
    let unavailable = if surge == 0 {
        unavailable.max(1)
    } else {
        unavailable
    };
    Bounds {
        surge,
        unavailable: unavailable.min(spec.replicas),
    }
}

/// Scales the new set up within the surge, and old sets down within the availability.
fn roll(
    observed: &Observed<'_>,
    current: Option<&Arc<ReplicaSet>>,
    old: &[&Arc<ReplicaSet>],
    bounds: Bounds,
    revision: i64,
) -> Vec<RolloutStep> {
    let wanted = observed.deployment.spec.replicas;
    let total = sets::sum(observed.sets, |set| set.spec.replicas);
    let room = wanted
        .saturating_add(bounds.surge)
        .saturating_sub(total)
        .max(0);
    let Some(set) = current else {
        return vec![create(observed, room.min(wanted), revision)];
    };
    let now = set.spec.replicas;
    let next = if now > wanted {
        wanted
    } else {
        now + room.min(wanted - now)
    };
    if next != now {
        // The next plan counts the new pods.
        return vec![RolloutStep::Scale {
            set: set.clone(),
            replicas: next,
        }];
    }

    let least = wanted - bounds.unavailable;
    let not_yet_available = now - sets::available(set);
    let available = sets::sum(observed.sets, sets::available);
    let mut removable = (total - least).saturating_sub(not_yet_available).max(0);
    let mut spare = (available - least).max(0);
    let mut steps = Vec::new();
    for set in old {
        let now = set.spec.replicas;
        // Removing unavailable pods costs nothing; removing available ones costs availability.
        let broken = (now - sets::available(set)).clamp(0, removable);
        let working = sets::available(set)
            .min(spare)
            .min(removable - broken)
            .max(0);
        removable -= broken + working;
        spare -= working;
        if broken + working > 0 {
            steps.push(RolloutStep::Scale {
                set: (*set).clone(),
                replicas: now - broken - working,
            });
        }
    }
    steps
}

/// Scales old sets to zero, then the new set up.
fn recreate(
    observed: &Observed<'_>,
    current: Option<&Arc<ReplicaSet>>,
    old: &[&Arc<ReplicaSet>],
    revision: i64,
) -> Vec<RolloutStep> {
    let stop: Vec<RolloutStep> = old
        .iter()
        .filter(|set| set.spec.replicas > 0)
        .map(|set| RolloutStep::Scale {
            set: (*set).clone(),
            replicas: 0,
        })
        .collect();
    if !stop.is_empty() || old.iter().any(|set| (observed.has_pods)(set)) {
        return stop;
    }
    let wanted = observed.deployment.spec.replicas;
    match current {
        None => vec![create(observed, wanted, revision)],
        Some(set) if set.spec.replicas != wanted => {
            vec![RolloutStep::Scale {
                set: set.clone(),
                replicas: wanted,
            }]
        }
        Some(_) => Vec::new(),
    }
}

fn create(observed: &Observed<'_>, replicas: i32, revision: i64) -> RolloutStep {
    let (name, set) = sets::new(observed.deployment, replicas, revision);
    RolloutStep::Create {
        name,
        replicas,
        set,
    }
}

/// A paused Deployment can still be resized; the newest set in use gets the difference.
fn resize_newest(spec: &DeploymentSpec, all: &[Arc<ReplicaSet>]) -> Option<RolloutStep> {
    let newest = all
        .iter()
        .filter(|set| set.spec.replicas > 0)
        .max_by_key(|set| (sets::revision(set), set.metadata.name.clone()))?;
    let total = sets::sum(all, |set| set.spec.replicas);
    let difference = spec.replicas.saturating_sub(total);
    let replicas = newest.spec.replicas.saturating_add(difference).max(0);
    (replicas != newest.spec.replicas).then(|| RolloutStep::Scale {
        set: newest.clone(),
        replicas,
    })
}

fn annotate(deployment: &Deployment, set: &Arc<ReplicaSet>, revision: i64) -> Option<RolloutStep> {
    let mut annotations = sets::annotations(deployment, revision);
    let written = set.metadata.annotations.as_ref();
    annotations.retain(|key, value| written.and_then(|w| w.get(key)) != Some(value));
    (!annotations.is_empty()).then(|| RolloutStep::Annotate {
        set: set.clone(),
        annotations,
    })
}

#[cfg(test)]
mod tests {
    use super::{
        sets::{HASH, REVISION},
        *,
    };
    use crate::objects::pod::testing::merge;
    use serde_json::json;

    fn deployment(spec: Value) -> Deployment {
        let mut whole = json!({
            "metadata": {"namespace": "ns", "name": "web", "uid": "web", "generation": 1,
                "annotations": {"kubernetes.io/change-cause": "new"}},
            "spec": {
                "replicas": 10,
                "selector": {"matchLabels": {"app": "web"}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
                "template": template("app:2"),
                "revisionHistoryLimit": 1,
            },
        });
        merge(&mut whole["spec"], spec);
        serde_json::from_value(whole).unwrap()
    }

    fn template(image: &str) -> Value {
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}})
    }

    /// A set named by its revision; the newest image is `app:2`.
    fn set(revision: i64, image: &str, replicas: i32, available: i32) -> Arc<ReplicaSet> {
        let mut template = template(image);
        template["metadata"]["labels"][HASH] = "x".into();
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"namespace": "ns", "name": format!("r{revision}"), "uid": format!("r{revision}"),
                    "creationTimestamp": format!("2026-01-01T00:00:0{revision}Z"),
                    "annotations": {REVISION: revision.to_string(), "kubernetes.io/change-cause": "new"}},
                "spec": {"replicas": replicas, "selector": {}, "template": template},
                "status": {"replicas": replicas, "readyReplicas": available, "availableReplicas": available},
            }))
            .unwrap(),
        )
    }

    fn steps(deployment: &Deployment, sets: &[Arc<ReplicaSet>], has_pods: bool) -> Vec<String> {
        let plan = plan(&Observed {
            deployment,
            sets,
            has_pods: &|_| has_pods,
            now: "2026-01-01T00:01:00Z".parse().unwrap(),
        });
        let name = |set: &ReplicaSet| set.metadata.name.clone().unwrap();
        let say = |step: &RolloutStep| match step {
            RolloutStep::Create { replicas, set, .. } => {
                format!(
                    "create {replicas} rev {}",
                    set["metadata"]["annotations"][REVISION].as_str().unwrap()
                )
            }
            RolloutStep::Scale { set, replicas } => {
                format!("{} {} -> {replicas}", name(set), set.spec.replicas)
            }
            RolloutStep::Annotate { set, annotations } => format!("{} {annotations:?}", name(set)),
            RolloutStep::Delete(set) => format!("delete {}", name(set)),
        };
        plan.steps.iter().map(say).collect()
    }

    #[test]
    fn a_rollout_goes_step_by_step_within_its_bounds() {
        // 10 replicas, at most 13 pods, at least 8 available.
        let web = deployment(json!({}));
        let second_revision = "r1 {\"deployment.kubernetes.io/revision\": \"3\"}";
        for (case, sets, want) in [
            ("first revision", vec![], vec!["create 10 rev 1"]),
            (
                "second revision starts with the surge",
                vec![set(1, "app:1", 10, 10)],
                vec!["create 3 rev 2"],
            ),
            (
                "old ones go as far as availability allows",
                vec![set(1, "app:1", 10, 10), set(2, "app:2", 3, 0)],
                vec!["r1 10 -> 8"],
            ),
            (
                "then new ones come",
                vec![set(1, "app:1", 8, 8), set(2, "app:2", 3, 0)],
                vec!["r2 3 -> 5"],
            ),
            (
                "nothing moves while the new ones are not available",
                vec![set(1, "app:1", 8, 8), set(2, "app:2", 5, 0)],
                vec![],
            ),
            (
                "a broken old pod may go at once",
                vec![set(1, "app:1", 10, 8), set(2, "app:2", 3, 0)],
                vec!["r1 10 -> 8"],
            ),
            (
                "availability of new pods frees old ones",
                vec![set(1, "app:1", 8, 8), set(2, "app:2", 5, 5)],
                vec!["r1 8 -> 3"],
            ),
            (
                "the rest",
                vec![set(1, "app:1", 3, 3), set(2, "app:2", 10, 10)],
                vec!["r1 3 -> 0"],
            ),
            (
                "done",
                vec![set(1, "app:1", 0, 0), set(2, "app:2", 10, 10)],
                vec![],
            ),
            (
                "a rollback takes a new revision",
                vec![set(1, "app:2", 0, 0), set(2, "app:1", 10, 10)],
                vec![second_revision],
            ),
            (
                "too large",
                vec![set(1, "app:2", 20, 20)],
                vec!["r1 20 -> 10"],
            ),
        ] {
            assert_eq!(steps(&web, &sets, false), want, "{case}");
        }
    }

    #[test]
    fn recreate_waits_for_the_last_old_pod() {
        let web = deployment(json!({"strategy": {"type": "Recreate", "rollingUpdate": null}}));
        for (case, sets, has_pods, want) in [
            ("first", vec![], false, vec!["create 10 rev 1"]),
            (
                "stop the old",
                vec![set(1, "app:1", 10, 10)],
                true,
                vec!["r1 10 -> 0"],
            ),
            ("wait", vec![set(1, "app:1", 0, 0)], true, vec![]),
            (
                "start the new",
                vec![set(1, "app:1", 0, 0)],
                false,
                vec!["create 10 rev 2"],
            ),
        ] {
            assert_eq!(steps(&web, &sets, has_pods), want, "{case}");
        }
    }

    #[test]
    fn a_paused_deployment_is_resized_but_not_rolled() {
        let web = deployment(json!({"paused": true}));
        assert_eq!(steps(&web, &[set(1, "app:1", 4, 4)], false), ["r1 4 -> 10"]);
        assert_eq!(steps(&web, &[set(1, "app:1", 10, 10)], false), [""; 0]);
    }

    #[test]
    fn old_revisions_are_forgotten_when_the_rollout_is_complete() {
        let web = deployment(json!({}));
        let sets = |available| {
            [
                set(1, "app:0", 0, 0),
                set(2, "app:1", 0, 0),
                set(3, "app:2", 10, available),
            ]
        };
        assert_eq!(steps(&web, &sets(10), false), ["delete r1"]);
        assert_eq!(steps(&web, &sets(9), false), [""; 0]);
    }

    #[test]
    fn bounds_round_up_for_surge_and_down_for_availability() {
        for (case, replicas, surge, unavailable, want) in [
            ("a quarter of ten", 10, json!("25%"), json!("25%"), (3, 2)),
            ("a quarter of one", 1, json!("25%"), json!("25%"), (1, 0)),
            ("counts", 10, json!(2), json!(0), (2, 0)),
            ("neither would move", 10, json!(0), json!(0), (0, 1)),
            ("more than all", 2, json!(0), json!(5), (0, 2)),
        ] {
            let web = deployment(json!({"replicas": replicas,
                "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}));
            let bounds = bounds(&web.spec);
            assert_eq!((bounds.surge, bounds.unavailable), want, "{case}");
        }
    }
}
