//! What the tier controller observes: nodes, pods, NodeMetrics, CustomNodeResources and its settings.
//!
//! Only the fields that plans depend on are kept, because a cluster has many pods.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::parse::{self, koordinator};
use api::wire::core::{NOT_FINISHED, Pod};
use api::wire::meta::{Map, ObjectMeta};
use api::wire::{katalyst, koordinator as wire};
use engine::cluster::CustomNodeResource;
use engine::cluster::kinds::Key;
use engine::model::{Name, Timestamp};
use engine::policies::agents::AGENT_SILENT;
use engine::policies::tiers::{
    ColocationConfig, NodeMetric, TierNode, TierNodeObject, TierPlan, TierPod, plan,
};
use reconcile::WorkQueue;
use serde::Deserialize;

use crate::controllers::objects::{either, json, observed};
use crate::controllers::observe::{NodePods, Observer, ParsedAs};
use reconcile::watch::{self, ObjectChange, RawObject, Resource};

/// The key of the settings in `data`.
const COLOCATION_CONFIG: &str = "colocation-config";

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TierKind {
    Node,
    Pod,
    NodeMetric,
    CustomNodeResource,
    Settings,
}

impl TierKind {
    pub(super) const ALL: [Self; 5] = [
        Self::Node,
        Self::Pod,
        Self::NodeMetric,
        Self::CustomNodeResource,
        Self::Settings,
    ];
}

/// In the order of [`TierKind::ALL`]. Reflectors run until the process ends, and so does the list.
pub(super) fn resources((namespace, name): (&str, &str)) -> &'static [Resource] {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let selector = format!("metadata.name%3D{name}");
    Box::leak(Box::new([
        Resource {
            protobuf: true,
            ..Resource::at(parse::path(engine::cluster::kinds::Kind::Node))
        },
        Resource {
            // One that ends looks deleted.
            field_selector: NOT_FINISHED,
            protobuf: true,
            ..Resource::at(parse::path(engine::cluster::kinds::Kind::Pod))
        },
        Resource {
            optional: true,
            ..Resource::at("/apis/slo.koordinator.sh/v1alpha1/nodemetrics")
        },
        Resource {
            optional: true,
            ..Resource::at(parse::path(
                engine::cluster::kinds::Kind::CustomNodeResource,
            ))
        },
        Resource {
            field_selector: Box::leak(selector.into_boxed_str()),
            optional: true,
            ..Resource::at(Box::leak(path.into_boxed_str()))
        },
    ]))
}

/// The key of the settings in the queue. No node has an empty name.
pub(super) fn settings_key() -> reconcile::Key {
    reconcile::Key::cluster("")
}

#[derive(Default)]
struct TierContents {
    nodes: BTreeMap<Name, TierNodeObject>,
    pods: NodePods<TierPod>,
    metrics: HashMap<Name, NodeMetric>,
    reports: HashMap<Name, CustomNodeResource>,
    /// Nodes with the taint of a silent agent, which a leader before may have set.
    tainted: HashSet<Name>,
    settings: ColocationConfig,
    /// The uid of the ConfigMap and why it cannot be used.
    settings_error: Option<(Name, String)>,
}

/// All that was observed. A change adds the nodes that it concerns to the queue.
pub(super) struct TierState {
    contents: Mutex<TierContents>,
    queue: Arc<WorkQueue<reconcile::Key>>,
}

impl TierState {
    pub(super) fn new(queue: Arc<WorkQueue<reconcile::Key>>) -> Self {
        Self {
            contents: Mutex::default(),
            queue,
        }
    }

    /// The plan of a node, and the uid of the Node; None if it does not exist.
    pub(super) fn plan(
        &self,
        name: &str,
        no_overselling: bool,
        agent_silent: bool,
        written: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<(Name, TierPlan)> {
        let contents = self.lock();
        let node = contents.nodes.get(name)?;
        let pods: Vec<TierPod> = contents.pods.on(name).cloned().collect();
        let strategy = contents
            .settings
            .strategy(&node.labels, node.overrides.as_ref());
        let observed = TierNode {
            capacity: node.capacity,
            allocatable: node.allocatable,
            reservation: node.reservation,
            pods: &pods,
            metric: contents.metrics.get(name),
            report: contents.reports.get(name),
            agent_silent: agent_silent || contents.tainted.contains(name),
        };
        let plan = plan(
            &observed,
            &strategy,
            no_overselling,
            &node.published,
            written,
            now,
        );
        Some((node.uid.clone(), plan))
    }

    pub(super) fn settings_error(&self) -> Option<(Name, String)> {
        self.lock().settings_error.clone()
    }

    fn delete(&self, kind: TierKind, contents: &mut TierContents, key: &Key, uid: &Name) {
        match kind {
            TierKind::Node => {
                contents.nodes.remove(&key.name);
                self.wake(&key.name);
            }
            TierKind::Pod => {
                if let Some(node) = contents.pods.remove(uid) {
                    self.wake(&node);
                }
            }
            TierKind::NodeMetric => {
                contents.metrics.remove(&key.name);
                self.wake(&key.name);
            }
            TierKind::CustomNodeResource => {
                contents.reports.remove(&key.name);
                contents.tainted.remove(&key.name);
                self.wake(&key.name);
            }
            TierKind::Settings => {
                contents.settings = ColocationConfig::default();
                contents.settings_error = None;
                contents.nodes.keys().for_each(|it| self.wake(it));
            }
        }
    }

    fn wake(&self, node: &str) {
        self.queue.add(reconcile::Key::cluster(node));
    }

    fn lock(&self) -> MutexGuard<'_, TierContents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) enum TierObject {
    Node(Name, TierNodeObject),
    Pod {
        uid: Name,
        node: Name,
        pod: TierPod,
    },
    Metric(Name, NodeMetric),
    Report {
        report: CustomNodeResource,
        is_tainted: bool,
    },
    Settings(Name, Result<ColocationConfig, String>),
}

type ParsedTierObject = ParsedAs<TierObject>;

impl Observer for TierState {
    type Kind = TierKind;
    type Object = TierObject;

