//! The watched objects that admission depends on: profiles, PriorityClasses, namespaces, LimitRanges and the registry of
//! schedulers.

use api::contracts;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use api::wire;
use engine::admission::{AdmissionSettings, KnownSchedulers, LimitRange, SystemNamespaces};
use engine::model::Labels;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ClusterResourceScope;
use kube::runtime::watcher;
use kube::{Api, Resource};
use reconcile::{Cache, Key, Object, Watches, by_owner};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A ClusterColocationProfile as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredProfile {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
}

impl Resource for StoredProfile {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        "ClusterColocationProfile".into()
    }
    fn group(_: &()) -> Cow<'_, str> {
        "config.koordinator.sh".into()
    }
    fn version(_: &()) -> Cow<'_, str> {
        "v1alpha1".into()
    }
    fn plural(_: &()) -> Cow<'_, str> {
        "clustercolocationprofiles".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The objects, parsed for the engine.
#[derive(Debug, Default)]
pub struct AdmissionSnapshot {
    pub settings: AdmissionSettings,
    limit_ranges: BTreeMap<String, Vec<LimitRange>>,
}

impl AdmissionSnapshot {
    pub fn limit_ranges(&self, namespace: &str) -> &[LimitRange] {
        self.limit_ranges.get(namespace).map_or(&[], Vec::as_slice)
    }
}

/// The caches of the watched kinds.
pub struct AdmissionObjects {
    namespaces: Arc<Cache<core::Namespace>>,
    limit_ranges: Arc<Cache<core::LimitRange>>,
    classes: Arc<Cache<PriorityClass>>,
    profiles: Arc<Cache<StoredProfile>>,
    /// At most the registry of schedulers.
    schedulers: Arc<Cache<core::ConfigMap>>,
    system_namespaces: SystemNamespaces,
    snapshot: RwLock<Arc<AdmissionSnapshot>>,
    /// The snapshot is older than the caches.
    is_stale: Arc<AtomicBool>,
}

impl AdmissionObjects {
    /// Adds the watches, which the caller starts.
    pub fn watch(
        client: &kube::Client,
        watches: &Watches,
        system_namespaces: SystemNamespaces,
    ) -> Self {
        let is_stale = Arc::new(AtomicBool::new(true));
        fn add<K: Object>(
            api: Api<K>,
            config: watcher::Config,
            watches: &Watches,
            is_stale: &Arc<AtomicBool>,
        ) -> Arc<Cache<K>> {
            let cache = Cache::new(by_owner::<K>);
            let is_stale = is_stale.clone();
            cache.listen(move |_| is_stale.store(true, Ordering::Release));
            watches.add(&cache, api, config);
            cache
        }
        fn all<K: Object>(
            client: &kube::Client,
            watches: &Watches,
            is_stale: &Arc<AtomicBool>,
        ) -> Arc<Cache<K>> {
            let api = Api::all(client.clone());
            add(api, watcher::Config::default(), watches, is_stale)
        }
        let registry = Api::namespaced(client.clone(), contracts::NAMESPACE);
        let its_name = format!("metadata.name={}", contracts::SCHEDULERS);
        let its_name = watcher::Config::default().fields(&its_name);
        Self {
            namespaces: all(client, watches, &is_stale),
            limit_ranges: all(client, watches, &is_stale),
            classes: all(client, watches, &is_stale),
            profiles: all(client, watches, &is_stale),
            schedulers: add(registry, its_name, watches, &is_stale),
            system_namespaces,
            snapshot: RwLock::default(),
            is_stale,
        }
    }

    /// None for a namespace that the cache does not have. They select rules for the pods of the namespace, and are believed because
    /// users of a namespace cannot write the Namespace: no built-in role for them has the permission.
    pub fn namespace_labels(&self, name: &str) -> Option<Labels> {
        let namespace = self.namespaces.get(&Key::cluster(name))?;
        let labels = namespace.metadata.labels.iter().flatten();
        Some(
            labels
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect(),
        )
    }

    /// The objects as they are now.
    pub fn snapshot(&self) -> Arc<AdmissionSnapshot> {
        if self.is_stale.load(Ordering::Acquire) {
            // Held while it is built: no other review may see an older snapshot, least of all the empty one of the start.
            let mut snapshot = self
                .snapshot
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            // Cleared before the caches are read, so that a change meanwhile counts.
            if self.is_stale.swap(false, Ordering::AcqRel) {
                *snapshot = Arc::new(self.build());
            }
        }
        self.snapshot
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn build(&self) -> AdmissionSnapshot {
        let profiles = self.profiles.all().into_iter().filter_map(|stored| {
            let object = serde_json::to_value(&*stored).ok()?;
            let profile = api::parse::colocation_profile_from(&object);
            for fault in &profile.faults {
                tracing::warn!(profile = %profile.name, "profile matches no pods: {fault}");
            }
            Some(profile)
        });
        let classes = self.classes.all();
        let classes = classes.iter().filter_map(|class| {
            let class =
                api::parse::priority_class(&reparse::<wire::workload::PriorityClass>(&**class)?);
            Some((class.name.clone(), class))
        });
        let mut limit_ranges = BTreeMap::<String, Vec<LimitRange>>::new();
        for range in self.limit_ranges.all() {
            if let Some(parsed) = reparse::<wire::colocation::LimitRange>(&*range) {
                let namespace = range.metadata.namespace.clone().unwrap_or_default();
                let parsed = api::parse::limit_range(&parsed);
                limit_ranges.entry(namespace).or_default().push(parsed);
            }
        }
        AdmissionSnapshot {
            // Caches are in the order of names.
            settings: AdmissionSettings {
                profiles: profiles.collect(),
                priority_classes: classes.collect(),
                schedulers: self.known_schedulers(),
                system_namespaces: self.system_namespaces.clone(),
            },
            limit_ranges,
        }
    }
}

impl AdmissionObjects {
    /// Nothing is known before the controllers wrote their first names.
    fn known_schedulers(&self) -> KnownSchedulers {
        let maps = self.schedulers.all();
        let data = maps.first().and_then(|map| map.data.as_ref());
        let value = |key| data.and_then(|data| data.get(key)).map(String::as_str);
        let (known, invalid) = KnownSchedulers::read(
            value(contracts::DEFAULT_NAME),
            value(contracts::REGISTERED_NAMES),
        );
        if let Some(name) = invalid {
            let shown: String = name.chars().take(63).collect();
            tracing::warn!(
                configmap = contracts::SCHEDULERS,
                "ignoring key `default`: {shown:?} is not a valid scheduler name"
            );
        }
        known
    }
}

/// An object in the form that is parsed.
fn reparse<T: DeserializeOwned>(object: &impl Serialize) -> Option<T> {
    let value = serde_json::to_value(object).ok()?;
    serde_json::from_value(value).ok()
}
