//! The running agent: watches, the thread of [`crate::control`], reports, the Lease and evictions.

use api::contracts::COLOCATION;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime};

use engine::model::{Name, Timestamp};
use engine::node::{Advice, EvictionOrder, NodeSample, NumaMode, PodEvent};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::runtime::watcher;
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use reconcile::{Cache, Watches};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::collect::Paths;
use crate::control::{Control, EvictionAnswer, Objects, Outputs};
use crate::evict::{self, EvictionCounts};
use crate::metrics;
use crate::objects::container_names;
use crate::report::lease::LeaseRenewal;
use crate::report::send::{SendState, Sender};
use crate::report::taint::{TaintForm, TaintTarget, Taints};
use crate::report::{self, ObjectWriter, Observation, Target};
use crate::settings::{self, SettingsSource, SettingsStore};

/// A sample older than this many periods is stale.
const STALE_PERIODS: u32 = 10;
/// Evictions that wait to be sent. The engine orders no more than six in a minute.
const MOST_ORDERS: usize = 16;
/// Events that wait to be sent.
const MOST_EVENTS: usize = 256;

/// How to run the agent.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the Node object.
    pub node: String,
    pub paths: Paths,
    /// The directory of the kubelet's state.
    pub kubelet_root: PathBuf,
    /// Where the kubelet keeps the logs of pods.
    pub pod_logs: PathBuf,
    /// Believe the CPUs that Koordinator's scheduler wrote into annotations of pods.
    pub koordinator_cpus: bool,
    /// The directory of the journal and of checkpoints.
    pub state_dir: PathBuf,
    /// Time between two samples.
    pub period: Duration,
    /// Time in which the details of every pod are read once.
    pub detail_period: Duration,
    /// Time between two reports of what is not urgent.
    pub report_period: Duration,
    /// Time between two renewals of the Lease.
    pub lease_period: Duration,
    pub checkpoint_period: Duration,
    pub taint_target: TaintTarget,
    /// None: check where the kubelet's static CPU or memory manager writes cpusets, else enforce.
    pub numa: Option<NumaMode>,
    pub settings: SettingsSource,
    /// Write no cgroup file, report nothing, evict nothing.
    pub dry_run: bool,
    /// Kill this process before the write of a cgroup file with this number; for tests.
    pub kill_before_write: Option<u64>,
}

impl Options {
    /// The defaults of the command.
    pub fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            paths: Paths::default(),
            kubelet_root: "/var/lib/kubelet".into(),
            pod_logs: "/var/log/pods".into(),
            koordinator_cpus: false,
            state_dir: "/var/lib/tidepool-agent".into(),
            period: Duration::from_secs(1),
            detail_period: Duration::from_secs(10),
            report_period: Duration::from_secs(60),
            lease_period: Duration::from_secs(10),
            checkpoint_period: Duration::from_secs(60),
            taint_target: TaintTarget::default(),
            numa: None,
            settings: SettingsSource::ConfigMap,
            dry_run: false,
            kill_before_write: None,
        }
    }
}

/// A running agent. Dropping it stops it.
pub struct Agent {
    period: Duration,
    pods: Arc<Cache<Pod>>,
    watches: Arc<Watches>,
    shared: Arc<Shared>,
    settings: SettingsStore,
    observations: watch::Receiver<Arc<Observation>>,
    senders: BTreeMap<&'static str, SendState>,
    evictions: EvictionCounts,
    _stop_tasks: DropGuard,
    /// The thread ends when this is dropped.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What the thread shares with metrics and checks.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
}

/// The result of the last period.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) sample: Option<Arc<NodeSample>>,
    /// When the sample was complete, and how long it took.
    pub(crate) taken: Option<(Instant, Duration)>,
    /// What could not be read: the file, and why.
    pub(crate) problems: Vec<(String, String)>,
    pub(crate) advice: Advice,
    pub(crate) rounds: u64,
    pub(crate) written: u64,
    /// The names of cgroups that are not the uid of their pod, by that uid.
    pub(crate) groups: BTreeMap<Name, Name>,
    finished: Option<Instant>,
}

impl Shared {
    pub(crate) fn finish_round(
        &self,
        began: Instant,
        advice: Advice,
        problems: Vec<(String, String)>,
        sample: Option<Arc<NodeSample>>,
        written: usize,
    ) {
        let mut state = self.lock();
        let is_known = |known: &Arc<NodeSample>| {
            let sample = sample.as_ref();
            sample.is_some_and(|sample| Arc::ptr_eq(known, sample))
        };
        if sample.is_some() && !state.sample.as_ref().is_some_and(is_known) {
            state.taken = Some((Instant::now(), began.elapsed()));
        }
        state.sample = sample;
        state.problems = problems;
        state.advice = advice;
        state.rounds += 1;
        state.written += u64::try_from(written).unwrap_or_default();
        state.finished = Some(Instant::now());
    }

