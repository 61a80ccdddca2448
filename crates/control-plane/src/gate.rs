//! The gate: a validating webhook on binds, which judges the binds of all schedulers as `engine::binding::gate` decides.
//!
//! The leader of several replicas answers. All of them watch, so that a new leader only has to pass the fence. The leader writes
//! its address into the EndpointSlice of the Service.
//!
//! | module | content |
//! |---|---|
//! | `kinds` | the kinds it watches, and the judge that they change |
//! | `reviewer` | the answers to reviews |
//! | `endpoint_slice` | the address of the leader |
//! | `metrics` | its metrics |

mod endpoint_slice;
mod kinds;
mod metrics;
mod reviewer;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use api::http::Role;
use engine::binding::gate::{HeldPod, ReadPod};
use futures::{FutureExt, StreamExt};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::client::{Connect, ConnectError, Exchange};
use crate::election::leadership::Leadership;
use crate::election::{Annotations, Candidate, Election, LeaderWork, LeaseError, fence};
use crate::serve::{Check, Component, Listening, Serve, ServeError, encode_metrics, own_address};
use crate::webhook::bind_permission::{BindAuthorization, BindPermission};
use crate::webhook::certificates::{CertificateKeeper, CertificateOptions};
use crate::webhook::review::Review;
use crate::webhook::server::{AdmissionListener, Reviewer as ReviewPath};
use endpoint_slice::GateEndpoint;
use kinds::Judge;
use metrics::GateMetrics;
use reconcile::watch::{self, Progress, failing_for};
use reviewer::Reviewer;

/// The name of the component: of its Lease, Secret, Service, EndpointSlice and webhook configuration.
pub const NAME: &str = "tidepool-gate";
/// The port for reviews.
pub const PORT: u16 = 9444;
/// The port for health and metrics.
pub const HEALTH_PORT: u16 = 10270;
/// Where the API server sends binds.
pub const VALIDATE_BINDS: &str = "/validate-binds";

/// Between two looks for binds that are late.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pods that are read at the same time.
const READS: usize = 16;

/// How to run the gate.
pub struct GateOptions {
    /// Where it listens for reviews.
    pub address: SocketAddr,
    /// The address that API servers reach it at; none for the one of the route to the API server.
    pub advertise_address: Option<IpAddr>,
    pub certificates: CertificateOptions,
    pub namespace: String,
    /// The name of the Service and of the EndpointSlice.
    pub name: String,
    pub authorization: BindAuthorization,
    /// None: this is the only replica.
    pub election: Option<Election>,
    /// Health and metrics; none for no such server.
    pub serve: Option<Serve>,
    /// After the signal to stop this process answers nothing more. Binds that it allowed are over in this time; then it releases
    /// the Lease.
    pub shutdown_delay: Duration,
}

/// Why the gate ended.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("cannot listen for reviews on {address}")]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("cannot serve")]
    Io(#[source] std::io::Error),
}

/// A gate that is ready to run.
pub struct Gate {
    connect: Connect,
    options: GateOptions,
    listener: AdmissionListener,
    health: Option<Listening>,
}

impl Gate {
    /// Binds both addresses.
    pub fn new(connect: Connect, mut options: GateOptions) -> Result<Self, GateError> {
        let address = options.address;
        let listener = AdmissionListener::bind(address)
            .map_err(|source| GateError::Listen { address, source })?;
        let health = options.serve.take().map(Serve::listen).transpose()?;
        Ok(Self {
            connect,
            options,
            listener,
            health,
        })
    }

