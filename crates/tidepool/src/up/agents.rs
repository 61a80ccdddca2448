//! The agents of the simulated nodes: a tide moves the use of services, and each node reports what it lends and evicts pods as a
//! real agent does.
//!
//! Samples are computed by [`local::tide`], the engine decides, and the reports are those of the agent. The clock of the nodes
//! runs faster than ours, so that smoothing and predictions of a real agent fit into a few minutes.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use agent::{
    evict::{self, Outcome},
    objects,
    report::{
        self, ObjectWriter, Observation, Reporter, Target,
        lease::LeaseRenewal,
        send::{SendState, Sender},
        taint::{TaintForm, TaintTarget, Taints},
    },
};
use engine::model::Timestamp;
use engine::node::{
    Advice, Advisor, AgentCondition, AgentSettings, CpuMemory, EvictionOrder, Inputs, LocalNode,
    LocalPod, advise,
    publish::{PublishedReport, explain},
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::{Api, Client, api::ListParams};
use local::tide;
use tokio::{runtime::Handle, sync::watch, task::JoinHandle, time::MissedTickBehavior};
use tokio_util::sync::{CancellationToken, DropGuard};

/// From one low tide to the next, on the clock of the nodes.
const TIDE: Duration = Duration::from_secs(7200);
/// Agents look at their nodes so often in a tide.
const TICKS: u32 = 120;
/// The time between two samples, on the clock of the nodes.
const STEP: Duration = Duration::from_secs(5);
/// Values that are not urgent are sent so often in a tide.
const REPORTS: u32 = 24;
const RENEWAL: Duration = Duration::from_secs(10);
/// A younger pod needs all that it requests, on the clock of the nodes.
const COLD_START: Duration = Duration::from_secs(600);
/// On larger clusters only so many nodes have an agent.
const MOST_NODES: usize = 100;

/// The agents of all nodes.
pub(super) struct SimulatedAgents {
    task: JoinHandle<()>,
}

impl SimulatedAgents {
    /// They run on the threads of `background`.
    pub(super) fn start(client: Client, background: &Handle, tide: Duration) -> Self {
        Self {
            task: background.spawn(run(client, tide)),
        }
    }

    pub(super) fn stop(self) {
        self.task.abort();
    }
}

async fn run(client: Client, tide: Duration) {
    let begun = Instant::now();
    let mut agents: BTreeMap<String, SimulatedAgent> = BTreeMap::new();
    let mut ticks = tokio::time::interval(tide / TICKS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let observed = match observe(&client).await {
            Ok(observed) => observed,
            Err(error) => {
                tracing::debug!(%error, "cannot list the pods of simulated nodes");
                continue;
            }
        };
        agents.retain(|name, _| observed.contains_key(name));
        for (name, node) in observed {
            let agent = agents
                .entry(name)
                .or_insert_with_key(|name| SimulatedAgent::new(&client, name, tide / REPORTS));
            agent
                .tick(&client, &node, tide::level(begun.elapsed(), tide))
                .await;
        }
    }
}

/// A node with its pods and what they use at most.
struct ObservedNode {
    node: LocalNode,
    pods: Vec<(LocalPod, CpuMemory)>,
    settings: AgentSettings,
}

async fn observe(client: &Client) -> Result<BTreeMap<String, ObservedNode>, kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::all(client.clone());
    let (namespace, name) = api::contracts::COLOCATION;
    let settings: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    // The jobs of the demo leave many pods that have ended.
    let bound = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
    let bound = ListParams::default().fields(bound);
    let everything = ListParams::default();
    let (nodes, pods, settings) = tokio::try_join!(
        nodes.list(&everything),
        pods.list(&bound),
        settings.get_opt(name)
    )?;
    let data = settings.and_then(|map| map.data).unwrap_or_default();
    let mut observed: BTreeMap<String, ObservedNode> = nodes
        .items
        .iter()
        .filter(|node| !is_silent(node))
        .take(MOST_NODES)
        .map(|node| {
            let node = objects::node(node);
            // Invalid settings: the defaults; the tier controller reports the fault.
            let settings = api::agent_settings::agent_settings(&data, &node.labels);
            let mut settings = settings.unwrap_or_default();
            settings.prediction.cold_start = COLD_START;
            let observed = ObservedNode {
                node,
                pods: Vec::new(),
                settings,
            };
            (observed.node.name.to_string(), observed)
        })
        .collect();
    for pod in &pods.items {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        if let Some(node) = node.and_then(|node| observed.get_mut(node))
            && let Some(parsed) = objects::pod(pod, &objects::Sources::default())
        {
            let peak = tide::peak(&parsed, pod.metadata.annotations.as_ref());
            node.pods.push((parsed, peak));
        }
    }
    Ok(observed)
}

fn is_silent(node: &Node) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    annotations.is_some_and(|it| it.get(local::HEARTBEAT).is_some_and(|it| it == "off"))
}

