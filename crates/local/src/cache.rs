//! The objects of one kind, as the API server last told them.
//!
//! A cache watches, remembers and tells its listeners what changed; it decides nothing and never writes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

/// Where an object is found; a cluster-scoped object has an empty namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        Self::new(
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        )
    }

    pub(crate) fn cluster(name: impl Into<String>) -> Self {
        Self::new("", name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// The owner that controls an object, if it has one.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
}

/// What objects are looked up by, besides their name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    /// The uid of the controlling owner.
    Owner(String),
    /// The namespace of an object that nobody controls.
    Orphan(String),
    /// The node a pod is bound to.
    Node(String),
}

/// The link every kind has: who controls it.
pub(crate) fn by_owner<K: Resource<DynamicType = ()>>(object: &K) -> Vec<Link> {
    let meta = object.meta();
    vec![match controller_of(meta) {
        Some(owner) => Link::Owner(owner.uid.clone()),
        None => Link::Orphan(meta.namespace.clone().unwrap_or_default()),
    }]
}

/// One object before and after; one of the two is always there.
pub(crate) struct Change<'a, K> {
    pub(crate) old: Option<&'a Arc<K>>,
    pub(crate) new: Option<&'a Arc<K>>,
}

impl<'a, K> Change<'a, K> {
    /// Both sides, old first.
    pub(crate) fn sides(&self) -> impl Iterator<Item = &'a Arc<K>> {
        self.old.into_iter().chain(self.new)
    }
}

type Listener<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;

/// What a cached kind must be able to do.
pub(crate) trait Kind:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static
{
}
impl<K> Kind for K where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static
{
}

pub(crate) struct Cache<K> {
    links: fn(&K) -> Vec<Link>,
    contents: RwLock<Contents<K>>,
    listeners: RwLock<Vec<Listener<K>>>,
    synced: tokio::sync::watch::Sender<bool>,
}

struct Contents<K> {
    objects: BTreeMap<Key, Arc<K>>,
    linked: HashMap<Link, BTreeSet<Key>>,
    /// The newest revision whose effect on this kind is surely in `objects`.
    seen: u64,
    /// The newest revision that somebody in this process wrote.
    written: u64,
    /// A list that is still arriving, and `written` when it began.
    arriving: Option<(BTreeMap<Key, Arc<K>>, u64)>,
}

impl<K: Kind> Cache<K> {
    pub(crate) fn new(links: fn(&K) -> Vec<Link>) -> Arc<Self> {
        Arc::new(Self {
            links,
            contents: RwLock::new(Contents {
                objects: BTreeMap::new(),
                linked: HashMap::new(),
                seen: 0,
                written: 0,
                arriving: None,
            }),
            listeners: RwLock::default(),
            synced: tokio::sync::watch::Sender::new(false),
        })
    }

    /// Calls `listener` on every later change. Listeners must be quick: the watch waits for them.
    pub(crate) fn listen(&self, listener: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        self.listeners
            .write()
            .expect("listeners do not panic")
            .push(Box::new(listener));
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.read().objects.get(key).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.read().objects.values().cloned().collect()
    }

    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.read()
            .objects
            .range(Key::new(namespace, "")..)
            .take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// In the order of their keys.
    pub(crate) fn linked(&self, link: &Link) -> Vec<Arc<K>> {
        let contents = self.read();
        let keys = contents.linked.get(link).into_iter().flatten();
        keys.filter_map(|key| contents.objects.get(key).cloned())
            .collect()
    }

    /// Notes a write of our own, so that a later list is known to include it.
    pub(crate) fn note_write(&self, revision: u64) {
        let mut contents = self.write();
        contents.written = contents.written.max(revision);
    }

    pub(crate) fn has_seen(&self, revision: u64) -> bool {
        self.read().seen >= revision
    }

