//! The CronJob controller: starts Jobs at the times of a schedule and deletes old ones.
//!
//! `plan` decides, `schedule` knows the times.

mod plan;
mod schedule;

use std::{future::Future, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::api::DeleteParams;
use reconcile::{
    Error, Expectations, Index, Key, Part, Requeue, WorkQueue, controller_of, is_already_exists,
    message_of,
};
use serde_json::json;

use self::plan::{NewJob, plan};
use crate::{
    context::Context,
    events::Events,
    objects::{CronJob, Job, cron_job::CronJobStatus},
};

const WORKERS: usize = 4;

struct CronJobs {
    context: Arc<Context>,
    events: Events,
    own: Expectations<CronJob>,
    jobs: Expectations<Job>,
}

/// Registers the listeners; the returned future does the work.
pub(crate) fn start(context: Arc<Context>) -> impl Future<Output = ()> {
    let queue = WorkQueue::new("cronjobs");
    let wake = queue.clone();
    context.cron_jobs.listen(move |change| {
        for cron in change.sides() {
            wake.add(Key::of(&cron.metadata));
        }
    });
    let wake = queue.clone();
    context.jobs.listen(move |change| {
        for job in change.sides() {
            let owner = controller_of(&job.metadata).filter(|owner| owner.kind == "CronJob");
            if let Some(owner) = owner {
                let namespace = job.metadata.namespace.clone().unwrap_or_default();
                wake.add(Key::new(namespace, &owner.name));
            }
        }
    });
    async move {
        context.synced().await;
        let cancel = context.cancel.clone();
        let controller = CronJobs {
            own: Expectations::new(context.cron_jobs.clone()),
            jobs: Expectations::new(context.jobs.clone()),
            events: context.events("cronjob-controller"),
            context,
        };
        let work = |key| controller.update(key);
        queue.run(WORKERS, cancel, work).await;
    }
}

impl CronJobs {
    async fn update(&self, key: Key) -> Result<Requeue, Error> {
        let Some(cron) = self.context.cron_jobs.get(&key) else {
            return Ok(Requeue::OnChange);
        };
        if !self.own.satisfied(&key) || !self.jobs.satisfied(&key) {
            return Ok(Requeue::After(Duration::from_secs(1)));
        }
        let uid = cron.metadata.uid.clone().unwrap_or_default();
        let jobs = self.context.jobs.indexed(&Index::Owner(uid));
        let plan = plan(&cron, &jobs, Timestamp::now());
        for report in &plan.reports {
            self.events.record(&*cron, report).await;
        }
        for job in &plan.delete {
            self.delete(&key, &cron, job).await?;
        }
        let mut status = plan.status;
        if let Some(new) = plan.create {
            let made = self.create(&key, &cron, &new).await?;
            let status = status.get_or_insert_with(|| cron.status.clone());
            status
                .active
                .extend(made.as_ref().map(|made| active(made, &key)));
            status.last_schedule_time = Some(Time(new.due));
        }
        if let Some(status) = status {
            self.write_status(&key, &cron, &status).await?;
        }
        Ok(plan.recheck.map_or(Requeue::OnChange, Requeue::After))
    }

    /// None if the Job exists already.
    async fn create(
        &self,
        key: &Key,
        cron: &CronJob,
        new: &NewJob,
    ) -> Result<Option<ObjectMeta>, Error> {
        let requests = &self.context.requests;
        match requests.create::<Job>(Some(&key.namespace), &new.job).await {
            Ok(made) => {
                self.jobs.wrote(key, Some(&made));
                let message = format!("Created job {}", new.name);
                self.events.normal(cron, "SuccessfulCreate", &message).await;
                Ok(Some(made))
            }
            Err(error) if is_already_exists(&error) => Ok(None),
            Err(error) => {
                let message = format!("Error creating job: {}", message_of(&error));
                self.events.warning(cron, "FailedCreate", &message).await;
                Err(error.into())
            }
        }
    }

    async fn delete(&self, key: &Key, cron: &CronJob, job: &Job) -> Result<(), Error> {
        let (meta, options) = (&job.metadata, DeleteParams::background());
        self.context.requests.delete::<Job>(meta, options).await?;
        let uid = meta.uid.as_deref().unwrap_or_default();
        self.jobs.deleted(key, Key::of(meta), uid);
        let name = meta.name.as_deref().unwrap_or_default();
        let message = format!("Deleted job {name}");
        self.events.normal(cron, "SuccessfulDelete", &message).await;
        Ok(())
    }

    async fn write_status(
        &self,
        key: &Key,
        cron: &CronJob,
        status: &CronJobStatus,
    ) -> Result<(), Error> {
        let (requests, fields) = (&self.context.requests, json!({"status": status}));
        let patch = requests.merge::<CronJob>(&cron.metadata, Part::Status, fields);
        self.own.wrote(key, patch.await?.as_ref());
        Ok(())
    }
}

fn active(job: &ObjectMeta, key: &Key) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".into()),
        kind: Some("Job".into()),
        namespace: Some(key.namespace.clone()),
        name: job.name.clone(),
        uid: job.uid.clone(),
        ..ObjectReference::default()
    }
}
