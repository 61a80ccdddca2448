//! Decides the next steps of a rollout from what is there now.
//!
//! Unlike the real controller, a Deployment that is resized in the middle of a rollout is not spread
//! proportionally over old and new ReplicaSets: the rolling rules alone bring it to the new size.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet, ReplicaSetSpec},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};

use super::status;
use crate::claims::{Rounding, controlled_by, share};

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const HASH: &str = "pod-template-hash";

pub(super) struct Observed<'a> {
    pub(super) deployment: &'a Deployment,
    pub(super) spec: &'a DeploymentSpec,
    /// The ReplicaSets it owns.
    pub(super) sets: &'a [Arc<ReplicaSet>],
    /// Whether a set still has pods that are not finished, dying ones included.
    pub(super) has_pods: &'a dyn Fn(&ReplicaSet) -> bool,
    pub(super) now: Timestamp,
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// When it differs from what is written.
    pub(super) status: Option<DeploymentStatus>,
    /// The revision to note on the Deployment together with the status.
    pub(super) revision: Option<String>,
    /// The progress deadline passes then, without any event.
    pub(super) recheck: Option<Duration>,
}

#[derive(Debug)]
pub(super) enum Step {
    Create(Box<ReplicaSet>),
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

/// How far a rollout may overshoot and undershoot, in pods.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) surge: i32,
    pub(super) unavailable: i32,
}

pub(super) fn plan(observed: &Observed<'_>) -> Result<Plan, serde_json::Error> {
    let Observed {
        deployment, spec, ..
    } = *observed;
    if deployment.metadata.deletion_timestamp.is_some() {
        return Ok(Plan {
            steps: Vec::new(),
            status: None,
            revision: None,
            recheck: None,
        });
    }
    let (current, old) = split(spec, observed.sets);
    let bounds = bounds(spec);
    let mut steps = Vec::new();
    let revision = (old.iter().map(|set| revision_of(set)).max().unwrap_or(0) + 1)
        .max(current.map_or(0, |set| revision_of(set)));

    if spec.paused == Some(true) {
        steps.extend(resize_newest(spec, observed.sets));
    } else if let Some(step) = current.and_then(|set| annotate(deployment, set, revision)) {
        // Scaling waits for the next plan, which sees the set as it then is.
        steps.push(step);
    } else if is_recreate(spec) {
        steps.extend(recreate(observed, current, &old, revision)?);
    } else {
        steps.extend(roll(observed, current, &old, bounds, revision)?);
    }
    let creates = steps.iter().find_map(|step| match step {
        Step::Create(set) => set.metadata.name.clone(),
        _ => None,
    });
    let progress = status::Progress {
        current: current.map(|set| &**set),
        creates,
        bounds,
    };
    let status = status::of(observed, &progress);
    if status::is_complete(spec, &status) {
        steps.extend(forget_history(spec, &old));
    }
    let recheck = status::until_deadline(spec, &status, observed.now);
    let noted = deployment
        .metadata
        .annotations
        .as_ref()
        .and_then(|a| a.get(REVISION));
    let revision = (spec.paused != Some(true) && noted != Some(&revision.to_string()))
        .then(|| revision.to_string());
    let written = deployment.status.clone().unwrap_or_default();
    let changed = !status::same(&written, &status) || revision.is_some();
    Ok(Plan {
        steps,
        status: changed.then_some(status),
        revision,
        recheck,
    })
}

fn is_recreate(spec: &DeploymentSpec) -> bool {
    let strategy = spec.strategy.as_ref().and_then(|s| s.type_.as_deref());
    strategy == Some("Recreate")
}

/// The set of the present template, if it exists, and all others, oldest first.
fn split<'a>(
    spec: &DeploymentSpec,
    sets: &'a [Arc<ReplicaSet>],
) -> (Option<&'a Arc<ReplicaSet>>, Vec<&'a Arc<ReplicaSet>>) {
    let mut sorted: Vec<_> = sets.iter().collect();
    sorted.sort_by_key(|set| {
        (
            set.metadata.creation_timestamp.clone(),
            set.metadata.name.clone(),
        )
    });
    let is_current = |set: &&&Arc<ReplicaSet>| {
        let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
        template.is_some_and(|template| same_template(template, &spec.template))
    };
    let current = sorted.iter().find(is_current).copied();
    sorted.retain(|set| current.is_none_or(|current| !Arc::ptr_eq(set, current)));
    (current, sorted)
}

