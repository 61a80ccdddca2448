//! Rolls Deployments out: makes and scales the ReplicaSets of each revision and reports progress.
//!
//! This is the shell; `plan` decides and `status` says how far it got.

mod plan;
mod status;

use std::{future::Future, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::{
    Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    runtime::events::EventType,
};
use serde_json::json;

use self::plan::{Observed, Plan, Step};
use crate::{
    cache::{Cache, Key, Link, controller_of},
    claims::{claims, concerned, controlled_by},
    echo::Echoes,
    pod::Pod,
    queue::{Next, Queue},
    world::{Failure, World, already_exists, is_gone, patch_of},
};

const WORKERS: usize = 8;

struct Deployments {
    world: Arc<World>,
    own: Echoes<Deployment>,
    sets: Echoes<ReplicaSet>,
}

/// Registers for changes at once; the work begins when the future runs.
pub(crate) fn start(world: Arc<World>) -> impl Future<Output = ()> {
    let queue = Queue::new();
    let wake = queue.clone();
    world.deployments.listen(move |change| {
        for deployment in change.sides() {
            wake.add(Key::of(&deployment.metadata));
        }
    });
    let (wake, deployments) = (queue.clone(), world.deployments.clone());
    world.replica_sets.listen(move |change| {
        for set in change.sides() {
            for key in concerned(&set.metadata, &deployments, |d| {
                Some(&d.spec.as_ref()?.selector)
            }) {
                wake.add(key);
            }
        }
    });
    // The Recreate strategy waits for the last old pod, of which no ReplicaSet speaks any more.
    let (wake, sets) = (queue.clone(), world.replica_sets.clone());
    world.pods.listen(move |change| {
        if change.new.is_none()
            && let Some(pod) = change.old
            && let Some(key) = deployment_of(pod, &sets)
        {
            wake.add(key);
        }
    });
    async move {
        world.synced().await;
        let cancel = world.cancel.clone();
        let controller = Deployments {
            own: Echoes::new(world.deployments.clone()),
            sets: Echoes::new(world.replica_sets.clone()),
            world,
        };
        let work = |key| controller.update(key);
        queue.run("deployments", WORKERS, cancel, work).await;
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
    async fn update(&self, key: Key) -> Result<Next, Failure> {
        let Some(deployment) = self.world.deployments.get(&key) else {
            return Ok(Next::Idle);
        };
        if !self.own.all_back(&key) || !self.sets.all_back(&key) {
            return Ok(Next::After(Duration::from_secs(1)));
        }
        let Some(spec) = &deployment.spec else {
            return Ok(Next::Idle);
        };
        let claims = claims(
            &deployment.metadata,
            &spec.selector,
            &self.world.replica_sets,
        )?;
        let api = self.world.namespaced(&key.namespace);
        if claims.settle(&controlled_by(&*deployment), &api).await? {
            return Ok(Next::After(Duration::from_secs(1)));
        }
        let Plan {
            steps,
            status,
            revision,
            recheck,
        } = plan::plan(&Observed {
            deployment: &deployment,
            spec,
            sets: &claims.owned,
            has_pods: &|set| self.has_pods(set),
            now: Timestamp::now(),
        })?;
        for step in steps {
            self.take(&key, &deployment, step).await?;
        }
        if let Some(status) = status {
            let mut fields = json!({"status": status});
            if let Some(revision) = revision {
                fields["metadata"]["annotations"][plan::REVISION] = revision.into();
            }
            self.patch_status(&key, &deployment, fields).await?;
        }
        Ok(recheck.map_or(Next::Idle, Next::After))
    }

    fn has_pods(&self, set: &ReplicaSet) -> bool {
        let uid = set.metadata.uid.clone().unwrap_or_default();
        let pods = self.world.pods.linked(&Link::Owner(uid));
        pods.iter().any(|pod| !pod.is_finished())
    }

    async fn take(&self, key: &Key, deployment: &Deployment, step: Step) -> Result<(), Failure> {
        let api = self.world.namespaced::<ReplicaSet>(&key.namespace);
        match step {
            Step::Create(set) => match api.create(&PostParams::default(), &set).await {
                Ok(made) => {
                    self.sets.wrote(key, &made.metadata);
                    let replicas = set.spec.and_then(|spec| spec.replicas).unwrap_or(0);
                    self.tell_scaled(deployment, &made, 0, replicas).await;
                }
                // Another template hashed to the same name: the count changes the hash.
                Err(error) if already_exists(&error) => {
                    let count = deployment.status.as_ref().and_then(|s| s.collision_count);
                    let count = count.unwrap_or(0).saturating_add(1);
                    let fields = json!({"status": {"collisionCount": count}});
                    self.patch_status(key, deployment, fields).await?;
                }
                Err(error) => return Err(error.into()),
            },
            Step::Scale { set, replicas } => {
                let before = set
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.replicas)
                    .unwrap_or(0);
                let fields = json!({"spec": {"replicas": replicas}});
                if self.patch_set(key, &set, fields).await? {
                    self.tell_scaled(deployment, &set, before, replicas).await;
                }
            }
            Step::Annotate { set, annotations } => {
                let fields = json!({"metadata": {"annotations": annotations}});
                self.patch_set(key, &set, fields).await?;
            }
            Step::Delete(set) => {
                let options = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: set.metadata.uid.clone(),
                        resource_version: set.metadata.resource_version.clone(),
                    }),
                    ..DeleteParams::background()
                };
                let target = Key::of(&set.metadata);
                match api.delete(&target.name, &options).await {
                    Err(error) if !is_gone(&error) => return Err(error.into()),
                    _ => {
                        let uid = set.metadata.uid.as_deref().unwrap_or_default();
                        self.sets.deleted(key, target, uid);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns whether the set was still there. Its revision is checked: a plan made from an old state must not win.
    async fn patch_set(
        &self,
        key: &Key,
        set: &ReplicaSet,
        mut fields: serde_json::Value,
    ) -> Result<bool, Failure> {
        fields["metadata"]["resourceVersion"] = set.metadata.resource_version.clone().into();
        let patch = Patch::Merge(patch_of(set.metadata.uid.as_deref(), fields));
        let api = self.world.namespaced::<ReplicaSet>(&key.namespace);
        let name = set.metadata.name.as_deref().unwrap_or_default();
        match api.patch(name, &PatchParams::default(), &patch).await {
            Ok(written) => self.sets.wrote(key, &written.metadata),
            Err(error) if is_gone(&error) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    async fn patch_status(
        &self,
        key: &Key,
        deployment: &Deployment,
        fields: serde_json::Value,
    ) -> Result<(), Failure> {
        let patch = Patch::Merge(patch_of(deployment.metadata.uid.as_deref(), fields));
        let api = self.world.namespaced::<Deployment>(&key.namespace);
        match api
            .patch_status(&key.name, &PatchParams::default(), &patch)
            .await
        {
            Ok(written) => self.own.wrote(key, &written.metadata),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn tell_scaled(&self, deployment: &Deployment, set: &ReplicaSet, from: i32, to: i32) {
        let direction = if to > from { "up" } else { "down" };
        let name = set.metadata.name.as_deref().unwrap_or_default();
        let note = format!("Scaled {direction} replica set {name} from {from} to {to}");
        let about = deployment.object_ref(&());
        self.world
            .tell(about, EventType::Normal, "ScalingReplicaSet", note)
            .await;
    }
}
