//! What the controller observes: policies with their status, pods and the labels of nodes.
//!
//! Only the fields that plans depend on are kept, because a cluster has many pods.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::parse;
use api::wire::core::NOT_FINISHED;
use api::wire::meta::{Identity, ObjectMeta, Partial};
use api::wire::policy::{self as wire, ResourcePolicyStatus};
use engine::cluster::ResourcePolicy;
use engine::cluster::kinds::Key;
use engine::model::{DELETION_COST, Labels, Name, POLICY_UNIT, Timestamp};
use engine::policies::resource_policy::{self, CostChange, Observed, PolicyPod, PolicyStatus};
use prost::Message;
use reconcile::WorkQueue;
use serde::Deserialize;

use crate::controllers::objects::{either, labels, observed};
use crate::controllers::observe::{Observer, ParsedAs};
use reconcile::watch::{ObjectChange, RawObject, Resource};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Policy,
    Pod,
    Node,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Policy, Self::Pod, Self::Node];
}

/// In the order of [`Kind::ALL`].
pub(super) static RESOURCES: [Resource; 3] = [
    Resource::at(parse::path(engine::cluster::kinds::Kind::ResourcePolicy)),
    Resource {
        // One that ends looks deleted.
        field_selector: NOT_FINISHED,
        protobuf: true,
        ..Resource::at(parse::path(engine::cluster::kinds::Kind::Pod))
    },
    Resource {
        protobuf: true,
        ..Resource::at(parse::path(engine::cluster::kinds::Kind::Node))
    },
];

/// A policy with its status.
#[derive(Debug, Clone)]
pub(super) struct Policy {
    pub(super) model: Arc<ResourcePolicy>,
    pub(super) uid: Name,
    pub(super) status: ResourcePolicyStatus,
}

type ByName<T> = BTreeMap<Name, BTreeMap<Name, Versioned<T>>>;

/// An object, and its resource version if that is a number.
pub(super) struct Versioned<T> {
    version: u64,
    object: T,
}

#[derive(Default)]
struct Contents {
    /// By namespace and name.
    policies: ByName<Policy>,
    pods: ByName<Arc<PolicyPod>>,
    nodes: BTreeMap<Name, Labels>,
}

/// What is to be written in a namespace.
pub(super) struct NamespacePlan {
    pub(super) costs: Vec<(Arc<PolicyPod>, CostChange)>,
    pub(super) statuses: Vec<(Policy, PolicyStatus)>,
}

/// All that was observed. A change adds the namespaces that it concerns to the queue.
pub(super) struct State {
    contents: Mutex<Contents>,
    queue: Arc<WorkQueue<reconcile::Key>>,
}

impl State {
    pub(super) fn new(queue: Arc<WorkQueue<reconcile::Key>>) -> Self {
        Self {
            contents: Mutex::default(),
            queue,
        }
    }

    pub(super) fn plan(&self, namespace: &str) -> NamespacePlan {
        let contents = self.lock();
        let policies = contents.policies.get(namespace).into_iter();
        let policies: Vec<&Policy> = policies
            .flat_map(BTreeMap::values)
            .map(|it| &it.object)
            .collect();
        let models: Vec<_> = policies.iter().map(|policy| policy.model.clone()).collect();
        let pods = contents.pods.get(namespace).into_iter();
        let pods: Vec<Arc<PolicyPod>> = pods
            .flat_map(BTreeMap::values)
            .map(|it| it.object.clone())
            .collect();
        let actions = resource_policy::plan(&Observed {
            policies: &models,
            pods: &pods,
            nodes: &contents.nodes,
        });
        NamespacePlan {
            costs: actions.costs,
            statuses: policies
                .into_iter()
                .cloned()
                .zip(actions.statuses)
                .collect(),
        }
    }

    /// Observes an own write, before the watch shows it.
    pub(super) fn wrote_cost(
        &self,
        namespace: &str,
        pod: &PolicyPod,
        change: &CostChange,
        version: u64,
    ) {
        let mut contents = self.lock();
        let pods = contents.pods.get_mut(namespace);
        let Some(known) = pods.and_then(|pods| pods.get_mut(&pod.name)) else {
            return;
        };
        if known.object.uid == pod.uid && known.version <= version {
            known.version = version;
            Arc::make_mut(&mut known.object).apply(change);
        }
    }

