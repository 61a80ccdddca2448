//! A running scheduler: one thread decides, one does the I/O.
//!
//! ```text
//!   API server ──► watch ──► channel ──► decide (engine)
//!        ▲                      │             │
//!        └────── executor ◄─────┴─────────────┘
//! ```
//!
//! Messages and outcomes cross the channel in batches. The result of an outcome comes back as a message, and only the
//! engine decides. The side thread holds the Lease and serves HTTP.
//!
//! | module | content |
//! |---|---|
//! | [`decide`] | the deciding thread |
//! | [`channel`] | messages and outcomes between the threads |
//! | [`side_thread`] | the Lease and the HTTP server |
//! | [`http`] | the scheduler's HTTP API |
//! | [`handle`] | status, queries, health and metrics, for other threads |
//! | [`write`] | the executor and its requests |
//! | [`observe`] | metrics, timings, attempts, scores, log lines |
//! | [`kinds`] | the kinds it watches, and how their objects become inputs of the engine |
//! | [`pods`], [`claim_waits`] | what writes need to know about pending pods and their claims |
//! | [`mode`], [`options`] | how to run beside kube-scheduler, and what to start with |
//! | [`resource_claims`] | a warning about an unsupported feature |

pub(crate) mod channel;
pub(crate) mod claim_waits;
mod decide;
mod handle;
mod http;
pub(crate) mod kinds;
mod mode;
pub mod observe;
mod options;
pub(crate) mod pods;
mod resource_claims;
mod side_thread;
pub mod write;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use api::config;
use engine::scheduling::profile::ProfilesError;
use engine::scheduling::scheduler::Scheduler;
use tokio::sync::{mpsc, oneshot};

use crate::client::{Clients, Connect, ConnectError};
use crate::election::LeaseError;
use api::http::Role;

use crate::election::leadership::Leadership;
use crate::scheduler::channel::{Channel, Message};
use crate::scheduler::claim_waits::ClaimWaits;
use crate::scheduler::observe::metrics::Metrics;
use crate::scheduler::pods::PendingPods;
use crate::serve::{Serve, ServeError};
use handle::{EngineStats, SchedulerInfo};
pub use handle::{Handle, QueryError};
use kinds::Inbox;
pub use mode::{DEFAULT_LEASE, DEFAULT_SCHEDULER, Mode, ModeError, SECOND_LEASE, SECOND_SCHEDULER};
use observe::attempts::Attempts;
pub(crate) use observe::scores::ScoreRecorder;
use observe::timings::Timings;
pub use options::Options;
use reconcile::watch::{self, Progress};
use side_thread::SideThread;
use write::executor::Executor;
pub use write::extenders::ExtenderError;
use write::extenders::Extenders;
pub use write::replay;

/// Names of the threads, for measurements.
pub const IO_THREAD: &str = "tidepool-io";
pub const DECIDE_THREAD: &str = "tidepool-decide";
pub const SIDE_THREAD: &str = "tidepool-side";

