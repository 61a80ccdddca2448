//! Discovery of every kind that the server has, custom ones included.

use std::collections::BTreeMap;

use kube::{
    Client,
    discovery::{ApiCapabilities, ApiResource, Discovery, Scope, verbs},
};

#[derive(Clone, Debug)]
pub(crate) struct ServedKind {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
    verbs: ApiCapabilities,
}

impl ServedKind {
    pub(crate) fn supports(&self, verb: &str) -> bool {
        self.verbs.supports_operation(verb)
    }
}

/// One version of each kind, by group and kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kinds(BTreeMap<(String, String), ServedKind>);

impl Kinds {
    pub(crate) async fn discover(client: &Client) -> Result<Self, kube::Error> {
        // Two requests in all: with one per group, a bad connection would rarely answer all of them.
        let discovery = Discovery::new(client.clone()).run_aggregated().await?;
        let mut kinds = BTreeMap::new();
        for group in discovery.groups_alphabetical() {
            for (resource, verbs) in group.recommended_resources() {
                let key = (resource.group.clone(), resource.kind.clone());
                let namespaced = verbs.scope == Scope::Namespaced;
                kinds.insert(
                    key,
                    ServedKind {
                        resource,
                        namespaced,
                        verbs,
                    },
                );
            }
        }
        Ok(Self(kinds))
    }

    /// Finds a kind by the fields of an owner reference, in any version of the group.
    pub(crate) fn find(&self, api_version: &str, kind: &str) -> Option<&ServedKind> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.0.get(&(group.to_owned(), kind.to_owned()))
    }

    /// Kinds whose objects can be watched and deleted. Events are many, own nothing and expire by themselves.
    pub(crate) fn collectable(&self) -> impl Iterator<Item = &ServedKind> {
        self.0.values().filter(|kind| {
            let needed = [verbs::LIST, verbs::WATCH, verbs::DELETE];
            kind.resource.kind != "Event" && needed.iter().all(|verb| kind.supports(verb))
        })
    }

    /// Kinds whose objects must be deleted with their namespace.
    pub(crate) fn in_namespaces(&self) -> impl Iterator<Item = &ServedKind> {
        self.0.values().filter(|kind| {
            kind.namespaced && kind.supports(verbs::LIST) && kind.supports(verbs::DELETE_COLLECTION)
        })
    }
}
