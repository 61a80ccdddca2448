//! What may be asked of a running scheduler, from any thread and without holding it up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::scheduler::{PodReport, Scheduler};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{Counters, Mode, Recorder};
use crate::election::Election;
use crate::election::leadership::{Leadership, Role};
use crate::scheduler::channel::{Dump, Link, Question};
use crate::scheduler::observe::metrics::{InQueue, KindLabel, Metrics, RoleLabel};
use crate::serve::{Check, Component};
use crate::status::{ClusterSize, Queue, SinceStart, Status, Watch};
use crate::watch::Progress;

/// Questions that may wait for an answer at the same time.
const MOST_QUESTIONS: usize = 8;
/// Dumps that may be on their way at the same time: each is a copy of the numbers of all nodes.
const MOST_DUMPS: usize = 4;
/// An answer takes milliseconds; this is for a thread that is stuck.
const LONGEST_QUESTION: Duration = Duration::from_secs(10);
/// The rest of a status is worth more than the pod that waits longest.
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    #[error("too many questions wait for an answer: ask again")]
    Busy,
    #[error("there was no answer in time")]
    Late,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

struct Inner {
    about: About,
    link: Arc<Link>,
    questions: Semaphore,
    dumps: Arc<Semaphore>,
    counters: Arc<Counters>,
    progress: Arc<Progress>,
    leadership: Arc<Leadership>,
    metrics: Arc<Metrics>,
    recorder: Arc<Recorder>,
    board: Arc<Board>,
    stopping: AtomicBool,
    begun: Instant,
}

/// What does not change.
pub(super) struct About {
    pub(super) mode: Mode,
    pub(super) schedulers: Vec<String>,
    pub(super) election: Option<Election>,
    pub(super) identity: String,
    /// For `/configz`.
    pub(super) configuration: Value,
}

/// What the deciding thread lets others see.
#[derive(Debug, Default)]
pub(super) struct Board {
    deciding: AtomicBool,
    nodes: AtomicU64,
    placed: AtomicU64,
    assumed: AtomicU64,
    homeless_reports: AtomicU64,
    active: AtomicU64,
    backoff: AtomicU64,
    unschedulable: AtomicU64,
    gated: AtomicU64,
    in_flight: AtomicU64,
    warnings: Mutex<Vec<String>>,
}

impl Board {
    /// What people should know of the configuration, now that nodes are known.
    pub(super) fn warn(&self, warnings: Vec<String>) {
        *self.warnings.lock().unwrap_or_else(PoisonError::into_inner) = warnings;
    }

    pub(super) fn show(&self, engine: &Scheduler, deciding: bool) {
        let sizes = engine.sizes();
        let cluster = engine.cluster();
        let assumed = engine.under_way();
        for (place, count) in [
            (&self.nodes, cluster.nodes().len()),
            (&self.placed, cluster.placed_count().saturating_sub(assumed)),
            (&self.assumed, assumed),
            (&self.homeless_reports, cluster.homeless_reports()),
            (&self.active, sizes.active),
            (&self.backoff, sizes.backoff),
            (&self.unschedulable, sizes.unschedulable),
            (&self.gated, sizes.gated),
            (&self.in_flight, sizes.in_flight),
        ] {
            place.store(count as u64, Ordering::Relaxed);
        }
        self.deciding.store(deciding, Ordering::Relaxed);
    }
}

impl Handle {
    pub(super) fn new(about: About, shared: &super::Shared, board: Arc<Board>) -> Self {
        Self(Arc::new(Inner {
            about,
            link: shared.link.clone(),
            questions: Semaphore::new(MOST_QUESTIONS),
            dumps: Arc::new(Semaphore::new(MOST_DUMPS)),
            counters: shared.counters.clone(),
            progress: shared.progress.clone(),
            leadership: shared.leadership.clone(),
            metrics: shared.metrics.clone(),
            recorder: shared.recorder.clone(),
            board,
            stopping: AtomicBool::new(false),
            begun: Instant::now(),
        }))
    }

    pub(super) fn stopping(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
    }

    pub fn status(&self) -> Status {
        let inner = &*self.0;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (board, counters) = (&inner.board, &inner.counters);
        let watches = inner
            .progress
            .kinds()
            .into_iter()
            .map(|(name, kind)| Watch {
                kind: name.to_owned(),
                resource_version: kind.version,
                synced: kind.synced,
                missing: kind.missing,
                silent_seconds: kind.heard.map(|at| at.elapsed().as_secs_f64()),
                trouble: kind.broken.map(|(_, why)| why),
            });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: inner.about.mode.to_string(),
            role: inner.leadership.role(),
            identity: inner.about.identity.clone(),
            lease: inner
                .about
                .election
                .as_ref()
                .map(|election| format!("{}/{}", election.namespace, election.name)),
            leader: inner.leadership.leader(),
            uptime_seconds: inner.begun.elapsed().as_secs_f64(),
            schedulers: inner.about.schedulers.clone(),
            deciding: board.deciding.load(Ordering::Relaxed),
            cluster: ClusterSize {
                nodes: get(&board.nodes),
                placed_pods: get(&board.placed),
                assumed_pods: get(&board.assumed),
                reports_without_node: get(&board.homeless_reports),
            },
            queue: Queue {
                active: get(&board.active),
                backoff: get(&board.backoff),
                unschedulable: get(&board.unschedulable),
                gated: get(&board.gated),
                in_flight: get(&board.in_flight),
            },
            oldest_waiting: None,
            first_reports_without_node: Vec::new(),
            since_start: SinceStart {
                bound: get(&counters.bound),
                bind_failures: get(&counters.bind_failures),
                bind_unknown: get(&counters.bind_unknown),
                events_written: get(&counters.events_written),
                events_dropped: get(&counters.events_dropped),
                status_patches: get(&counters.patches),
                victims: get(&counters.victims),
            },
            watches: watches.collect(),
            warnings: board
                .warnings
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }

