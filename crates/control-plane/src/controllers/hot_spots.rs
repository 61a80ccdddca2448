//! The controller of hot spots: evicts pods of the tiers from nodes whose pods use too much, in rounds.
//!
//! The engine plans a round from what is observed then: the objects that the scheduler watches, and NodeMetrics.

mod metrics;
mod observe;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::model::Timestamp;
use engine::policies::hot_spots::{HotSpotMove, HotSpotSettings};
use engine::scheduling::profile::Profile;
use futures::FutureExt;
use futures::future::BoxFuture;
use reconcile::{EvictionAnswer, is_forbidden, message_of};
use tokio::time::MissedTickBehavior;

use super::objects::{pod_reference, target};
use super::observe::Watching;
use super::{Context, Controller};
use metrics::HotSpotMetrics;
use observe::{HotSpotState, RESOURCES};
use reconcile::watch::Progress;

pub const CONTROLLER: Controller = Controller {
    name: "hot-spots",
    start,
};

/// For one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What the controller does with pods that the plan moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Relief {
    #[default]
    On,
    /// The API server is asked what it would do, and events say so.
    DryRun,
    /// The controller watches nothing.
    Off,
}

/// How hot spots are relieved.
#[derive(Debug, Clone, Copy)]
pub struct ReliefSettings {
    pub relief: Relief,
    pub plan: HotSpotSettings,
    /// The time between two rounds.
    pub interval: Duration,
    pub scheduler: SchedulerProfiles,
}

impl Default for ReliefSettings {
    fn default() -> Self {
        Self {
            relief: Relief::default(),
            plan: HotSpotSettings::default(),
            interval: Duration::from_secs(60),
            scheduler: SchedulerProfiles::default(),
        }
    }
}

/// The profiles of the scheduler that places the pods; None: those of a scheduler without a configuration.
#[derive(Clone, Copy, Default)]
pub struct SchedulerProfiles(pub Option<&'static [Profile]>);

impl fmt::Debug for SchedulerProfiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let profiles = self.0.into_iter().flatten();
        f.debug_list()
            .entries(profiles.map(|it| &*it.scheduler_name))
            .finish()
    }
}

fn start(context: &Arc<Context>) -> BoxFuture<'static, ()> {
    let settings = context.settings.hot_spots;
    if settings.relief == Relief::Off {
        return async {}.boxed();
    }
    let state = Arc::new(HotSpotState::new(&settings));
    let progress = context.progress(CONTROLLER.name, &RESOURCES);
    let metrics = Arc::new(HotSpotMetrics::default());
    let (shown, planned) = (metrics.clone(), state.clone());
    context.add_metrics(move |registry| shown.register(registry, &planned.last_plan()));
    let context = context.clone();
    async move {
        let kinds = observe::kinds();
        let mut watching = Watching::start(&context, &state, kinds, &RESOURCES, &progress);
        watching.synced().await;
        let rounds = Rounds {
            context: context.clone(),
            state,
            metrics,
            began: Instant::now(),
        };
        let running = rounds.run(&progress);
        context.cancel.run_until_cancelled(running).await;
    }
    .boxed()
}

struct Rounds {
    context: Arc<Context>,
    state: Arc<HotSpotState>,
    metrics: Arc<HotSpotMetrics>,
    began: Instant,
}

impl Rounds {
    async fn run(&self, progress: &Progress) {
        let mut ticks = tokio::time::interval(self.context.settings.hot_spots.interval);
        // A process that was stopped does not count many rounds at once.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut unknown = Vec::new();
        loop {
            ticks.tick().await;
            let now_unknown = observe::unknown(progress);
            if now_unknown != unknown && !now_unknown.is_empty() {
                let kinds = now_unknown.join(", ");
                tracing::warn!(kinds, "cannot watch all objects; relieving no hot spots");
            }
            unknown = now_unknown;
            if unknown.is_empty() {
                self.round().await;
            }
        }
    }

    async fn round(&self) {
        let plan = self.state.plan(self.now());
        for moved in &plan.moves {
            let evicting = tokio::time::timeout(TIMEOUT, self.evict(moved));
            let is_leaving = evicting.await.unwrap_or_else(|_| {
                tracing::warn!(pod = %moved.name, "cannot evict pod: no response within {TIMEOUT:?}");
                false
            });
            if !is_leaving {
                self.state.stayed(moved);
            }
        }
    }

    /// Whether the pod leaves its node.
    async fn evict(&self, moved: &HotSpotMove) -> bool {
        let is_dry_run = self.context.settings.hot_spots.relief == Relief::DryRun;
        let target = target(Some(&moved.namespace), &moved.name, &moved.uid);
        let pod = format!("{}/{}", moved.namespace, moved.name);
        let (node, to) = (&*moved.from, &*moved.to);
        match self.context.requests.evict(&target, is_dry_run).await {
            Ok(EvictionAnswer::Evicted) => {
                let message = self.describe(moved);
                let about = pod_reference(&moved.namespace, &moved.name, &moved.uid);
                let (reason, message) = if is_dry_run {
                    tracing::info!(pod, node, to, "would evict pod: the node is a hot spot");
                    self.metrics.dry_runs.inc();
                    ("HotSpotDryRun", format!("would be evicted: {message}"))
                } else {
                    tracing::warn!(pod, node, to, "evicted pod: the node is a hot spot");
                    self.metrics.evictions.inc();
                    ("HotSpot", format!("evicted: {message}"))
                };
                self.context.warn(about, reason, &message).await;
                !is_dry_run
            }
            Ok(EvictionAnswer::Gone) => true,
            Ok(EvictionAnswer::Forbidden(why)) => {
                tracing::info!(pod, node, why, "cannot evict pod");
                self.metrics.refusals.inc();
                false
            }
            Err(error) => {
                let why = message_of(&error);
                if is_forbidden(&error) {
                    self.context.report_denied(&why).await;
                }
                tracing::warn!(pod, node, why, "cannot evict pod");
                self.metrics.refusals.inc();
                false
            }
        }
    }

    fn describe(&self, moved: &HotSpotMove) -> String {
        let high = self.context.settings.hot_spots.plan.high;
        let HotSpotMove {
            usage,
            from,
            from_percent,
            to,
            to_percent,
            rounds,
            ..
        } = moved;
        format!(
            "node {from} uses {}% of its cpu and {}% of its memory (high marks {}% and {}%), and was a hot spot in {rounds} \
             rounds; the pod uses {}m cpu and {}Mi memory; the scheduler would place it on node {to}, which would use \
             {}% of its cpu and {}% of its memory",
            from_percent.cpu,
            from_percent.memory,
            high.cpu,
            high.memory,
            usage.milli_cpu,
            usage.memory >> 20,
            to_percent.cpu,
            to_percent.memory,
        )
    }

    /// On the clock of this process, which is never set.
    fn now(&self) -> Timestamp {
        let nanos = self.began.elapsed().as_nanos();
        Timestamp(i64::try_from(nanos).unwrap_or(i64::MAX))
    }
}
