//! What the controller of agents observes: Nodes, CustomNodeResources, the Leases of agents, and reclaimed pods.

use api::contracts::{NAMESPACE, agent_lease};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use api::parse::{self, koordinator};
use api::wire::core::{NOT_FINISHED, Pod};
use api::wire::meta::{Map, ObjectMeta, Partial};
use engine::cluster::kinds::Key;
use engine::model::{Name, QosClass, Timestamp};
use engine::policies::agents::{
    AGENT_SILENT, AgentNode, AgentPlan, AgentTimes, Agents, Judgement, Liveness, NodeMeta,
    ReportMeta, Unreadable, plan,
};
use reconcile::WorkQueue;
use serde::Deserialize;
use serde_json::Value;

use crate::controllers::objects::{either, json, labels, observed};
use crate::controllers::observe::{NodePods, Observer, ParsedAs};
use reconcile::watch::{self, ObjectChange, RawObject, Resource};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum AgentKind {
    Node,
    CustomNodeResource,
    Lease,
    Pod,
}

impl AgentKind {
    /// Pods matter only if they are evicted.
    pub(super) fn all(evicts: bool) -> &'static [Self] {
        let all = &[Self::Node, Self::CustomNodeResource, Self::Lease, Self::Pod];
        if evicts { all } else { &all[..3] }
    }
}

const RESOURCES: [Resource; 4] = [
    Resource {
        protobuf: true,
        ..Resource::at(parse::path(engine::cluster::kinds::Kind::Node))
    },
    // Without permission to read these, no agent is judged; the other controllers run.
    Resource {
        optional: true,
        ..Resource::at(parse::path(
            engine::cluster::kinds::Kind::CustomNodeResource,
        ))
    },
    Resource {
        optional: true,
        ..Resource::at(concat!(
            "/apis/coordination.k8s.io/v1/namespaces/",
            api::namespace!(),
            "/leases"
        ))
    },
    Resource {
        field_selector: NOT_FINISHED,
        protobuf: true,
        ..Resource::at(parse::path(engine::cluster::kinds::Kind::Pod))
    },
];

/// In the order of [`AgentKind::all`].
pub(super) fn resources(evicts: bool) -> &'static [Resource] {
    const ALL: &[Resource] = &RESOURCES;
    if evicts { ALL } else { &ALL[..3] }
}

/// A CustomNodeResource, with the lists that a patch replaces as a whole.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReportObject {
    pub(super) uid: Name,
    pub(super) version: String,
    pub(super) meta: ReportMeta,
    pub(super) owners: Vec<Value>,
    pub(super) taints: Vec<Value>,
}

/// The name of a pod that can be evicted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PodName {
    pub(super) namespace: Name,
    pub(super) name: Name,
    pub(super) uid: Name,
}

/// One node with its plan.
pub(super) struct PlannedNode {
    pub(super) node: Option<NodeMeta>,
    pub(super) report: Option<ReportObject>,
    /// Name and uid of its Lease.
    pub(super) lease: Option<(Name, Name)>,
    pub(super) pods: Vec<PodName>,
    pub(super) plan: AgentPlan,
}

#[derive(Default)]
struct AgentContents {
    nodes: BTreeMap<Name, NodeMeta>,
    /// Names with a report or a Lease but without a Node, and since when.
    missing: HashMap<Name, Timestamp>,
    reports: HashMap<Name, ReportObject>,
    /// The node, by the name of the Lease.
    leases: HashMap<Name, Name>,
    /// Name and uid of the Lease, by node.
    lease_of: HashMap<Name, (Name, Name)>,
    agents: Agents,
    judged: BTreeMap<Name, Liveness>,
    judgement: Judgement,
    are_leases_followed: bool,
    are_reports_known: bool,
    /// Reclaimed pods.
    pods: NodePods<PodName>,
}

/// All that was observed. A change adds the nodes that it concerns to the queue.
pub(super) struct AgentState {
    contents: Mutex<AgentContents>,
    queue: Arc<WorkQueue<reconcile::Key>>,
    times: AgentTimes,
    /// Silence is measured on a clock that is never set.
    began: Instant,
}

