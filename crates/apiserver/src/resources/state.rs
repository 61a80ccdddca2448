//! What one server holds: its objects, the kinds it serves, and which custom kinds are being deleted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use serde_json::Value;

use super::backends::ServiceBackends;
use super::registry::Registry;
use crate::kinds::kind::{Kind, Lookup};
use crate::store::{Limits, Store};

pub(crate) struct ServerState {
    pub(crate) store: Store,
    pub(crate) backends: ServiceBackends,
    builtin: Vec<Kind>,
    registry: RwLock<Arc<Registry>>,
    /// Group and plural of custom kinds whose definition is being deleted.
    closing: RwLock<Vec<(String, String)>>,
    definitions: Mutex<()>,
    /// Tokens and their users, for reviews; the listener authenticates with its own list.
    tokens: RwLock<Vec<(String, String)>>,
}

impl ServerState {
    pub(crate) fn new(builtin: Vec<Kind>, limits: Limits) -> Self {
        let store = Store::new(limits);
        let registry = Registry::new(builtin.clone(), &store);
        Self {
            store,
            backends: ServiceBackends::default(),
            builtin,
            registry: RwLock::new(Arc::new(registry)),
            closing: RwLock::default(),
            definitions: Mutex::default(),
            tokens: RwLock::default(),
        }
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        let registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&registry)
    }

    /// Serves these custom kinds besides the built-in ones.
    pub(crate) fn set_custom_kinds(&self, custom: Vec<Kind>) {
        let kinds = self.builtin.iter().cloned().chain(custom).collect();
        let registry = Arc::new(Registry::new(kinds, &self.store));
        *self
            .registry
            .write()
            .unwrap_or_else(PoisonError::into_inner) = registry;
    }

    /// Locks out concurrent updates of the custom kinds.
    pub(crate) fn lock_definitions(&self) -> MutexGuard<'_, ()> {
        self.definitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_closing(&self, kinds: Vec<(String, String)>) {
        *self.closing.write().unwrap_or_else(PoisonError::into_inner) = kinds;
    }

    pub(crate) fn is_closing(&self, group: &str, plural: &str) -> bool {
        let closing = self.closing.read().unwrap_or_else(PoisonError::into_inner);
        closing.iter().any(|(g, p)| g == group && p == plural)
    }

    pub(crate) fn add_tokens(&self, tokens: impl IntoIterator<Item = (String, String)>) {
        let mut known = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        known.extend(tokens);
    }

    pub(crate) fn user_of_token(&self, token: &str) -> Option<String> {
        let known = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let (_, user) = known.iter().find(|(known, _)| known == token)?;
        Some(user.clone())
    }

    /// All objects of a cluster-wide kind that has few of them, though each write reads them.
    pub(crate) fn configurations(&self, group: &str, plural: &str) -> Vec<Arc<Value>> {
        let registry = self.registry();
        let Some(served) = registry.find_resource(group, plural) else {
            return Vec::new();
        };
        let snapshot = self.store.scan(served.table, "", "");
        snapshot.objects.iter().map(|o| o.parsed_once()).collect()
    }

    /// Whether a built-in kind has this group.
    pub(crate) fn has_builtin_group(&self, group: &str) -> bool {
        self.builtin.iter().any(|kind| kind.group == group)
    }
}

impl Lookup for ServerState {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let registry = self.registry();
        let served = registry.find_resource(group, plural)?;
        let object = self.store.get(served.table, &served.key(namespace, name))?;
        Some(object.parsed())
    }

    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>> {
        let registry = self.registry();
        let Some(served) = registry.find_resource(group, plural) else {
            return Vec::new();
        };
        let prefix = if namespace.is_empty() {
            String::new()
        } else {
            served.key(namespace, "")
        };
        let snapshot = self.store.scan(served.table, &prefix, "");
        snapshot.objects.iter().map(|o| o.parsed()).collect()
    }
}
