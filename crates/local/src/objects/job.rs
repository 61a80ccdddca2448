//! Jobs.

use k8s_openapi::{
    api::batch::v1::JobCondition,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time},
};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::Value;

super::kind!(Job, "batch", "jobs");

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Job {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: JobSpec,
    #[serde(default)]
    pub(crate) status: JobStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobSpec {
    pub(crate) active_deadline_seconds: Option<i64>,
    pub(crate) backoff_limit: Option<i32>,
    pub(crate) completion_mode: String,
    pub(crate) completions: Option<i32>,
    pub(crate) parallelism: Option<i32>,
    pub(crate) pod_replacement_policy: String,
    pub(crate) selector: LabelSelector,
    pub(crate) suspend: bool,
    pub(crate) template: Value,
    pub(crate) ttl_seconds_after_finished: Option<i32>,
    // Not supported; read only to report them.
    pub(crate) backoff_limit_per_index: Option<IgnoredAny>,
    pub(crate) pod_failure_policy: Option<IgnoredAny>,
    pub(crate) success_policy: Option<IgnoredAny>,
}

impl JobSpec {
    pub(crate) fn is_indexed(&self) -> bool {
        self.completion_mode == "Indexed"
    }

    pub(crate) fn restarts_failed_pods(&self) -> bool {
        self.template["spec"]["restartPolicy"] == "OnFailure"
    }
}

/// The part of the status that its controller writes. Written as a merge patch, nothing becomes null.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobStatus {
    pub(crate) active: i32,
    pub(crate) ready: i32,
    pub(crate) terminating: i32,
    pub(crate) succeeded: i32,
    pub(crate) failed: i32,
    pub(crate) completed_indexes: Option<String>,
    pub(crate) completion_time: Option<Time>,
    pub(crate) conditions: Vec<JobCondition>,
    pub(crate) start_time: Option<Time>,
    pub(crate) uncounted_terminated_pods: Uncounted,
}

/// The uids of pods that ended and still have their finalizer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Uncounted {
    pub(crate) succeeded: Vec<String>,
    pub(crate) failed: Vec<String>,
}
