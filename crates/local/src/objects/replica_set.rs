//! ReplicaSets, and what they have in common with ReplicationControllers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use reconcile::Object;
use serde::{Deserialize, Serialize};
use serde_json::Value;

super::kind!(ReplicaSet, "apps", "replicasets");

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ReplicaSet {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: ReplicaSetSpec,
    #[serde(default)]
    pub(crate) status: ReplicaSetStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReplicaSetSpec {
    pub(crate) replicas: i32,
    pub(crate) min_ready_seconds: i32,
    pub(crate) selector: LabelSelector,
    pub(crate) template: Value,
}

/// The part of the status that its controller writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReplicaSetStatus {
    pub(crate) replicas: i32,
    pub(crate) fully_labeled_replicas: i32,
    pub(crate) ready_replicas: i32,
    pub(crate) available_replicas: i32,
    pub(crate) observed_generation: i64,
}

/// A kind whose controller keeps the requested number of equal pods.
pub(crate) trait Replicated: Object {
    /// The name of the controller, as events show it.
    const CONTROLLER: &'static str;

    fn spec(&self) -> &ReplicaSetSpec;
    fn status(&self) -> &ReplicaSetStatus;
}

impl Replicated for ReplicaSet {
    const CONTROLLER: &'static str = "replicaset-controller";

    fn spec(&self) -> &ReplicaSetSpec {
        &self.spec
    }

    fn status(&self) -> &ReplicaSetStatus {
        &self.status
    }
}
