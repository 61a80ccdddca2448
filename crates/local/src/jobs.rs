//! The Job controller: creates pods, counts how they end, and fails the Job after too many failures.
//!
//! `plan` decides and `count` keeps the counters right. Indexed completion is supported. Pod failure policies, success
//! policies and limits per index are not: a Job that uses them gets an event.

mod count;
mod member;
mod plan;

use std::{future::Future, sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use kube::api::DeleteParams;
use reconcile::{
    Error, EventType, Expectations, Index, Key, Part, Requeue, WorkQueue, controller_of, message_of,
};
use serde_json::json;

use self::{
    member::{TRACKING, is_tracked, member},
    plan::{JobPlan, plan},
};
use crate::{
    context::Context,
    objects::{Job, Pod},
    ownership::{claims, controlled_by, owner_keys, pod_from},
};

const WORKERS: usize = 8;
const REQUESTS: usize = 16;

struct Jobs {
    context: Arc<Context>,
    own: Expectations<Job>,
    pods: Expectations<Pod>,
}

/// Registers the listeners; the returned future does the work.
pub(crate) fn start(context: Arc<Context>) -> impl Future<Output = ()> {
    let (queue, lost) = (WorkQueue::new("jobs"), WorkQueue::new("lost-job-pods"));
    let (wake, wake_lost, pods) = (queue.clone(), lost.clone(), context.pods.clone());
    context.jobs.listen(move |change| {
        for job in change.sides() {
            wake.add(Key::of(&job.metadata));
        }
        if change.new.is_none() {
            let uid = change.old.and_then(|job| job.metadata.uid.clone());
            for pod in pods.indexed(&Index::Owner(uid.unwrap_or_default())) {
                wake_lost.add(Key::of(&pod.metadata));
            }
        }
    });
    let (wake, wake_lost, jobs) = (queue.clone(), lost.clone(), context.jobs.clone());
    context.pods.listen(move |change| {
        for pod in change.sides() {
            for key in owner_keys(&pod.metadata, &jobs, |job| &job.spec.selector) {
                wake.add(key);
            }
        }
        if let Some(pod) = change.new.filter(|pod| is_tracked(pod)) {
            wake_lost.add(Key::of(&pod.metadata));
        }
    });
    async move {
        context.synced().await;
        let cancel = context.cancel.clone();
        let controller = Jobs {
            own: Expectations::new(context.jobs.clone()),
            pods: Expectations::new(context.pods.clone()),
            context,
        };
        let update = |key| controller.update(key);
        let free = |key| controller.free_if_lost(key);
        tokio::join!(
            queue.run(WORKERS, cancel.clone(), update),
            lost.run(WORKERS, cancel, free),
        );
    }
}

impl Jobs {
    async fn update(&self, key: Key) -> Result<Requeue, Error> {
        let Some(job) = self.context.jobs.get(&key) else {
            return Ok(Requeue::OnChange);
        };
        if !self.own.satisfied(&key) || !self.pods.satisfied(&key) {
            return Ok(Requeue::After(Duration::from_secs(1)));
        }
        let claims = claims(&job.metadata, &job.spec.selector, &self.context.pods)?;
        if claims
            .settle(&controlled_by(&*job), &self.context.requests)
            .await?
        {
            return Ok(Requeue::After(Duration::from_secs(1)));
        }
        let retry = self.context.timings.job_retry;
        let plan = plan(&job, &claims.owned, retry, Timestamp::now());
        self.carry_out(&key, &job, plan).await
    }

    async fn carry_out(&self, key: &Key, job: &Job, plan: JobPlan) -> Result<Requeue, Error> {
        let requests = &self.context.requests;
        for message in plan.warnings {
            self.context
                .record_event(job, EventType::Warning, "NotSupported", &message)
                .await;
        }
        if plan.remove_job {
            requests
                .delete::<Job>(&job.metadata, DeleteParams::foreground())
                .await?;
            return Ok(Requeue::OnChange);
        }
        stream::iter(plan.release)
            .map(|pod| async move { self.release(key, &pod).await })
            .buffer_unordered(REQUESTS)
            .try_collect::<()>()
            .await?;
        stream::iter(plan.delete)
            .map(|pod| async move {
                self.context.delete_pod(&pod, None).await?;
                self.pods.deleted(key, Key::of(&pod.metadata), pod.uid());
                Ok::<_, Error>(())
            })
            .buffer_unordered(REQUESTS)
            .try_collect::<()>()
            .await?;
        self.create(key, job, &plan.create).await?;
        if let Some(status) = plan.status {
            // A count from an old state must not be written.
            let fields = json!({"status": status});
            let patch = requests.merge_unchanged::<Job>(&job.metadata, Part::Status, fields);
            self.own.wrote(key, patch.await?.as_ref());
        }
        Ok(plan.recheck.map_or(Requeue::OnChange, Requeue::After))
    }

    async fn create(&self, key: &Key, job: &Job, indexes: &[Option<i32>]) -> Result<(), Error> {
        let pod = &pod_from(&job.spec.template, &controlled_by(job));
        let result = stream::iter(indexes.to_vec())
            .map(|index| async move {
                let pod = member(pod.clone(), index);
                let made = self
                    .context
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
            let message = format!("Error creating: {}", message_of(error));
            self.context
                .record_event(job, EventType::Warning, "FailedCreate", &message)
                .await;
        }
        Ok(result?)
    }

    /// A pod keeps its finalizer until its Job counts it. Without the Job, this removes the finalizer.
    async fn free_if_lost(&self, key: Key) -> Result<Requeue, Error> {
        let Some(pod) = self.context.pods.get(&key) else {
            return Ok(Requeue::OnChange);
        };
        let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "Job");
        let counted_by = owner.and_then(|owner| {
            let job = self
                .context
                .jobs
                .get(&Key::new(&key.namespace, &owner.name))?;
            (job.metadata.uid.as_deref() == Some(owner.uid.as_str())).then_some(job)
        });
        if counted_by.is_none() && is_tracked(&pod) {
            self.release(&key, &pod).await?;
        }
        Ok(Requeue::OnChange)
    }

    /// Removes the finalizer of a pod.
    async fn release(&self, key: &Key, pod: &Pod) -> Result<(), Error> {
        let fields = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING]}});
        let patch = self
            .context
            .requests
            .strategic::<Pod>(&pod.metadata, Part::Object, fields);
        self.pods.wrote(key, patch.await?.as_ref());
        Ok(())
    }
}
