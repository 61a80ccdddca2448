//! The registry of schedulers: writes the names of the schedulers that run into a ConfigMap, and an event and a condition on
//! pods whose scheduler does not run.
//!
//! The engine plans from what is observed now, once a second. The ConfigMap may have other keys, which are the administrator's.

mod observe;

use api::contracts::{NAMESPACE, REGISTERED_NAMES, SCHEDULERS};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::policies::schedulers::{
    NO_SUCH_SCHEDULER, RegistryPlan, SCHEDULER_NOT_FOUND, UnseenPod, join_names,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use reconcile::{EventType, Part, is_already_exists, message_of};
use serde_json::json;

use super::observe::Watching;
use super::{Context, Controller};
use observe::{RESOURCES, RegistryKind, RegistryState};
use reconcile::watch::Progress;

pub const CONTROLLER: Controller = Controller {
    name: "schedulers",
    start,
};

const LEASE_KIND: &str = "leases";
const TICK: Duration = Duration::from_secs(1);
/// Pods that get an event and a condition in one tick: more would slow other clients down.
const MOST_PODS: usize = 20;
/// For one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The watch shows a write within this time; then it is repeated.
const REWRITE: Duration = Duration::from_secs(10);
/// Faults that are remembered, so that each is logged once.
const MOST_FAULTS: usize = 1_000;

#[derive(Debug, Clone, Copy)]
pub struct RegistrySettings {
    /// How long a pod waits for a scheduler that does not run, before it gets an event and a condition.
    pub patience: Duration,
    /// Namespaces whose Leases register schedulers, beside those of the cluster itself.
    pub namespaces: &'static [&'static str],
}

impl Default for RegistrySettings {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(60),
            namespaces: &[],
        }
    }
}

fn start(context: &Arc<Context>) -> BoxFuture<'static, ()> {
    let state = Arc::new(RegistryState::new(context.settings.schedulers.namespaces));
    let progress = context.progress(CONTROLLER.name, &RESOURCES);
    let context = context.clone();
    async move {
        let kinds = RegistryKind::ALL;
        let mut watching = Watching::start(&context, &state, kinds, &RESOURCES, &progress);
        // A Lease that is not listed yet would look like a scheduler that does not run.
        watching.synced().await;
        let mut registry = RegistryWriter {
            context: context.clone(),
            state,
            progress,
            written: None,
            logged: BTreeSet::new(),
        };
        let work = async {
            loop {
                registry.tick().await;
                tokio::time::sleep(TICK).await;
            }
        };
        context.cancel.run_until_cancelled(work).await;
    }
    .boxed()
}

struct RegistryWriter {
    context: Arc<Context>,
    state: Arc<RegistryState>,
    progress: Arc<Progress>,
    /// The names that were last written, or tried.
    written: Option<(String, Instant)>,
    logged: BTreeSet<String>,
}

impl RegistryWriter {
    async fn tick(&mut self) {
        // Renewals of Leases are not seen: every scheduler would look like one that does not run.
        if !self.progress.is_followed(LEASE_KIND) {
            return;
        }
        let patience = self.context.settings.schedulers.patience;
        let plan = self.state.plan(patience, MOST_PODS);
        self.log_faults(&plan);
        self.write_names(join_names(&plan.names)).await;
        for (pod, message) in &plan.waiting {
            if let Err(error) = self.write_condition(pod, message).await {
                tracing::debug!(pod = %format_args!("{}/{}", pod.namespace, pod.name), %error, "cannot write condition; retrying");
                self.state.postpone_pod(&pod.uid);
            }
        }
    }

    fn log_faults(&mut self, plan: &RegistryPlan) {
        for fault in &plan.faults {
            if self.logged.len() < MOST_FAULTS && self.logged.insert(fault.clone()) {
                tracing::warn!("{fault}");
            }
        }
        // One that ended and comes back is logged again.
        self.logged.retain(|known| plan.faults.contains(known));
    }

    async fn write_names(&mut self, names: String) {
        let stored = self.state.stored();
        if stored.as_ref().and_then(|it| it.names.as_ref()) == Some(&names) {
            self.written = None;
            return;
        }
        if let Some((written, at)) = &self.written
            && *written == names
            && at.elapsed() < REWRITE
        {
            return;
        }
        self.written = Some((names.clone(), Instant::now()));
        let data = json!({"data": {REGISTERED_NAMES: names}});
        let target = ObjectMeta {
            namespace: Some(NAMESPACE.to_owned()),
            name: Some(SCHEDULERS.to_owned()),
            ..ObjectMeta::default()
        };
        let requests = &self.context.requests;
        let write = async {
            if stored.is_some() {
                let patch = requests.merge::<ConfigMap>(&target, Part::Object, data);
                return patch.await.map(drop);
            }
            let mut object = data;
            object["metadata"] = json!({"name": SCHEDULERS, "namespace": NAMESPACE});
            let create = requests.create::<ConfigMap>(Some(NAMESPACE), &object);
            match create.await {
                Err(error) if is_already_exists(&error) => Ok(()),
                result => result.map(drop),
            }
        };
        let why = match tokio::time::timeout(TIMEOUT, write).await {
            Ok(Ok(())) => {
                tracing::info!(names, "registered schedulers");
                return;
            }
            Ok(Err(error)) => message_of(&error),
            Err(_) => format!("no response within {TIMEOUT:?}"),
        };
        tracing::warn!(configmap = %format_args!("{NAMESPACE}/{SCHEDULERS}"), error = why, "cannot write names of schedulers; retrying");
    }

    /// Only on the version that was observed: a scheduler may have written the condition meanwhile.
    async fn write_condition(&self, pod: &UnseenPod, message: &str) -> Result<(), String> {
        let target = ObjectMeta {
            namespace: Some(pod.namespace.to_string()),
            name: Some(pod.name.to_string()),
            uid: Some(pod.uid.to_string()),
            ..ObjectMeta::default()
        };
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": SCHEDULER_NOT_FOUND, "message": message,
            "lastTransitionTime": Time(jiff::Timestamp::now()),
        });
        let fields = json!({
            "metadata": {"resourceVersion": &*pod.version},
            "status": {"conditions": [condition]},
        });
        let requests = &self.context.requests;
        let patch = requests.strategic::<Pod>(&target, Part::Status, fields);
        match tokio::time::timeout(TIMEOUT, patch).await {
            Ok(Ok(written)) => {
                self.state.forget_pod(&pod.uid);
                if written.is_none() {
                    // It was deleted.
                    return Ok(());
                }
            }
            // The watch shows the new version.
            Ok(Err(kube::Error::Api(status))) if status.is_conflict() => return Ok(()),
            Ok(Err(error)) => return Err(message_of(&error)),
            Err(_) => return Err(format!("no response within {TIMEOUT:?}")),
        }
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: target.namespace,
            name: target.name,
            uid: target.uid,
            ..ObjectReference::default()
        };
        let events = &self.context.events;
        let event = events.record(about, EventType::Warning, NO_SUCH_SCHEDULER, message);
        if tokio::time::timeout(TIMEOUT, event).await.is_err() {
            tracing::warn!("cannot write event: no response within {TIMEOUT:?}");
        }
        Ok(())
    }
}
