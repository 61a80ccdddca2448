//! A running scheduler: one thread decides, one talks to the world.
//!
//! ```text
//!   API server ──► watch ──► Link ──► decide (engine)
//!        ▲                    │           │
//!        └──── carry out ◄────┴───────────┘
//! ```
//!
//! News and instructions cross between the threads in batches. Whatever an instruction comes to is reported as news;
//! there is no other way back, and nothing here decides. A third thread holds the Lease and answers HTTP.

pub(crate) mod channel;
pub(crate) mod claim_waits;
mod decide;
mod handle;
mod http;
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
use engine::profile::ProfilesError;
use engine::scheduler::Scheduler;
use tokio::sync::{mpsc, oneshot};

use crate::client::{Clients, Connect, ConnectError};
use crate::election::LeaseError;
use crate::election::leadership::{Leadership, Role};
use crate::scheduler::channel::{Link, News};
use crate::scheduler::claim_waits::Awaited;
use crate::scheduler::observe::metrics::Metrics;
use crate::scheduler::pods::Notes;
use crate::serve::{Serve, ServeError};
use crate::watch::{self, Progress, Sink};
use handle::{About, Board};
pub use handle::{Handle, Unanswered};
pub use mode::{DEFAULT_LEASE, DEFAULT_SCHEDULER, Mode, ModeError, SECOND_LEASE, SECOND_SCHEDULER};
use observe::attempts::Observer;
pub(crate) use observe::scores::Recorder;
use observe::timings::Stopwatch;
pub use options::Options;
use side_thread::SideThread;
use write::executor::CarryOut;
pub use write::extenders::ExtenderError;
use write::extenders::Extenders;
pub use write::replay;

/// The threads' names, for whoever measures them.
pub const IO_THREAD: &str = "tidepool-io";
pub const DECIDE_THREAD: &str = "tidepool-decide";
pub const SIDE_THREAD: &str = "tidepool-side";

