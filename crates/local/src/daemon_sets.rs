//! The DaemonSet controller: a pod on every node that fits.
//!
//! `plan` decides, `member` makes the pods and decides which nodes fit. The scheduler binds the pods.

mod member;
mod plan;

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use reconcile::{Error, Expectations, Key, Part, Requeue, WorkQueue};
use serde_json::{Value, json};

use self::{
    member::Fit,
    plan::{ObservedDaemons, plan},
};
use crate::{
    context::Context,
    events::Events,
    objects::{ControllerRevision, DaemonSet, Pod, node},
    ownership::{claims, controlled_by, owner_keys},
    pod_control::PodControl,
    revisions::{HASH, Present, RevisionOwner, Revisions},
};

const WORKERS: usize = 4;

/// The nodes as the engine reads them; those that it cannot parse are left out.
type Models = Mutex<HashMap<String, Arc<engine::model::Node>>>;

struct DaemonSets {
    context: Arc<Context>,
    events: Events,
    own: Expectations<DaemonSet>,
    pods: PodControl,
    revisions: Revisions,
    nodes: Arc<Models>,
}

/// Registers the listeners; the returned future does the work.
pub(crate) fn start(context: Arc<Context>) -> impl Future<Output = ()> {
    let queue = WorkQueue::new("daemonsets");
    let wake = queue.clone();
    context.daemon_sets.listen(move |change| {
        for set in change.sides() {
            wake.add(Key::of(&set.metadata));
        }
    });
    let (wake, sets) = (queue.clone(), context.daemon_sets.clone());
    context.pods.listen(move |change| {
        for pod in change.sides() {
            for key in owner_keys(&pod.metadata, &sets, |set| &set.spec.selector) {
                wake.add(key);
            }
        }
    });
    let (wake, sets) = (queue.clone(), context.daemon_sets.clone());
    context.revisions.listen(move |change| {
        for revision in change.sides() {
            for key in owner_keys(&revision.metadata, &sets, |set| &set.spec.selector) {
                wake.add(key);
            }
        }
    });
    let nodes: Arc<Models> = Arc::default();
    let (wake, sets, models) = (queue.clone(), context.daemon_sets.clone(), nodes.clone());
    context.nodes.listen(move |change| {
        if change.old.map(|node| placement(node)) == change.new.map(|node| placement(node)) {
            return;
        }
        {
            let mut models = models.lock().expect("no panic while held");
            for node in change.sides() {
                models.remove(node.metadata.name.as_deref().unwrap_or_default());
            }
            if let Some(node) = change.new
                && let Ok(model) = node::model(node)
            {
                let name = node.metadata.name.clone().unwrap_or_default();
                models.insert(name, Arc::new(model));
            }
        }
        for set in sets.all() {
            wake.add(Key::of(&set.metadata));
        }
    });
    async move {
        context.synced().await;
        let cancel = context.cancel.clone();
        let events = context.events("daemonset-controller");
        let controller = DaemonSets {
            own: Expectations::new(context.daemon_sets.clone()),
            pods: PodControl::new(&context, &events),
            revisions: Revisions::new(&context),
            nodes,
            events,
            context,
        };
        let work = |key| controller.update(key);
        queue.run(WORKERS, cancel, work).await;
    }
}

/// What decides whether a pod runs on a node. Heartbeats change nothing of it.
fn placement(node: &Node) -> Value {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    json!([node.metadata.uid, node.metadata.labels, taints])
}

impl DaemonSets {
    async fn update(&self, key: Key) -> Result<Requeue, Error> {
        let soon = Requeue::After(Duration::from_secs(1));
        let Some(set) = self.context.daemon_sets.get(&key) else {
            return Ok(Requeue::OnChange);
        };
        let satisfied = self.own.satisfied(&key) && self.pods.satisfied(&key);
        if !satisfied || !self.revisions.satisfied(&key) {
            return Ok(soon);
        }
        let owned = claims(&set.metadata, &set.spec.selector, &self.context.pods)?;
        let requests = &self.context.requests;
        if owned.settle(&controlled_by(&*set), requests).await? {
            return Ok(soon);
        }
        let owner = RevisionOwner {
            object: &*set,
            selector: &set.spec.selector,
            template: &set.spec.template,
            collisions: set.status.collision_count,
            hash_label: HASH,
        };
        let (present, revisions) = match self.revisions.present(&key, &owner).await? {
            Present::Known(present, revisions) => (present, revisions),
            Present::Written => return Ok(soon),
            Present::Collision => {
                let count = set.status.collision_count.saturating_add(1);
                let status = json!({"collisionCount": count});
                self.write_status(&key, &set, status).await?;
                return Ok(Requeue::OnChange);
            }
        };
        let hash = hash_of(&present);
        let pod = member::pod(&set, hash);
        let Some(nodes) = self.fits(&set, &pod).await else {
            return Ok(Requeue::OnChange);
        };
        let plan = plan(&ObservedDaemons {
            set: &set,
            pods: &owned.owned,
            nodes: &nodes,
            hash,
            retry: self.context.timings.job_retry,
            now: Timestamp::now(),
        });
        for report in &plan.reports {
            self.events.record(&*set, report).await;
        }
        self.pods.delete(&key, &plan.delete).await?;
        let pods = plan.create.iter();
        let pods = pods.map(|node| member::for_node(pod.clone(), node));
        let created = self.pods.create(&key, &*set, pods.collect()).await?;
        self.pods.report(&*set, &created, &plan.delete).await;
        if let Some(status) = plan.status {
            self.write_status(&key, &set, json!(status)).await?;
        }
        let in_use = |revision: &ControllerRevision| {
            let mut pods = owned.owned.iter();
            revision.name() == present.name()
                || pods.any(|pod| member::hash_of(pod) == hash_of(revision))
        };
        let limit = set.spec.revision_history_limit;
        self.revisions.trim(&key, &revisions, in_use, limit).await?;
        Ok(plan.recheck.map_or(Requeue::OnChange, Requeue::After))
    }

    /// Which nodes fit. None if the template cannot be read, which an event reports.
    async fn fits(&self, set: &DaemonSet, pod: &Value) -> Option<BTreeMap<String, Fit>> {
        let pod = serde_json::from_value::<Pod>(pod.clone()).map_err(|error| error.to_string());
        let model = pod.and_then(|pod| match pod.model() {
            Ok(model) => Ok(model.clone()),
            Err(error) => Err(error.to_string()),
        });
        match model {
            Ok(model) => {
                let nodes = self.nodes.lock().expect("no panic while held");
                let fits = nodes
                    .iter()
                    .map(|(name, node)| (name.clone(), member::fit(&model, node)));
                Some(fits.collect())
            }
            Err(error) => {
                let message = format!("spec.template: {error}");
                self.events.warning(set, "FailedCreate", &message).await;
                None
            }
        }
    }

    async fn write_status(&self, key: &Key, set: &DaemonSet, status: Value) -> Result<(), Error> {
        let (requests, fields) = (&self.context.requests, json!({"status": status}));
        let patch = requests.merge::<DaemonSet>(&set.metadata, Part::Status, fields);
        self.own.wrote(key, patch.await?.as_ref());
        Ok(())
    }
}

fn hash_of(revision: &ControllerRevision) -> &str {
    let labels = revision.metadata.labels.as_ref();
    labels
        .and_then(|it| it.get(HASH))
        .map_or("", String::as_str)
}