    /// Whether the thread makes progress.
    fn is_alive(&self, limit: Duration) -> bool {
        let finished = self.lock().finished;
        finished.is_some_and(|at| at.elapsed() < limit)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A state is replaced as a whole, so it is never half written.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pod as its metrics name it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PodNames {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The names of its containers, by id.
    pub(crate) containers: BTreeMap<String, String>,
}

impl Agent {
    /// Starts everything, on the runtime of the caller.
    pub fn start(client: Client, options: Options) -> std::io::Result<Self> {
        let cancel = CancellationToken::new();
        let tasks = TaskTracker::new();
        let changed = Arc::new(AtomicBool::new(true));
        let watches = Arc::new(Watches::default());
        let settings = SettingsStore::default();
        let (pods, nodes) = watch_objects(&client, &options.node, &watches, &changed);
        match &options.settings {
            SettingsSource::ConfigMap => watch_settings(&client, &watches, &settings),
            SettingsSource::File(path) => {
                settings::read_file(path, &settings);
                let (path, store) = (path.clone(), settings.clone());
                let period = options.lease_period;
                tasks.spawn(settings::follow_file(path, period, store, cancel.clone()));
            }
        }
        let (orders, received) = tokio::sync::mpsc::channel(MOST_ORDERS);
        let (events, warnings) = tokio::sync::mpsc::channel(MOST_EVENTS);
        let (answer, answers) = mpsc::channel();
        let (observations, observed) = watch::channel(Arc::<Observation>::default());
        let shared = Arc::new(Shared::default());
        let listed = {
            let watches = watches.clone();
            move || {
                let unsynced = watches.unsynced();
                ["pods", "nodes"].map(|kind| !unsynced.iter().any(|it| it == kind))
            }
        };
        let control = Control::new(
            options.clone(),
            Objects {
                pods: pods.clone(),
                nodes,
                listed: Arc::new(listed),
                changed,
            },
            settings.clone(),
            Outputs {
                observations,
                evictions: orders,
                events,
                shared: shared.clone(),
            },
            answers,
        );
        let evictions = EvictionCounts::default();
        let senders = Tasks {
            client: &client,
            options: &options,
            tasks: &tasks,
            cancel: &cancel,
        }
        .start((received, warnings), answer, &evictions, &observed, &shared)?;
        watches.start(&tasks, &cancel);
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("node".to_owned())
            .spawn(move || control.run(&stopped))?;
        Ok(Self {
            period: options.period,
            pods,
            watches,
            shared,
            settings,
            observations: observed,
            senders,
            evictions,
            _stop_tasks: cancel.drop_guard(),
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The last sample.
    pub fn sample(&self) -> Option<Arc<NodeSample>> {
        self.shared.lock().sample.clone()
    }

    /// What is reported now.
    pub fn observation(&self) -> Arc<Observation> {
        self.observations.borrow().clone()
    }

    /// Whether samples arrive in time; the reason if they do not.
    pub fn check_samples(&self) -> Result<(), String> {
        let limit = self.period * STALE_PERIODS;
        match self.shared.lock().taken {
            None => Err("no sample yet".to_owned()),
            Some((at, _)) if at.elapsed() > limit => {
                Err(format!("the last sample is {:.0?} old", at.elapsed()))
            }
            Some(_) => Ok(()),
        }
    }

    /// Whether the thread of the node runs; it ends before the agent only after a panic.
    pub fn check_thread(&self) -> Result<(), String> {
        match &self.thread {
            Some(thread) if !thread.is_finished() => Ok(()),
            _ => Err("the thread that measures the node has ended".to_owned()),
        }
    }

    /// Whether the node and its pods are listed; the reason if they are not.
    pub fn check_objects(&self) -> Result<(), String> {
        match self.watches.unsynced() {
            kinds if kinds.is_empty() => Ok(()),
            kinds => Err(format!("not listed yet: {}", kinds.join(", "))),
        }
    }

    /// The last period as metrics.
    pub fn metrics(&self) -> Registry {
        let work = metrics::Work {
            reports: self
                .senders
                .iter()
                .map(|(kind, state)| (*kind, state.get()))
                .collect(),
            evictions: self.evictions.get(),
            settings_error: self.settings.error(),
            reclaimed: self.observation().reclaimed.clone(),
        };
        let state = self.shared.lock();
        metrics::registry(&state, &self.pod_names(&state.groups), &work)
    }

    /// By the uid in the name of the pod's cgroup.
    fn pod_names(&self, groups: &BTreeMap<Name, Name>) -> BTreeMap<Name, PodNames> {
        let pods = self.pods.all();
        let names = pods.iter();
        names
            .filter_map(|pod| container_names(pod, groups))
            .collect()
    }
}

impl Drop for Agent {
    /// The thread writes a checkpoint at its end.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

/// Watches the Node and the pods that are bound to it.
fn watch_objects(
    client: &Client,
    node: &str,
    watches: &Watches,
    changed: &Arc<AtomicBool>,
) -> (Arc<Cache<Pod>>, Arc<Cache<Node>>) {
    let pods = Cache::new(|_: &Pod| Vec::new());
    let nodes = Cache::new(|_: &Node| Vec::new());
    let flag = changed.clone();
    pods.listen(move |_| flag.store(true, Ordering::Relaxed));
    let flag = changed.clone();
    nodes.listen(move |_| flag.store(true, Ordering::Relaxed));
    let of_node = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    watches.add(&pods, Api::all(client.clone()), of_node);
    let itself = watcher::Config::default().fields(&format!("metadata.name={node}"));
    watches.add(&nodes, Api::all(client.clone()), itself);
    (pods, nodes)
}

fn watch_settings(client: &Client, watches: &Watches, store: &SettingsStore) {
    let maps = Cache::new(|_: &ConfigMap| Vec::new());
    let store = store.clone();
    maps.listen(move |change| {
        store.set(settings::of_config_map(change.new.map(|map| &**map)));
    });
    let itself = watcher::Config::default().fields(&format!("metadata.name={}", COLOCATION.1));
    let api = Api::namespaced(client.clone(), COLOCATION.0);
    watches.add(&maps, api, itself);
}

/// The tasks that write to the API server.
struct Tasks<'a> {
    client: &'a Client,
    options: &'a Options,
    tasks: &'a TaskTracker,
    cancel: &'a CancellationToken,
}

impl Tasks<'_> {
    fn start(
        &self,
        (orders, warnings): (
            tokio::sync::mpsc::Receiver<EvictionOrder>,
            tokio::sync::mpsc::Receiver<PodEvent>,
        ),
        answer: mpsc::Sender<EvictionAnswer>,
        evictions: &EvictionCounts,
        observed: &watch::Receiver<Arc<Observation>>,
        shared: &Arc<Shared>,
    ) -> std::io::Result<BTreeMap<&'static str, SendState>> {
        let (client, options, tasks) = (self.client, self.options, self.tasks);
        let cancel = self.cancel.clone();
        let work = evict::run(
            client.clone(),
            options.dry_run,
            orders,
            answer,
            evictions.clone(),
        );
        tasks.spawn(async move { cancel.run_until_cancelled(work).await });
        let mut states = BTreeMap::new();
        if options.dry_run {
            return Ok(states);
        }
        let cancel = self.cancel.clone();
        let work = evict::record_events(client.clone(), warnings);
        tasks.spawn(async move { cancel.run_until_cancelled(work).await });
        let form = TaintForm::default();
        let taints = Taints {
            target: options.taint_target,
            form: form.clone(),
        };
        let reporter = Arc::new(report::reporter(taints).map_err(std::io::Error::other)?);
        let mut targets = vec![Target::CustomNodeResource, Target::NodeMetric];
        if options.taint_target == TaintTarget::Node {
            targets.push(Target::Node);
        }
        for target in targets {
            let state = SendState::default();
            states.insert(target.kind(), state.clone());
            let sender = Sender {
                target,
                writer: ObjectWriter::new(client.clone(), target, &options.node),
                reporter: reporter.clone(),
                taint_form: form.clone(),
                period: options.report_period,
                state,
            };
            tasks.spawn(sender.run(observed.clone(), self.cancel.clone()));
        }
        let state = SendState::default();
        states.insert("Lease", state.clone());
        let renewal = LeaseRenewal::new(client.clone(), &options.node);
        let limit = options.period * STALE_PERIODS + options.lease_period;
        let work = renew(renewal, options.lease_period, limit, shared.clone(), state);
        let cancel = self.cancel.clone();
        tasks.spawn(async move { cancel.run_until_cancelled(work).await });
        Ok(states)
    }
}

/// Renews the Lease as long as the thread of the node makes progress.
async fn renew(
    renewal: LeaseRenewal,
    period: Duration,
    limit: Duration,
    shared: Arc<Shared>,
    state: SendState,
) {
    loop {
        if shared.is_alive(limit) {
            let result = renewal.renew(wall_clock()).await.map(|()| true);
            state.record("Lease", &result);
            tokio::time::sleep(period).await;
        } else {
            tokio::time::sleep(period.min(Duration::from_millis(100))).await;
        }
    }
}

/// The time of day.
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos());
    Timestamp(i64::try_from(nanos).unwrap_or(i64::MAX))
}
