//! What the registry of schedulers observes: Leases, pods that no scheduler has looked at, and its own ConfigMap.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::contracts::{REGISTERED_NAMES, SCHEDULER_NAMES};
use api::parse;
use api::wire::core::Pod;
use api::wire::meta::{Map, ObjectMeta};
use engine::model::Name;
use engine::policies::schedulers::{
    RegistryPlan, SchedulerLease, SchedulerRegistry, UnseenPod, read_names,
};
use serde::Deserialize;

use crate::controllers::objects::{either, json, observed};
use crate::controllers::observe::{Observer, ParsedAs};
use reconcile::watch::{self, ObjectChange, RawObject, Resource};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum RegistryKind {
    Lease,
    Pod,
    ConfigMap,
}

impl RegistryKind {
    pub(super) const ALL: [Self; 3] = [Self::Lease, Self::Pod, Self::ConfigMap];
}

/// In the order of [`RegistryKind::ALL`].
pub(super) static RESOURCES: [Resource; 3] = [
    Resource {
        // Each node has one there, and one of its agent: they are renewed every ten seconds.
        field_selector: "metadata.namespace%21%3Dkube-node-lease",
        label_selector: "%21tidepool.io%2Fagent",
        ..Resource::at("/apis/coordination.k8s.io/v1/leases")
    },
    Resource {
        // A pod that is bound looks deleted.
        field_selector: "spec.nodeName%3D",
        protobuf: true,
        ..Resource::at(parse::path(engine::cluster::kinds::Kind::Pod))
    },
    Resource {
        field_selector: "metadata.name%3Dschedulers",
        ..Resource::at(concat!(
            "/api/v1/namespaces/",
            api::namespace!(),
            "/configmaps"
        ))
    },
];

/// The ConfigMap of the registry, as far as it is the controller's.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StoredNames {
    pub(super) uid: Name,
    pub(super) names: Option<String>,
}

struct RegistryContents {
    registry: SchedulerRegistry,
    stored: Option<StoredNames>,
}

/// All that was observed, on a clock that begins with the process's leadership.
pub(super) struct RegistryState {
    contents: Mutex<RegistryContents>,
    started: Instant,
}

impl RegistryState {
    /// Leases of these namespaces register schedulers, too.
    pub(super) fn new(namespaces: &[&str]) -> Self {
        let registry = SchedulerRegistry::believing(namespaces.iter().copied());
        Self {
            contents: Mutex::new(RegistryContents {
                registry,
                stored: None,
            }),
            started: Instant::now(),
        }
    }

    pub(super) fn plan(&self, patience: Duration, most: usize) -> RegistryPlan {
        let now = self.now();
        self.lock().registry.plan(patience, most, now)
    }

    pub(super) fn stored(&self) -> Option<StoredNames> {
        self.lock().stored.clone()
    }

    pub(super) fn forget_pod(&self, uid: &str) {
        self.lock().registry.delete_pod(uid);
    }

    pub(super) fn postpone_pod(&self, uid: &str) {
        let now = self.now();
        self.lock().registry.postpone_pod(uid, now);
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, RegistryContents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) enum RegistryObject {
    Lease(Name, SchedulerLease),
    Pod(UnseenPod),
    ConfigMap(StoredNames),
}

type ParsedRegistryObject = ParsedAs<RegistryObject>;

impl Observer for RegistryState {
    type Kind = RegistryKind;
    type Object = RegistryObject;

    fn parse(kind: RegistryKind, raw: &RawObject) -> ParsedRegistryObject {
        match kind {
            RegistryKind::Lease => lease(raw),
            RegistryKind::Pod => Ok(pod(&either("pod", raw)?)),
            RegistryKind::ConfigMap => config_map(raw),
        }
    }

    fn apply(&self, kind: RegistryKind, change: ObjectChange<RegistryObject>) {
        let now = self.now();
        let mut contents = self.lock();
        match change {
            ObjectChange::Applied(RegistryObject::Lease(key, lease)) => {
                contents.registry.set_lease(key, lease, now);
            }
            ObjectChange::Applied(RegistryObject::Pod(pod)) => contents.registry.set_pod(pod, now),
            ObjectChange::Applied(RegistryObject::ConfigMap(stored)) => {
                contents.stored = Some(stored);
            }
            ObjectChange::Deleted { key, uid } => match kind {
                RegistryKind::Lease => {
                    let key = format!("{}/{}", key.namespace, key.name);
                    contents.registry.delete_lease(&key);
                }
                RegistryKind::Pod => contents.registry.delete_pod(&uid),
                RegistryKind::ConfigMap => contents.stored = None,
            },
        }
    }
}

/// One without names of schedulers does not count. What it says is believed only in namespaces that ordinary users cannot write to:
/// the engine's registry leaves out the others.
fn lease(raw: &RawObject) -> ParsedRegistryObject {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Lease {
        metadata: ObjectMeta,
        spec: Option<LeaseSpec>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct LeaseSpec {
        holder_identity: Option<String>,
        lease_duration_seconds: Option<i64>,
    }
    let Lease { metadata, spec } = json("lease", raw)?;
    let Some(names) = metadata.annotations.get(SCHEDULER_NAMES) else {
        return Ok(observed(&metadata, None));
    };
    let spec = spec.unwrap_or_default();
    let seconds = spec.lease_duration_seconds;
    let lease = SchedulerLease {
        version: metadata.resource_version.as_str().into(),
        holder: spec.holder_identity.unwrap_or_default(),
        duration: seconds.map(|it| Duration::from_secs(u64::try_from(it).unwrap_or(0))),
        names: read_names(names),
    };
    let key = format!("{}/{}", metadata.namespace, metadata.name);
    let lease = RegistryObject::Lease(key.as_str().into(), lease);
    Ok(observed(&metadata, Some(lease)))
}

/// One that is bound, ends or has the condition is no concern of the registry.
fn pod(pod: &Pod) -> watch::Observed<RegistryObject, String> {
    let meta = &pod.metadata;
    let conditions = &pod.status.conditions;
    let is_unseen = pod.spec.node_name.is_empty()
        && meta.deletion_timestamp.is_none()
        && !pod.is_finished()
        && !conditions.iter().any(|it| it.kind == "PodScheduled");
    let unseen = is_unseen.then(|| UnseenPod {
        namespace: meta.namespace.as_str().into(),
        name: meta.name.as_str().into(),
        uid: meta.uid.as_str().into(),
        version: meta.resource_version.as_str().into(),
        scheduler: pod.spec.scheduler_name.as_str().into(),
    });
    observed(meta, unseen.map(RegistryObject::Pod))
}

fn config_map(raw: &RawObject) -> ParsedRegistryObject {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ConfigMap {
        metadata: ObjectMeta,
        data: Option<Map>,
    }
    let ConfigMap { metadata, data } = json("configmap", raw)?;
    let stored = StoredNames {
        uid: metadata.uid.as_str().into(),
        names: data.unwrap_or_default().remove(REGISTERED_NAMES),
    };
    Ok(observed(&metadata, Some(RegistryObject::ConfigMap(stored))))
}
