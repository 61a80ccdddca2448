//! The Deployment controller: creates and scales the ReplicaSets of each revision and reports progress.
//!
//! `plan` decides, `sets` creates the ReplicaSets, and `status` computes the status.

mod plan;
mod sets;
mod status;

use std::{future::Future, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::api::{DeleteParams, Preconditions};
use reconcile::{
    Cache, Error, Expectations, Index, Key, Part, Requeue, WorkQueue, controller_of,
    is_already_exists,
};
use serde_json::{Value, json};

use self::plan::{Observed, RolloutStep, plan};
use crate::{
    context::Context,
    events::Events,
    objects::{Deployment, Pod, ReplicaSet},
    ownership::{claims, controlled_by, owner_keys},
};

const WORKERS: usize = 8;

struct Deployments {
    context: Arc<Context>,
    events: Events,
    own: Expectations<Deployment>,
    sets: Expectations<ReplicaSet>,
}

/// Registers the listeners; the returned future does the work.
pub(crate) fn start(context: Arc<Context>) -> impl Future<Output = ()> {
    let queue = WorkQueue::new("deployments");
    let wake = queue.clone();
    context.deployments.listen(move |change| {
        for deployment in change.sides() {
            wake.add(Key::of(&deployment.metadata));
        }
    });
    let (wake, deployments) = (queue.clone(), context.deployments.clone());
    context.replica_sets.listen(move |change| {
        for set in change.sides() {
            for key in owner_keys(&set.metadata, &deployments, |d| &d.spec.selector) {
                wake.add(key);
            }
        }
    });
    // The Recreate strategy waits for the last old pod, which is no longer in the status of any ReplicaSet.
    let (wake, sets) = (queue.clone(), context.replica_sets.clone());
    context.pods.listen(move |change| {
        if change.new.is_none()
            && let Some(pod) = change.old
            && let Some(key) = deployment_of(pod, &sets)
        {
            wake.add(key);
        }
    });
    async move {
        context.synced().await;
        let cancel = context.cancel.clone();
        let controller = Deployments {
            own: Expectations::new(context.deployments.clone()),
            sets: Expectations::new(context.replica_sets.clone()),
            events: context.events("deployment-controller"),
            context,
        };
        let work = |key| controller.update(key);
        queue.run(WORKERS, cancel, work).await;
    }
}

fn deployment_of(pod: &Pod, sets: &Cache<ReplicaSet>) -> Option<Key> {
    let namespace = pod.metadata.namespace.as_deref()?;
    let set = controller_of(&pod.metadata).filter(|owner| owner.kind == "ReplicaSet")?;
    let set = sets.get(&Key::new(namespace, &set.name))?;
    let deployment = controller_of(&set.metadata).filter(|owner| owner.kind == "Deployment")?;
    Some(Key::new(namespace, &deployment.name))
}

impl Deployments {
    async fn update(&self, key: Key) -> Result<Requeue, Error> {
        let Some(deployment) = self.context.deployments.get(&key) else {
            return Ok(Requeue::OnChange);
        };
        if !self.own.satisfied(&key) || !self.sets.satisfied(&key) {
            return Ok(Requeue::After(Duration::from_secs(1)));
        }
        let selector = &deployment.spec.selector;
        let claims = claims(&deployment.metadata, selector, &self.context.replica_sets)?;
        let requests = &self.context.requests;
        if claims
            .settle(&controlled_by(&*deployment), requests)
            .await?
        {
            return Ok(Requeue::After(Duration::from_secs(1)));
        }
        let plan = plan(&Observed {
            deployment: &deployment,
            sets: &claims.owned,
            has_pods: &|set| self.has_pods(set),
            now: Timestamp::now(),
        });
        for step in plan.steps {
            self.take(&key, &deployment, step).await?;
        }
        if let Some(status) = plan.status {
            let mut fields = json!({"status": status});
            if let Some(revision) = plan.revision {
                fields["metadata"]["annotations"][sets::REVISION] = revision.into();
            }
            self.patch_status(&key, &deployment, fields).await?;
        }
        Ok(plan.recheck.map_or(Requeue::OnChange, Requeue::After))
    }

    fn has_pods(&self, set: &ReplicaSet) -> bool {
        let uid = set.metadata.uid.clone().unwrap_or_default();
        let pods = self.context.pods.indexed(&Index::Owner(uid));
        pods.iter().any(|pod| !pod.is_finished())
    }

    async fn take(
        &self,
        key: &Key,
        deployment: &Deployment,
        step: RolloutStep,
    ) -> Result<(), Error> {
        let requests = &self.context.requests;
        match step {
            RolloutStep::Create {
                name,
                replicas,
                set,
            } => {
                match requests
                    .create::<ReplicaSet>(Some(&key.namespace), &set)
                    .await
                {
                    Ok(made) => {
                        self.sets.wrote(key, Some(&made));
                        self.report_scaling(deployment, &name, 0, replicas).await;
                    }
                    // Another template hashed to the same name: the count changes the hash.
                    Err(error) if is_already_exists(&error) => {
                        let count = deployment.status.collision_count.unwrap_or(0);
                        let fields = json!({"status": {"collisionCount": count.saturating_add(1)}});
                        self.patch_status(key, deployment, fields).await?;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            RolloutStep::Scale { set, replicas } => {
                let fields = json!({"spec": {"replicas": replicas}});
                if self.patch_set(key, &set, fields).await? {
                    let name = set.metadata.name.as_deref().unwrap_or_default();
                    self.report_scaling(deployment, name, set.spec.replicas, replicas)
                        .await;
                }
            }
            RolloutStep::Annotate { set, annotations } => {
                let fields = json!({"metadata": {"annotations": annotations}});
                self.patch_set(key, &set, fields).await?;
            }
            RolloutStep::Delete(set) => {
                let options = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: None,
                        resource_version: set.metadata.resource_version.clone(),
                    }),
                    ..DeleteParams::background()
                };
                requests
                    .delete::<ReplicaSet>(&set.metadata, options)
                    .await?;
                let uid = set.metadata.uid.as_deref().unwrap_or_default();
                self.sets.deleted(key, Key::of(&set.metadata), uid);
            }
        }
        Ok(())
    }

    /// Returns whether the set still existed. Fails if it has changed since the plan was made.
    async fn patch_set(&self, key: &Key, set: &ReplicaSet, fields: Value) -> Result<bool, Error> {
        let requests = &self.context.requests;
        let patch = requests.merge_unchanged::<ReplicaSet>(&set.metadata, Part::Object, fields);
        let written = patch.await?;
        self.sets.wrote(key, written.as_ref());
        Ok(written.is_some())
    }

    async fn patch_status(
        &self,
        key: &Key,
        deployment: &Deployment,
        fields: Value,
    ) -> Result<(), Error> {
        let requests = &self.context.requests;
        let patch = requests.merge::<Deployment>(&deployment.metadata, Part::Status, fields);
        self.own.wrote(key, patch.await?.as_ref());
        Ok(())
    }

    /// In mid-rollout a new set starts with no replicas: that is no scaling.
    async fn report_scaling(&self, deployment: &Deployment, set: &str, from: i32, to: i32) {
        if from == to {
            return;
        }
        let direction = if to > from { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {set} from {from} to {to}");
        self.events
            .normal(deployment, "ScalingReplicaSet", &message)
            .await;
    }
}