    /// Where it listens for reviews.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Answers reviews while this process leads, until `stopped`.
    pub async fn run(self, stopped: impl Future<Output = ()>) -> Result<(), GateError> {
        let api = self.connect.exchange()?;
        let client = self.connect.client()?;
        let annotations = Annotations::new(self.health.as_ref(), self.connect.server());
        let cancel = CancellationToken::new();
        let _stop_tasks = cancel.clone().drop_guard();
        let keeper = CertificateKeeper::new(client.clone(), self.options.certificates.clone())?;
        let endpoint = self.endpoint();
        let state = self.state(api.clone(), keeper.clone());
        let election = self.options.election.clone();
        if let Some(health) = self.health {
            let api = self.connect.exchange()?;
            health.serve(api, state.clone()).map_err(GateError::Io)?;
        }
        let watches = follow(&self.connect, &state).await?;
        let serve = answer(self.listener, &keeper, &state);
        let work = GateWork {
            client,
            api: api.clone(),
            state: state.clone(),
            endpoint,
            deadline: election
                .as_ref()
                .map_or(Duration::MAX, |it| it.sync_deadline),
        };
        let stopped = async {
            stopped.await;
            state.0.stopping.store(true, Ordering::Relaxed);
            state.0.reviewer.close();
            tracing::info!(delay = ?self.options.shutdown_delay, "stopping");
            tokio::time::sleep(self.options.shutdown_delay).await;
        };
        let lead = async {
            let Some(election) = election else {
                tokio::select! {
                    _ = work.lead(Instant::now()) => {}
                    () = stopped => {}
                }
                return Ok(());
            };
            let leadership = state.0.reviewer.leadership.clone();
            let candidate = Candidate::new(election, api, leadership, annotations);
            candidate.run(NAME, &work, stopped).await
        };
        tokio::select! {
            result = lead => result.map_err(GateError::Lease),
            result = serve => result.map_err(GateError::Io),
            () = keeper.clone().run(cancel.clone()) => Ok(()),
            () = settle_late_binds(&state.0.reviewer) => Ok(()),
            () = watches => Ok(()),
        }
    }

    fn endpoint(&self) -> GateEndpoint {
        let mut address = self.listener.address();
        let ip = self.options.advertise_address.or_else(|| {
            let is_any = address.ip().is_unspecified();
            is_any
                .then(|| own_address(self.connect.server()?))
                .flatten()
        });
        if let Some(ip) = ip {
            address.set_ip(ip);
        }
        GateEndpoint {
            namespace: self.options.namespace.clone(),
            name: self.options.name.clone(),
            address,
            pod: self
                .health
                .as_ref()
                .and_then(|it| it.pod().map(str::to_owned)),
        }
    }

    fn state(&self, api: Exchange, keeper: Arc<CertificateKeeper>) -> GateState {
        let role = match self.options.election {
            Some(_) => Role::Candidate,
            None => Role::Alone,
        };
        let permission = BindPermission::new(self.options.authorization, api.clone());
        GateState(Arc::new(GateStateInner {
            reviewer: Arc::new(Reviewer {
                judge: Judge::default(),
                api,
                permission: Arc::new(permission),
                leadership: Arc::new(Leadership::new(role)),
                is_open: AtomicBool::new(false),
                own_namespace: self.options.namespace.clone(),
                metrics: GateMetrics::default(),
                begun: Instant::now(),
                reads: Semaphore::new(READS),
            }),
            progress: Arc::new(kinds::progress()),
            keeper,
            election: self.options.election.clone(),
            stopping: AtomicBool::new(false),
        }))
    }
}

/// Starts the watches. The future ends if one of them does.
async fn follow(
    connect: &Connect,
    state: &GateState,
) -> Result<impl Future<Output = ()> + use<>, ConnectError> {
    let clients = connect.clients().await?;
    let mut reflectors = tokio::task::JoinSet::new();
    for (kind, resource) in &kinds::WATCHED {
        let handler = state.0.reviewer.judge.of(*kind);
        let (client, progress) = (clients.watch.clone(), state.0.progress.clone());
        reflectors.spawn(watch::reflect(
            resource,
            client,
            handler,
            progress,
            clients.pings,
        ));
    }
    Ok(async move {
        let _ = reflectors.join_next().await;
    })
}

/// Serves reviews, also those that a standby does not answer.
async fn answer(
    listener: AdmissionListener,
    keeper: &Arc<CertificateKeeper>,
    state: &GateState,
) -> std::io::Result<()> {
    let Some(certificate) = keeper.first().await else {
        return Ok(());
    };
    tracing::info!("serving reviews on https://{}", listener.address());
    let reviewer = state.0.reviewer.clone();
    let metrics = reviewer.metrics.reviews.clone();
    let path: ReviewPath = Arc::new(move |review: Review| {
        let reviewer = reviewer.clone();
        async move { reviewer.answer(&review).await }.boxed()
    });
    listener
        .serve(certificate, vec![(VALIDATE_BINDS, path)], metrics)
        .await
}

/// Reads the pods of binds that are not observed, and ends the holds of those that are not bound.
async fn settle_late_binds(reviewer: &Reviewer) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let since = reviewer.now();
        let late = reviewer.judge.lock().late_pods(since);
        let reads = futures::stream::iter(late).map(|held| settle(reviewer, held, since));
        reads.buffer_unordered(READS).collect::<()>().await;
    }
}

