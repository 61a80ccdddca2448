//! The configuration as plain data, defaults filled in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use engine::scheduling::framework::{ConfigVersion, Point};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

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
    /// Ignorable ones come last, so that positions equal those in [`engine::scheduling::scheduler::Settings`].
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plugins([PluginSet; FIELDS.len()]);

const POINTS: usize = Point::ALL.len();

/// The fields of [`Plugins`]: the extension points, all points at once, and points for groups of pods without effect.
const FIELDS: [&str; POINTS + 3] = {
    let mut fields = [""; POINTS + 3];
    let mut i = 0;
    while i < POINTS {
        fields[i] = Point::ALL[i].field();
        i += 1;
    }
    fields[POINTS] = "multiPoint";
    fields[POINTS + 1] = "placementGenerate";
    fields[POINTS + 2] = "placementScore";
    fields
};

impl<'de> Deserialize<'de> for Plugins {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("plugins", &FIELDS, PluginsVisitor)
    }
}

struct PluginsVisitor;

impl<'de> Visitor<'de> for PluginsVisitor {
    type Value = Plugins;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("plugins by extension point")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Plugins, A::Error> {
        let mut plugins = Plugins::default();
        while let Some(PluginsField(i)) = map.next_key()? {
            plugins.0[i] = map.next_value()?;
        }
        Ok(plugins)
    }
}

/// The position of a field in [`FIELDS`].
struct PluginsField(usize);

impl<'de> Deserialize<'de> for PluginsField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let field = FIELDS.iter().position(|field| *field == name);
        let field = field.ok_or_else(|| Error::unknown_field(&name, &FIELDS))?;
        Ok(Self(field))
    }
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
        &self.0[point as usize]
    }

    pub fn multi_point(&self) -> &PluginSet {
        &self.0[POINTS]
    }

    /// Enables a plugin at all of its points, unless the profile names it itself.
    pub fn enable(&mut self, name: &str) {
        let is_named = |set: &PluginSet| {
            set.disables(name) || set.enabled.iter().any(|plugin| plugin.name == name)
        };
        if !self.0.iter().any(is_named) {
            self.0[POINTS].enabled.push(EnabledPlugin {
                name: name.to_owned(),
                weight: 0,
            });
        }
    }

    /// Every set that has an effect, with the name of its field.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, &PluginSet)> {
        FIELDS.into_iter().zip(&self.0).take(POINTS + 1)
    }

    /// The sets without effect, with the names of their fields.
    pub(super) fn without_effect(&self) -> impl Iterator<Item = (&'static str, &PluginSet)> {
        FIELDS.into_iter().zip(&self.0).skip(POINTS + 1)
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
