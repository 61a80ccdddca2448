//! Runs Jobs to completion: makes their pods, counts how they end, gives up after too many failures.
//!
//! This is the shell; `plan` decides. Indexed completion is supported; pod failure policies, success
//! policies and limits per index are not, and a Job that uses them is told so.

mod plan;

use std::{future::Future, sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod as NewPod};
use kube::{
    Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    runtime::events::EventType,
};
use serde_json::json;

use self::plan::{NewJobPod, Plan, TRACKING, plan};
use crate::{
    cache::{Key, Link, controller_of},
    claims::{claims, concerned, controlled_by, pod_from},
    echo::Echoes,
    pod::Pod,
    queue::{Next, Queue},
    world::{Failure, World, brief, is_gone, patch_of},
};

const WORKERS: usize = 8;
const REQUESTS: usize = 16;

struct Jobs {
    world: Arc<World>,
    own: Echoes<Job>,
    pods: Echoes<Pod>,
}

/// Registers for changes at once; the work begins when the future runs.
pub(crate) fn start(world: Arc<World>) -> impl Future<Output = ()> {
    let (queue, lost) = (Queue::new(), Queue::new());
    let (wake, wake_lost, pods) = (queue.clone(), lost.clone(), world.pods.clone());
    world.jobs.listen(move |change| {
        for job in change.sides() {
            wake.add(Key::of(&job.metadata));
        }
        if change.new.is_none() {
            let uid = change.old.and_then(|job| job.metadata.uid.clone());
            for pod in pods.linked(&Link::Owner(uid.unwrap_or_default())) {
                wake_lost.add(Key::of(&pod.metadata));
            }
        }
    });
    let (wake, wake_lost, jobs) = (queue.clone(), lost.clone(), world.jobs.clone());
    world.pods.listen(move |change| {
        for pod in change.sides() {
            for key in concerned(&pod.metadata, &jobs, |job| {
                job.spec.as_ref()?.selector.as_ref()
            }) {
                wake.add(key);
            }
        }
        if let Some(pod) = change.new.filter(|pod| plan::is_tracked(pod)) {
            wake_lost.add(Key::of(&pod.metadata));
        }
    });
    async move {
        world.synced().await;
        let cancel = world.cancel.clone();
        let controller = Jobs {
            own: Echoes::new(world.jobs.clone()),
            pods: Echoes::new(world.pods.clone()),
            world,
        };
        let update = |key| controller.update(key);
        let free = |key| controller.free_if_lost(key);
        tokio::join!(
            queue.run("jobs", WORKERS, cancel.clone(), update),
            lost.run("lost job pods", WORKERS, cancel, free),
        );
    }
}

impl Jobs {
    async fn update(&self, key: Key) -> Result<Next, Failure> {
        if !self.own.all_back(&key) || !self.pods.all_back(&key) {
            return Ok(Next::After(Duration::from_secs(1)));
        }
        let Some(job) = self.world.jobs.get(&key) else {
            return Ok(Next::Idle);
        };
        let Some(selector) = job.spec.as_ref().and_then(|spec| spec.selector.as_ref()) else {
            return Ok(Next::Idle);
        };
        let claims = claims(&job.metadata, selector, &self.world.pods)?;
        let api = self.world.namespaced(&key.namespace);
        if claims.settle(&controlled_by(&*job), &api).await? {
            return Ok(Next::After(Duration::from_secs(1)));
        }
        let plan = plan(
            &job,
            &claims.owned,
            self.world.timings.job_retry,
            Timestamp::now(),
        );
        self.carry_out(&key, &job, plan).await
    }

    async fn carry_out(&self, key: &Key, job: &Job, plan: Plan) -> Result<Next, Failure> {
        for note in plan.warnings {
            let about = job.object_ref(&());
            self.world
                .tell(about, EventType::Warning, "NotSupported", note)
                .await;
        }
        if plan.remove_job {
            let options = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: job.metadata.uid.clone(),
                    resource_version: None,
                }),
                ..DeleteParams::foreground()
            };
            let api = self.world.namespaced::<Job>(&key.namespace);
            return match api.delete(&key.name, &options).await {
                Err(error) if !is_gone(&error) => Err(error.into()),
                _ => Ok(Next::Idle),
            };
        }
        stream::iter(plan.release)
            .map(|pod| async move { self.remove_finalizer(key, &pod).await })
            .buffer_unordered(REQUESTS)
            .try_collect::<()>()
            .await?;
        stream::iter(plan.delete)
            .map(|pod| async move {
                self.world.delete_pod(&pod, None).await?;
                self.pods.deleted(key, Key::of(&pod.metadata), pod.uid());
                Ok::<_, Failure>(())
            })
            .buffer_unordered(REQUESTS)
            .try_collect::<()>()
            .await?;
        self.create(key, job, &plan.create).await?;
        if let Some(status) = plan.status {
            // The whole object with its revision: a count made from an old state must not win.
            let job = Job {
                status: Some(status),
                ..job.clone()
            };
            let api = self.world.namespaced::<Job>(&key.namespace);
            let written = api
                .replace_status(&key.name, &PostParams::default(), &job)
                .await?;
            self.own.wrote(key, &written.metadata);
        }
        Ok(plan.recheck.map_or(Next::Idle, Next::After))
    }

    async fn create(&self, key: &Key, job: &Job, pods: &[NewJobPod]) -> Result<(), Failure> {
        let Some(spec) = &job.spec else {
            return Ok(());
        };
        let template = pod_from(&spec.template, controlled_by(job));
        let api = self.world.namespaced::<NewPod>(&key.namespace);
        let options = PostParams::default();
        let pods: Vec<NewPod> = pods.iter().map(|new| new.dress(template.clone())).collect();
        let result = stream::iter(pods)
            .map(|pod| {
                let (api, options) = (&api, &options);
                async move { api.create(options, &pod).await }
            })
            .buffer_unordered(REQUESTS)
            .try_for_each(|made| async move {
                self.pods.wrote(key, &made.metadata);
                Ok(())
            })
            .await;
        if let Err(error) = &result {
            let note = format!("Error creating: {}", brief(error));
            let about = job.object_ref(&());
            self.world
                .tell(about, EventType::Warning, "FailedCreate", note)
                .await;
        }
        Ok(result?)
    }

    /// A pod waits for its Job to count it. When that is gone, nobody will.
    async fn free_if_lost(&self, key: Key) -> Result<Next, Failure> {
        let Some(pod) = self.world.pods.get(&key) else {
            return Ok(Next::Idle);
        };
        let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "Job");
        let counted_by = owner.and_then(|owner| {
            let job = self
                .world
                .jobs
                .get(&Key::new(&key.namespace, &owner.name))?;
            (job.metadata.uid.as_deref() == Some(owner.uid.as_str())).then_some(job)
        });
        if counted_by.is_none() && plan::is_tracked(&pod) {
            self.remove_finalizer(&key, &pod).await?;
        }
        Ok(Next::Idle)
    }

    async fn remove_finalizer(&self, key: &Key, pod: &Pod) -> Result<(), Failure> {
        let fields = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING]}});
        let patch = Patch::Strategic(patch_of(pod.metadata.uid.as_deref(), fields));
        let api = self.world.namespaced::<Pod>(&key.namespace);
        match api.patch(pod.name(), &PatchParams::default(), &patch).await {
            Ok(written) => self.pods.wrote(key, &written.metadata),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