    /// Returns once the first list is complete.
    pub(crate) async fn synced(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Keeps the cache fresh until cancelled; a broken watch is resumed, an expired one listed anew.
    pub(crate) async fn run(self: Arc<Self>, api: Api<K>, cancel: CancellationToken) {
        let mut events = watcher(api, watcher::Config::default())
            .default_backoff()
            .boxed();
        while let Some(Some(event)) = cancel.run_until_cancelled(events.next()).await {
            match event {
                Ok(event) => self.apply(event),
                Err(error) => {
                    tracing::debug!(kind = %K::kind(&()), %error, "the watch broke and will be resumed")
                }
            }
        }
    }

    pub(crate) fn apply(&self, event: watcher::Event<K>) {
        use watcher::Event;
        match event {
            Event::Init => {
                let mut contents = self.write();
                let written = contents.written;
                contents.arriving = Some((BTreeMap::new(), written));
            }
            Event::InitApply(object) => {
                let object = trimmed(object);
                if let Some((list, _)) = &mut self.write().arriving {
                    list.insert(Key::of(object.meta()), object);
                }
            }
            Event::InitDone => self.replace_all(),
            Event::Apply(object) => {
                let object = trimmed(object);
                let key = Key::of(object.meta());
                let old = self.write().put(key, Some(object.clone()), self.links);
                self.tell(old.as_ref(), Some(&object));
            }
            Event::Delete(object) => {
                let mut contents = self.write();
                contents.seen = contents.seen.max(revision(object.meta()));
                let old = contents.put(Key::of(object.meta()), None, self.links);
                drop(contents);
                if old.is_some() {
                    self.tell(old.as_ref(), None);
                }
            }
        }
    }

    fn replace_all(&self) {
        let mut changes = Vec::new();
        {
            let mut contents = self.write();
            let Some((list, written)) = contents.arriving.take() else {
                return;
            };
            let gone: Vec<Key> = contents
                .objects
                .keys()
                .filter(|key| !list.contains_key(*key))
                .cloned()
                .collect();
            for key in gone {
                changes.push((contents.put(key, None, self.links), None));
            }
            for (key, object) in list {
                let old = contents.put(key, Some(object.clone()), self.links);
                changes.push((old, Some(object)));
            }
            contents.seen = contents.seen.max(written);
        }
        for (old, new) in &changes {
            self.tell(old.as_ref(), new.as_ref());
        }
        self.synced.send_replace(true);
    }

    fn tell(&self, old: Option<&Arc<K>>, new: Option<&Arc<K>>) {
        let change = Change { old, new };
        for listener in self
            .listeners
            .read()
            .expect("listeners do not panic")
            .iter()
        {
            listener(&change);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Contents<K>> {
        self.contents.read().expect("no panic while held")
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents<K>> {
        self.contents.write().expect("no panic while held")
    }
}

impl<K: Kind> Contents<K> {
    /// Stores or removes one object and returns what was there.
    fn put(
        &mut self,
        key: Key,
        object: Option<Arc<K>>,
        links: fn(&K) -> Vec<Link>,
    ) -> Option<Arc<K>> {
        let old = match object.clone() {
            Some(object) => {
                self.seen = self.seen.max(revision(object.meta()));
                self.objects.insert(key.clone(), object)
            }
            None => self.objects.remove(&key),
        };
        for link in old.iter().flat_map(|old| links(old)) {
            if let Some(keys) = self.linked.get_mut(&link) {
                keys.remove(&key);
                if keys.is_empty() {
                    self.linked.remove(&link);
                }
            }
        }
        for link in object.iter().flat_map(|object| links(object)) {
            self.linked.entry(link).or_default().insert(key.clone());
        }
        old
    }
}

/// An object's revision; they are decimal and grow with every write of any kind.
pub(crate) fn revision(meta: &ObjectMeta) -> u64 {
    meta.resource_version
        .as_deref()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// Nobody here asks who manages which field, and it is half of a small object's size.
fn trimmed<K: Kind>(mut object: K) -> Arc<K> {
    object.meta_mut().managed_fields = None;
    Arc::new(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use std::sync::Mutex;
    use watcher::Event;

    fn object(name: &str, revision: u64, owner: Option<&str>) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                namespace: Some("ns".into()),
                name: Some(name.into()),
                resource_version: Some(revision.to_string()),
                owner_references: owner.map(|uid| {
                    vec![OwnerReference {
                        uid: uid.into(),
                        controller: Some(true),
                        ..Default::default()
                    }]
                }),
                ..Default::default()
            },
            ..Default::default()
        }
    }

    fn names(objects: &[Arc<ConfigMap>]) -> Vec<&str> {
        objects
            .iter()
            .filter_map(|o| o.metadata.name.as_deref())
            .collect()
    }

    #[test]
    fn a_new_list_replaces_everything_and_tells_what_vanished() {
        let cache = Cache::new(by_owner::<ConfigMap>);
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = told.clone();
        cache.listen(move |change| {
            let name = |side: Option<&Arc<ConfigMap>>| {
                side.map_or("-".into(), |o| o.metadata.name.clone().unwrap())
            };
            log.lock()
                .unwrap()
                .push(format!("{} {}", name(change.old), name(change.new)));
        });
        for event in [
            Event::Init,
            Event::InitApply(object("a", 1, Some("x"))),
            Event::InitApply(object("b", 2, None)),
            Event::InitDone,
            Event::Apply(object("c", 3, Some("x"))),
            Event::Delete(object("b", 4, None)),
            Event::Init,
            Event::InitApply(object("c", 3, None)),
        ] {
            cache.apply(event);
        }
        // Half a list changes nothing.
        assert_eq!(names(&cache.all()), ["a", "c"]);
        assert_eq!(names(&cache.linked(&Link::Owner("x".into()))), ["a", "c"]);
        cache.apply(Event::InitDone);
        assert_eq!(names(&cache.all()), ["c"]);
        assert!(cache.linked(&Link::Owner("x".into())).is_empty());
        assert_eq!(names(&cache.linked(&Link::Orphan("ns".into()))), ["c"]);
        assert_eq!(
            *told.lock().unwrap(),
            ["- a", "- b", "- c", "b -", "a -", "c c"]
        );
    }

    #[test]
    fn a_list_that_began_after_a_write_includes_it() {
        let cache = Cache::new(by_owner::<ConfigMap>);
        cache.apply(Event::Init);
        cache.note_write(7);
        cache.apply(Event::InitDone);
        assert!(!cache.has_seen(7), "the list may have been taken before");
        cache.apply(Event::Init);
        cache.apply(Event::InitDone);
        assert!(
            cache.has_seen(7),
            "written, then deleted: no event will come"
        );
    }
}
