//! StatefulSets.

use k8s_openapi::{
    api::apps::v1::{StatefulSetOrdinals, StatefulSetUpdateStrategy},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

super::kind!(StatefulSet, "apps", "statefulsets");

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct StatefulSet {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: StatefulSetSpec,
    #[serde(default)]
    pub(crate) status: StatefulSetStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatefulSetSpec {
    pub(crate) replicas: i32,
    pub(crate) min_ready_seconds: i32,
    pub(crate) ordinals: StatefulSetOrdinals,
    pub(crate) persistent_volume_claim_retention_policy: RetentionPolicy,
    pub(crate) pod_management_policy: String,
    pub(crate) revision_history_limit: Option<i32>,
    pub(crate) selector: LabelSelector,
    pub(crate) service_name: String,
    pub(crate) template: Value,
    pub(crate) update_strategy: StatefulSetUpdateStrategy,
    pub(crate) volume_claim_templates: Vec<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RetentionPolicy {
    pub(crate) when_deleted: String,
    pub(crate) when_scaled: String,
}

/// The part of the status that its controller writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatefulSetStatus {
    pub(crate) replicas: i32,
    pub(crate) ready_replicas: i32,
    pub(crate) available_replicas: i32,
    pub(crate) current_replicas: i32,
    pub(crate) updated_replicas: i32,
    pub(crate) current_revision: String,
    pub(crate) update_revision: String,
    pub(crate) observed_generation: i64,
    pub(crate) collision_count: i32,
}

impl StatefulSet {
    pub(crate) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The ordinal of its first pod.
    pub(crate) fn start(&self) -> i64 {
        self.spec.ordinals.start.unwrap_or(0).into()
    }

    pub(crate) fn rolls(&self) -> bool {
        self.spec.update_strategy.type_.as_deref() != Some("OnDelete")
    }

    /// Pods with a lower ordinal keep the current revision.
    pub(crate) fn partition(&self) -> i64 {
        let rolling = self.spec.update_strategy.rolling_update.as_ref();
        let partition = rolling.and_then(|rolling| rolling.partition);
        self.start() + i64::from(partition.unwrap_or(0))
    }
}
