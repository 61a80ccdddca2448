//! Runs Jobs to completion: makes their pods, counts how they end, gives up after too many failures.
//!
//! This is the shell; `plan` decides and `count` keeps the numbers right. Indexed completion is supported; pod failure policies, success
//! policies and limits per index are not, and a Job that uses them is told so.

mod count;
mod member;
mod plan;

use std::{future::Future, sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use kube::api::DeleteParams;
use serde_json::json;

use self::{
    member::{TRACKING, is_tracked, member},
    plan::{Plan, plan},
};
use crate::{
    cache::{Key, Link, controller_of},
    claims::{claims, concerned, controlled_by, pod_from},
    echo::Echoes,
    events::Severity,
    objects::{Job, Pod},
    queue::{Next, Queue},
    requests::{Failure, Part, brief},
    world::World,
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
            for key in concerned(&pod.metadata, &jobs, |job| &job.spec.selector) {
                wake.add(key);
            }
        }
        if let Some(pod) = change.new.filter(|pod| is_tracked(pod)) {
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
        let Some(job) = self.world.jobs.get(&key) else {
            return Ok(Next::Idle);
        };
        if !self.own.all_back(&key) || !self.pods.all_back(&key) {
            return Ok(Next::After(Duration::from_secs(1)));
        }
        let claims = claims(&job.metadata, &job.spec.selector, &self.world.pods)?;
        if claims
            .settle(&controlled_by(&*job), &self.world.requests)
            .await?
        {
            return Ok(Next::After(Duration::from_secs(1)));
        }
        let retry = self.world.timings.job_retry;
        let plan = plan(&job, &claims.owned, retry, Timestamp::now());
        self.carry_out(&key, &job, plan).await
    }

    async fn carry_out(&self, key: &Key, job: &Job, plan: Plan) -> Result<Next, Failure> {
        let requests = &self.world.requests;
        for message in plan.warnings {
            self.world
                .tell(job, Severity::Warning, "NotSupported", &message)
                .await;
        }
        if plan.remove_job {
            requests
                .delete::<Job>(&job.metadata, DeleteParams::foreground())
                .await?;
            return Ok(Next::Idle);
        }
        stream::iter(plan.release)
            .map(|pod| async move { self.release(key, &pod).await })
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
            // A count made from an old state must not win.
            let fields = json!({"status": status});
            let patch = requests.merge_unchanged::<Job>(&job.metadata, Part::Status, fields);
            self.own.wrote(key, patch.await?.as_ref());
        }
        Ok(plan.recheck.map_or(Next::Idle, Next::After))
    }

    async fn create(&self, key: &Key, job: &Job, indexes: &[Option<i32>]) -> Result<(), Failure> {
        let pod = &pod_from(&job.spec.template, &controlled_by(job));
        let result = stream::iter(indexes.to_vec())
            .map(|index| async move {
                let pod = member(pod.clone(), index);
                let made = self
                    .world
                    .requests
                    .create::<Pod>(Some(&key.namespace), &pod)
                    .await?;
                self.pods.wrote(key, Some(&made));
                Ok(())
            })
            .buffer_unordered(REQUESTS)
            .try_collect::<()>()
            .await;
        if let Err(error) = &result {
            let message = format!("Error creating: {}", brief(error));
            self.world
                .tell(job, Severity::Warning, "FailedCreate", &message)
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
        if counted_by.is_none() && is_tracked(&pod) {
            self.release(&key, &pod).await?;
        }
        Ok(Next::Idle)
    }

    /// Removes the finalizer by which the pod waits to be counted.
    async fn release(&self, key: &Key, pod: &Pod) -> Result<(), Failure> {
        let fields = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING]}});
        let patch = self
            .world
            .requests
            .strategic::<Pod>(&pod.metadata, Part::Object, fields);
        self.pods.wrote(key, patch.await?.as_ref());
        Ok(())
    }
}
