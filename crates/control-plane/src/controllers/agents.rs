//! The controller of agents: CustomNodeResources come and go with their Nodes, and a node whose agent is silent gets a QoS
//! taint.
//!
//! The engine judges all agents at each tick, and plans one node from that and from what is observed now.

mod metrics;
mod observe;

use api::contracts::NAMESPACE;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::model::Name;
use engine::policies::agents::{AGENT_SILENT, AgentAction, AgentTimes, Judgement};
use engine::policies::eviction_rate::EvictionRate;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DeleteParams;
use reconcile::{EvictionAnswer, Key, Part, Requeue, is_already_exists, is_forbidden, message_of};
use serde_json::{Value, json};

use super::objects::{pod_reference, target};
use super::observe::Watching;
use super::report::controllers_lease;
use super::{Context, Controller};
use metrics::AgentMetrics;
use observe::{
    AgentKind, AgentState, PlannedNode, PodName, ReportObject, is_agent_silent, resources,
};
use reconcile::watch::Progress;

pub const CONTROLLER: Controller = Controller {
    name: "agents",
    start,
};

/// For one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Nodes that are written at a time.
const IN_FLIGHT: usize = 8;
/// Until the watch shows what was written.
const ECHO: Duration = Duration::from_secs(2);
/// Pods that are evicted in a minute, in the whole cluster.
const EVICTIONS_PER_MINUTE: usize = 10;
/// A pod that a PodDisruptionBudget protects is asked for again after this time.
const EVICT_AGAIN: Duration = Duration::from_secs(10);
const REPORTS: &str = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources";
const REPORT_KIND: &str = "customnoderesources";
const LEASE_KIND: &str = "leases";

/// When an agent is silent, and what follows.
#[derive(Debug, Clone, Copy)]
pub struct AgentSettings {
    pub silent_after: Duration,
    /// None: no pod is evicted.
    pub evict_after: Option<Duration>,
    /// How long a CustomNodeResource or a Lease may be without a Node.
    pub orphaned_after: Duration,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            silent_after: Duration::from_secs(90),
            evict_after: None,
            orphaned_after: Duration::from_secs(30),
        }
    }
}

fn start(context: &Arc<Context>) -> BoxFuture<'static, ()> {
    let AgentSettings {
        silent_after,
        evict_after,
        orphaned_after,
    } = context.settings.agents;
    let times = AgentTimes {
        silent_after,
        evict_after,
        orphaned_after,
    };
    let queue = context.queue(CONTROLLER.name);
    let state = Arc::new(AgentState::new(queue.clone(), times));
    let (kinds, resources) = (
        AgentKind::all(evict_after.is_some()),
        resources(evict_after.is_some()),
    );
    let progress = context.progress(CONTROLLER.name, resources);
    let metrics = Arc::new(AgentMetrics::default());
    let (shown, judged) = (metrics.clone(), state.clone());
    context.add_metrics(move |registry| shown.register(registry, judged.judgement()));
    let context = context.clone();
    async move {
        let kinds = kinds.iter().copied();
        let mut watching = Watching::start(&context, &state, kinds, resources, &progress);
        // A report whose Node is not listed yet looks like one without a Node.
        watching.synced().await;
        let reconciler = &AgentReconciler {
            context: context.clone(),
            state,
            metrics,
            evictions: Mutex::new(EvictionRate::new(EVICTIONS_PER_MINUTE, MINUTE)),
        };
        let work = |key: Key| reconciler.reconcile(key);
        let running = queue.run(IN_FLIGHT, context.cancel.clone(), work);
        tokio::join!(running, reconciler.judge(&progress));
    }
    .boxed()
}

const MINUTE: Duration = Duration::from_secs(60);

struct AgentReconciler {
    context: Arc<Context>,
    state: Arc<AgentState>,
    metrics: Arc<AgentMetrics>,
    evictions: Mutex<EvictionRate>,
}

impl AgentReconciler {
    /// Judges all agents again and again, until cancelled.
    async fn judge(&self, progress: &Progress) {
        let after = self.context.settings.agents.silent_after;
        let tick = (after / 20).clamp(Duration::from_millis(20), Duration::from_secs(1));
        loop {
            let brake = self.state.judge(
                progress.is_followed(LEASE_KIND),
                progress.is_followed(REPORT_KIND),
            );
            if let Some(judgement) = brake {
                self.report_brake(judgement).await;
            }
            let next = self
                .context
                .cancel
                .run_until_cancelled(tokio::time::sleep(tick));
            if next.await.is_none() {
                return;
            }
        }
    }