impl AgentState {
    pub(super) fn new(queue: Arc<WorkQueue<reconcile::Key>>, times: AgentTimes) -> Self {
        Self {
            contents: Mutex::default(),
            queue,
            times,
            began: Instant::now(),
        }
    }

    /// On the clock of this process.
    pub(super) fn now(&self) -> Timestamp {
        let nanos = self.began.elapsed().as_nanos();
        Timestamp(i64::try_from(nanos).unwrap_or(i64::MAX))
    }

    pub(super) fn judgement(&self) -> Judgement {
        self.lock().judgement
    }

    /// Judges all agents, and wakes the nodes whose agents changed. Returns the judgement if the brake changed.
    ///
    /// While the watch of Leases is broken, nothing is known about agents.
    pub(super) fn judge(&self, is_followed: bool, are_reports_known: bool) -> Option<Judgement> {
        let (mut contents, now) = (self.lock(), self.now());
        let contents = &mut *contents;
        let after = self.times.silent_after;
        let exists = |node: &str| contents.nodes.contains_key(node);
        let mut judgement = contents.agents.judge(exists, after, now);
        judgement.brake |= !is_followed;
        let was = std::mem::replace(&mut contents.judgement, judgement);
        let judged: BTreeMap<Name, Liveness> = contents
            .agents
            .nodes()
            .filter_map(|node| {
                let liveness = contents.agents.liveness(node, after, now)?;
                Some((node.clone(), liveness))
            })
            .collect();
        let is_brake_new = was.brake != judgement.brake;
        for (node, liveness) in &judged {
            if is_brake_new || contents.judged.get(node) != Some(liveness) {
                self.wake(node);
            }
        }
        contents.judged = judged;
        let known = (is_followed, are_reports_known);
        if known != (contents.are_leases_followed, contents.are_reports_known) {
            (contents.are_leases_followed, contents.are_reports_known) = known;
            contents.nodes.keys().for_each(|it| self.wake(it));
        }
        is_brake_new.then_some(judgement)
    }

    pub(super) fn plan(&self, name: &str) -> PlannedNode {
        let (mut contents, now) = (self.lock(), self.now());
        let contents = &mut *contents;
        let node = contents.nodes.get(name);
        let report = contents.reports.get(name);
        let agent = contents.agents.liveness(name, self.times.silent_after, now);
        let missing_since = match (node, report, agent) {
            (None, Some(_), _) | (None, _, Some(_)) => {
                *contents.missing.entry(name.into()).or_insert(now)
            }
            _ => {
                contents.missing.remove(name);
                now
            }
        };
        let observed = AgentNode {
            node: node.ok_or(missing_since),
            report: match contents.are_reports_known {
                true => Ok(report.map(|it| &it.meta)),
                false => Err(Unreadable),
            },
            // A Lease may be there that was not listed: the taint stays as it is.
            agent: agent
                .or((!contents.are_leases_followed && node.is_some()).then_some(Liveness::Unknown)),
            brake: contents.judgement.brake,
        };
        let plan = plan(&observed, &self.times, now);
        PlannedNode {
            node: node.cloned(),
            report: report.cloned(),
            lease: contents.lease_of.get(name).cloned(),
            pods: contents.pods.on(name).cloned().collect(),
            plan,
        }
    }

    /// What has no Node was deleted, or the Node is there after all: its time begins anew.
    pub(super) fn forget_missing(&self, name: &str) {
        self.lock().missing.remove(name);
    }

    fn delete(&self, kind: AgentKind, contents: &mut AgentContents, key: &Key, uid: &Name) {
        match kind {
            AgentKind::Node => {
                contents.nodes.remove(&key.name);
                self.wake(&key.name);
            }
            AgentKind::CustomNodeResource => {
                contents.reports.remove(&key.name);
                self.wake(&key.name);
            }
            AgentKind::Lease => {
                if let Some(node) = contents.leases.remove(&key.name) {
                    contents.lease_of.remove(&node);
                    contents.agents.remove(&node);
                    self.wake(&node);
                }
            }
            AgentKind::Pod => drop(contents.pods.remove(uid)),
        }
    }

