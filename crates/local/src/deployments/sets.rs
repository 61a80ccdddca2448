//! The ReplicaSets of a Deployment: the current one, a new one, and old revisions.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    objects::{Deployment, ReplicaSet, deployment::DeploymentSpec},
    ownership::controlled_by,
    revisions::template_hash,
};

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
pub(super) const HASH: &str = "pod-template-hash";

/// The set of the current template, if it exists, and all others, oldest first.
pub(super) fn split<'a>(
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
    let current = sorted
        .iter()
        .copied()
        .find(|set| same_template(&set.spec.template, &spec.template));
    sorted.retain(|set| current.is_none_or(|current| !Arc::ptr_eq(set, current)));
    (current, sorted)
}

fn same_template(of_set: &Value, wanted: &Value) -> bool {
    let mut plain = of_set.clone();
    if let Some(labels) = plain["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH);
    }
    plain == *wanted
}

/// Saturates: a user may request two billion pods, twice.
pub(super) fn sum(sets: &[Arc<ReplicaSet>], count: fn(&ReplicaSet) -> i32) -> i32 {
    sets.iter()
        .fold(0, |sum, set| sum.saturating_add(count(set)))
}

/// At most the wanted replicas: the status of a set that was just scaled down is old.
pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status.available_replicas.min(set.spec.replicas)
}

pub(super) fn revision(set: &ReplicaSet) -> i64 {
    let annotation = set
        .metadata
        .annotations
        .as_ref()
        .and_then(|a| a.get(REVISION));
    annotation.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// A set has its Deployment's annotations, so that `rollout history` shows the cause of each change.
pub(super) fn annotations(deployment: &Deployment, revision: i64) -> BTreeMap<String, String> {
    let mut annotations = deployment.metadata.annotations.clone().unwrap_or_default();
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    annotations.insert(REVISION.into(), revision.to_string());
    annotations
}

/// A new set for the current template, and its name.
pub(super) fn new(deployment: &Deployment, replicas: i32, revision: i64) -> (String, Value) {
    let spec = &deployment.spec;
    let hash = template_hash(
        &spec.template,
        deployment.status.collision_count.unwrap_or(0),
    );
    let owner = controlled_by(deployment);
    let name = format!("{}-{hash}", owner.name);
    let mut template = spec.template.clone();
    template["metadata"]["labels"][HASH] = hash.clone().into();
    let mut selector = spec.selector.clone();
    selector
        .match_labels
        .get_or_insert_default()
        .insert(HASH.into(), hash);
    let set = json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "labels": template["metadata"]["labels"],
            "annotations": annotations(deployment, revision),
            "ownerReferences": [owner],
        },
        "spec": {
            "replicas": replicas,
            "minReadySeconds": spec.min_ready_seconds,
            "selector": selector,
            "template": template,
        },
    });
    (name, set)
}

/// Old revisions beyond the limit, oldest first; only sets without any pod.
pub(super) fn beyond_history(
    spec: &DeploymentSpec,
    old: &[&Arc<ReplicaSet>],
) -> Vec<Arc<ReplicaSet>> {
    let limit = usize::try_from(spec.revision_history_limit.unwrap_or(10)).unwrap_or(0);
    let is_idle = |set: &&&Arc<ReplicaSet>| {
        set.spec.replicas == 0
            && set.status.replicas == 0
            && set.metadata.deletion_timestamp.is_none()
    };
    let mut idle: Vec<Arc<ReplicaSet>> = old
        .iter()
        .filter(is_idle)
        .map(|set| (*set).clone())
        .collect();
    idle.sort_by_key(|set| (revision(set), set.metadata.name.clone()));
    let surplus = idle.len().saturating_sub(limit);
    idle.truncate(surplus);
    idle
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(image: &str, collisions: i32) -> Deployment {
        let deployment = json!({
            "metadata": {"name": "web", "uid": "u", "annotations": {
                "kubernetes.io/change-cause": "new",
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
            }},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "main", "image": image}]},
                },
            },
            "status": {"collisionCount": collisions},
        });
        serde_json::from_value(deployment).unwrap()
    }

    #[test]
    fn a_new_set_is_named_and_selected_by_its_template() {
        let web = deployment("app:2", 0);
        let (name, set) = new(&web, 3, 7);
        let hash = set["metadata"]["labels"][HASH].as_str().unwrap().to_owned();
        assert_eq!(name, format!("web-{hash}"));
        let set: ReplicaSet = serde_json::from_value(set).unwrap();
        assert_eq!((set.spec.replicas, revision(&set)), (3, 7));
        assert_eq!(set.spec.selector.match_labels.as_ref().unwrap()[HASH], hash);
        let annotations: Vec<_> = set.metadata.annotations.as_ref().unwrap().keys().collect();
        assert_eq!(annotations, [REVISION, "kubernetes.io/change-cause"]);
        assert_eq!(
            set.metadata.owner_references.as_ref().unwrap()[0].controller,
            Some(true)
        );

        let sets = [Arc::new(set)];
        assert!(split(&web.spec, &sets).0.is_some(), "it is the present one");
        assert!(split(&deployment("app:3", 0).spec, &sets).0.is_none());
        assert_ne!(new(&deployment("app:3", 0), 3, 7).0, name);
        assert_ne!(
            new(&deployment("app:2", 1), 3, 7).0,
            name,
            "a collision changes the name"
        );
    }
}