    async fn report_brake(&self, judgement: Judgement) {
        let Judgement {
            agents,
            late,
            brake,
            ..
        } = judgement;
        if !brake {
            tracing::info!(agents, late, "adding taints for silent agents again");
            return;
        }
        if late == 0 {
            tracing::warn!("cannot watch the Leases of agents; adding no taints");
            return;
        }
        tracing::warn!(agents, late, "too many agents are late; adding no taints");
        let message = format!(
            "{late} of {agents} agents have not renewed their Leases: no node is tainted and no pod is evicted until at most a fifth of them is late"
        );
        self.context
            .warn(controllers_lease(), "TooManySilentAgents", &message)
            .await;
    }

    async fn reconcile(&self, key: Key) -> Result<Requeue, String> {
        let name = &*key.name;
        let planned = self.state.plan(name);
        self.context.silent_nodes.set(name, planned.plan.is_silent);
        let mut requeue = match planned.plan.again {
            Some(at) => Requeue::After(self.until(at)),
            None => Requeue::OnChange,
        };
        for action in &planned.plan.actions {
            let done = tokio::time::timeout(TIMEOUT, self.carry_out(name, action, &planned)).await;
            match done {
                Ok(Ok(again)) => requeue = sooner(requeue, again),
                Ok(Err(error)) => {
                    if is_forbidden(&error) {
                        self.context.report_denied(&message_of(&error)).await;
                    }
                    return Err(message_of(&error));
                }
                Err(_) => return Err(format!("no response within {TIMEOUT:?}")),
            }
        }
        Ok(requeue)
    }

    fn until(&self, at: engine::model::Timestamp) -> Duration {
        let nanos = at.0.saturating_sub(self.state.now().0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    async fn carry_out(
        &self,
        name: &str,
        action: &AgentAction,
        planned: &PlannedNode,
    ) -> Result<Duration, kube::Error> {
        match (action, &planned.node, &planned.report) {
            (AgentAction::CreateReport { is_tainted }, Some(_), _) => {
                self.create(name, planned, *is_tainted).await
            }
            (
                AgentAction::UpdateReport {
                    labels,
                    is_owner_new,
                },
                Some(node),
                Some(report),
            ) => {
                let mut metadata = json!({});
                if !labels.is_empty() {
                    metadata["labels"] = labels_of(labels.iter().map(|(key, value)| (key, value)));
                }
                if *is_owner_new {
                    let others = report.owners.iter().filter(|it| it["kind"] != "Node");
                    let mut owners: Vec<Value> = others.cloned().collect();
                    owners.push(owner(name, &node.uid));
                    metadata["ownerReferences"] = owners.into();
                }
                tracing::debug!(node = name, "updating metadata of CustomNodeResource");
                self.merge(name, report, json!({"metadata": metadata}))
                    .await
            }
            (AgentAction::Taint, Some(node), Some(report)) => {
                let done = self.taint(name, report).await?;
                self.announce(name, &node.uid).await;
                Ok(done)
            }
            (AgentAction::Untaint, Some(_), Some(report)) => {
                let others = report.taints.iter().filter(|it| !is_agent_silent(it));
                let taints: Vec<&Value> = others.collect();
                let done = self
                    .merge(name, report, json!({"spec": {"taints": taints}}))
                    .await?;
                tracing::info!(node = name, "removed taint: the agent is not silent");
                Ok(done)
            }
            (AgentAction::DeleteReport | AgentAction::DeleteLease, None, report) => {
                self.delete(name, action, report.as_ref(), planned.lease.as_ref())
                    .await
            }
            (AgentAction::EvictReclaimed, Some(_), _) => self.evict(name, &planned.pods).await,
            // The plan was made from the same objects.
            _ => Ok(ECHO),
        }
    }

    async fn create(
        &self,
        name: &str,
        planned: &PlannedNode,
        is_tainted: bool,
    ) -> Result<Duration, kube::Error> {
        let Some(node) = &planned.node else {
            return Ok(ECHO);
        };
        let report = json!({
            "apiVersion": "node.katalyst.kubewharf.io/v1alpha1",
            "kind": "CustomNodeResource",
            "metadata": {
                "name": name,
                "labels": labels_of(node.labels.iter()),
                "ownerReferences": [owner(name, &node.uid)],
            },
        });
        match self.context.requests.create_at(REPORTS, &report).await {
            Ok(_) => tracing::debug!(node = name, "created CustomNodeResource"),
            // By the agent, a moment ago.
            Err(error) if is_already_exists(&error) => {}
            Err(error) => return Err(error),
        }
        // The taint follows when the watch shows the report.
        let soon = Duration::from_millis(100);
        Ok(if is_tainted { soon } else { ECHO })
    }

    /// Definitions of different age accept different forms of a taint.
    async fn taint(&self, name: &str, report: &ReportObject) -> Result<Duration, kube::Error> {
        let older =
            json!({"key": AGENT_SILENT, "value": "", "effect": "NoScheduleForReclaimedTasks"});
        let newer = json!({"key": AGENT_SILENT, "value": "", "effect": "NoSchedule", "qosLevel": "reclaimed_cores"});
        let with = |taint: Value| {
            let mut taints = report.taints.clone();
            taints.push(taint);
            json!({"spec": {"taints": taints}})
        };
        match self.merge(name, report, with(older)).await {
            Err(kube::Error::Api(status)) if status.code == 422 => {
                self.merge(name, report, with(newer)).await
            }
            done => done,
        }
    }

    async fn announce(&self, name: &str, uid: &Name) {
        let after = self.context.settings.agents.silent_after;
        tracing::warn!(node = name, ?after, "tainted node: its agent is silent");
        self.metrics.taints.inc();
        let message = format!(
            "the agent has not renewed its Lease for {after:?}: reclaimed, batch, free and Mid+BE pods are kept away"
        );
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_string()),
            ..ObjectReference::default()
        };
        self.context.warn(about, "AgentSilent", &message).await;
    }