    fn wake(&self, node: &str) {
        self.queue.add(reconcile::Key::cluster(node));
    }

    fn lock(&self) -> MutexGuard<'_, AgentContents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) enum AgentObject {
    Node(Name, NodeMeta),
    Report(Name, ReportObject),
    Lease {
        lease: Name,
        uid: Name,
        node: Name,
        renewed: Name,
    },
    Pod {
        node: Name,
        pod: PodName,
    },
}

type ParsedAgentObject = ParsedAs<AgentObject>;

impl Observer for AgentState {
    type Kind = AgentKind;
    type Object = AgentObject;

    fn parse(kind: AgentKind, raw: &RawObject) -> ParsedAgentObject {
        match kind {
            AgentKind::Node => {
                let Partial { metadata } = either("node", raw)?;
                let node = NodeMeta {
                    uid: metadata.uid.as_str().into(),
                    labels: labels(&metadata.labels),
                };
                let parsed = AgentObject::Node(metadata.name.as_str().into(), node);
                Ok(observed(&metadata, Some(parsed)))
            }
            AgentKind::CustomNodeResource => report(raw),
            AgentKind::Lease => lease(raw),
            AgentKind::Pod => pod(&either("pod", raw)?),
        }
    }

    fn apply(&self, kind: AgentKind, change: ObjectChange<AgentObject>) {
        let now = self.now();
        let mut contents = self.lock();
        match change {
            ObjectChange::Applied(AgentObject::Node(name, node)) => {
                // Most changes of a node are heartbeats.
                if contents.nodes.get(&name) != Some(&node) {
                    contents.nodes.insert(name.clone(), node);
                    self.wake(&name);
                }
            }
            ObjectChange::Applied(AgentObject::Report(name, report)) => {
                let old = contents.reports.insert(name.clone(), report);
                // Most changes of a report are of its status.
                let new = contents.reports.get(&name).map(|it| &it.meta);
                if old.as_ref().map(|it| &it.meta) != new {
                    self.wake(&name);
                }
            }
            ObjectChange::Applied(AgentObject::Lease {
                lease,
                uid,
                node,
                renewed,
            }) => {
                contents.agents.observe(node.clone(), renewed, now);
                contents.leases.insert(lease.clone(), node.clone());
                contents.lease_of.insert(node, (lease, uid));
            }
            ObjectChange::Applied(AgentObject::Pod { node, pod }) => {
                contents.pods.insert(&node, pod.uid.clone(), pod);
            }
            ObjectChange::Deleted { key, uid } => self.delete(kind, &mut contents, &key, &uid),
        }
    }
}

