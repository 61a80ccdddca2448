//! Controllers: of several replicas the leader runs them.
//!
//! A controller is one file in `controllers/` with three parts: the kinds it watches, the engine's pure plan, and how it
//! applies the plan. The crate `reconcile` has the parts that all controllers share. [`ALL`] lists the controllers.

pub mod agents;
pub mod hot_spots;
mod objects;
mod observe;
mod report;
pub mod resource_policy;
pub mod schedulers;
mod silent_nodes;
pub mod tiers;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::http::Role;
use futures::future::{BoxFuture, join_all};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use reconcile::{EventRecorder, Key, QueueStats, Requests, Watches, WorkQueue};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::client::{Connect, ConnectError};
use crate::election::leadership::Leadership;
use crate::election::{Annotations, Candidate, Election, LeaderWork, LeaseError};
use crate::serve::{
    Check, Component, Listening, Serve, ServeError, encode_metrics, register_queues,
};
use reconcile::watch::{Progress, Resource, failing_for};
use silent_nodes::SilentNodes;

/// The name of the component: of its Lease and of the reporter of its events.
pub const NAME: &str = "tidepool-controllers";
/// The port that it serves on by default.
pub const PORT: u16 = 10267;

/// Every controller of this version.
pub const ALL: &[Controller] = &[
    agents::CONTROLLER,
    hot_spots::CONTROLLER,
    resource_policy::CONTROLLER,
    schedulers::CONTROLLER,
    tiers::CONTROLLER,
];

/// The settings of all controllers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    pub agents: agents::AgentSettings,
    pub hot_spots: hot_spots::ReliefSettings,
    pub resource_policy: resource_policy::PolicySettings,
    pub schedulers: schedulers::RegistrySettings,
    pub tiers: tiers::TierSettings,
}

/// One controller.
#[derive(Clone, Copy)]
pub struct Controller {
    pub name: &'static str,
    /// Adds its watches and listeners; the returned future does the work and ends on cancellation.
    pub start: fn(&Arc<Context>) -> BoxFuture<'static, ()>,
}

/// What the controllers share while this process leads. A kind that several controllers watch gets a cache here.
pub struct Context {
    pub client: kube::Client,
    pub watches: Watches,
    pub requests: Requests,
    pub events: EventRecorder,
    pub cancel: CancellationToken,
    pub settings: Settings,
    /// The nodes whose agents are silent, by the controller of agents.
    pub(crate) silent_nodes: SilentNodes,
    denied: report::Denied,
    queues: Mutex<Vec<Arc<WorkQueue<Key>>>>,
    /// By controller.
    progress: Mutex<Vec<(&'static str, Arc<Progress>)>>,
    metrics: Mutex<Vec<RegisterMetrics>>,
    /// Controllers without a permission, and the kinds that they may not read.
    waiting: Mutex<BTreeMap<&'static str, String>>,
}

/// Adds the metrics of a controller, as they are now.
type RegisterMetrics = Box<dyn Fn(&mut Registry) + Send + Sync>;

impl Context {
    fn new(client: kube::Client, settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            watches: Watches::default(),
            requests: Requests::new(client.clone()),
            events: EventRecorder::new(client.clone(), NAME),
            cancel: CancellationToken::new(),
            settings,
            silent_nodes: SilentNodes::default(),
            denied: report::Denied::default(),
            queues: Mutex::default(),
            progress: Mutex::default(),
            metrics: Mutex::default(),
            waiting: Mutex::default(),
            client,
        })
    }

    /// A work queue, whose metrics are served.
    pub fn queue(&self, controller: &'static str) -> Arc<WorkQueue<Key>> {
        let queue = WorkQueue::new(controller);
        let queues = self.queues.lock();
        queues
            .unwrap_or_else(PoisonError::into_inner)
            .push(queue.clone());
        queue
    }

    /// Adds metrics of a controller, which are served while it runs.
    pub(crate) fn add_metrics(&self, register: impl Fn(&mut Registry) + Send + Sync + 'static) {
        let metrics = self.metrics.lock();
        let mut metrics = metrics.unwrap_or_else(PoisonError::into_inner);
        metrics.push(Box::new(register));
    }

    fn register_metrics(&self, registry: &mut Registry) {
        let metrics = self.metrics.lock();
        let metrics = metrics.unwrap_or_else(PoisonError::into_inner);
        metrics.iter().for_each(|register| register(registry));
    }

    /// The progress of reflectors that a controller runs itself; health checks include it. The controller waits until all its
    /// kinds were listed once.
    pub(crate) fn progress(
        &self,
        controller: &'static str,
        resources: &'static [Resource],
    ) -> Arc<Progress> {
        let progress = Arc::new(Progress::new(resources));
        self.reflectors().push((controller, progress.clone()));
        progress
    }

    fn reflectors(&self) -> MutexGuard<'_, Vec<(&'static str, Arc<Progress>)>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kinds that were not listed yet.
    fn unsynced(&self) -> Vec<String> {
        let mut kinds = self.watches.unsynced();
        for (_, progress) in &*self.reflectors() {
            kinds.extend(progress.unsynced().into_iter().map(str::to_owned));
        }
        kinds
    }

    /// A health check: no reflector has failed for long.
    fn check_followed(&self) -> Result<(), String> {
        let reflectors = self.reflectors();
        reflectors
            .iter()
            .try_for_each(|(_, it)| it.check_followed())
    }

    /// Everything that plans need is known and followed. A controller without a permission waits for it: the others go on, and no
    /// other replica has more permissions.
    fn check_usable(&self) -> Result<(), String> {
        let kinds = self.watches.unsynced();
        if !kinds.is_empty() {
            return Err(format!("not listed yet: {}", kinds.join(", ")));
        }
        let mut waiting = BTreeMap::new();
        let mut result = Ok(());
        for (controller, progress) in &*self.reflectors() {
            match progress.unpermitted() {
                kinds if kinds.is_empty() => {
                    let usable = progress.check_synced();
                    result = result.and(usable.and_then(|()| progress.check_followed()));
                }
                kinds => drop(waiting.insert(*controller, kinds.join(", "))),
            }
        }
        self.log_waiting(waiting);
        result
    }

    /// Names each controller that waits for a permission, and that it does so no more.
    fn log_waiting(&self, waiting: BTreeMap<&'static str, String>) {
        let mut known = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for (controller, kinds) in &waiting {
            if known.get(controller) != Some(kinds) {
                tracing::warn!(
                    controller,
                    kinds,
                    "controller waits for the permission to list and watch these kinds; the other controllers run"
                );
            }
        }
        for controller in known.keys().filter(|it| !waiting.contains_key(*it)) {
            tracing::info!(
                controller,
                "controller has the permissions that it waited for"
            );
        }
        *known = waiting;
    }

    /// Returns when the first list of every kind in [`Self::watches`] is complete, or on cancellation.
    pub async fn synced(&self) {
        self.watches.synced(&self.cancel).await;
    }

    fn stats(&self) -> Vec<QueueStats> {
        let queues = self.queues.lock();
        let queues = queues.unwrap_or_else(PoisonError::into_inner);
        queues.iter().map(|queue| queue.stats()).collect()
    }
}

