//! CronJobs.

use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

super::kind!(CronJob, "batch", "cronjobs");

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct CronJob {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: CronJobSpec,
    #[serde(default)]
    pub(crate) status: CronJobStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CronJobSpec {
    pub(crate) concurrency_policy: String,
    pub(crate) failed_jobs_history_limit: Option<i32>,
    pub(crate) job_template: Value,
    pub(crate) schedule: String,
    pub(crate) starting_deadline_seconds: Option<i64>,
    pub(crate) successful_jobs_history_limit: Option<i32>,
    pub(crate) suspend: bool,
    pub(crate) time_zone: Option<String>,
}

/// The part of the status that its controller writes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CronJobStatus {
    pub(crate) active: Vec<ObjectReference>,
    pub(crate) last_schedule_time: Option<Time>,
    pub(crate) last_successful_time: Option<Time>,
}

impl CronJob {
    pub(crate) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}
