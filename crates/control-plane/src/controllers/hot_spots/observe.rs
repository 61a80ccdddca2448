//! What the controller of hot spots observes: NodeMetrics, and the cluster as the scheduler sees it.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use api::config::Configuration;
use api::parse::koordinator;
use api::wire::koordinator as wire;
use engine::cluster::Cluster;
use engine::cluster::kinds::{Kind, Update};
use engine::model::{Name, Timestamp};
use engine::policies::hot_spots::{
    History, HotSpotInputs, HotSpotMove, HotSpotPlan, HotSpotSettings, plan,
};
use engine::policies::tiers::NodeMetric;
use engine::scheduling::profile::Profile;

use super::ReliefSettings;
use crate::controllers::objects::{json, observed};
use crate::controllers::observe::{Observer, ParsedAs};
use crate::scheduler::kinds::{Parsed, WATCHED, parse_object};
use reconcile::watch::{ObjectChange, Observed, Progress, RawObject, Resource};

/// Pods are not preempted here, and have their priorities.
const UNUSED: [Kind; 2] = [Kind::PodDisruptionBudget, Kind::PriorityClass];

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum HotSpotKind {
    NodeMetric,
    /// One that the scheduler watches.
    Scheduled(Kind),
}

fn scheduled() -> impl Iterator<Item = &'static (Kind, Resource)> {
    WATCHED.iter().filter(|(kind, _)| !UNUSED.contains(kind))
}

pub(super) fn kinds() -> impl Iterator<Item = HotSpotKind> {
    let scheduled = scheduled().map(|(kind, _)| HotSpotKind::Scheduled(*kind));
    [HotSpotKind::NodeMetric].into_iter().chain(scheduled)
}

/// In the order of [`kinds`]. Without permission to read them there is no relief; the other controllers run.
pub(super) static RESOURCES: LazyLock<Vec<Resource>> = LazyLock::new(|| {
    let metrics = Resource {
        optional: true,
        ..Resource::at("/apis/slo.koordinator.sh/v1alpha1/nodemetrics")
    };
    let scheduled = scheduled().map(|(_, resource)| Resource {
        optional: true,
        ..*resource
    });
    [metrics].into_iter().chain(scheduled).collect()
});

/// Kinds without which nothing can be said about the cluster now. A cluster need not have kinds that are optional for the
/// scheduler.
pub(super) fn unknown(progress: &Progress) -> Vec<&'static str> {
    let required = |name: &str| scheduled().any(|(_, it)| it.name() == name && !it.optional);
    let kinds = progress.kinds().into_iter();
    let unknown = kinds.filter(|(name, kind)| {
        let is_behind = kind.broken.is_some() || kind.late || !kind.synced;
        is_behind || (kind.missing && required(name))
    });
    unknown.map(|(name, _)| name).collect()
}

struct HotSpotContents {
    cluster: Cluster,
    metrics: BTreeMap<Name, NodeMetric>,
    history: History,
    last: HotSpotPlan,
}

/// All that was observed.
pub(super) struct HotSpotState {
    contents: Mutex<HotSpotContents>,
    settings: HotSpotSettings,
    profiles: Vec<Profile>,
}

impl HotSpotState {
    /// The time is 0 now.
    pub(super) fn new(settings: &ReliefSettings) -> Self {
        let profiles = settings.scheduler.0.map(<[Profile]>::to_vec);
        let profiles = profiles.unwrap_or_else(|| {
            let built = Configuration::default().profiles(engine::scheduling::plugins::ALL);
            // The default configuration is valid.
            built.map(|(profiles, _)| profiles).unwrap_or_default()
        });
        Self {
            contents: Mutex::new(HotSpotContents {
                cluster: Cluster::new(),
                metrics: BTreeMap::new(),
                history: History::new(&settings.plan, Timestamp::default()),
                last: HotSpotPlan::default(),
            }),
            settings: settings.plan,
            profiles,
        }
    }

    /// Plans a round.
    pub(super) fn plan(&self, now: Timestamp) -> HotSpotPlan {
        let mut contents = self.lock();
        let contents = &mut *contents;
        let observed = HotSpotInputs {
            cluster: &contents.cluster,
            metrics: &contents.metrics,
            profiles: &self.profiles,
        };
        contents.last = plan(&observed, &self.settings, &mut contents.history, now);
        contents.last.clone()
    }

    pub(super) fn last_plan(&self) -> HotSpotPlan {
        self.lock().last.clone()
    }

    pub(super) fn stayed(&self, moved: &HotSpotMove) {
        self.lock().history.stayed(moved);
    }

    fn lock(&self) -> MutexGuard<'_, HotSpotContents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) enum HotSpotObject {
    Metric(Name, NodeMetric),
    Scheduled(Parsed),
}

impl Observer for HotSpotState {
    type Kind = HotSpotKind;
    type Object = HotSpotObject;

    fn parse(kind: HotSpotKind, raw: &RawObject) -> ParsedAs<HotSpotObject> {
        match kind {
            HotSpotKind::NodeMetric => {
                let metric: wire::NodeMetric = json("nodemetric", raw)?;
                // The tier controller reports what is wrong in it.
                let (parsed, _) = koordinator::node_metric(&metric);
                let name = metric.metadata.name.as_str().into();
                let parsed = HotSpotObject::Metric(name, parsed);
                Ok(observed(&metric.metadata, Some(parsed)))
            }
            HotSpotKind::Scheduled(kind) => {
                let parsed = parse_object(kind, raw).map_err(|error| error.to_string())?;
                Ok(Observed {
                    key: parsed.key,
                    uid: parsed.uid,
                    resource_version: parsed.resource_version,
                    object: parsed.object.map(HotSpotObject::Scheduled),
                    problem: parsed.problem.map(|it| it.to_string()),
                })
            }
        }
    }

    fn apply(&self, kind: HotSpotKind, change: ObjectChange<HotSpotObject>) {
        let mut contents = self.lock();
        let update: Update = match (kind, change) {
            (_, ObjectChange::Applied(HotSpotObject::Metric(name, metric))) => {
                contents.metrics.insert(name, metric);
                return;
            }
            (HotSpotKind::NodeMetric, ObjectChange::Deleted { key, .. }) => {
                contents.metrics.remove(&key.name);
                return;
            }
            // Pods that wait use nothing.
            (_, ObjectChange::Applied(HotSpotObject::Scheduled(Parsed::Pod(pod, _)))) => {
                if pod.node.is_none() {
                    return;
                }
                pod.into()
            }
            (_, ObjectChange::Applied(HotSpotObject::Scheduled(Parsed::Other(object)))) => {
                object.into()
            }
            (HotSpotKind::Scheduled(Kind::Pod), ObjectChange::Deleted { uid, .. }) => {
                Update::Delete(Kind::Pod, uid.into())
            }
            (HotSpotKind::Scheduled(kind), ObjectChange::Deleted { key, .. }) => {
                Update::Delete(kind, key)
            }
        };
        if let Err(error) = contents.cluster.apply(update) {
            tracing::debug!(%error, "ignoring object");
        }
    }

    /// The scheduler reports it to users.
    fn report(problem: &str) {
        tracing::debug!("{problem}");
    }
}
