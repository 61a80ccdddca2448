//! Deployments.

use k8s_openapi::{
    api::apps::v1::{DeploymentCondition, DeploymentStrategy},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

super::kind!(Deployment, "apps", "deployments");

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Deployment {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: DeploymentSpec,
    #[serde(default)]
    pub(crate) status: DeploymentStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentSpec {
    pub(crate) replicas: i32,
    pub(crate) min_ready_seconds: i32,
    pub(crate) paused: bool,
    pub(crate) progress_deadline_seconds: Option<i32>,
    pub(crate) revision_history_limit: Option<i32>,
    pub(crate) selector: LabelSelector,
    pub(crate) strategy: DeploymentStrategy,
    pub(crate) template: Value,
}

/// The part of the status that its controller writes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentStatus {
    pub(crate) replicas: i32,
    pub(crate) updated_replicas: i32,
    pub(crate) ready_replicas: i32,
    pub(crate) available_replicas: i32,
    pub(crate) unavailable_replicas: i32,
    pub(crate) observed_generation: i64,
    pub(crate) collision_count: Option<i32>,
    pub(crate) conditions: Vec<DeploymentCondition>,
}
