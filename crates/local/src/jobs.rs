//! The Job controller: creates pods, counts how they end, and fails the Job after too many failures.
//!
//! `plan` decides and `count` keeps the counters right. Indexed completion is supported. Pod failure policies, success
//! policies and limits per index are not: a Job that uses them gets an event.

mod count;
mod indexes;
mod member;
mod plan;

use std::{future::Future, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::JobCondition;
use kube::api::DeleteParams;
use reconcile::{Error, Expectations, Index, Key, Part, Requeue, WorkQueue, controller_of};
use serde_json::json;

use self::{
    member::{TRACKING, is_tracked, member},
    plan::{JobPlan, plan},
};
use crate::{
    context::Context,
    events::Events,
    objects::{Job, Pod, job::JobStatus},
    ownership::{claims, controlled_by, owner_keys, pod_from},
    pod_control::PodControl,
};

const WORKERS: usize = 8;

struct Jobs {
    context: Arc<Context>,
    events: Events,
    own: Expectations<Job>,
    pods: PodControl,
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
        let events = context.events("job-controller");
        let controller = Jobs {
            own: Expectations::new(context.jobs.clone()),
            pods: PodControl::new(&context, &events),
            events,
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
            self.events.warning(job, "NotSupported", &message).await;
        }
        if plan.remove_job {
            requests
                .delete::<Job>(&job.metadata, DeleteParams::foreground())
                .await?;
            return Ok(Requeue::OnChange);
        }
        let release = |pod: Arc<Pod>| async move { self.release(key, &pod).await };
        self.pods.each(&plan.release, release).await?;
        self.pods.delete(key, &plan.delete).await?;
        let pod = &pod_from(&job.spec.template, &controlled_by(job));
        let pods = plan
            .create
            .into_iter()
            .map(|index| member(pod.clone(), index))
            .collect();
        let created = self.pods.create(key, job, pods).await?;
        self.pods.report(job, &created, &plan.delete).await;
        if let Some(status) = plan.status {
            let changed = changes(&job.status, &status);
            // A count from an old state must not be written.
            let fields = json!({"status": status});
            let patch = requests.merge_unchanged::<Job>(&job.metadata, Part::Status, fields);
            self.own.wrote(key, patch.await?.as_ref());
            for condition in changed {
                self.report(job, &condition).await;
            }
        }
        Ok(plan.recheck.map_or(Requeue::OnChange, Requeue::After))
    }

    async fn report(&self, job: &Job, condition: &JobCondition) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (reason, message) = (text(&condition.reason), text(&condition.message));
        match (condition.type_.as_str(), condition.status.as_str()) {
            ("Complete", "True") => self.events.normal(job, "Completed", "Job completed").await,
            ("Failed", "True") => self.events.warning(job, &reason, &message).await,
            ("Suspended", "True") => self.events.normal(job, "Suspended", &message).await,
            ("Suspended", _) => self.events.normal(job, "Resumed", &message).await,
            _ => {}
        }
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

/// The conditions that are new or have another status than before.
fn changes(before: &JobStatus, after: &JobStatus) -> Vec<JobCondition> {
    let known = |condition: &&JobCondition| {
        let mut old = before.conditions.iter();
        old.any(|old| old.type_ == condition.type_ && old.status == condition.status)
    };
    let changed = after
        .conditions
        .iter()
        .filter(|condition| !known(condition));
    changed.cloned().collect()
}