async fn settle(reviewer: &Reviewer, held: HeldPod, since: Duration) {
    let label = [("occasion", "late")];
    reviewer.metrics.reads.get_or_create(&label).inc();
    let read = reviewer::get_pod(&reviewer.api, &held.namespace, &held.name).await;
    let read = match read {
        Ok(Some(found)) if found.pod.uid == held.uid => match &found.pod.node {
            None => ReadPod::Unbound,
            Some(node) => ReadPod::On(node.clone()),
        },
        Ok(_) => ReadPod::Gone,
        // It is read again later.
        Err(why) => return tracing::debug!(pod = %held.name, "cannot read a pod: {why}"),
    };
    reviewer.judge.lock().settle(&held.uid, &read, since);
}

/// Lets this process answer while it leads and its watches work.
struct GateWork {
    client: kube::Client,
    api: Exchange,
    state: GateState,
    endpoint: GateEndpoint,
    /// For the watches.
    deadline: Duration,
}

impl LeaderWork for GateWork {
    async fn lead(&self, won: Instant) -> String {
        let (deadline, progress) = (self.deadline, &self.state.0.progress);
        let caught_up = async {
            fence(&self.api, progress, won).await;
            progress.usable().await;
            // The API server trusts the certificate before it sends anything.
            self.state.0.keeper.first().await;
        };
        if tokio::time::timeout(deadline, caught_up).await.is_err() {
            let why = progress.check_usable().err();
            let why = why.unwrap_or_else(|| "watches are behind".to_owned());
            return format!("watches are not up to date after {deadline:?}: {why}");
        }
        let reviewer = &self.state.0.reviewer;
        if reviewer.leadership.role() != Role::Alone {
            reviewer.leadership.set_role(Role::Leader);
        }
        if !self.state.0.stopping.load(Ordering::Relaxed) {
            reviewer.open();
        }
        tracing::info!(took = ?won.elapsed(), "watches are up to date; answering reviews");
        let why = tokio::select! {
            why = failing_for(deadline, || progress.check_usable()) => why,
            () = self.endpoint.keep(&self.client) => String::new(),
        };
        reviewer.close();
        format!("watches have failed for {deadline:?}: {why}")
    }

    async fn able(&self) {
        self.state.0.progress.usable().await;
    }
}

/// Serves the state of the component.
#[derive(Clone)]
struct GateState(Arc<GateStateInner>);

struct GateStateInner {
    reviewer: Arc<Reviewer>,
    progress: Arc<Progress>,
    keeper: Arc<CertificateKeeper>,
    election: Option<Election>,
    stopping: AtomicBool,
}

impl GateState {
    fn election_check(&self) -> Option<Check> {
        let election = self.0.election.as_ref()?;
        let leadership = &self.0.reviewer.leadership;
        Some(("leaderElection", leadership.check(election)))
    }
}

impl Component for GateState {
    fn healthy(&self) -> Vec<Check> {
        let election = self.election_check();
        election.map_or_else(|| self.live(), |check| vec![check])
    }

    /// A standby is ready, too: it can take over.
    fn ready(&self) -> Vec<Check> {
        let shutdown = match self.0.stopping.load(Ordering::Relaxed) {
            true => Err("process is shutting down".to_owned()),
            false => Ok(()),
        };
        let rest = [
            ("shutdown", shutdown),
            ("informer-sync", self.0.progress.check_synced()),
            ("watches", self.0.progress.check_followed()),
            ("certificate", self.0.keeper.check()),
        ];
        self.election_check().into_iter().chain(rest).collect()
    }

    fn warnings(&self) -> Vec<String> {
        self.0.keeper.warning().into_iter().collect()
    }

    fn metrics(&self) -> String {
        let mut registry = Registry::default();
        let reviewer = &self.0.reviewer;
        let roles = Family::<[(&str, &str); 1], Gauge>::default();
        registry.register("tidepool_role", "1 for the current role", roles.clone());
        for (role, label) in Role::ALL {
            let is_current = i64::from(role == reviewer.leadership.role());
            roles.get_or_create(&[("role", label)]).set(is_current);
        }
        let holds = reviewer.judge.lock().holds();
        reviewer.metrics.register(holds, &mut registry);
        reviewer.permission.register(&mut registry);
        self.0.keeper.register(&mut registry);
        encode_metrics(&registry)
    }
}