/// How to run the controllers.
pub struct ControllersOptions {
    pub controllers: &'static [Controller],
    pub settings: Settings,
    /// None: this is the only replica.
    pub election: Option<Election>,
    /// None: no HTTP server.
    pub serve: Option<Serve>,
}

/// Why the controllers ended.
#[derive(Debug, thiserror::Error)]
pub enum ControllersError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("cannot listen for HTTP")]
    Listen(#[source] std::io::Error),
}

/// Controllers that are ready to run.
pub struct Controllers {
    connect: Connect,
    controllers: &'static [Controller],
    settings: Settings,
    election: Option<Election>,
    listening: Option<Listening>,
    state: StateServer,
}

impl Controllers {
    /// Binds the address of the HTTP server.
    pub fn new(connect: Connect, options: ControllersOptions) -> Result<Self, ControllersError> {
        let role = match options.election {
            Some(_) => Role::Candidate,
            None => Role::Alone,
        };
        let state = StateServer(Arc::new(ControllersState {
            leadership: Arc::new(Leadership::new(role)),
            election: options.election.clone(),
            context: Mutex::default(),
            unable: Mutex::default(),
            stopping: AtomicBool::new(false),
        }));
        Ok(Self {
            connect,
            controllers: options.controllers,
            settings: options.settings,
            election: options.election,
            listening: options.serve.map(Serve::listen).transpose()?,
            state,
        })
    }

    /// The address of the HTTP server.
    pub fn server(&self) -> Option<SocketAddr> {
        self.listening.as_ref().map(Listening::address)
    }

    /// Runs the controllers while this process leads, until `stopped`; then stops them and releases the Lease.
    pub async fn run(self, stopped: impl Future<Output = ()>) -> Result<(), ControllersError> {
        let api = self.connect.exchange()?;
        let client = self.connect.client()?;
        let annotations = Annotations::new(self.listening.as_ref(), self.connect.server());
        let state = self.state;
        if let Some(listening) = self.listening {
            listening
                .serve(api.clone(), state.clone())
                .map_err(ControllersError::Listen)?;
        }
        let stopped = async {
            stopped.await;
            state.0.stopping.store(true, Ordering::Relaxed);
        };
        let mut work = ControllersWork {
            client,
            controllers: self.controllers,
            settings: self.settings,
            state: state.clone(),
            deadline: Duration::MAX,
            pause: Duration::ZERO,
        };
        let Some(election) = self.election else {
            tokio::select! {
                _ = work.run() => {}
                () = stopped => {}
            }
            return Ok(());
        };
        (work.deadline, work.pause) = (election.sync_deadline, election.lease_duration);
        let leadership = state.0.leadership.clone();
        let candidate = Candidate::new(election, api, leadership, annotations);
        candidate.run(NAME, &work, stopped).await?;
        Ok(())
    }
}

struct ControllersWork {
    client: kube::Client,
    controllers: &'static [Controller],
    settings: Settings,
    state: StateServer,
    /// For lists and watches.
    deadline: Duration,
    /// After the Lease was given up.
    pause: Duration,
}

