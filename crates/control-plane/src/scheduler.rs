//! A running scheduler: one thread decides, one talks to the world.
//!
//! ```text
//!   API server ──► watch ──► Link ──► decide (engine)
//!        ▲                    │           │
//!        └──── carry out ◄────┴───────────┘
//! ```
//!
//! News and instructions cross between the threads in batches. Whatever an instruction comes to is reported as news;
//! there is no other way back, and nothing here decides.

mod bind;
mod carry_out;
mod decide;
mod events;
mod evict;
mod extenders;
mod line;
pub mod replay;
mod requests;
mod status;
mod volumes;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use api::config::{self, Configuration, Errors, Warning};
use engine::framework::Entry;
use engine::plugins;
use engine::profile::{Profile, ProfilesError};
use engine::scheduler::{Scheduler, Settings};
use tokio::sync::{mpsc, oneshot};

use crate::client::{Clients, Connect, ConnectError};
use crate::link::{Link, News};
use crate::notes::Notes;
use crate::watch::{self, Progress, Sink};
use carry_out::CarryOut;
pub use extenders::ExtenderError;
use extenders::Extenders;

/// The threads' names, for whoever measures them.
pub const IO_THREAD: &str = "tidepool-io";
pub const DECIDE_THREAD: &str = "tidepool-decide";

/// Time for requests under way when the scheduler stops.
const LONGEST_STOP: Duration = Duration::from_secs(5);
/// The I/O thread rests so long before it waits for more. Answers come one by one, each worth a wake-up, a read and a
/// write; what has come in the meantime shares them, which saves a tenth of the thread's CPU under load or more. Whoever
/// finds it waiting is served at once.
const NAP: Duration = Duration::from_millis(2);
/// Pods that cannot be read and wait to be told so.
const MOST_UNREADABLE: usize = 1_000;

pub struct Options {
    pub profiles: Vec<Profile>,
    pub settings: Settings,
    /// How to reach each of the settings' extenders, in the same order.
    pub extenders: Vec<config::Extender>,
    /// This machine, as events name it.
    pub host: String,
    /// Whether to decide at once, or only after [`Running::decide`].
    pub decide: bool,
}

impl Options {
    /// What a configuration says, with these plugins to choose from.
    pub fn new(
        configuration: &Configuration,
        plugins: &[Entry],
        host: &str,
    ) -> Result<(Self, Vec<Warning>), Errors> {
        let (profiles, warnings) = configuration.profiles(plugins)?;
        let options = Self {
            profiles,
            settings: configuration.settings(),
            extenders: configuration.extenders.clone(),
            host: host.to_owned(),
            decide: true,
        };
        Ok((options, warnings))
    }

    /// One profile with this name and everything else as kube-scheduler has it by default.
    pub fn with_defaults(scheduler_name: &str, host: &str) -> Result<Self, Errors> {
        let mut configuration = Configuration::default();
        for profile in &mut configuration.profiles {
            profile.scheduler_name = scheduler_name.to_owned();
        }
        Ok(Self::new(&configuration, plugins::ALL, host)?.0)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Profiles(#[from] ProfilesError),
    #[error("cannot start a thread")]
    Thread(#[from] std::io::Error),
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
    stop: Option<oneshot::Sender<()>>,
    ended: oneshot::Receiver<Result<(), Ended>>,
    decide: Option<JoinHandle<()>>,
}

impl Running {
    pub fn start(connect: Connect, options: Options) -> Result<Self, StartError> {
        let Options {
            profiles,
            settings,
            extenders,
            host,
            decide,
        } = options;
        if settings.extenders.len() != extenders.len() {
            return Err(StartError::Extenders {
                extenders: settings.extenders.len(),
                endpoints: extenders.len(),
            });
        }
        let engine = Scheduler::new(profiles, settings)?;
        let names = engine.profiles().iter();
        let notes = Notes::new(names.map(|it| it.scheduler_name.clone()).collect());
        let shared = Shared {
            link: Arc::default(),
            notes: Arc::new(notes),
            counters: Arc::default(),
            progress: Arc::default(),
        };
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let running = Self {
            link: shared.link.clone(),
            counters: shared.counters.clone(),
            progress: shared.progress.clone(),
            stop: Some(stop),
            ended,
            decide: Some(decide::start(engine, shared.link.clone(), decide)?),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_park(|| std::thread::sleep(NAP))
            .build()?;
        std::thread::Builder::new()
            .name(IO_THREAD.into())
            .spawn(move || {
                let result = runtime.block_on(talk(connect, shared, extenders, host, stopped));
                // Nobody listens if the scheduler was dropped.
                let _ = end.send(result);
                // What is still open leads nowhere.
                runtime.shutdown_background();
            })?;
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

    /// Returns when something broke that cannot be mended here.
    pub async fn ended(&mut self) -> Ended {
        match (&mut self.ended).await {
            Ok(Err(why)) => why,
            // It ends in order only because the other one has ended.
            Ok(Ok(())) => Ended::Thread(DECIDE_THREAD),
            Err(_) => Ended::Thread(IO_THREAD),
        }
    }

    /// Decides nothing more and lets requests under way finish, for a while.
    pub async fn stop(mut self) {
        self.link.close();
        drop(self.stop.take());
        if tokio::time::timeout(2 * LONGEST_STOP, &mut self.ended)
            .await
            .is_err()
        {
            tracing::warn!("the connections did not end in time");
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

/// What both threads hold.
struct Shared {
    link: Arc<Link>,
    notes: Arc<Notes>,
    counters: Arc<Counters>,
    progress: Arc<Progress>,
}

/// The I/O thread: followers of every kind, and the one that carries out instructions.
async fn talk(
    connect: Connect,
    shared: Shared,
    extenders: Vec<config::Extender>,
    host: String,
    mut stopped: oneshot::Receiver<()>,
) -> Result<(), Ended> {
    let extenders = Extenders::connect(extenders).await?;
    let clients: Clients = tokio::select! {
        clients = connect.clients() => clients?,
        _ = &mut stopped => return Ok(()),
    };
    let (complain, unreadable) = mpsc::channel(MOST_UNREADABLE);
    let sink = Sink {
        link: shared.link.clone(),
        notes: shared.notes.clone(),
        unreadable: complain,
        progress: shared.progress,
    };
    let mut followers = tokio::task::JoinSet::new();
    for kind in watch::ALL {
        followers.spawn(watch::follow(kind, clients.watch.clone(), sink.clone()));
    }
    let mut carry_out = CarryOut::new(
        clients.write,
        shared.link.clone(),
        shared.notes,
        shared.counters,
        extenders,
        &host,
    );
    let stopped = async {
        // An error is a scheduler that was dropped: stop as well.
        let _ = stopped.await;
    };
    tokio::select! {
        () = carry_out.run(unreadable) => {}
        () = shared.link.closed() => {}
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