fn same_template(of_set: &PodTemplateSpec, wanted: &PodTemplateSpec) -> bool {
    let mut plain = of_set.clone();
    if let Some(meta) = &mut plain.metadata
        && let Some(labels) = &mut meta.labels
    {
        labels.remove(HASH);
        if labels.is_empty() {
            meta.labels = None;
        }
    }
    let plain_meta = plain.metadata.take().unwrap_or_default();
    let wanted_meta = wanted.metadata.clone().unwrap_or_default();
    plain_meta == wanted_meta && plain.spec == wanted.spec
}

pub(super) fn bounds(spec: &DeploymentSpec) -> Bounds {
    let replicas = spec.replicas.unwrap_or(1);
    let rolling = spec
        .strategy
        .as_ref()
        .and_then(|s| s.rolling_update.clone());
    let Some(rolling) = rolling else {
        return Bounds {
            surge: 0,
            unavailable: 0,
        };
    };
    let surge = share(rolling.max_surge.as_ref(), replicas, Rounding::Up);
    let unavailable = share(rolling.max_unavailable.as_ref(), replicas, Rounding::Down);
    // Both zero would never move; validation forbids it, but two percentages may round to it.
    let unavailable = if surge == 0 {
        unavailable.max(1)
    } else {
        unavailable
    };
    Bounds {
        surge,
        unavailable: unavailable.min(replicas),
    }
}

pub(super) fn replicas_of(set: &ReplicaSet) -> i32 {
    set.spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(0)
}

/// Never more than asked for: the status of a set that was just scaled down is old.
pub(super) fn available_of(set: &ReplicaSet) -> i32 {
    let available = set
        .status
        .as_ref()
        .and_then(|status| status.available_replicas);
    available.unwrap_or(0).min(replicas_of(set))
}