/// Time for requests in flight when the scheduler stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for requests in flight when the Lease is lost: another replica may start at any time.
const LEASE_LOST_TIMEOUT: Duration = Duration::from_secs(1);
/// The I/O thread sleeps so long before it waits for events. Each response costs a wake-up, a read and a write; responses
/// that arrive during the pause share them, which saves a tenth of the thread's CPU or more under load. An event that
/// finds the thread waiting is handled at once.
const IDLE_PAUSE: Duration = Duration::from_millis(2);
/// The first lists wait so long for the first attempt to take the Lease: lists that begin after winning pass the fence.
const FIRST_LEASE_ATTEMPT: Duration = Duration::from_secs(1);
/// Invalid objects that wait for the executor.
const MOST_PROBLEMS: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Profiles(#[from] ProfilesError),
    #[error("cannot start a thread")]
    Thread(#[from] std::io::Error),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("{extenders} extenders are configured, but {endpoints} addresses are given")]
    Extenders { extenders: usize, endpoints: usize },
}

/// Why a scheduler ended without being stopped.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Extender(#[from] ExtenderError),
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error("cannot listen for HTTP")]
    Listen(#[source] std::io::Error),
    #[error("thread {0} ended unexpectedly; the log has the reason")]
    Thread(&'static str),
}

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Counters {
    pub bound: AtomicU64,
    pub bind_failures: AtomicU64,
    /// Binds whose response was lost, so that the pod had to be read.
    pub bind_unknown: AtomicU64,
    pub events_written: AtomicU64,
    pub events_dropped: AtomicU64,
    pub patches: AtomicU64,
    pub victims: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A running scheduler. Dropping it stops it at once; [`Running::stop`] lets requests in flight finish.
pub struct Running {
    channel: Arc<Channel>,
    counters: Arc<Counters>,
    progress: Arc<Progress>,
    handle: Handle,
    server: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    ended: ThreadEnd,
    decide: Option<JoinHandle<()>>,
    side: Option<SideHandle>,
}

/// The running side thread.
struct SideHandle {
    stop: Option<oneshot::Sender<()>>,
    ended: ThreadEnd,
}

/// The result of a thread, which can be waited for again after it has ended.
struct ThreadEnd(Option<oneshot::Receiver<Result<(), Ended>>>);

impl ThreadEnd {
    /// `None` if the thread panicked, or if its result was taken before.
    async fn wait(&mut self) -> Option<Result<(), Ended>> {
        let result = self.0.as_mut()?.await;
        self.0 = None;
        result.ok()
    }
}

impl Running {
    pub fn start(connect: Connect, options: Options) -> Result<Self, StartError> {
        let Options {
            profiles,
            mut settings,
            extenders,
            host,
            decide,
            mode,
            election,
            serve,
            configuration,
            debug_scores,
        } = options;
        if settings.extenders.len() != extenders.len() {
            return Err(StartError::Extenders {
                extenders: settings.extenders.len(),
                endpoints: extenders.len(),
            });
        }
        let listening = serve.map(Serve::listen).transpose()?;
        let server = listening.as_ref().map(|listening| listening.address());
        let metrics = Arc::new(Metrics::new());
        let timings = Arc::new(Timings::new(metrics.clone(), &profiles));
        settings.hooks = settings.hooks.with_probe(timings.clone());
        let engine = Scheduler::new(profiles, settings)?;
        let names: Vec<_> = engine
            .profiles()
            .iter()
            .map(|it| it.scheduler_name.clone())
            .collect();
        let schedulers: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let role = match (mode, &election) {
            (Mode::Observe, _) => Role::Observer,
            (_, Some(_)) => Role::Candidate,
            (_, None) => Role::Alone,
        };
        let (scores, score_log) = ScoreRecorder::new(debug_scores);
        let shared = Shared {
            scores,
            channel: Arc::default(),
            pods: Arc::new(PendingPods::new(names)),
            claim_waits: Arc::default(),
            counters: Arc::default(),
            progress: Arc::new(kinds::progress()),
            leadership: Arc::new(Leadership::new(role)),
            metrics: metrics.clone(),
        };
        let stats = Arc::<EngineStats>::default();
        let info = SchedulerInfo {
            mode,
            identity: election
                .as_ref()
                .map_or_else(|| host.clone(), |it| it.identity.clone()),
            election: election.clone(),
            schedulers: schedulers.clone(),
            configuration,
        };
        let handle = Handle::new(info, &shared, stats.clone());
        let attempts = Attempts::new(metrics, timings, engine.profiles());
        let decide = decide && election.is_none();
        let decide = decide::start(engine, &shared, attempts, stats, decide)?;
        let side = SideThread {
            connect: connect.clone(),
            election,
            listening,
            handle: handle.clone(),
            schedulers,
        };
        let side = side
            .is_needed()
            .then(|| start_side(side, shared.clone()))
            .transpose()?;
        let (stop, stopped) = oneshot::channel();
        let running = Self {
            channel: shared.channel.clone(),
            counters: shared.counters.clone(),
            progress: shared.progress.clone(),
            handle,
            server,
            stop: Some(stop),
            decide: Some(decide),
            side,
            ended: spawn(IO_THREAD, Some(IDLE_PAUSE), async move {
                tokio::spawn(score_log.write(shared.scores.clone()));
                run_io(connect, shared, extenders, host, mode, stopped).await
            })?,
        };
        Ok(running)
    }

    /// Starts or stops deciding; watches go on.
    pub async fn decide(&self, decide: bool) {
        self.channel.send(vec![Message::Decide(decide)]).await;
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The progress of the watches.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The address of its HTTP server.
    pub fn server(&self) -> Option<SocketAddr> {
        self.server
    }

    /// Returns when the scheduler has failed. [`Running::stop`] still cleans up.
    pub async fn ended(&mut self) -> Ended {
        let side = async {
            match &mut self.side {
                Some(side) => side.ended.wait().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = self.ended.wait() => match ended {
                Some(Err(why)) => why,
                // It ends without an error only if the deciding thread has ended.
                Some(Ok(())) => Ended::Thread(DECIDE_THREAD),
                None => Ended::Thread(IO_THREAD),
            },
            ended = side => match ended {
                Some(Err(why)) => {
                    // Another replica may start any time.
                    self.channel.close();
                    let _ = tokio::time::timeout(LEASE_LOST_TIMEOUT, self.ended.wait()).await;
                    why
                }
                Some(Ok(())) | None => Ended::Thread(SIDE_THREAD),
            },
        }
    }

    /// Stops deciding, waits for requests in flight, and releases the Lease.
    pub async fn stop(mut self) {
        self.handle.stopping();
        self.channel.close();
        drop(self.stop.take());
        if tokio::time::timeout(2 * STOP_TIMEOUT, self.ended.wait())
            .await
            .is_err()
        {
            tracing::warn!("requests did not end in time");
        }
        if let Some(mut side) = self.side.take() {
            drop(side.stop.take());
            // It logs its own errors.
            let _ = tokio::time::timeout(STOP_TIMEOUT, side.ended.wait()).await;
        }
        if let Some(decide) = self.decide.take() {
            // It sees the closed channel after its current decision; a panic is in the log.
            let _ = tokio::task::spawn_blocking(move || decide.join()).await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.channel.close();
    }
}

/// State of all threads.
#[derive(Clone)]
pub(crate) struct Shared {
    channel: Arc<Channel>,
    pods: Arc<PendingPods>,
    claim_waits: Arc<ClaimWaits>,
    counters: Arc<Counters>,
    progress: Arc<Progress>,
    leadership: Arc<Leadership>,
    metrics: Arc<Metrics>,
    scores: Arc<ScoreRecorder>,
}

fn start_side(side: SideThread, shared: Shared) -> std::io::Result<SideHandle> {
    let (stop, stopped) = oneshot::channel();
    let ended = spawn(SIDE_THREAD, None, async move {
        side.run(&shared, stopped).await
    })?;
    Ok(SideHandle {
        stop: Some(stop),
        ended,
    })
}

/// Runs the future on a thread and runtime of its own, which may pause before it waits. Returns its result.
fn spawn(
    name: &str,
    pause: Option<Duration>,
    work: impl Future<Output = Result<(), Ended>> + Send + 'static,
) -> std::io::Result<ThreadEnd> {
    let (end, ended) = oneshot::channel();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    if let Some(pause) = pause {
        runtime.on_thread_park(move || std::thread::sleep(pause));
    }
    let runtime = runtime.enable_all().build()?;
    std::thread::Builder::new()
        .name(name.into())
        .spawn(move || {
            let result = runtime.block_on(work);
            // There is no receiver if the scheduler was dropped.
            let _ = end.send(result);
            // Remaining tasks are of no use.
            runtime.shutdown_background();
        })?;
    Ok(ThreadEnd(Some(ended)))
}

/// The I/O thread: a reflector for every kind, and the executor.
async fn run_io(
    connect: Connect,
    shared: Shared,
    extenders: Vec<config::Extender>,
    host: String,
    mode: Mode,
    mut stopped: oneshot::Receiver<()>,
) -> Result<(), Ended> {
    match mode {
        Mode::Observe => {
            tracing::info!(%mode, "starting scheduler: decisions are logged, nothing is written")
        }
        Mode::Second | Mode::Primary => tracing::info!(%mode, "starting scheduler"),
    }
    let extenders = Extenders::connect(extenders).await?;
    let clients: Clients = tokio::select! {
        clients = connect.clients() => clients?,
        _ = &mut stopped => return Ok(()),
    };
    // Watches begin in any case.
    let _ = tokio::time::timeout(FIRST_LEASE_ATTEMPT, shared.leadership.tried()).await;
    let (sender, problems) = mpsc::channel(MOST_PROBLEMS);
    let inbox = Inbox {
        channel: shared.channel.clone(),
        pods: shared.pods.clone(),
        claim_waits: shared.claim_waits.clone(),
        problems: sender,
    };
    let mut reflectors = tokio::task::JoinSet::new();
    for (kind, resource) in kinds::WATCHED {
        let (client, inbox) = (clients.watch.clone(), inbox.clone().of(*kind));
        let progress = shared.progress.clone();
        let reflect = watch::reflect(resource, client, inbox, progress, clients.pings);
        reflectors.spawn(reflect);
    }
    if mode == Mode::Primary {
        tokio::spawn(resource_claims::warn(clients.write.clone()));
    }
    let channel = shared.channel.clone();
    let mut executor = Executor::new(clients.write, shared, extenders, mode, &host);
    let stopped = async {
        // An error is a scheduler that was dropped: stop as well.
        let _ = stopped.await;
    };
    tokio::select! {
        () = executor.run(problems) => {}
        () = channel.closed() => {}
        () = stopped => {}
        _ = reflectors.join_next() => return Err(Ended::Thread(IO_THREAD)),
    }
    if tokio::time::timeout(STOP_TIMEOUT, executor.finish())
        .await
        .is_err()
    {
        tracing::warn!("some requests did not end within {STOP_TIMEOUT:?}");
    }
    Ok(())
}
