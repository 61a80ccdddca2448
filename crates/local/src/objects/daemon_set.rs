//! DaemonSets.

use k8s_openapi::{
    api::apps::v1::DaemonSetUpdateStrategy,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

super::kind!(DaemonSet, "apps", "daemonsets");

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct DaemonSet {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: DaemonSetSpec,
    #[serde(default)]
    pub(crate) status: DaemonSetStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DaemonSetSpec {
    pub(crate) min_ready_seconds: i32,
    pub(crate) revision_history_limit: Option<i32>,
    pub(crate) selector: LabelSelector,
    pub(crate) template: Value,
    pub(crate) update_strategy: DaemonSetUpdateStrategy,
}

/// The part of the status that its controller writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DaemonSetStatus {
    pub(crate) current_number_scheduled: i32,
    pub(crate) number_misscheduled: i32,
    pub(crate) desired_number_scheduled: i32,
    pub(crate) number_ready: i32,
    pub(crate) updated_number_scheduled: i32,
    pub(crate) number_available: i32,
    pub(crate) number_unavailable: i32,
    pub(crate) observed_generation: i64,
    pub(crate) collision_count: i32,
}