    /// Fails if the report has changed since it was read: lists are replaced as a whole.
    async fn merge(
        &self,
        name: &str,
        report: &ReportObject,
        mut fields: Value,
    ) -> Result<Duration, kube::Error> {
        let target = target(None, name, &report.uid);
        fields["metadata"]["resourceVersion"] = json!(report.version);
        let requests = &self.context.requests;
        requests
            .merge_at(REPORTS.to_owned(), &target, Part::Object, fields)
            .await?;
        Ok(ECHO)
    }

    async fn delete(
        &self,
        name: &str,
        action: &AgentAction,
        report: Option<&ReportObject>,
        lease: Option<&(Name, Name)>,
    ) -> Result<Duration, kube::Error> {
        self.state.forget_missing(name);
        let requests = &self.context.requests;
        let node = ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        };
        // The watch of Nodes may be behind.
        if requests.exists::<Node>(&node).await? {
            return Ok(ECHO);
        }
        let options = DeleteParams::default();
        match (action, report, lease) {
            (AgentAction::DeleteReport, Some(report), _) => {
                let target = target(None, name, &report.uid);
                requests.delete_at(REPORTS, &target, options).await?;
                tracing::info!(node = name, "deleted CustomNodeResource without a Node");
            }
            (AgentAction::DeleteLease, _, Some((lease, uid))) => {
                let target = target(Some(NAMESPACE), lease, uid);
                requests.delete::<Lease>(&target, options).await?;
                tracing::info!(node = name, "deleted Lease of an agent without a Node");
            }
            _ => {}
        }
        Ok(ECHO)
    }

    /// A pod that cannot be evicted, such as one with two PodDisruptionBudgets, does not keep the others.
    async fn evict(&self, node: &str, pods: &[PodName]) -> Result<Duration, kube::Error> {
        let mut failed = None;
        for pod in pods {
            let taken = self.evictions().take(self.state.now());
            if let Err(at) = taken {
                return Ok(self.until(at).max(Duration::from_millis(100)));
            }
            let target = target(Some(&pod.namespace), &pod.name, &pod.uid);
            let answer = self.context.requests.evict(&target, false).await;
            if !matches!(answer, Ok(EvictionAnswer::Evicted)) {
                self.evictions().give_back();
            }
            let pod_name = format!("{}/{}", pod.namespace, pod.name);
            match answer {
                Ok(EvictionAnswer::Evicted) => {
                    tracing::warn!(pod = pod_name, node, "evicted pod: the agent is silent");
                    self.metrics.evictions.inc();
                    let message = format!("the agent of node {node} is silent");
                    let about = pod_reference(&pod.namespace, &pod.name, &pod.uid);
                    self.context.warn(about, "Evicted", &message).await;
                }
                Ok(EvictionAnswer::Gone) => {}
                Ok(EvictionAnswer::Forbidden(why)) => {
                    tracing::info!(pod = pod_name, node, why, "cannot evict pod");
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(EVICT_AGAIN), Err)
    }

    fn evictions(&self) -> std::sync::MutexGuard<'_, EvictionRate> {
        self.evictions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn sooner(requeue: Requeue, wait: Duration) -> Requeue {
    match requeue {
        Requeue::After(other) => Requeue::After(other.min(wait)),
        Requeue::OnChange => Requeue::After(wait),
    }
}

/// The Node owns its report: the garbage collector deletes it, too.
fn owner(name: &str, uid: &Name) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": &**uid, "controller": true})
}

fn labels_of<'a>(labels: impl Iterator<Item = (&'a Name, &'a Name)>) -> Value {
    let pairs = labels.map(|(key, value)| (key.to_string(), json!(&**value)));
    Value::Object(pairs.collect())
}
