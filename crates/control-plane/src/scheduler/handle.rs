//! The handle of a running scheduler: status, queries, health and metrics, from any thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::scheduling::scheduler::{PodReport, Scheduler};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{Counters, Mode, ScoreRecorder};
use crate::election::Election;
use api::http::Role;

use crate::election::leadership::Leadership;
use crate::scheduler::channel::{Channel, EngineDump, Query};
use crate::scheduler::observe::metrics::{KindLabel, Metrics, QueueLabel, RoleLabel};
use crate::serve::{Check, Component};
use api::http::{ClusterSize, Queue, SchedulerStatus, SinceStart, Watch};
use reconcile::watch::Progress;

/// Queries that may wait for an answer at the same time.
const MAX_QUERIES: usize = 8;
/// Cache dumps that may be sent at the same time: each is a copy of the state of all nodes.
const MAX_DUMPS: usize = 4;
/// An answer takes milliseconds; this is for a thread that hangs.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// After this time the status is sent without the engine's part.
const OVERVIEW_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a query has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    #[error("too many queries are waiting: try again")]
    Busy,
    #[error("the scheduler did not answer in time")]
    Late,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Handle(Arc<HandleInner>);

struct HandleInner {
    info: SchedulerInfo,
    channel: Arc<Channel>,
    queries: Semaphore,
    dumps: Arc<Semaphore>,
    counters: Arc<Counters>,
    progress: Arc<Progress>,
    leadership: Arc<Leadership>,
    metrics: Arc<Metrics>,
    scores: Arc<ScoreRecorder>,
    stats: Arc<EngineStats>,
    stopping: AtomicBool,
    begun: Instant,
}

/// What does not change while the scheduler runs.
pub(super) struct SchedulerInfo {
    pub(super) mode: Mode,
    pub(super) schedulers: Vec<String>,
    pub(super) election: Option<Election>,
    pub(super) identity: String,
    /// For `/configz`.
    pub(super) configuration: Value,
}

/// Numbers that the deciding thread publishes.
#[derive(Debug, Default)]
pub(super) struct EngineStats {
    deciding: AtomicBool,
    nodes: AtomicU64,
    placed: AtomicU64,
    assumed: AtomicU64,
    reports_without_node: AtomicU64,
    active: AtomicU64,
    backoff: AtomicU64,
    unschedulable: AtomicU64,
    gated: AtomicU64,
    in_flight: AtomicU64,
    warnings: Mutex<Vec<String>>,
}

impl EngineStats {
    /// Warnings about the configuration on this cluster.
    pub(super) fn set_warnings(&self, warnings: Vec<String>) {
        *self.warnings.lock().unwrap_or_else(PoisonError::into_inner) = warnings;
    }