    /// Observes an own write of a status, before the watch shows it.
    pub(super) fn wrote_status(&self, policy: &Policy, status: ResourcePolicyStatus, version: u64) {
        let mut contents = self.lock();
        let policies = contents.policies.get_mut(&policy.model.namespace);
        let Some(known) = policies.and_then(|it| it.get_mut(&policy.model.name)) else {
            return;
        };
        if known.object.uid == policy.uid && known.version <= version {
            known.version = version;
            known.object.status = status;
        }
    }

    fn apply_pod(&self, contents: &mut Contents, namespace: Name, pod: Versioned<Arc<PolicyPod>>) {
        let has_policies = contents.policies.contains_key(&namespace);
        let pods = contents.pods.entry(namespace.clone()).or_default();
        let known = pods.get(&pod.object.name);
        if is_older(known, &pod, |it| &it.uid) {
            return;
        }
        let is_marked = |pod: &PolicyPod| pod.mark.is_some();
        let concerns =
            has_policies || known.is_some_and(|it| is_marked(&it.object)) || is_marked(&pod.object);
        let changes = known.is_none_or(|known| known.object != pod.object);
        pods.insert(pod.object.name.clone(), pod);
        // Most changes of a pod are of its status.
        if concerns && changes {
            self.wake(&namespace);
        }
    }

    fn delete(&self, kind: Kind, contents: &mut Contents, key: &Key, uid: &Name) {
        let (namespace, name) = (&key.namespace, &key.name);
        match kind {
            Kind::Policy => {
                remove(&mut contents.policies, namespace, name, |it| it.uid == *uid);
                self.wake(namespace);
            }
            Kind::Pod => {
                remove(&mut contents.pods, namespace, name, |it| it.uid == *uid);
                if contents.policies.contains_key(namespace) {
                    self.wake(namespace);
                }
            }
            Kind::Node => {
                contents.nodes.remove(name);
                contents.policies.keys().for_each(|it| self.wake(it));
            }
        }
    }

