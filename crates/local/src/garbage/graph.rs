//! The graph of owners, and the plan that follows from it. It does no I/O.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::discovery::ApiResource;
use reconcile::Key;

pub(super) const FOREGROUND: &str = "foregroundDeletion";
pub(super) const ORPHAN: &str = "orphan";

/// What the collector keeps of an object.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) kind: Arc<ApiResource>,
    pub(super) key: Key,
    pub(super) uid: String,
    pub(super) resource_version: Option<String>,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) finalizers: Vec<String>,
    pub(super) deleting: bool,
}

impl Item {
    pub(super) fn new(kind: Arc<ApiResource>, meta: ObjectMeta) -> Self {
        Self {
            key: Key::of(&meta),
            kind,
            uid: meta.uid.unwrap_or_default(),
            resource_version: meta.resource_version,
            owners: meta.owner_references.unwrap_or_default(),
            finalizers: meta.finalizers.unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
        }
    }

    fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|f| f == finalizer)
    }

    /// It is being deleted and goes only after the objects that block it.
    fn waits_for_dependents(&self) -> bool {
        self.deleting && self.has(FOREGROUND)
    }

    /// Whether the collector can have work with it.
    fn concerns_us(&self) -> bool {
        !self.owners.is_empty() || (self.deleting && (self.has(FOREGROUND) || self.has(ORPHAN)))
    }
}

#[derive(Default)]
pub(super) struct Graph {
    items: HashMap<String, Item>,
    /// The uids of an owner's objects, by the owner's uid.
    dependents: HashMap<String, BTreeSet<String>>,
}

impl Graph {
    pub(super) fn get(&self, uid: &str) -> Option<&Item> {
        self.items.get(uid)
    }

    /// Stores an object and returns the uids to look at.
    pub(super) fn put(&mut self, item: Item) -> Vec<String> {
        let mut touched = self.unlink(&item.uid);
        let uid = item.uid.clone();
        for owner in &item.owners {
            self.dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(uid.clone());
        }
        if item.concerns_us() {
            touched.insert(uid.clone());
        }
        if item.deleting {
            touched.extend(self.dependents_of(&uid));
        }
        self.items.insert(uid, item);
        touched.into_iter().collect()
    }

    /// Forgets an object and returns the uids to look at.
    pub(super) fn remove(&mut self, uid: &str) -> Vec<String> {
        let mut touched = self.unlink(uid);
        touched.extend(self.dependents_of(uid));
        self.items.remove(uid);
        touched.into_iter().collect()
    }

    /// Removes the object from its owners' lists; returns the owners that wait for it.
    fn unlink(&mut self, uid: &str) -> BTreeSet<String> {
        let mut waiting = BTreeSet::new();
        let owners = self.items.get(uid).map(|item| item.owners.clone());
        for owner in owners.into_iter().flatten() {
            if let Some(siblings) = self.dependents.get_mut(&owner.uid) {
                siblings.remove(uid);
                if siblings.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
            if self.items.get(&owner.uid).is_some_and(|item| item.deleting) {
                waiting.insert(owner.uid);
            }
        }
        waiting
    }

    fn dependents_of(&self, uid: &str) -> Vec<String> {
        self.dependents
            .get(uid)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// The objects of one kind that are known.
    pub(super) fn of_kind(&self, kind: &ApiResource) -> Vec<String> {
        let mut uids: Vec<String> = Vec::new();
        #[allow(clippy::iter_over_hash_type)] // sorted below
        for item in self.items.values() {
            if *item.kind == *kind {
                uids.push(item.uid.clone());
            }
        }
        uids.sort();
        uids
    }
}

/// What is known of one owner of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Alive,
    /// Being deleted in the foreground, and this object blocks it.
    Waiting,
    Gone,
}

#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Delete {
        uid: String,
        policy: Policy,
    },
    /// Leave the object only these owners.
    KeepOwners {
        uid: String,
        owners: Vec<OwnerReference>,
    },
    RemoveFinalizer {
        uid: String,
        finalizer: &'static str,
    },
    Look {
        uid: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Background,
    Foreground,
    Orphan,
}