    pub(super) fn update(&self, engine: &Scheduler, deciding: bool) {
        let sizes = engine.sizes();
        let cluster = engine.cluster();
        let assumed = engine.assumed_pods();
        for (place, count) in [
            (&self.nodes, cluster.nodes().len()),
            (&self.placed, cluster.placed_count().saturating_sub(assumed)),
            (&self.assumed, assumed),
            (&self.reports_without_node, cluster.reports_without_node()),
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
    pub(super) fn new(
        info: SchedulerInfo,
        shared: &super::Shared,
        stats: Arc<EngineStats>,
    ) -> Self {
        Self(Arc::new(HandleInner {
            info,
            channel: shared.channel.clone(),
            queries: Semaphore::new(MAX_QUERIES),
            dumps: Arc::new(Semaphore::new(MAX_DUMPS)),
            counters: shared.counters.clone(),
            progress: shared.progress.clone(),
            leadership: shared.leadership.clone(),
            metrics: shared.metrics.clone(),
            scores: shared.scores.clone(),
            stats,
            stopping: AtomicBool::new(false),
            begun: Instant::now(),
        }))
    }

    pub(super) fn stopping(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
    }

    pub fn status(&self) -> SchedulerStatus {
        let inner = &*self.0;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (stats, counters) = (&inner.stats, &inner.counters);
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
        SchedulerStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: inner.info.mode.to_string(),
            role: inner.leadership.role(),
            identity: inner.info.identity.clone(),
            lease: inner
                .info
                .election
                .as_ref()
                .map(|election| format!("{}/{}", election.namespace, election.name)),
            leader: inner.leadership.leader(),
            uptime_seconds: inner.begun.elapsed().as_secs_f64(),
            schedulers: inner.info.schedulers.clone(),
            deciding: stats.deciding.load(Ordering::Relaxed),
            cluster: ClusterSize {
                nodes: get(&stats.nodes),
                placed_pods: get(&stats.placed),
                assumed_pods: get(&stats.assumed),
                reports_without_node: get(&stats.reports_without_node),
            },
            queue: Queue {
                active: get(&stats.active),
                backoff: get(&stats.backoff),
                unschedulable: get(&stats.unschedulable),
                gated: get(&stats.gated),
                in_flight: get(&stats.in_flight),
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
            warnings: stats
                .warnings
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }

    /// Logs the most important numbers at any log level, because the user asked for them by a signal.
    pub fn log_sizes(&self) {
        let SchedulerStatus { cluster, queue, .. } = self.status();
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
            "current sizes; `tidepool debug cache` shows every node"
        );
    }

    /// The status with the engine's part.
    pub async fn whole_status(&self) -> SchedulerStatus {
        let mut status = self.status();
        if let Ok(_permit) = self.0.queries.try_acquire() {
            let (answer, answered) = oneshot::channel();
            self.0.channel.query_overview(answer);
            if let Ok(Ok(overview)) = tokio::time::timeout(OVERVIEW_TIMEOUT, answered).await {
                status.oldest_waiting = overview.oldest;
                status.first_reports_without_node = overview.without_node;
            }
        }
        status
    }

    /// The report about a pod; `None` if the scheduler does not know it.
    pub async fn explain(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<PodReport>, QueryError> {
        self.ask(|answer| Query::Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            answer,
        })
        .await
    }

    /// The state of all nodes. The caller keeps the permit until the answer is sent.
    pub(crate) async fn nodes(&self) -> Result<(EngineDump, OwnedSemaphorePermit), QueryError> {
        let permit = self.0.dumps.clone().try_acquire_owned();
        let permit = permit.map_err(|_| QueryError::Busy)?;
        let dump = self.ask(|answer| Query::Cache { node: None, answer });
        let dump = dump.await?.ok_or(QueryError::Late)?;
        Ok((dump, permit))
    }

    /// The state of one node; `None` if the scheduler does not know it.
    pub(crate) async fn node(&self, name: &str) -> Result<Option<EngineDump>, QueryError> {
        let node = Some(name.to_owned());
        self.ask(|answer| Query::Cache { node, answer }).await
    }

    async fn ask<T>(
        &self,
        query: impl FnOnce(oneshot::Sender<T>) -> Query,
    ) -> Result<T, QueryError> {
        let permit = self.0.queries.try_acquire();
        let _permit = permit.map_err(|_| QueryError::Busy)?;
        let (answer, answered) = oneshot::channel();
        self.0.channel.query(query(answer));
        match tokio::time::timeout(QUERY_TIMEOUT, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(QueryError::Late),
        }
    }

    /// The checks of `/healthz`.
    pub(super) fn health_checks(&self) -> Vec<Check> {
        match &self.0.info.election {
            None => self.live(),
            Some(election) => vec![("leaderElection", self.0.leadership.check(election))],
        }
    }

    /// The checks of `/readyz`.
    pub(super) fn readiness_checks(&self) -> Vec<Check> {
        let inner = &*self.0;
        let mut checks = Vec::new();
        if let Some(election) = &inner.info.election {
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
    pub(crate) fn scores(&self) -> &ScoreRecorder {
        &self.0.scores
    }

    /// For `/configz`.
    pub(crate) fn configuration(&self) -> &Value {
        &self.0.info.configuration
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
                .get_or_create(&QueueLabel { queue })
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
        for (role, label) in Role::ALL {
            let is_it = i64::from(status.role == role);
            metrics
                .role
                .get_or_create(&RoleLabel { role: label })
                .set(is_it);
        }
        metrics.text()
    }
}