    /// Writes the most important numbers into the log, however little is logged: somebody asked for them by a signal.
    pub fn log_sizes(&self) {
        let Status { cluster, queue, .. } = self.status();
        tracing::info!(
            target: "asked",
            nodes = cluster.nodes,
            bound = cluster.placed_pods,
            assumed = cluster.assumed_pods,
            deciding = queue.in_flight,
            active = queue.active,
            backoff = queue.backoff,
            unschedulable = queue.unschedulable,
            gated = queue.gated,
            "what is known; GET /debug/cache or `tidepool debug cache` has it node by node"
        );
    }

    /// The same with what only the deciding thread knows.
    pub async fn whole_status(&self) -> Status {
        let mut status = self.status();
        if let Ok(_permit) = self.0.questions.try_acquire() {
            let (answer, answered) = oneshot::channel();
            self.0.link.ask_for_a_look(answer);
            if let Ok(Ok(look)) = tokio::time::timeout(LONGEST_LOOK, answered).await {
                status.oldest_waiting = look.oldest;
                status.first_reports_without_node = look.homeless;
            }
        }
        status
    }

    /// All there is to say about a pod; `None` if it is not known here.
    pub async fn explain(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<PodReport>, Unanswered> {
        self.ask(|answer| Question::Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            answer,
        })
        .await
    }

    /// What is known of all nodes. The permit is to be kept until the answer is sent.
    pub(crate) async fn nodes(&self) -> Result<(Dump, OwnedSemaphorePermit), Unanswered> {
        let permit = self.0.dumps.clone().try_acquire_owned();
        let permit = permit.map_err(|_| Unanswered::Busy)?;
        let dump = self.ask(|answer| Question::Cache { node: None, answer });
        // There is always an answer about all.
        let dump = dump.await?.ok_or(Unanswered::Late)?;
        Ok((dump, permit))
    }

    /// What is known of one node; `None` if it is not known here.
    pub(crate) async fn node(&self, name: &str) -> Result<Option<Dump>, Unanswered> {
        let node = Some(name.to_owned());
        self.ask(|answer| Question::Cache { node, answer }).await
    }

    async fn ask<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<T>) -> Question,
    ) -> Result<T, Unanswered> {
        let permit = self.0.questions.try_acquire();
        let _permit = permit.map_err(|_| Unanswered::Busy)?;
        let (answer, answered) = oneshot::channel();
        self.0.link.ask(question(answer));
        match tokio::time::timeout(LONGEST_QUESTION, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(Unanswered::Late),
        }
    }

    /// The checks of `/healthz`.
    pub(super) fn health_checks(&self) -> Vec<Check> {
        match &self.0.about.election {
            None => self.live(),
            Some(election) => vec![("leaderElection", self.0.leadership.check(election))],
        }
    }

    /// The checks of `/readyz`.
    pub(super) fn readiness_checks(&self) -> Vec<Check> {
        let inner = &*self.0;
        let mut checks = Vec::new();
        if let Some(election) = &inner.about.election {
            checks.push(("leaderElection", inner.leadership.check(election)));
        }
        let stopping = inner.stopping.load(Ordering::Relaxed);
        let shutdown = if stopping {
            Err("process is shutting down".to_owned())
        } else {
            Ok(())
        };
        checks.push(("shutdown", shutdown));
        checks.push(("sched-handler-sync", inner.progress.check_synced()));
        checks.push(("watches", inner.progress.check_followed()));
        checks
    }

    /// For `/debug/scores`.
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.0.recorder
    }

    /// For `/configz`.
    pub(crate) fn configuration(&self) -> &Value {
        &self.0.about.configuration
    }

    /// For `/metrics`.
    pub(super) fn metrics_text(&self) -> String {
        let (metrics, status) = (&self.0.metrics, self.status());
        for (queue, count) in [
            ("active", status.queue.active),
            ("backoff", status.queue.backoff),
            ("unschedulable", status.queue.unschedulable),
            ("gated", status.queue.gated),
        ] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            metrics
                .pending_pods
                .get_or_create(&InQueue { queue })
                .set(count);
        }
        for (kind, progress) in self.0.progress.kinds() {
            if let Some(heard) = progress.heard {
                let silence = heard.elapsed().as_secs_f64();
                metrics
                    .watch_silence
                    .get_or_create(&KindLabel { kind })
                    .set(silence);
            }
        }
        for (role, label) in [
            (Role::Alone, "alone"),
            (Role::Observer, "observer"),
            (Role::Candidate, "candidate"),
            (Role::Standby, "standby"),
            (Role::CatchingUp, "catchingUp"),
            (Role::Leader, "leader"),
            (Role::Former, "former"),
        ] {
            let is_it = i64::from(status.role == role);
            metrics
                .role
                .get_or_create(&RoleLabel { role: label })
                .set(is_it);
        }
        metrics.text()
    }
}