impl ControllersWork {
    /// Returns why the controllers cannot work.
    async fn run(&self) -> String {
        let context = Context::new(self.client.clone(), self.settings);
        // Watches only read: those of a lost or released Lease may end a moment later.
        let _stop_watches = context.cancel.clone().drop_guard();
        self.state.set_context(Some(&context));
        let run = async {
            lead(&context, self.controllers).await;
            std::future::pending::<()>().await;
        };
        let deadline = self.deadline;
        let why = tokio::select! {
            () = run => String::new(),
            why = failing_for(deadline, || context.check_usable()) => why,
        };
        self.state.set_context(None);
        let why = format!("watches have failed for {deadline:?}: {why}");
        self.state.set_unable(Some(why.clone()));
        why
    }
}

impl LeaderWork for ControllersWork {
    /// The lists begin after the election is won, so that they include all writes of the previous leader.
    async fn lead(&self, _won: Instant) -> String {
        self.state.0.leadership.set_role(Role::Leader);
        self.run().await
    }

    /// Without the Lease there are no watches to look at. Another replica has time to take it.
    async fn able(&self) {
        tokio::time::sleep(self.pause).await;
        self.state.set_unable(None);
    }
}

/// Runs on the task of the election: controllers write nothing after it ends.
async fn lead(context: &Arc<Context>, controllers: &[Controller]) {
    let running: Vec<_> = controllers
        .iter()
        .map(|controller| {
            tracing::info!(controller = controller.name, "started controller");
            (controller.start)(context)
        })
        .collect();
    context.watches.start(&TaskTracker::new(), &context.cancel);
    join_all(running).await;
}

/// Serves the state of the component.
#[derive(Clone)]
struct StateServer(Arc<ControllersState>);

struct ControllersState {
    leadership: Arc<Leadership>,
    election: Option<Election>,
    /// While this process leads.
    context: Mutex<Option<Arc<Context>>>,
    /// Why this process gave up the Lease; for a moment, since it watches nothing then.
    unable: Mutex<Option<String>>,
    stopping: AtomicBool,
}

impl StateServer {
    fn context(&self) -> Option<Arc<Context>> {
        let context = self.0.context.lock();
        context.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_context(&self, context: Option<&Arc<Context>>) {
        let known = self.0.context.lock();
        *known.unwrap_or_else(PoisonError::into_inner) = context.cloned();
    }

    fn set_unable(&self, why: Option<String>) {
        let known = self.0.unable.lock();
        *known.unwrap_or_else(PoisonError::into_inner) = why;
    }

    fn election_check(&self) -> Option<Check> {
        let election = self.0.election.as_ref()?;
        Some(("leaderElection", self.0.leadership.check(election)))
    }

    /// A standby watches nothing: what it reads is the Lease.
    fn server_check(&self) -> Option<Check> {
        let election = self.0.election.as_ref()?;
        Some(("api-server", self.0.leadership.check_reached(election)))
    }

    /// What the leader watches was listed, and is followed.
    fn watch_checks(&self) -> [Check; 2] {
        let (synced, followed) = match self.context() {
            Some(context) => {
                let synced = match context.unsynced() {
                    kinds if kinds.is_empty() => Ok(()),
                    kinds => Err(format!("not listed yet: {}", kinds.join(", "))),
                };
                (synced, context.check_followed())
            }
            None if self.0.election.is_none() => {
                (Err("the controllers have not started".to_owned()), Ok(()))
            }
            None => {
                let unable = self.0.unable.lock();
                let unable = unable.unwrap_or_else(PoisonError::into_inner).clone();
                (Ok(()), unable.map_or(Ok(()), Err))
            }
        };
        [("informer-sync", synced), ("watches", followed)]
    }
}

impl Component for StateServer {
    fn healthy(&self) -> Vec<Check> {
        let election = self.election_check();
        election.map_or_else(|| self.live(), |check| vec![check])
    }

    fn ready(&self) -> Vec<Check> {
        let stopping = self.0.stopping.load(Ordering::Relaxed);
        let shutdown = match stopping {
            true => Err("process is shutting down".to_owned()),
            false => Ok(()),
        };
        let election = [self.election_check(), self.server_check()];
        let election = election.into_iter().flatten();
        election
            .chain([("shutdown", shutdown)])
            .chain(self.watch_checks())
            .collect()
    }

    fn metrics(&self) -> String {
        let mut registry = Registry::default();
        let roles = Family::<[(&str, &str); 1], Gauge>::default();
        registry.register("tidepool_role", "1 for the current role", roles.clone());
        let current = self.0.leadership.role();
        for (role, label) in Role::ALL {
            let role = i64::from(role == current);
            roles.get_or_create(&[("role", label)]).set(role);
        }
        let queues = self.context().map(|it| it.stats());
        register_queues(&mut registry, &queues.unwrap_or_default());
        if let Some(context) = self.context() {
            context.register_metrics(&mut registry);
        }
        encode_metrics(&registry)
    }
}