impl Graph {
    /// The owners that the graph does not know; the caller queries the server for them.
    pub(super) fn unknown_owners(&self, uid: &str) -> Vec<OwnerReference> {
        let item = self.items.get(uid).filter(|item| !item.deleting);
        let owners = item.into_iter().flat_map(|item| &item.owners);
        owners
            .filter(|owner| !self.items.contains_key(&owner.uid))
            .cloned()
            .collect()
    }

    /// What to do about one object. Unknown owners must have been found to be gone.
    pub(super) fn plan(&self, uid: &str) -> Vec<Action> {
        let Some(item) = self.items.get(uid) else {
            return Vec::new();
        };
        if item.deleting && item.has(ORPHAN) {
            return self.plan_orphaning(item);
        }
        if item.waits_for_dependents() {
            return self.plan_foreground(item);
        }
        if item.deleting || item.owners.is_empty() {
            return Vec::new();
        }
        let states: Vec<Owner> = item.owners.iter().map(|owner| self.state(owner)).collect();
        if states.iter().all(|state| *state == Owner::Alive) {
            return Vec::new();
        }
        if states.contains(&Owner::Alive) {
            let alive = item
                .owners
                .iter()
                .zip(&states)
                .filter(|(_, state)| **state == Owner::Alive);
            let owners = alive.map(|(owner, _)| owner.clone()).collect();
            return vec![Action::KeepOwners {
                uid: uid.to_owned(),
                owners,
            }];
        }
        let has_dependents = self.dependents.contains_key(uid);
        let policy = if item.has(ORPHAN) {
            Policy::Orphan
        } else if item.has(FOREGROUND) || (states.contains(&Owner::Waiting) && has_dependents) {
            Policy::Foreground
        } else {
            Policy::Background
        };
        vec![Action::Delete {
            uid: uid.to_owned(),
            policy,
        }]
    }

    fn state(&self, owner: &OwnerReference) -> Owner {
        match self.items.get(&owner.uid) {
            None => Owner::Gone,
            Some(item)
                if item.waits_for_dependents() && owner.block_owner_deletion == Some(true) =>
            {
                Owner::Waiting
            }
            Some(_) => Owner::Alive,
        }
    }

    fn plan_orphaning(&self, item: &Item) -> Vec<Action> {
        let dependents = self.dependents_of(&item.uid);
        if dependents.is_empty() {
            return vec![Action::RemoveFinalizer {
                uid: item.uid.clone(),
                finalizer: ORPHAN,
            }];
        }
        let freed = dependents.into_iter().filter_map(|uid| {
            let mut owners = self.items.get(&uid)?.owners.clone();
            owners.retain(|owner| owner.uid != item.uid);
            Some(Action::KeepOwners { uid, owners })
        });
        freed.collect()
    }

