//! A cache of the objects of one kind, kept up to date by a watch.
//!
//! A cache notifies its listeners of every change. It decides nothing and never writes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Instant,
};

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::outage::Outage;

/// The namespace and name of an object; a cluster-scoped object has an empty namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    pub fn of(meta: &ObjectMeta) -> Self {
        Self::new(
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        )
    }

    pub fn cluster(name: impl Into<String>) -> Self {
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

/// The controller owner reference of an object, if it has one.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
}

/// How objects are looked up, besides by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Index {
    /// The uid of the controlling owner.
    Owner(String),
    /// The namespace of an object without a controlling owner.
    Orphan(String),
    /// The node a pod is bound to.
    Node(String),
}

/// The index that every kind has: its controlling owner.
pub fn by_owner<K: Resource<DynamicType = ()>>(object: &K) -> Vec<Index> {
    let meta = object.meta();
    vec![match controller_of(meta) {
        Some(owner) => Index::Owner(owner.uid.clone()),
        None => Index::Orphan(meta.namespace.clone().unwrap_or_default()),
    }]
}

/// One object before and after a change; at least one of the two is present.
pub struct Change<'a, K> {
    pub old: Option<&'a Arc<K>>,
    pub new: Option<&'a Arc<K>>,
}

impl<'a, K> Change<'a, K> {
    /// The old object, then the new one.
    pub fn sides(&self) -> impl Iterator<Item = &'a Arc<K>> {
        self.old.into_iter().chain(self.new)
    }
}

type Listener<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;

/// An object type that a cache can hold.
pub trait Object:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static
{
}
impl<K> Object for K where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static
{
}

pub struct Cache<K> {
    index: fn(&K) -> Vec<Index>,
    contents: RwLock<Contents<K>>,
    listeners: RwLock<Vec<Listener<K>>>,
    synced: tokio::sync::watch::Sender<bool>,
}

struct Contents<K> {
    objects: BTreeMap<Key, Arc<K>>,
    indexed: HashMap<Index, BTreeSet<Key>>,
    /// `objects` include every write up to this revision.
    seen: u64,
    /// The newest revision that this process wrote.
    written: u64,
    /// A list that is still arriving, and `written` when it began.
    arriving: Option<(BTreeMap<Key, Arc<K>>, u64)>,
}

impl<K: Object> Cache<K> {
    pub fn new(index: fn(&K) -> Vec<Index>) -> Arc<Self> {
        Arc::new(Self {
            index,
            contents: RwLock::new(Contents {
                objects: BTreeMap::new(),
                indexed: HashMap::new(),
                seen: 0,
                written: 0,
                arriving: None,
            }),
            listeners: RwLock::default(),
            synced: tokio::sync::watch::Sender::new(false),
        })
    }

    /// Calls `listener` on every later change. Listeners must be quick: the watch waits for them.
    pub fn listen(&self, listener: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        self.listeners
            .write()
            .expect("listeners do not panic")
            .push(Box::new(listener));
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.read().objects.get(key).cloned()
    }

    pub fn all(&self) -> Vec<Arc<K>> {
        self.read().objects.values().cloned().collect()
    }

    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.read()
            .objects
            .range(Key::new(namespace, "")..)
            .take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// The objects with this index value, in the order of their keys.
    pub fn indexed(&self, value: &Index) -> Vec<Arc<K>> {
        let contents = self.read();
        let keys = contents.indexed.get(value).into_iter().flatten();
        keys.filter_map(|key| contents.objects.get(key).cloned())
            .collect()
    }

    /// Records a write of this process, so that a later list is known to include it.
    pub fn note_write(&self, revision: u64) {
        let mut contents = self.write();
        contents.written = contents.written.max(revision);
    }

    pub fn has_seen(&self, revision: u64) -> bool {
        self.read().seen >= revision
    }

    /// Whether the first list is complete, and a way to wait for it.
    pub(crate) fn subscribe_synced(&self) -> tokio::sync::watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Keeps the cache up to date until cancelled: resumes a broken watch, lists again after an expired one.
    pub(crate) async fn run(
        self: Arc<Self>,
        api: Api<K>,
        config: watcher::Config,
        cancel: CancellationToken,
        mut outage: Outage,
    ) {
        let mut events = watcher(api, config).default_backoff().boxed();
        while let Some(Some(event)) = cancel.run_until_cancelled(events.next()).await {
            match event {
                Ok(event) => {
                    // Every attempt begins with this event.
                    if !matches!(event, watcher::Event::Init)
                        && let Some(after) = outage.ends(Instant::now())
                    {
                        tracing::info!(kind = %K::kind(&()), ?after, "watching again");
                    }
                    self.apply(event);
                }
                // A watch breaks now and then; that a list or a new watch is refused can last.
                Err(
                    error @ (watcher::Error::InitialListFailed(_)
                    | watcher::Error::WatchStartFailed(_)),
                ) => {
                    if let Some(since) = outage.fails(&error.to_string(), Instant::now()) {
                        tracing::warn!(kind = %K::kind(&()), %error, %since, "cannot watch; retrying");
                    }
                }
                Err(error) => {
                    tracing::debug!(kind = %K::kind(&()), %error, "watch broke; resuming");
                }
            }
        }
    }