fn report(raw: &RawObject) -> ParsedAgentObject {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Metadata {
        name: String,
        uid: String,
        resource_version: String,
        labels: Option<Map>,
        owner_references: Option<Vec<Value>>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Spec {
        taints: Option<Vec<Value>>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Report {
        metadata: Metadata,
        spec: Option<Spec>,
    }
    let Report { metadata, spec } = json("customnoderesource", raw)?;
    let owners = metadata.owner_references.unwrap_or_default();
    let taints = spec.unwrap_or_default().taints.unwrap_or_default();
    let mut nodes = owners.iter().filter(|it| it["kind"] == "Node");
    let owner = nodes.find_map(|it| it["uid"].as_str());
    let meta = ReportMeta {
        labels: labels(&metadata.labels.unwrap_or_default()),
        owner: owner.map(Name::from),
        is_tainted: taints.iter().any(is_agent_silent),
    };
    let parsed = ReportObject {
        uid: metadata.uid.as_str().into(),
        version: metadata.resource_version.clone(),
        meta,
        owners,
        taints,
    };
    let meta = ObjectMeta {
        name: metadata.name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        ..ObjectMeta::default()
    };
    let name = meta.name.as_str().into();
    Ok(observed(&meta, Some(AgentObject::Report(name, parsed))))
}

pub(super) fn is_agent_silent(taint: &Value) -> bool {
    taint["key"] == AGENT_SILENT
}

/// Other Leases of the namespace are those of elections.
fn lease(raw: &RawObject) -> ParsedAgentObject {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Spec {
        holder_identity: Option<String>,
        renew_time: Option<String>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Lease {
        metadata: ObjectMeta,
        spec: Option<Spec>,
    }
    let Lease { metadata, spec } = json("lease", raw)?;
    let spec = spec.unwrap_or_default();
    let is_agent = metadata.labels.get(agent_lease::IS_AGENT);
    if is_agent.is_none_or(|value| value != "true") {
        return Ok(observed(&metadata, None));
    }
    let Some(node) = agent_lease::node(&metadata.name, spec.holder_identity.as_deref()) else {
        return Ok(watch::Observed {
            problem: Some(format!(
                "lease {NAMESPACE}/{}: the holder {:?} is not the node in its name: the Lease is ignored",
                metadata.name,
                spec.holder_identity.unwrap_or_default(),
            )),
            ..observed(&metadata, None)
        });
    };
    let parsed = AgentObject::Lease {
        lease: metadata.name.as_str().into(),
        uid: metadata.uid.as_str().into(),
        node: node.into(),
        renewed: spec.renew_time.unwrap_or_default().as_str().into(),
    };
    Ok(observed(&metadata, Some(parsed)))
}

/// A pod on idle capacity that a controller creates again elsewhere.
fn pod(pod: &Pod) -> ParsedAgentObject {
    let meta = &pod.metadata;
    let is_ending = pod.is_finished() || meta.deletion_timestamp.is_some();
    // It counts because only the kubelet of the node can write it (deploy/policies.yaml); without that policy, the author of a
    // pod can keep the pod on a silent node.
    let stays = meta.annotations.contains_key("kubernetes.io/config.mirror")
        || meta
            .owner_references
            .iter()
            .any(|it| it.kind == "DaemonSet");
    if is_ending || stays || pod.spec.node_name.is_empty() {
        return Ok(observed(meta, None));
    }
    let parsed = koordinator::tier_pod(pod).map_err(|error| error.to_string())?;
    if !matches!(parsed.class, QosClass::Lent | QosClass::Free) {
        return Ok(observed(meta, None));
    }
    let parsed = AgentObject::Pod {
        node: pod.spec.node_name.as_str().into(),
        pod: PodName {
            namespace: parsed.namespace,
            name: parsed.name,
            uid: meta.uid.as_str().into(),
        },
    };
    Ok(observed(meta, Some(parsed)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::policies::agents::AgentAction;

    use super::*;

    fn applied(object: AgentObject) -> ObjectChange<AgentObject> {
        ObjectChange::Applied(object)
    }

    #[test]
    fn a_taint_stays_while_leases_are_not_followed() {
        let second = Duration::from_secs(1);
        let times = AgentTimes {
            silent_after: second,
            evict_after: None,
            orphaned_after: second,
        };
        let state = AgentState::new(WorkQueue::new("agents"), times);
        let node = NodeMeta {
            uid: "u".into(),
            ..NodeMeta::default()
        };
        let report = ReportObject {
            uid: "r".into(),
            version: "1".to_owned(),
            meta: ReportMeta {
                owner: Some("u".into()),
                is_tainted: true,
                ..ReportMeta::default()
            },
            owners: Vec::new(),
            taints: Vec::new(),
        };
        let node = AgentObject::Node("n1".into(), node);
        state.apply(AgentKind::Node, applied(node));
        let report = AgentObject::Report("n1".into(), report);
        state.apply(AgentKind::CustomNodeResource, applied(report));
        state.judge(false, true);
        let held = state.plan("n1").plan;
        assert_eq!((held.actions, held.is_silent), (Vec::new(), true));
        // Now it is known that there is no Lease.
        state.judge(true, true);
        let known = state.plan("n1").plan;
        let untaint = vec![AgentAction::Untaint];
        assert_eq!((known.actions, known.is_silent), (untaint, false));
    }
}
