//! The tier controller: publishes the mid and batch resources of each node in `status.capacity` and `status.allocatable`.
//!
//! The engine plans one node from what is observed now. A plan that waits, for the next write or for a metric to become
//! stale, is made again at that time.

mod observe;

use api::contracts::COLOCATION;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::model::{Name, Timestamp};
use engine::policies::tiers::{Published, TIER_RESOURCES, TierPhase, TierPlan};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use reconcile::{Key, Part, Requeue, is_forbidden, message_of};
use serde_json::{Map, Value, json};

use super::observe::Watching;
use super::{Context, Controller};
use observe::{TierKind, TierState, resources};

pub const CONTROLLER: Controller = Controller {
    name: "tiers",
    start,
};

/// For one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Nodes that are written at a time.
const IN_FLIGHT: usize = 8;
const RETRY: Duration = Duration::from_secs(2);
/// A failure that lasts for so many tries is more than a conflict.
const LASTING: u32 = 3;

/// The settings of the controller itself. Those of the tiers are in a ConfigMap.
#[derive(Debug, Clone, Copy)]
pub struct TierSettings {
    /// Where the settings of the tiers are: namespace and name of a ConfigMap.
    pub config: (&'static str, &'static str),
    /// The feature gate MidNoOverselling.
    pub no_overselling: bool,
}

impl Default for TierSettings {
    fn default() -> Self {
        Self {
            config: COLOCATION,
            no_overselling: false,
        }
    }
}

fn start(context: &Arc<Context>) -> BoxFuture<'static, ()> {
    let queue = context.queue(CONTROLLER.name);
    let state = Arc::new(TierState::new(queue.clone()));
    let resources = resources(context.settings.tiers.config);
    let progress = context.progress(CONTROLLER.name, resources);
    let wake = queue.clone();
    context
        .silent_nodes
        .listen(move |node| wake.add(Key::cluster(node)));
    let context = context.clone();
    async move {
        let kinds = TierKind::ALL;
        let mut watching = Watching::start(&context, &state, kinds, resources, &progress);
        // A node whose pods are not listed yet would lose the resources that they request.
        watching.synced().await;
        let reconciler = &TierReconciler {
            context: context.clone(),
            state,
            written: Mutex::default(),
        };
        let work = |key: Key| async move { Ok::<_, Infallible>(reconciler.reconcile(&key).await) };
        queue.run(IN_FLIGHT, context.cancel.clone(), work).await;
    }
    .boxed()
}

struct TierReconciler {
    context: Arc<Context>,
    state: Arc<TierState>,
    /// By node.
    written: Mutex<HashMap<String, LastWrite>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct LastWrite {
    at: Option<Timestamp>,
    /// In a row.
    failures: u32,
}

impl TierReconciler {
    async fn reconcile(&self, key: &Key) -> Requeue {
        if *key == observe::settings_key() {
            self.report_settings().await;
            return Requeue::OnChange;
        }
        let name = &key.name;
        let now = now();
        let mut written = self.written().get(name).copied().unwrap_or_default();
        let no_overselling = self.context.settings.tiers.no_overselling;
        let is_silent = self.context.silent_nodes.contains(name);
        let plan = self
            .state
            .plan(name, no_overselling, is_silent, written.at, now);
        let Some((uid, plan)) = plan else {
            self.written().remove(name);
            return Requeue::OnChange;
        };
        if !plan.write {
            return plan.again.map_or(Requeue::OnChange, |at| after(at, now));
        }
        match self.write(name, &uid, &plan).await {
            Ok(()) => {
                tracing::info!(node = %name, phase = ?plan.phase, values = %show(&plan.values), "published tier resources");
                written = LastWrite {
                    at: Some(now),
                    failures: 0,
                };
                self.written().insert(name.clone(), written);
                // The watch shows the write, and the next plan says when to look again.
                Requeue::After(RETRY)
            }
            Err(error) => {
                written.failures = written.failures.saturating_add(1);
                if written.failures == LASTING {
                    tracing::warn!(node = %name, %error, "cannot publish tier resources; retrying");
                } else {
                    tracing::debug!(node = %name, %error, "cannot publish tier resources; retrying");
                }
                self.written().insert(name.clone(), written);
                Requeue::After(RETRY * written.failures.min(15))
            }
        }
    }

    /// A merge patch of these keys alone: the kubelet writes the others.
    async fn write(&self, name: &str, uid: &Name, plan: &TierPlan) -> Result<(), String> {
        let mut list = Map::new();
        for (resource, value) in TIER_RESOURCES.iter().zip(plan.values) {
            let value = value.map_or(Value::Null, |it| it.to_string().into());
            list.insert(resource.name().to_owned(), value);
        }
        let target = ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(uid.to_string()),
            ..ObjectMeta::default()
        };
        let fields = json!({"status": {"capacity": list, "allocatable": list}});
        let requests = &self.context.requests;
        let request = requests.merge::<Node>(&target, Part::Status, fields);
        match tokio::time::timeout(TIMEOUT, request).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                let why = message_of(&error);
                if is_forbidden(&error) {
                    self.context.report_denied(&why).await;
                }
                Err(why)
            }
            Err(_) => Err(format!("no response within {TIMEOUT:?}")),
        }
    }

    /// Settings that cannot be used get an event; the last good ones stay in force.
    async fn report_settings(&self) {
        let Some((uid, error)) = self.state.settings_error() else {
            return;
        };
        let (namespace, name) = self.context.settings.tiers.config;
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_string()),
            ..ObjectReference::default()
        };
        tracing::warn!(configmap = format!("{namespace}/{name}"), %error, "ignoring invalid settings");
        let message = format!("{error}; the last valid settings stay in force");
        self.context
            .warn(about, "InvalidColocationConfig", &message)
            .await;
    }

    fn written(&self) -> MutexGuard<'_, HashMap<String, LastWrite>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> Timestamp {
    let nanos = jiff::Timestamp::now().as_nanosecond();
    Timestamp(i64::try_from(nanos).unwrap_or(i64::MAX))
}

/// At the time, but not sooner than a second from now.
fn after(at: Timestamp, now: Timestamp) -> Requeue {
    let nanos = u64::try_from(at.0.saturating_sub(now.0)).unwrap_or(0);
    Requeue::After(Duration::from_nanos(nanos).max(Duration::from_secs(1)))
}

fn show(values: &Published) -> String {
    let shown = TIER_RESOURCES.iter().zip(values).map(|(resource, value)| {
        let value = value.map_or("absent".to_owned(), |it| it.to_string());
        format!(
            "{}={value}",
            resource.name().trim_start_matches("kubernetes.io/")
        )
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// For metrics and tests: whether the formulas count.
pub fn phase_name(phase: TierPhase) -> &'static str {
    match phase {
        TierPhase::Current => "current",
        TierPhase::Stale => "stale",
        TierPhase::Disabled => "disabled",
    }
}
