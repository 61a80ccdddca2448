//! A file as written, all versions in one type. Whether a version has a field is checked later.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Extender, Plugins};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Document {
    pub(super) api_version: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) parallelism: Option<i32>,
    pub(super) leader_election: LeaderElectionDocument,
    pub(super) client_connection: ClientConnectionDocument,
    pub(super) healthz_bind_address: Option<String>,
    pub(super) metrics_bind_address: Option<String>,
    pub(super) enable_profiling: Option<bool>,
    pub(super) enable_contention_profiling: Option<bool>,
    pub(super) percentage_of_nodes_to_score: Option<i32>,
    pub(super) pod_initial_backoff_seconds: Option<i64>,
    pub(super) pod_max_backoff_seconds: Option<i64>,
    pub(super) profiles: Vec<ProfileDocument>,
    pub(super) extenders: Vec<Extender>,
    pub(super) delay_cache_until_active: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct LeaderElectionDocument {
    pub(super) leader_elect: Option<bool>,
    pub(super) lease_duration: Option<String>,
    pub(super) renew_deadline: Option<String>,
    pub(super) retry_period: Option<String>,
    pub(super) resource_lock: Option<String>,
    pub(super) resource_name: Option<String>,
    pub(super) resource_namespace: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ClientConnectionDocument {
    pub(super) kubeconfig: Option<String>,
    pub(super) accept_content_types: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) qps: Option<f32>,
    pub(super) burst: Option<i32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ProfileDocument {
    pub(super) scheduler_name: String,
    pub(super) percentage_of_nodes_to_score: Option<i32>,
    pub(super) plugins: Plugins,
    pub(super) plugin_config: Vec<PluginConfigDocument>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PluginConfigDocument {
    pub(super) name: String,
    /// Read later into the type of the plugin.
    pub(super) args: Option<IgnoredAny>,
}