    pub fn apply(&self, event: watcher::Event<K>) {
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
                let old = self.write().put(key, Some(object.clone()), self.index);
                self.notify(old.as_ref(), Some(&object));
            }
            Event::Delete(object) => {
                let mut contents = self.write();
                contents.seen = contents.seen.max(revision(object.meta()));
                let old = contents.put(Key::of(object.meta()), None, self.index);
                drop(contents);
                if old.is_some() {
                    self.notify(old.as_ref(), None);
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
                changes.push((contents.put(key, None, self.index), None));
            }
            for (key, object) in list {
                let old = contents.put(key, Some(object.clone()), self.index);
                changes.push((old, Some(object)));
            }
            contents.seen = contents.seen.max(written);
        }
        for (old, new) in &changes {
            self.notify(old.as_ref(), new.as_ref());
        }
        self.synced.send_replace(true);
    }

    fn notify(&self, old: Option<&Arc<K>>, new: Option<&Arc<K>>) {
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

impl<K: Object> Contents<K> {
    /// Stores or removes one object and returns the previous one.
    fn put(
        &mut self,
        key: Key,
        object: Option<Arc<K>>,
        index: fn(&K) -> Vec<Index>,
    ) -> Option<Arc<K>> {
        let old = match object.clone() {
            Some(object) => {
                self.seen = self.seen.max(revision(object.meta()));
                self.objects.insert(key.clone(), object)
            }
            None => self.objects.remove(&key),
        };
        for value in old.iter().flat_map(|old| index(old)) {
            if let Some(keys) = self.indexed.get_mut(&value) {
                keys.remove(&key);
                if keys.is_empty() {
                    self.indexed.remove(&value);
                }
            }
        }
        for value in object.iter().flat_map(|object| index(object)) {
            self.indexed.entry(value).or_default().insert(key.clone());
        }
        old
    }
}

/// The revision of an object: a decimal number that grows with every write of any kind.
pub fn revision(meta: &ObjectMeta) -> u64 {
    meta.resource_version
        .as_deref()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// Drops the managed fields: no controller here reads them, and they are half of a small object's size.
fn trimmed<K: Object>(mut object: K) -> Arc<K> {
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
    fn a_new_list_replaces_everything_and_reports_deletions() {
        let cache = Cache::new(by_owner::<ConfigMap>);
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = seen.clone();
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
        assert_eq!(names(&cache.indexed(&Index::Owner("x".into()))), ["a", "c"]);
        cache.apply(Event::InitDone);
        assert_eq!(names(&cache.all()), ["c"]);
        assert!(cache.indexed(&Index::Owner("x".into())).is_empty());
        assert_eq!(names(&cache.indexed(&Index::Orphan("ns".into()))), ["c"]);
        assert_eq!(
            *seen.lock().unwrap(),
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

    /// Counts the lines of a log that have some words.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<usize>>);

    impl std::io::Write for Lines {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            let line = String::from_utf8_lossy(line);
            *self.0.lock().unwrap() += line.matches("cannot watch; retrying").count();
            Ok(line.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_listed_is_logged_again_and_again() {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().with_writer(move || writer.clone());
        let _guard = tracing::subscriber::set_default(log.finish());
        let dead = tower::service_fn(|_: http::Request<kube::client::Body>| {
            let error = std::io::Error::from(std::io::ErrorKind::TimedOut);
            std::future::ready(Err::<http::Response<kube::client::Body>, _>(error))
        });
        let api: Api<ConfigMap> = Api::all(kube::Client::new(dead, "ns"));
        let cache = Cache::new(by_owner::<ConfigMap>);
        let outage = Outage::logged_every(std::time::Duration::from_millis(1));
        let run = cache.run(
            api,
            watcher::Config::default(),
            CancellationToken::new(),
            outage,
        );
        let logged = async {
            while *lines.0.lock().unwrap() < 3 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = run => panic!("it ended"),
            () = logged => {}
        }
    }
}
