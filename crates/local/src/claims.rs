//! Which objects a controller's selector claims, and the hand-over of those it gains or loses.
//!
//! An object belongs to the owner it names. A matching object that nobody controls is adopted; an owned
//! one that does not match any more is released, which is how people take a pod out for debugging.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Pod as NewPod, PodTemplateSpec},
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference},
        util::intstr::IntOrString,
    },
};
use kube::{
    Api, Resource,
    api::{Patch, PatchParams},
    core::{Selector, SelectorExt},
};
use serde_json::json;

use crate::{
    cache::{Cache, Key, Kind, Link, controller_of},
    world::{Failure, is_gone, patch_of},
};

#[derive(Debug)]
pub(crate) struct Claims<K> {
    pub(crate) owned: Vec<Arc<K>>,
    pub(crate) adopt: Vec<Arc<K>>,
    pub(crate) release: Vec<Arc<K>>,
}

/// Sorts what `owner` owns and could own.
pub(crate) fn claims<K: Kind>(
    owner: &ObjectMeta,
    selector: &LabelSelector,
    cache: &Cache<K>,
) -> Result<Claims<K>, Failure> {
    let selector = Selector::try_from(selector.clone())?;
    let no_labels = BTreeMap::new();
    let matches =
        |object: &Arc<K>| selector.matches(object.meta().labels.as_ref().unwrap_or(&no_labels));
    let uid = owner.uid.clone().unwrap_or_default();
    let (owned, release) = cache
        .linked(&Link::Owner(uid))
        .into_iter()
        .partition(matches);
    let mut adopt = Vec::new();
    // A dying owner takes nothing new.
    if owner.deletion_timestamp.is_none() {
        let namespace = owner.namespace.clone().unwrap_or_default();
        adopt = cache.linked(&Link::Orphan(namespace));
        adopt.retain(|object| object.meta().deletion_timestamp.is_none() && matches(object));
    }
    Ok(Claims {
        owned,
        adopt,
        release,
    })
}

impl<K: Kind> Claims<K> {
    /// Adopts and releases. Returns whether anything changed: then the plan must wait for the news.
    pub(crate) async fn settle(
        &self,
        owner: &OwnerReference,
        api: &Api<K>,
    ) -> Result<bool, Failure> {
        for object in &self.adopt {
            let owners = json!({"metadata": {"ownerReferences": [owner]}});
            patch_owners(object, owners, api).await?;
        }
        for object in &self.release {
            let owners =
                json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": owner.uid}]}});
            patch_owners(object, owners, api).await?;
        }
        Ok(!self.adopt.is_empty() || !self.release.is_empty())
    }
}

async fn patch_owners<K: Kind>(
    object: &Arc<K>,
    owners: serde_json::Value,
    api: &Api<K>,
) -> Result<(), Failure> {
    let meta = object.meta();
    let patch = Patch::Strategic(patch_of(meta.uid.as_deref(), owners));
    let name = meta.name.as_deref().unwrap_or_default();
    match api
        .patch_metadata(name, &PatchParams::default(), &patch)
        .await
    {
        Err(error) if is_gone(&error) => Ok(()),
        result => Ok(result.map(drop)?),
    }
}

/// The reference by which `owner` controls what it makes.
pub(crate) fn controlled_by<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        block_owner_deletion: Some(true),
        ..owner.controller_owner_ref(&()).unwrap_or_default()
    }
}

/// A pod from its owner's template, to be named by the server.
pub(crate) fn pod_from(template: &PodTemplateSpec, owner: OwnerReference) -> NewPod {
    let meta = template.metadata.clone().unwrap_or_default();
    NewPod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", owner.name)),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// The keys of the owners of kind `K` that a change to one of their possible objects concerns.
pub(crate) fn concerned<K: Kind>(
    object: &ObjectMeta,
    owners: &Cache<K>,
    selector: fn(&K) -> Option<&LabelSelector>,
) -> Vec<Key> {
    let namespace = object.namespace.as_deref().unwrap_or_default();
    if let Some(owner) = controller_of(object) {
        if owner.kind != K::kind(&()) {
            return Vec::new();
        }
        return vec![Key::new(namespace, &owner.name)];
    }
    let no_labels = BTreeMap::new();
    let labels = object.labels.as_ref().unwrap_or(&no_labels);
    let candidates = owners.in_namespace(namespace).into_iter();
    candidates
        .filter(|owner| {
            let selector = selector(owner).cloned().map(Selector::try_from);
            matches!(selector, Some(Ok(selector)) if selector.matches(labels))
        })
        .map(|owner| Key::of(owner.meta()))
        .collect()
}

#[derive(Clone, Copy)]
pub(crate) enum Rounding {
    Up,
    Down,
}

/// A count or a percentage of `whole`; the server has checked its form.
pub(crate) fn share(value: Option<&IntOrString>, whole: i32, rounding: Rounding) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(count)) => (*count).max(0),
        Some(IntOrString::String(text)) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let hundredths = percent.clamp(0, 100_000) * i64::from(whole.max(0));
            let share = match rounding {
                Rounding::Up => (hundredths + 99) / 100,
                Rounding::Down => hundredths / 100,
            };
            i32::try_from(share).unwrap_or(i32::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{Pod, testing::pod};
    use kube::runtime::watcher::Event;

    #[test]
    fn claims_follow_owner_and_labels() {
        let owned_by = |uid: &str, app: &str| {
            json!({"metadata": {"labels": {"app": app}, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": uid, "controller": true}
            ]}})
        };
        let cache = Cache::new(Pod::links);
        for (name, parts) in [
            ("owned", owned_by("set", "web")),
            ("relabelled", owned_by("set", "debug")),
            ("of-another", owned_by("other", "web")),
            ("orphan", json!({"metadata": {"labels": {"app": "web"}}})),
            ("stranger", json!({"metadata": {"labels": {"app": "db"}}})),
            ("unlabelled", json!({})),
            (
                "dying",
                json!({"metadata": {"labels": {"app": "web"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            ),
            (
                "elsewhere",
                json!({"metadata": {"namespace": "other", "labels": {"app": "web"}}}),
            ),
        ] {
            cache.apply(Event::Apply(pod(name, parts)));
        }
        let mut owner = ObjectMeta {
            namespace: Some("ns".into()),
            name: Some("set".into()),
            uid: Some("set".into()),
            ..Default::default()
        };
        let selector = LabelSelector {
            match_labels: Some([("app".into(), "web".into())].into()),
            ..Default::default()
        };
        let names =
            |pods: &[Arc<Pod>]| pods.iter().map(|p| p.name().to_owned()).collect::<Vec<_>>();
        let found = claims(&owner, &selector, &cache).unwrap();
        assert_eq!(names(&found.owned), ["owned"]);
        assert_eq!(names(&found.release), ["relabelled"]);
        assert_eq!(names(&found.adopt), ["orphan"]);

        owner.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            jiff::Timestamp::UNIX_EPOCH,
        ));
        let found = claims(&owner, &selector, &cache).unwrap();
        assert!(found.adopt.is_empty(), "a dying owner takes nothing new");
    }
}