fn revision_of(set: &ReplicaSet) -> i64 {
    let annotation = set
        .metadata
        .annotations
        .as_ref()
        .and_then(|a| a.get(REVISION));
    annotation.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// New pods up as far as the surge allows, old ones down as far as availability allows.
fn roll(
    observed: &Observed<'_>,
    current: Option<&Arc<ReplicaSet>>,
    old: &[&Arc<ReplicaSet>],
    bounds: Bounds,
    revision: i64,
) -> Result<Vec<Step>, serde_json::Error> {
    let wanted = observed.spec.replicas.unwrap_or(1);
    let total: i32 = observed.sets.iter().map(|set| replicas_of(set)).sum();
    let room = (wanted + bounds.surge - total).max(0);
    let mut steps = Vec::new();
    let Some(set) = current else {
        let set = new_set(observed, room.min(wanted), revision)?;
        return Ok(vec![Step::Create(Box::new(set))]);
    };
    let now = replicas_of(set);
    let next = if now > wanted {
        wanted
    } else {
        now + room.min(wanted - now)
    };
    if next != now {
        steps.push(Step::Scale {
            set: set.clone(),
            replicas: next,
        });
        // What follows must count the new pods, which the next plan does.
        return Ok(steps);
    }

    let least = wanted - bounds.unavailable;
    let not_yet_available = now - available_of(set);
    let mut removable = (total - least - not_yet_available).max(0);
    let mut spare = (observed.sets.iter().map(|s| available_of(s)).sum::<i32>() - least).max(0);
    for set in old {
        let now = replicas_of(set);
        // Pods that do not work cost nothing; those that do cost availability.
        let broken = (now - available_of(set)).clamp(0, removable);
        let working = available_of(set).min(spare).min(removable - broken).max(0);
        removable -= broken + working;
        spare -= working;
        if broken + working > 0 {
            steps.push(Step::Scale {
                set: (*set).clone(),
                replicas: now - broken - working,
            });
        }
    }
    Ok(steps)
}

/// First nothing old, then everything new.
fn recreate(
    observed: &Observed<'_>,
    current: Option<&Arc<ReplicaSet>>,
    old: &[&Arc<ReplicaSet>],
    revision: i64,
) -> Result<Vec<Step>, serde_json::Error> {
    let stop: Vec<Step> = old
        .iter()
        .filter(|set| replicas_of(set) > 0)
        .map(|set| Step::Scale {
            set: (*set).clone(),
            replicas: 0,
        })
        .collect();
    if !stop.is_empty() || old.iter().any(|set| (observed.has_pods)(set)) {
        return Ok(stop);
    }
    let wanted = observed.spec.replicas.unwrap_or(1);
    Ok(match current {
        None => vec![Step::Create(Box::new(new_set(observed, wanted, revision)?))],
        Some(set) if replicas_of(set) != wanted => {
            vec![Step::Scale {
                set: set.clone(),
                replicas: wanted,
            }]
        }
        Some(_) => Vec::new(),
    })
}

/// A paused Deployment can still be resized; the newest set in use takes the difference.
fn resize_newest(spec: &DeploymentSpec, sets: &[Arc<ReplicaSet>]) -> Option<Step> {
    let newest = sets
        .iter()
        .filter(|set| replicas_of(set) > 0)
        .max_by_key(|set| (revision_of(set), set.metadata.name.clone()))?;
    let total: i32 = sets.iter().map(|set| replicas_of(set)).sum();
    let replicas = (replicas_of(newest) + spec.replicas.unwrap_or(1) - total).max(0);
    (replicas != replicas_of(newest)).then(|| Step::Scale {
        set: newest.clone(),
        replicas,
    })
}

fn annotate(deployment: &Deployment, set: &Arc<ReplicaSet>, revision: i64) -> Option<Step> {
    let mut annotations = set_annotations(deployment, revision);
    let written = set.metadata.annotations.as_ref();
    annotations.retain(|key, value| written.and_then(|w| w.get(key)) != Some(value));
    (!annotations.is_empty()).then(|| Step::Annotate {
        set: set.clone(),
        annotations,
    })
}

/// A set carries its Deployment's annotations, so that `rollout history` shows the cause of each change.
fn set_annotations(deployment: &Deployment, revision: i64) -> BTreeMap<String, String> {
    let mut annotations = deployment.metadata.annotations.clone().unwrap_or_default();
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    annotations.insert(REVISION.into(), revision.to_string());
    annotations
}

fn new_set(
    observed: &Observed<'_>,
    replicas: i32,
    revision: i64,
) -> Result<ReplicaSet, serde_json::Error> {
    let Observed {
        deployment, spec, ..
    } = *observed;
    let collisions = deployment.status.as_ref().and_then(|s| s.collision_count);
    let hash = template_hash(&spec.template, collisions.unwrap_or(0))?;
    let owner = controlled_by(deployment);
    let mut template = spec.template.clone();
    let meta = template.metadata.get_or_insert_default();
    meta.labels
        .get_or_insert_default()
        .insert(HASH.into(), hash.clone());
    let mut match_labels = spec.selector.match_labels.clone().unwrap_or_default();
    match_labels.insert(HASH.into(), hash.clone());
    Ok(ReplicaSet {
        metadata: ObjectMeta {
            namespace: deployment.metadata.namespace.clone(),
            name: Some(format!("{}-{hash}", owner.name)),
            labels: meta.labels.clone(),
            annotations: Some(set_annotations(deployment, revision)),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            min_ready_seconds: spec.min_ready_seconds,
            replicas: Some(replicas),
            selector: LabelSelector {
                match_labels: Some(match_labels),
                ..spec.selector.clone()
            },
            template: Some(template),
        }),
        status: None,
    })
}

