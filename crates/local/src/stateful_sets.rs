//! The StatefulSet controller: pods with stable names and claims, created, updated and deleted in order.
//!
//! `plan` decides, `member` makes the pods and their claims.

mod member;
mod plan;

use std::{future::Future, sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use reconcile::{
    Error, Expectations, Key, Part, Requeue, WorkQueue, is_already_exists, message_of,
};
use serde_json::{Value, json};

use self::plan::{ObservedSet, plan};
use crate::{
    context::Context,
    events::Events,
    objects::{ControllerRevision, Pod, StatefulSet, storage::PersistentVolumeClaim},
    ownership::{claims, controlled_by, owner_keys},
    pod_control::{PodControl, REQUESTS},
    revisions::{Present, RevisionOwner, Revisions},
};

const WORKERS: usize = 8;

struct StatefulSets {
    context: Arc<Context>,
    events: Events,
    own: Expectations<StatefulSet>,
    pods: PodControl,
    revisions: Revisions,
}

/// Registers the listeners; the returned future does the work.
pub(crate) fn start(context: Arc<Context>) -> impl Future<Output = ()> {
    let queue = WorkQueue::new("statefulsets");
    let wake = queue.clone();
    context.stateful_sets.listen(move |change| {
        for set in change.sides() {
            wake.add(Key::of(&set.metadata));
        }
    });
    let (wake, sets) = (queue.clone(), context.stateful_sets.clone());
    context.pods.listen(move |change| {
        for pod in change.sides() {
            for key in owner_keys(&pod.metadata, &sets, |set| &set.spec.selector) {
                wake.add(key);
            }
        }
    });
    let (wake, sets) = (queue.clone(), context.stateful_sets.clone());
    context.revisions.listen(move |change| {
        for revision in change.sides() {
            for key in owner_keys(&revision.metadata, &sets, |set| &set.spec.selector) {
                wake.add(key);
            }
        }
    });
    async move {
        context.synced().await;
        let cancel = context.cancel.clone();
        let events = context.events("statefulset-controller");
        let controller = StatefulSets {
            own: Expectations::new(context.stateful_sets.clone()),
            pods: PodControl::new(&context, &events),
            revisions: Revisions::new(&context),
            events,
            context,
        };
        let work = |key| controller.update(key);
        queue.run(WORKERS, cancel, work).await;
    }
}

impl StatefulSets {
    async fn update(&self, key: Key) -> Result<Requeue, Error> {
        let soon = Requeue::After(Duration::from_secs(1));
        let Some(set) = self.context.stateful_sets.get(&key) else {
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
            hash_label: "controller.kubernetes.io/hash",
        };
        let (update, revisions) = match self.revisions.present(&key, &owner).await? {
            Present::Known(update, revisions) => (update, revisions),
            Present::Written => return Ok(soon),
            Present::Collision => {
                let count = set.status.collision_count.saturating_add(1);
                let status = json!({"collisionCount": count});
                self.write_status(&key, &set, status).await?;
                return Ok(Requeue::OnChange);
            }
        };
        let mut all = revisions.iter();
        let current = all.find(|it| it.name() == set.status.current_revision);
        let current = current.unwrap_or(&update);
        let plan = plan(&ObservedSet {
            set: &set,
            pods: &owned.owned,
            current: current.name(),
            update: update.name(),
            now: Timestamp::now(),
        });
        self.retain_claims(&set, &owned.owned, &plan.condemned)
            .await?;
        self.delete(&key, &set, &plan.delete).await?;
        let complete = self
            .create(&key, &set, &plan.create, [current, &update])
            .await?;
        if let Some(status) = plan.status {
            self.write_status(&key, &set, json!(status)).await?;
        }
        let in_use = |revision: &ControllerRevision| {
            let mut pods = owned.owned.iter();
            [current.name(), update.name()].contains(&revision.name())
                || pods.any(|pod| member::revision_of(pod) == revision.name())
        };
        let limit = set.spec.revision_history_limit;
        self.revisions.trim(&key, &revisions, in_use, limit).await?;
        if !complete {
            return Ok(soon);
        }
        Ok(plan.recheck.map_or(Requeue::OnChange, Requeue::After))
    }

    /// Creates pods; false if some must wait.
    async fn create(
        &self,
        key: &Key,
        set: &StatefulSet,
        ordinals: &[i64],
        [current, update]: [&ControllerRevision; 2],
    ) -> Result<bool, Error> {
        let keeps_current = |ordinal: i64| set.rolls() && ordinal < set.partition();
        stream::iter(ordinals.to_vec())
            .map(|ordinal| async move {
                let revision = if keeps_current(ordinal) {
                    current
                } else {
                    update
                };
                let template = revision.template();
                let pod = member::pod(set, ordinal, &template, revision.name());
                self.create_pod(key, set, &member::pod_name(set, ordinal), &pod)
                    .await
            })
            .buffer_unordered(REQUESTS)
            .try_fold(true, |all, created| async move { Ok(all && created) })
            .await
    }

    /// Creates a pod after its claims. Returns false if it must wait for a claim that is being deleted.
    async fn create_pod(
        &self,
        key: &Key,
        set: &StatefulSet,
        name: &str,
        pod: &Value,
    ) -> Result<bool, Error> {
        let requests = &self.context.requests;
        let set_name = set.name();
        for (claim, object) in member::claims(set, name) {
            let claim_key = Key::new(&key.namespace, &claim);
            if let Some(claim) = self.context.claims.get(&claim_key) {
                if claim.metadata.deletion_timestamp.is_some() {
                    return Ok(false);
                }
                continue;
            }
            let created = requests
                .create::<PersistentVolumeClaim>(Some(&key.namespace), &object)
                .await;
            match created {
                Ok(_) => {
                    let message = format!(
                        "Create Claim {claim} Pod {name} in StatefulSet {set_name} success"
                    );
                    self.events.normal(set, "SuccessfulCreate", &message).await;
                }
                Err(error) if is_already_exists(&error) => {}
                Err(error) => {
                    let why = message_of(&error);
                    let message = format!(
                        "Create Claim {claim} for Pod {name} in StatefulSet {set_name} failed error: {why}"
                    );
                    self.events.warning(set, "FailedCreate", &message).await;
                    return Err(error.into());
                }
            }
        }
        match self.pods.create_one(key, pod).await {
            Ok(_) => {
                let message = format!("Create Pod {name} in StatefulSet {set_name} successful");
                self.events.normal(set, "SuccessfulCreate", &message).await;
                Ok(true)
            }
            Err(error) => {
                let why = message_of(&error);
                let message =
                    format!("Create Pod {name} in StatefulSet {set_name} failed error: {why}");
                self.events.warning(set, "FailedCreate", &message).await;
                Err(error.into())
            }
        }
    }

    async fn delete(&self, key: &Key, set: &StatefulSet, pods: &[Arc<Pod>]) -> Result<(), Error> {
        self.pods.delete(key, pods).await?;
        for pod in pods {
            let (name, set_name) = (pod.name(), set.name());
            let message = format!("Delete Pod {name} in StatefulSet {set_name} successful");
            self.events.normal(set, "SuccessfulDelete", &message).await;
        }
        Ok(())
    }

    /// Makes claims belong to the set or the pod with which they are deleted.
    async fn retain_claims(
        &self,
        set: &StatefulSet,
        pods: &[Arc<Pod>],
        condemned: &[Arc<Pod>],
    ) -> Result<(), Error> {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        for pod in pods {
            let is_condemned = condemned.iter().any(|it| Arc::ptr_eq(it, pod));
            let wanted = member::claim_owner(set, pod, is_condemned);
            for (name, _) in member::claims(set, pod.name()) {
                let claim = self.context.claims.get(&Key::new(namespace, name));
                let Some(claim) = claim else { continue };
                let uids = [set.metadata.uid.clone(), pod.metadata.uid.clone()];
                let owners = claim.metadata.owner_references.iter().flatten();
                let ours = owners.filter(|owner| uids.contains(&Some(owner.uid.clone())));
                let ours: Vec<&OwnerReference> = ours.collect();
                if ours
                    .iter()
                    .map(|owner| &owner.uid)
                    .eq(wanted.iter().map(|it| &it.uid))
                {
                    continue;
                }
                let stale = ours
                    .iter()
                    .filter(|it| Some(&it.uid) != wanted.as_ref().map(|it| &it.uid));
                let stale = stale.map(|owner| json!({"$patch": "delete", "uid": owner.uid}));
                let owners: Vec<Value> = stale.chain(wanted.iter().map(|it| json!(it))).collect();
                let fields = json!({"metadata": {"ownerReferences": owners}});
                self.context
                    .requests
                    .strategic::<PersistentVolumeClaim>(&claim.metadata, Part::Object, fields)
                    .await?;
            }
        }
        Ok(())
    }

    async fn write_status(&self, key: &Key, set: &StatefulSet, status: Value) -> Result<(), Error> {
        let (requests, fields) = (&self.context.requests, json!({"status": status}));
        let patch = requests.merge::<StatefulSet>(&set.metadata, Part::Status, fields);
        self.own.wrote(key, patch.await?.as_ref());
        Ok(())
    }
}