/// Time for requests under way when the scheduler stops.
const LONGEST_STOP: Duration = Duration::from_secs(5);
/// The I/O thread rests so long before it waits for more. Answers come one by one, each worth a wake-up, a read and a
/// write; what has come in the meantime shares them, which saves a tenth of the thread's CPU under load or more. Whoever
/// finds it waiting is served at once.
const NAP: Duration = Duration::from_millis(2);
/// And when the Lease is lost, as another may begin any time.
const LONGEST_GOODBYE: Duration = Duration::from_secs(1);
/// The first lists wait so long for the answer to our first question for the Lease: lists that begin after winning need
/// no proof that they are new enough.
const FIRST_TRY: Duration = Duration::from_secs(1);
/// Pods that cannot be read and wait to be told so.
const MOST_UNREADABLE: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Profiles(#[from] ProfilesError),
    #[error("cannot start a thread")]
    Thread(#[from] std::io::Error),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("{extenders} extenders decide, but {endpoints} addresses are given")]
    Extenders { extenders: usize, endpoints: usize },
}

/// Why a scheduler ended by itself.
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
    #[error("the {0} thread ended unexpectedly; its last words are in the log")]
    Thread(&'static str),
}

/// What happened since the start.
#[derive(Debug, Default)]
pub struct Counters {
    pub bound: AtomicU64,
    pub bind_failures: AtomicU64,
    /// Binds whose answer was lost, so that the pod had to be read.
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

/// A scheduler at work. Dropping it stops it at once; [`Running::stop`] lets requests under way finish.
pub struct Running {
    link: Arc<Link>,
    counters: Arc<Counters>,
    progress: Arc<Progress>,
    handle: Handle,
    server: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    ended: oneshot::Receiver<Result<(), Ended>>,
    decide: Option<JoinHandle<()>>,
    side: Option<SideHandle>,
}

/// The running side thread.
struct SideHandle {
    stop: Option<oneshot::Sender<()>>,
    ended: oneshot::Receiver<Result<(), Ended>>,
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
        let stopwatch = Arc::new(Stopwatch::new(metrics.clone(), &profiles));
        settings.hooks = settings.hooks.and(stopwatch.clone());
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
        let (recorder, log) = Recorder::new(debug_scores);
        let shared = Shared {
            recorder,
            link: Arc::default(),
            notes: Arc::new(Notes::new(names)),
            awaited: Arc::default(),
            counters: Arc::default(),
            progress: Arc::default(),
            leadership: Arc::new(Leadership::new(role)),
            metrics: metrics.clone(),
        };
        let board = Arc::<Board>::default();
        let about = About {
            mode,
            identity: election
                .as_ref()
                .map_or_else(|| host.clone(), |it| it.identity.clone()),
            election: election.clone(),
            schedulers: schedulers.clone(),
            configuration,
        };
        let handle = Handle::new(about, &shared, board.clone());
        let observer = Observer::new(metrics, stopwatch, engine.profiles());
        let decide = decide && election.is_none();
        let decide = decide::start(engine, &shared, observer, board, decide)?;
        let side = SideThread {
            connect: connect.clone(),
            election,
            listening,
            handle: handle.clone(),
            reporter: schedulers.first().cloned().unwrap_or_default(),
        };
        let side = side
            .is_needed()
            .then(|| start_side(side, shared.clone()))
            .transpose()?;
        let (stop, stopped) = oneshot::channel();
        let running = Self {
            link: shared.link.clone(),
            counters: shared.counters.clone(),
            progress: shared.progress.clone(),
            handle,
            server,
            stop: Some(stop),
            decide: Some(decide),
            side,
            ended: spawn(IO_THREAD, Some(NAP), async move {
                tokio::spawn(log.write(shared.recorder.clone()));
                talk(connect, shared, extenders, host, mode, stopped).await
            })?,
        };
        Ok(running)
    }

    /// Begins to decide, or stops deciding; watching goes on.
    pub async fn decide(&self, decide: bool) {
        self.link.tell(vec![News::Decide(decide)]).await;
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How far the watches have come.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// For whoever wants to ask it something.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Where its HTTP server listens.
    pub fn server(&self) -> Option<SocketAddr> {
        self.server
    }

    /// Returns when something broke that cannot be mended here.
    pub async fn ended(&mut self) -> Ended {
        let side = async {
            match &mut self.side {
                Some(side) => (&mut side.ended).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = &mut self.ended => match ended {
                Ok(Err(why)) => why,
                // It ends in order only because the other one has ended.
                Ok(Ok(())) => Ended::Thread(DECIDE_THREAD),
                Err(_) => Ended::Thread(IO_THREAD),
            },
            ended = side => match ended {
                Ok(Err(why)) => {
                    // Whoever is leader now may begin any time.
                    self.link.close();
                    let _ = tokio::time::timeout(LONGEST_GOODBYE, &mut self.ended).await;
                    why
                }
                Ok(Ok(())) | Err(_) => Ended::Thread(SIDE_THREAD),
            },
        }
    }

    /// Decides nothing more, lets requests under way finish for a while, and gives the Lease back.
    pub async fn stop(mut self) {
        self.handle.stopping();
        self.link.close();
        drop(self.stop.take());
        if tokio::time::timeout(2 * LONGEST_STOP, &mut self.ended)
            .await
            .is_err()
        {
            tracing::warn!("the connections did not end in time");
        }
        if let Some(mut side) = self.side.take() {
            drop(side.stop.take());
            // It logs its own errors.
            let _ = tokio::time::timeout(LONGEST_STOP, &mut side.ended).await;
        }
        if let Some(decide) = self.decide.take() {
            // It sees the closed link after the decision it is at; a panic has been logged.
            let _ = tokio::task::spawn_blocking(move || decide.join()).await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.link.close();
    }
}

/// What the threads hold.
#[derive(Clone)]
pub(crate) struct Shared {
    link: Arc<Link>,
    notes: Arc<Notes>,
    awaited: Arc<Awaited>,
    counters: Arc<Counters>,
    progress: Arc<Progress>,
    leadership: Arc<Leadership>,
    metrics: Arc<Metrics>,
    recorder: Arc<Recorder>,
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

/// A thread with a runtime of its own for this, which may rest before it waits, and how it ended.
fn spawn(
    name: &str,
    nap: Option<Duration>,
    work: impl Future<Output = Result<(), Ended>> + Send + 'static,
) -> std::io::Result<oneshot::Receiver<Result<(), Ended>>> {
    let (end, ended) = oneshot::channel();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    if let Some(nap) = nap {
        runtime.on_thread_park(move || std::thread::sleep(nap));
    }
    let runtime = runtime.enable_all().build()?;
    std::thread::Builder::new()
        .name(name.into())
        .spawn(move || {
            let result = runtime.block_on(work);
            // Nobody listens if the scheduler was dropped.
            let _ = end.send(result);
            // What is still open leads nowhere.
            runtime.shutdown_background();
        })?;
    Ok(ended)
}

/// The I/O thread: followers of every kind, and the one that carries out instructions.
async fn talk(
    connect: Connect,
    shared: Shared,
    extenders: Vec<config::Extender>,
    host: String,
    mode: Mode,
    mut stopped: oneshot::Receiver<()>,
) -> Result<(), Ended> {
    match mode {
        Mode::Observe => {
            tracing::info!("only observes: decisions are logged, and nothing is written")
        }
        Mode::Second | Mode::Primary => tracing::info!(%mode, "begins"),
    }
    let extenders = Extenders::connect(extenders).await?;
    let clients: Clients = tokio::select! {
        clients = connect.clients() => clients?,
        _ = &mut stopped => return Ok(()),
    };
    // However that went: watching begins.
    let _ = tokio::time::timeout(FIRST_TRY, shared.leadership.tried()).await;
    let (complain, unreadable) = mpsc::channel(MOST_UNREADABLE);
    let sink = Sink {
        link: shared.link.clone(),
        notes: shared.notes.clone(),
        awaited: shared.awaited.clone(),
        unreadable: complain,
        progress: shared.progress.clone(),
    };
    let mut followers = tokio::task::JoinSet::new();
    for kind in watch::ALL {
        followers.spawn(watch::follow(kind, clients.watch.clone(), sink.clone()));
    }
    if mode == Mode::Primary {
        tokio::spawn(resource_claims::warn(clients.write.clone()));
    }
    let link = shared.link.clone();
    let mut carry_out = CarryOut::new(clients.write, shared, extenders, mode, &host);
    let stopped = async {
        // An error is a scheduler that was dropped: stop as well.
        let _ = stopped.await;
    };
    tokio::select! {
        () = carry_out.run(unreadable) => {}
        () = link.closed() => {}
        () = stopped => {}
        _ = followers.join_next() => return Err(Ended::Thread(IO_THREAD)),
    }
    if tokio::time::timeout(LONGEST_STOP, carry_out.finish())
        .await
        .is_err()
    {
        tracing::warn!("some requests did not end within {LONGEST_STOP:?}");
    }
    Ok(())
}
