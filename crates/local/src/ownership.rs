//! Ownership by selector: which objects a controller owns, adopts and releases.
//!
//! An object belongs to its controlling owner. A controller adopts a matching object without one, and releases an owned
//! object that no longer matches, which is how users take a pod out for debugging.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::{
    Resource,
    core::{Selector, SelectorExt},
};
use reconcile::{Cache, Error, Index, Key, Object, Part, Requests, controller_of};
use serde_json::{Value, json};

#[derive(Debug)]
pub(crate) struct Claims<K> {
    pub(crate) owned: Vec<Arc<K>>,
    pub(crate) adopt: Vec<Arc<K>>,
    pub(crate) release: Vec<Arc<K>>,
}

/// The objects that `owner` owns, adopts and releases.
pub(crate) fn claims<K: Object>(
    owner: &ObjectMeta,
    selector: &LabelSelector,
    cache: &Cache<K>,
) -> Result<Claims<K>, Error> {
    let selector = Selector::try_from(selector.clone())?;
    let no_labels = BTreeMap::new();
    let matches =
        |object: &Arc<K>| selector.matches(object.meta().labels.as_ref().unwrap_or(&no_labels));
    let uid = owner.uid.clone().unwrap_or_default();
    let (owned, release) = cache
        .indexed(&Index::Owner(uid))
        .into_iter()
        .partition(matches);
    let mut adopt = Vec::new();
    // An owner that is being deleted adopts nothing.
    if owner.deletion_timestamp.is_none() {
        let namespace = owner.namespace.clone().unwrap_or_default();
        adopt = cache.indexed(&Index::Orphan(namespace));
        adopt.retain(|object| object.meta().deletion_timestamp.is_none() && matches(object));
    }
    Ok(Claims {
        owned,
        adopt,
        release,
    })
}

impl<K: Object> Claims<K> {
    /// Adopts and releases. Returns whether anything changed: then the plan must wait until the cache shows it.
    pub(crate) async fn settle(
        &self,
        owner: &OwnerReference,
        requests: &Requests,
    ) -> Result<bool, Error> {
        let gained = json!([owner]);
        let lost = json!([{"$patch": "delete", "uid": owner.uid}]);
        let adopt = self.adopt.iter().map(|object| (object, &gained));
        for (object, owners) in adopt.chain(self.release.iter().map(|object| (object, &lost))) {
            let fields = json!({"metadata": {"ownerReferences": owners}});
            requests
                .strategic::<K>(object.meta(), Part::Object, fields)
                .await?;
        }
        Ok(!self.adopt.is_empty() || !self.release.is_empty())
    }
}

/// The controller owner reference to `owner`.
pub(crate) fn controlled_by<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        block_owner_deletion: Some(true),
        ..owner.controller_owner_ref(&()).unwrap_or_default()
    }
}

/// A pod from its owner's template; the server generates the name.
pub(crate) fn pod_from(template: &Value, owner: &OwnerReference) -> Value {
    let mut meta = json!({
        "generateName": format!("{}-", owner.name),
        "ownerReferences": [owner],
    });
    for key in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(key) {
            meta[key] = value.clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]})
}

/// The keys of the owners of kind `K` to reconcile after a change of `object`.
pub(crate) fn owner_keys<K: Object>(
    object: &ObjectMeta,
    owners: &Cache<K>,
    selector: fn(&K) -> &LabelSelector,
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
            let selector = Selector::try_from(selector(owner).clone());
            selector.is_ok_and(|selector| selector.matches(labels))
        })
        .map(|owner| Key::of(owner.meta()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::pod::{Pod, testing::pod};
    use kube::runtime::watcher::Event;

    #[test]
    fn claims_follow_owner_and_labels() {
        let owned_by = |uid: &str, app: &str| {
            json!({"metadata": {"labels": {"app": app}, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": uid, "controller": true}
            ]}})
        };
        let cache = Cache::new(Pod::index);
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
        assert!(
            found.adopt.is_empty(),
            "an owner that is being deleted adopts nothing"
        );
    }
}