/// Ten letters that name a template: FNV-1a, spelled without vowels so that no words appear.
fn template_hash(template: &PodTemplateSpec, collisions: i32) -> Result<String, serde_json::Error> {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in serde_json::to_vec(&(template, collisions))? {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut name = String::with_capacity(10);
    for _ in 0..10 {
        name.push(char::from(LETTERS[(hash % 27) as usize]));
        hash /= 27;
    }
    Ok(name)
}

/// Old revisions beyond the limit, oldest first; only sets without any pod.
fn forget_history(spec: &DeploymentSpec, old: &[&Arc<ReplicaSet>]) -> Vec<Step> {
    let limit = usize::try_from(spec.revision_history_limit.unwrap_or(10)).unwrap_or(0);
    let mut idle: Vec<_> = old
        .iter()
        .filter(|set| {
            let has_pods = set
                .status
                .as_ref()
                .is_some_and(|status| status.replicas > 0);
            replicas_of(set) == 0 && !has_pods && set.metadata.deletion_timestamp.is_none()
        })
        .collect();
    idle.sort_by_key(|set| (revision_of(set), set.metadata.name.clone()));
    let surplus = idle.len().saturating_sub(limit);
    idle.truncate(surplus);
    idle.into_iter()
        .map(|set| Step::Delete((*set).clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
        crate::pod::testing::merge(&mut whole["spec"], spec);
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
        let observed = Observed {
            deployment,
            spec: deployment.spec.as_ref().unwrap(),
            sets,
            has_pods: &|_| has_pods,
            now: "2026-01-01T00:01:00Z".parse().unwrap(),
        };
        let name = |set: &ReplicaSet| set.metadata.name.clone().unwrap();
        let plan = plan(&observed).unwrap();
        plan.steps
            .iter()
            .map(|step| match step {
                Step::Create(set) => {
                    format!("create {} rev {}", replicas_of(set), revision_of(set))
                }
                Step::Scale { set, replicas } => {
                    format!("{} {} -> {replicas}", name(set), replicas_of(set))
                }
                Step::Annotate { set, annotations } => format!("{} {annotations:?}", name(set)),
                Step::Delete(set) => format!("delete {}", name(set)),
            })
            .collect()
    }

    #[test]
    fn a_rollout_goes_step_by_step_within_its_bounds() {
        // 10 replicas, at most 13 pods, at least 8 available.
        let web = deployment(json!({}));
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
                vec!["r1 {\"deployment.kubernetes.io/revision\": \"3\"}"],
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
        let sets = [
            set(1, "app:0", 0, 0),
            set(2, "app:1", 0, 0),
            set(3, "app:2", 10, 10),
        ];
        assert_eq!(steps(&web, &sets, false), ["delete r1"]);
        let sets = [
            set(1, "app:0", 0, 0),
            set(2, "app:1", 0, 0),
            set(3, "app:2", 10, 9),
        ];
        assert_eq!(steps(&web, &sets, false), [""; 0]);
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
            let bounds = bounds(web.spec.as_ref().unwrap());
            assert_eq!((bounds.surge, bounds.unavailable), want, "{case}");
        }
    }

    #[test]
    fn a_new_set_is_named_and_selected_by_its_template() {
        let web = deployment(json!({}));
        let spec = web.spec.as_ref().unwrap();
        let sets = [];
        let observed = Observed {
            deployment: &web,
            spec,
            sets: &sets,
            has_pods: &|_| false,
            now: Timestamp::UNIX_EPOCH,
        };
        let made = new_set(&observed, 3, 1).unwrap();
        let hash = &made.metadata.labels.as_ref().unwrap()[HASH];
        assert_eq!(
            made.metadata.name.as_deref(),
            Some(format!("web-{hash}").as_str())
        );
        let made_spec = made.spec.unwrap();
        assert_eq!(
            made_spec.selector.match_labels.as_ref().unwrap()[HASH],
            *hash
        );
        assert!(same_template(
            made_spec.template.as_ref().unwrap(),
            &spec.template
        ));
        let other = deployment(json!({"template": template("app:3")}));
        let other = &other.spec.as_ref().unwrap().template;
        assert_ne!(template_hash(other, 0).unwrap(), *hash);
        assert_ne!(
            template_hash(&spec.template, 1).unwrap(),
            *hash,
            "a collision changes the name"
        );
    }
}