/// The agent of one node.
struct SimulatedAgent {
    advisor: Advisor,
    /// On the clock of the nodes.
    now: Timestamp,
    /// What suppressed pods may use, by the last advice.
    granted: Option<i64>,
    published: PublishedReport,
    /// When each condition last changed its status.
    conditions: BTreeMap<&'static str, (bool, Timestamp)>,
    observations: watch::Sender<Arc<Observation>>,
    lease: LeaseRenewal,
    renewed: Option<Instant>,
    /// Ends the senders.
    _senders: DropGuard,
}

impl SimulatedAgent {
    fn new(client: &Client, name: &str, period: Duration) -> Self {
        let (observations, observed) = watch::channel(Arc::default());
        let cancel = CancellationToken::new();
        let taint_form = TaintForm::default();
        let reporter = report::reporter(Taints {
            target: TaintTarget::Cnr,
            form: taint_form.clone(),
        });
        // The list of sources is fixed, and a test of the agent checks it.
        let reporter = Arc::new(reporter.unwrap_or_else(|_| Reporter::default()));
        for target in [Target::CustomNodeResource, Target::NodeMetric] {
            let sender = Sender {
                target,
                writer: ObjectWriter::new(client.clone(), target, name),
                reporter: reporter.clone(),
                taint_form: taint_form.clone(),
                period,
                state: SendState::default(),
            };
            tokio::spawn(sender.run(observed.clone(), cancel.clone()));
        }
        Self {
            advisor: Advisor::new(Timestamp(0), wall()),
            now: Timestamp(0),
            granted: None,
            published: PublishedReport::default(),
            conditions: BTreeMap::new(),
            observations,
            lease: LeaseRenewal::new(client.clone(), name),
            renewed: None,
            _senders: cancel.drop_guard(),
        }
    }

    /// The samples of one tick, the evictions and the report that follow from them.
    async fn tick(&mut self, client: &Client, node: &ObservedNode, level: f64) {
        let pods: Vec<LocalPod> = node.pods.iter().map(|(pod, _)| pod.clone()).collect();
        let (advice, orders) = self.sample(node, &pods, level);
        for order in orders {
            let outcome = evict::evict(client, &order, false).await;
            let is_accepted = matches!(outcome, Outcome::Evicted | Outcome::Gone);
            self.advisor
                .eviction_result(&order.uid, is_accepted, self.now);
            tracing::debug!(namespace = %order.namespace, pod = %order.name, reason = order.reason, ?outcome, "eviction");
            if outcome == Outcome::Evicted {
                evict::record_eviction(client, &order).await;
            }
        }
        self.report(advice);
        if self.renewed.is_none_or(|at| at.elapsed() >= RENEWAL) {
            self.renewed = Some(Instant::now());
            if let Err(error) = self.lease.renew(wall()).await {
                tracing::debug!(%error, "cannot renew the Lease of a simulated agent");
            }
        }
    }

    /// The last advice of a tick, and the evictions of all.
    fn sample(
        &mut self,
        node: &ObservedNode,
        pods: &[LocalPod],
        level: f64,
    ) -> (Advice, Vec<EvictionOrder>) {
        let mut advice = Advice::default();
        let mut orders = Vec::new();
        for _ in 0..TIDE.as_secs() / u64::from(TICKS) / STEP.as_secs() {
            self.now = self.now.plus(STEP);
            let sample = tide::sample(&node.node, &node.pods, level, self.granted, self.now);
            let inputs = Inputs {
                sample: Some(&sample),
                node: Some(&node.node),
                pods: Some(pods),
                ..Inputs::default()
            };
            advice = advise(&mut self.advisor, &inputs, &node.settings, self.now);
            orders.append(&mut advice.evictions);
            let grant = advice.suppression.as_ref();
            self.granted = grant.map(|grant| grant.milli_cpu);
        }
        (advice, orders)
    }

    fn report(&mut self, advice: Advice) {
        let at = wall();
        let reclaimed = self.published.update(&advice.reclaimed, self.now).clone();
        let CpuMemory { milli_cpu, memory } = reclaimed.capacity;
        let allocatable = reclaimed.allocatable;
        let values = [milli_cpu, memory, allocatable.milli_cpu, allocatable.memory];
        let terms = advice.terms.into_iter().zip(values);
        let terms = terms
            .map(|(figure, value)| explain(figure, value))
            .collect();
        let conditions = advice.conditions.into_iter();
        let conditions = conditions.map(|it| self.since(it, at)).collect();
        self.observations.send_replace(Arc::new(Observation {
            at,
            reclaimed,
            terms,
            metric: advice.metric,
            taints: advice.taints,
            conditions,
            ..Observation::default()
        }));
    }

    /// The condition with the time of its last change.
    fn since(&mut self, condition: AgentCondition, at: Timestamp) -> (AgentCondition, Timestamp) {
        let last = self.conditions.entry(condition.kind);
        let last = last.or_insert((condition.status, at));
        if last.0 != condition.status {
            *last = (condition.status, at);
        }
        let since = last.1;
        (condition, since)
    }
}

/// The time of day.
fn wall() -> Timestamp {
    let nanos = jiff::Timestamp::now().as_nanosecond();
    Timestamp(i64::try_from(nanos).unwrap_or(i64::MAX))
}