    fn plan_foreground(&self, item: &Item) -> Vec<Action> {
        let dependents = self.dependents_of(&item.uid);
        let blocks = |uid: &&String| {
            let owners = self
                .items
                .get(*uid)
                .into_iter()
                .flat_map(|dependent| &dependent.owners);
            let mut owners = owners.filter(|owner| owner.uid == item.uid);
            owners.any(|owner| owner.block_owner_deletion == Some(true))
        };
        if !dependents.iter().any(|uid| blocks(&uid)) {
            return vec![Action::RemoveFinalizer {
                uid: item.uid.clone(),
                finalizer: FOREGROUND,
            }];
        }
        let blocking = dependents.iter().filter(blocks);
        blocking
            .map(|uid| Action::Look { uid: uid.clone() })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object `name` whose uid is its name; `owners` ending in `!` block the owner's deletion.
    fn item(name: &str, owners: &[&str], deleting: bool, finalizers: &[&str]) -> Item {
        Item {
            kind: Arc::new(ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(
                &(),
            )),
            key: Key::new("ns", name),
            uid: name.into(),
            resource_version: Some("1".into()),
            owners: owners.iter().map(|owner| reference(owner)).collect(),
            finalizers: finalizers.iter().map(|f| (*f).to_owned()).collect(),
            deleting,
        }
    }

    fn reference(owner: &str) -> OwnerReference {
        OwnerReference {
            uid: owner.trim_end_matches('!').into(),
            block_owner_deletion: Some(owner.ends_with('!')),
            ..Default::default()
        }
    }

    fn delete(uid: &str, policy: Policy) -> Vec<Action> {
        vec![Action::Delete {
            uid: uid.into(),
            policy,
        }]
    }

    fn keep(uid: &str, owners: &[&str]) -> Action {
        let owners = owners.iter().map(|owner| reference(owner)).collect();
        Action::KeepOwners {
            uid: uid.into(),
            owners,
        }
    }

    #[test]
    fn what_becomes_of_an_object() {
        let dying = |finalizer| item("owner", &[], true, &[finalizer]);
        let remove = |finalizer| {
            vec![Action::RemoveFinalizer {
                uid: "owner".into(),
                finalizer,
            }]
        };
        for (case, items, about, want) in [
            ("no owner", vec![item("a", &[], false, &[])], "a", vec![]),
            (
                "live owner",
                vec![
                    item("owner", &[], false, &[]),
                    item("a", &["owner"], false, &[]),
                ],
                "a",
                vec![],
            ),
            (
                "owner gone",
                vec![item("a", &["owner"], false, &[])],
                "a",
                delete("a", Policy::Background),
            ),
            (
                "owner gone, already dying",
                vec![item("a", &["owner"], true, &[])],
                "a",
                vec![],
            ),
            (
                "one of two gone",
                vec![
                    item("b", &[], false, &[]),
                    item("a", &["owner", "b"], false, &[]),
                ],
                "a",
                vec![keep("a", &["b"])],
            ),
            (
                "dying in the background is still alive",
                vec![
                    item("owner", &[], true, &["other"]),
                    item("a", &["owner!"], false, &[]),
                ],
                "a",
                vec![],
            ),
            (
                "blocks a foreground deletion",
                vec![dying(FOREGROUND), item("a", &["owner!"], false, &[])],
                "a",
                delete("a", Policy::Background),
            ),
            (
                "blocks, and has objects itself",
                vec![
                    dying(FOREGROUND),
                    item("a", &["owner!"], false, &[]),
                    item("b", &["a!"], false, &[]),
                ],
                "a",
                delete("a", Policy::Foreground),
            ),
            (
                "does not block",
                vec![dying(FOREGROUND), item("a", &["owner"], false, &[])],
                "a",
                vec![],
            ),
            (
                "foreground waits",
                vec![dying(FOREGROUND), item("a", &["owner!"], false, &[])],
                "owner",
                vec![Action::Look { uid: "a".into() }],
            ),
            (
                "foreground ends",
                vec![dying(FOREGROUND), item("a", &["owner"], false, &[])],
                "owner",
                remove(FOREGROUND),
            ),
            (
                "orphaning frees",
                vec![dying(ORPHAN), item("a", &["owner", "b"], false, &[])],
                "owner",
                vec![keep("a", &["b"])],
            ),
            (
                "orphaning ends",
                vec![dying(ORPHAN)],
                "owner",
                remove(ORPHAN),
            ),
            (
                "not asked for yet",
                vec![item("owner", &[], false, &[ORPHAN])],
                "owner",
                vec![],
            ),
        ] {
            let mut graph = Graph::default();
            for item in items {
                graph.put(item);
            }
            assert_eq!(graph.plan(about), want, "{case}");
        }
    }

    #[test]
    fn changes_name_the_objects_to_look_at() {
        let mut graph = Graph::default();
        assert_eq!(graph.put(item("owner", &[], false, &[])), [""; 0]);
        assert_eq!(graph.put(item("a", &["owner!"], false, &[])), ["a"]);
        assert_eq!(graph.unknown_owners("a"), []);
        assert_eq!(
            graph.put(item("owner", &[], true, &[FOREGROUND])),
            ["a", "owner"]
        );
        assert_eq!(graph.remove("a"), ["owner"], "the owner waits for it");
        graph.put(item("b", &["owner"], false, &[]));
        assert_eq!(graph.remove("owner"), ["b"]);
        assert_eq!(graph.unknown_owners("b"), [reference("owner")]);
        assert!(graph.dependents.contains_key("owner"), "b still names it");
        graph.remove("b");
        assert!(
            graph.dependents.is_empty() && graph.items.is_empty(),
            "nothing is left behind"
        );
    }
}
