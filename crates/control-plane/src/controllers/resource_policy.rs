//! The controller of ResourcePolicies: writes the deletion costs of pods and the status of policies.
//!
//! The engine plans a namespace from what is observed now. A plan may write more than the rate allows: after each second's
//! writes it is made again, so that no write follows an old plan. What was written is observed at once, and a later watch
//! event of an older version is ignored; so no write is repeated.

mod observe;
mod pace;
mod write;

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::wire::policy::ResourcePolicyStatus;
use engine::model::Name;
use engine::policies::resource_policy::{CostChange, PolicyPod, PolicyStatus};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use reconcile::{Key, Requeue};

use super::observe::Watching;
use super::{Context, Controller};
use observe::{Kind, Policy, RESOURCES, State};
use pace::{Intervals, Limiter, Turns};
use write::{PolicyWriter, WriteError};

pub const CONTROLLER: Controller = Controller {
    name: "resourcepolicy",
    start,
};

/// A failure that lasts for so many turns is more than a conflict.
const LASTING: u32 = 3;

/// Requests in flight.
const IN_FLIGHT: usize = 8;

/// How often it writes.
#[derive(Debug, Clone, Copy)]
pub struct PolicySettings {
    /// The changes of this time are planned together.
    pub sync_interval: Duration,
    /// The shortest time between two writes of a status.
    pub status_interval: Duration,
    /// Everything is planned again after this time, even if nothing changed.
    pub resync_period: Duration,
    /// At least 1.
    pub writes_per_second: u32,
}

impl Default for PolicySettings {
    fn default() -> Self {
        Self {
            sync_interval: Duration::from_secs(1),
            status_interval: Duration::from_secs(5),
            resync_period: Duration::from_secs(600),
            writes_per_second: 50,
        }
    }
}

fn start(context: &Arc<Context>) -> BoxFuture<'static, ()> {
    let queue = context.queue(CONTROLLER.name);
    let state = Arc::new(State::new(queue.clone()));
    let progress = context.progress(CONTROLLER.name, &RESOURCES);
    let context = context.clone();
    async move {
        let mut watching = Watching::start(&context, &state, Kind::ALL, &RESOURCES, &progress);
        // A pod whose policy is not listed yet would lose its cost.
        watching.synced().await;
        let reconciler = &Reconciler::new(state, &context);
        let work =
            |key: Key| async move { Ok::<_, Infallible>(reconciler.reconcile(&key.name).await) };
        // One namespace after the other: each takes its turn at the writes.
        queue.run(1, context.cancel.clone(), work).await;
    }
    .boxed()
}

struct Reconciler {
    state: Arc<State>,
    writer: PolicyWriter,
    settings: PolicySettings,
    plans: Turns,
    statuses: Intervals<Key>,
    /// By namespace.
    failed: Mutex<HashMap<String, Failed>>,
}

/// Writes of the current turns that failed. They are tried again after all others, so that they do not hold those up.
#[derive(Default)]
struct Failed {
    /// By uid.
    pods: HashSet<Name>,
    error: Option<WriteError>,
}

impl Reconciler {
    fn new(state: Arc<State>, context: &Arc<Context>) -> Self {
        let settings = context.settings.resource_policy;
        Self {
            writer: PolicyWriter {
                context: context.clone(),
                state: state.clone(),
                limiter: Limiter::new(settings.writes_per_second),
            },
            plans: Turns::new(settings.sync_interval),
            statuses: Intervals::new(settings.status_interval),
            failed: Mutex::default(),
            state,
            settings,
        }
    }

    /// Waits an interval after the first change: the watches of pods, nodes and policies are not in step, and a pod whose new
    /// policy is not observed yet would lose its cost.
    async fn reconcile(&self, namespace: &str) -> Requeue {
        if let Err(wait) = self.plans.begin(namespace) {
            return Requeue::After(wait);
        }
        let plan = self.state.plan(namespace);
        let mut failed = self.failed().remove(namespace).unwrap_or_default();
        let next = self.write_statuses(plan.statuses, &mut failed).await;
        let left = self.write_costs(namespace, plan.costs, &mut failed).await;
        if left > 0 {
            self.failed().insert(namespace.to_owned(), failed);
            return Requeue::After(Duration::ZERO);
        }
        if let Some(error) = failed.error {
            let (failures, wait) = self.plans.retry(namespace);
            // One failure is mostly a conflict, which the next plan resolves.
            if failures == LASTING {
                tracing::warn!(namespace, %error, "cannot write deletion costs or status; retrying");
            } else {
                tracing::debug!(namespace, %error, "cannot write deletion costs or status; retrying");
            }
            return Requeue::After(wait);
        }
        self.plans.end(namespace);
        next.map_or(Requeue::OnChange, Requeue::After)
    }

    /// Returns when the namespace is to be planned again, if ever.
    async fn write_statuses(
        &self,
        statuses: Vec<(Policy, PolicyStatus)>,
        failed: &mut Failed,
    ) -> Option<Duration> {
        let mut next = None;
        for (policy, status) in statuses {
            let next = next.get_or_insert(self.settings.resync_period);
            let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
            let status = ResourcePolicyStatus::new(&status, &policy.status, &now.to_string());
            if status == policy.status {
                continue;
            }
            let key = Key::new(&*policy.model.namespace, &*policy.model.name);
            if let Err(wait) = self.statuses.begin(&key) {
                *next = wait.min(*next);
            } else if let Err(error) = self.writer.status(&policy, status).await {
                failed.error = Some(error);
            }
        }
        next
    }

    /// Writes what fits into a second, and returns the number of costs that are left for later turns.
    async fn write_costs(
        &self,
        namespace: &str,
        mut costs: Vec<(Arc<PolicyPod>, CostChange)>,
        failed: &mut Failed,
    ) -> usize {
        costs.retain(|(pod, _)| !failed.pods.contains(&pod.uid));
        let turn = costs
            .len()
            .min(self.settings.writes_per_second.max(1) as usize);
        let left = costs.len() - turn;
        costs.truncate(turn);
        let written = stream::iter(costs).map(async |(pod, change)| {
            let result = self.writer.cost(namespace, &pod, &change).await;
            (pod, result)
        });
        let written: Vec<_> = written.buffer_unordered(IN_FLIGHT).collect().await;
        for (pod, result) in written {
            if let Err(error) = result {
                failed.pods.insert(pod.uid.clone());
                failed.error = Some(error);
            }
        }
        if turn > 0 {
            tracing::debug!(namespace, pods = turn, left, "wrote deletion costs");
        }
        left
    }

    fn failed(&self) -> MutexGuard<'_, HashMap<String, Failed>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