    fn parse(kind: TierKind, raw: &RawObject) -> ParsedTierObject {
        match kind {
            TierKind::Node => {
                let node: wire::CapacityNode = either("node", raw)?;
                let (parsed, warnings) = koordinator::tier_node(&node);
                let name = node.metadata.name.as_str().into();
                with_warnings(&node.metadata, TierObject::Node(name, parsed), &warnings)
            }
            TierKind::Pod => pod(&either("pod", raw)?),
            TierKind::NodeMetric => {
                let metric: wire::NodeMetric = json("nodemetric", raw)?;
                let (parsed, warnings) = koordinator::node_metric(&metric);
                let name = metric.metadata.name.as_str().into();
                let parsed = TierObject::Metric(name, parsed);
                with_warnings(&metric.metadata, parsed, &warnings)
            }
            TierKind::CustomNodeResource => {
                let wire: katalyst::CustomNodeResource = json("customnoderesource", raw)?;
                // The scheduler warns about what is wrong with it.
                let (report, _) = parse::custom_node_resource(&wire);
                let mut taints = wire.spec.taints.iter();
                let is_tainted = taints.any(|it| it.key == AGENT_SILENT);
                let parsed = TierObject::Report { report, is_tainted };
                Ok(observed(&wire.metadata, Some(parsed)))
            }
            TierKind::Settings => settings(raw),
        }
    }

    fn apply(&self, kind: TierKind, change: ObjectChange<TierObject>) {
        let mut contents = self.lock();
        match change {
            ObjectChange::Applied(TierObject::Node(name, node)) => {
                // Most changes of a node are heartbeats.
                if contents.nodes.get(&name) != Some(&node) {
                    contents.nodes.insert(name.clone(), node);
                    self.wake(&name);
                }
            }
            ObjectChange::Applied(TierObject::Pod { uid, node, pod }) => {
                if contents.pods.insert(&node, uid, pod) {
                    self.wake(&node);
                }
            }
            ObjectChange::Applied(TierObject::Metric(name, metric)) => {
                contents.metrics.insert(name.clone(), metric);
                self.wake(&name);
            }
            ObjectChange::Applied(TierObject::Report { report, is_tainted }) => {
                let name = report.node.clone();
                let is_report_new = contents.reports.get(&name) != Some(&report);
                contents.reports.insert(name.clone(), report);
                let is_taint_new = match is_tainted {
                    true => contents.tainted.insert(name.clone()),
                    false => contents.tainted.remove(&name),
                };
                if is_report_new || is_taint_new {
                    self.wake(&name);
                }
            }
            ObjectChange::Applied(TierObject::Settings(uid, settings)) => match settings {
                Ok(settings) => {
                    contents.settings_error = None;
                    contents.settings = settings;
                    contents.nodes.keys().for_each(|it| self.wake(it));
                }
                Err(error) => {
                    contents.settings_error = Some((uid, error));
                    self.queue.add(settings_key());
                }
            },
            ObjectChange::Deleted { key, uid } => self.delete(kind, &mut contents, &key, &uid),
        }
    }
}

fn with_warnings(meta: &ObjectMeta, object: TierObject, warnings: &[String]) -> ParsedTierObject {
    let problem = (!warnings.is_empty()).then(|| warnings.join("; "));
    Ok(watch::Observed {
        problem,
        ..observed(meta, Some(object))
    })
}

/// A pod without a node concerns no node.
fn pod(pod: &Pod) -> ParsedTierObject {
    let meta = &pod.metadata;
    if pod.is_finished() || pod.spec.node_name.is_empty() {
        return Ok(observed(meta, None));
    }
    let parsed = koordinator::tier_pod(pod).map_err(|error| error.to_string())?;
    let parsed = TierObject::Pod {
        uid: meta.uid.as_str().into(),
        node: pod.spec.node_name.as_str().into(),
        pod: parsed,
    };
    Ok(observed(meta, Some(parsed)))
}

fn settings(raw: &RawObject) -> ParsedTierObject {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ConfigMap {
        metadata: ObjectMeta,
        data: Option<Map>,
    }
    let ConfigMap { metadata, data } = json("configmap", raw)?;
    let data = data.unwrap_or_default();
    let text = data.get(COLOCATION_CONFIG).map_or("", String::as_str);
    let settings = koordinator::colocation_config(text)
        .map_err(|error| format!("{COLOCATION_CONFIG}: {error}"));
    let uid = metadata.uid.as_str().into();
    let parsed = TierObject::Settings(uid, settings);
    Ok(observed(&metadata, Some(parsed)))
}
