//! The configuration as plain data, defaults filled in.

use std::sync::Arc;
use std::time::Duration;

use engine::framework::{ConfigVersion, Point};
use serde::{Deserialize, Serialize};

use crate::yaml::Tree;

/// A valid KubeSchedulerConfiguration. [`super::load`] reads it; `default()` is that of an empty v1 file.
#[derive(Debug, Clone)]
pub struct Configuration {
    pub version: ConfigVersion,
    pub parallelism: i32,
    pub leader_election: LeaderElection,
    pub client_connection: ClientConnection,
    /// `host:port` of v1beta1 and v1beta2.
    pub healthz_bind_address: Option<String>,
    pub metrics_bind_address: Option<String>,
    pub enable_profiling: bool,
    pub enable_contention_profiling: bool,
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
    /// At least one; names are not empty and differ.
    pub profiles: Vec<Profile>,
    /// Ignorable ones come last, so that positions equal those in [`engine::scheduler::Settings`].
    pub extenders: Vec<Extender>,
    pub delay_cache_until_active: bool,
    /// The text, from which the arguments of plugins are read.
    pub(super) tree: Arc<Tree>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElection {
    pub leader_elect: bool,
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
    pub resource_name: String,
    /// Whether the name comes from the file.
    pub is_named: bool,
    pub resource_namespace: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientConnection {
    /// Empty: the cluster that this process runs in.
    pub kubeconfig: String,
    pub accept_content_types: String,
    pub content_type: String,
    pub qps: f32,
    pub burst: i32,
}

#[derive(Debug, Clone)]
pub struct Profile {
    pub scheduler_name: String,
    /// Whether the name comes from the file.
    pub is_named: bool,
    /// The plugins that the file adds to the defaults of its version, and those it disables.
    pub plugins: Plugins,
    pub plugin_config: Vec<PluginConfig>,
    /// Where the profile is in the file.
    pub(super) place: String,
}

#[derive(Debug, Clone)]
pub struct PluginConfig {
    pub name: String,
    /// Whether arguments are given.
    pub(super) given: bool,
    pub(super) place: String,
}

/// The plugins that a profile enables and disables, at single points and at all points at once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Plugins {
    pub pre_enqueue: PluginSet,
    pub queue_sort: PluginSet,
    pub pre_filter: PluginSet,
    pub filter: PluginSet,
    pub post_filter: PluginSet,
    pub pre_score: PluginSet,
    pub score: PluginSet,
    pub reserve: PluginSet,
    pub permit: PluginSet,
    pub pre_bind: PluginSet,
    pub bind: PluginSet,
    pub post_bind: PluginSet,
    pub multi_point: PluginSet,
    /// For groups of pods; no effect.
    pub placement_generate: PluginSet,
    pub placement_score: PluginSet,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PluginSet {
    pub enabled: Vec<EnabledPlugin>,
    /// `*` is all of them.
    pub disabled: Vec<DisabledPlugin>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnabledPlugin {
    pub name: String,
    /// 0 is "not given".
    pub weight: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DisabledPlugin {
    pub name: String,
    /// Accepted without effect, as kube-scheduler does.
    pub weight: i32,
}

impl PluginSet {
    pub fn disables(&self, name: &str) -> bool {
        self.disabled.iter().any(|plugin| plugin.name == name)
    }

    pub fn is_empty(&self) -> bool {
        self.enabled.is_empty() && self.disabled.is_empty()
    }
}

impl Plugins {
    pub fn at(&self, point: Point) -> &PluginSet {
        match point {
            Point::PreEnqueue => &self.pre_enqueue,
            Point::QueueSort => &self.queue_sort,
            Point::PreFilter => &self.pre_filter,
            Point::Filter => &self.filter,
            Point::PostFilter => &self.post_filter,
            Point::PreScore => &self.pre_score,
            Point::Score => &self.score,
            Point::Reserve => &self.reserve,
            Point::Permit => &self.permit,
            Point::PreBind => &self.pre_bind,
            Point::Bind => &self.bind,
            Point::PostBind => &self.post_bind,
        }
    }

    /// Every set with the name of its field.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, &PluginSet)> {
        let points = Point::ALL.map(|point| (point.field(), self.at(point)));
        points
            .into_iter()
            .chain([("multiPoint", &self.multi_point)])
    }
}

/// A scheduler extender: a program that the scheduler calls over HTTP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Extender {
    pub url_prefix: String,
    pub filter_verb: String,
    pub preempt_verb: String,
    pub prioritize_verb: String,
    pub weight: i64,
    pub bind_verb: String,
    #[serde(rename = "enableHTTPS")]
    pub enable_https: bool,
    pub tls_config: Option<ExtenderTls>,
    /// As written; see [`Extender::timeout`].
    pub http_timeout: Option<String>,
    pub node_cache_capable: bool,
    pub managed_resources: Vec<ManagedResource>,
    pub ignorable: bool,
}

impl Extender {
    /// 5 s when none is given, as in kube-scheduler.
    pub fn timeout(&self) -> Duration {
        let given = self
            .http_timeout
            .as_deref()
            .map(engine::model::parse_duration);
        match given {
            Some(Ok(nanos)) if nanos > 0 => Duration::from_nanos(nanos.unsigned_abs()),
            _ => Duration::from_secs(5),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ExtenderTls {
    pub insecure: bool,
    pub server_name: String,
    pub cert_file: String,
    pub key_file: String,
    pub ca_file: String,
    /// These three are base64 of PEM.
    pub cert_data: String,
    pub key_data: String,
    pub ca_data: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ManagedResource {
    pub name: String,
    pub ignored_by_scheduler: bool,
}