    fn wake(&self, namespace: &str) {
        self.queue.add(reconcile::Key::cluster(namespace));
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the watch shows an object as it was before an own write.
fn is_older<T>(known: Option<&Versioned<T>>, seen: &Versioned<T>, uid: fn(&T) -> &Name) -> bool {
    known.is_some_and(|known| {
        let same = uid(&known.object) == uid(&seen.object);
        same && seen.version != 0 && seen.version < known.version
    })
}

fn remove<T>(objects: &mut ByName<T>, namespace: &Name, name: &Name, is_same: impl Fn(&T) -> bool) {
    let Some(known) = objects.get_mut(namespace) else {
        return;
    };
    if known.get(name).is_some_and(|it| is_same(&it.object)) {
        known.remove(name);
    }
    if known.is_empty() {
        objects.remove(namespace);
    }
}

pub(super) enum ParsedObject {
    Policy(Versioned<Policy>),
    /// With its namespace.
    Pod(Name, Versioned<Arc<PolicyPod>>),
    Node(Name, Labels),
}

impl Observer for State {
    type Kind = Kind;
    type Object = ParsedObject;

    fn parse(kind: Kind, raw: &RawObject) -> ParsedAs<ParsedObject> {
        match kind {
            Kind::Policy => policy(raw),
            Kind::Pod => pod(raw),
            Kind::Node => {
                let Partial { metadata } = either("node", raw)?;
                let node =
                    ParsedObject::Node(metadata.name.as_str().into(), labels(&metadata.labels));
                Ok(observed(&metadata, Some(node)))
            }
        }
    }

    fn apply(&self, kind: Kind, change: ObjectChange<ParsedObject>) {
        let mut contents = self.lock();
        match change {
            ObjectChange::Applied(ParsedObject::Policy(policy)) => {
                let namespace = policy.object.model.namespace.clone();
                let policies = contents.policies.entry(namespace.clone()).or_default();
                let name = policy.object.model.name.clone();
                if !is_older(policies.get(&name), &policy, |it| &it.uid) {
                    policies.insert(name, policy);
                    self.wake(&namespace);
                }
            }
            ObjectChange::Applied(ParsedObject::Pod(namespace, pod)) => {
                self.apply_pod(&mut contents, namespace, pod);
            }
            ObjectChange::Applied(ParsedObject::Node(name, labels)) => {
                let old = contents.nodes.insert(name, labels.clone());
                if old != Some(labels) {
                    contents.policies.keys().for_each(|it| self.wake(it));
                }
            }
            ObjectChange::Deleted { key, uid } => self.delete(kind, &mut contents, &key, &uid),
        }
    }
}

fn versioned<T>(meta: &ObjectMeta, object: T) -> Versioned<T> {
    Versioned {
        version: meta.resource_version.parse().unwrap_or(0),
        object,
    }
}

fn policy(raw: &RawObject) -> ParsedAs<ParsedObject> {
    #[derive(Deserialize)]
    struct WithIdentity {
        metadata: Identity,
    }
    #[derive(Default, Deserialize)]
    struct WithStatus {
        #[serde(default)]
        status: ResourcePolicyStatus,
    }
    let RawObject::Json(bytes) = raw else {
        return Err("resourcepolicy in protobuf: only JSON was requested".to_owned());
    };
    let (meta, model) = match serde_json::from_slice::<wire::ResourcePolicy>(bytes) {
        Ok(policy) => {
            let model = parse::resource_policy(&policy);
            (policy.metadata, model)
        }
        Err(error) => {
            let known: Result<WithIdentity, _> = serde_json::from_slice(bytes);
            let known = known.map_err(|_| format!("resourcepolicy cannot be read: {error}"))?;
            let meta = known.metadata.into();
            let model = parse::unreadable_resource_policy(&meta, error.to_string());
            (meta, model)
        }
    };
    // A status that cannot be read is written anew.
    let WithStatus { status } = serde_json::from_slice(bytes).unwrap_or_default();
    let policy = Policy {
        model: Arc::new(model),
        uid: meta.uid.as_str().into(),
        status,
    };
    let policy = ParsedObject::Policy(versioned(&meta, policy));
    Ok(observed(&meta, Some(policy)))
}

/// A pod with the fields that policies are about.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct SlimPod {
    #[prost(message, required, tag = "1")]
    metadata: ObjectMeta,
    #[prost(message, required, tag = "2")]
    spec: SlimSpec,
    #[prost(message, required, tag = "3")]
    status: SlimStatus,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SlimSpec {
    #[prost(string, tag = "10")]
    node_name: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct SlimStatus {
    #[prost(string, tag = "1")]
    phase: String,
}

fn pod(raw: &RawObject) -> ParsedAs<ParsedObject> {
    let pod: SlimPod = either("pod", raw)?;
    let (meta, node) = (&pod.metadata, &pod.spec.node_name);
    if matches!(&pod.status.phase[..], "Succeeded" | "Failed") {
        return Ok(observed(meta, None));
    }
    // A forged mark moves nothing but the cost of its own pod, to what the policy says: units count by labels and nodes.
    let annotation = |key| meta.annotations.get(key).map(|value| value.as_str().into());
    let parsed = PolicyPod {
        name: meta.name.as_str().into(),
        uid: meta.uid.as_str().into(),
        labels: labels(&meta.labels),
        node: (!node.is_empty()).then(|| node.as_str().into()),
        created: Timestamp::from_secs(meta.creation_timestamp.map_or(0, |time| time.seconds)),
        terminating: meta.deletion_timestamp.is_some(),
        annotated: !meta.annotations.is_empty(),
        cost: annotation(DELETION_COST),
        mark: annotation(POLICY_UNIT),
    };
    let namespace = meta.namespace.as_str().into();
    let parsed = ParsedObject::Pod(namespace, versioned(meta, Arc::new(parsed)));
    Ok(observed(meta, Some(parsed)))
}
