//! What a configuration comes to, with everything written out that it leaves to defaults; and the same in v1.

mod convert;

use std::time::Duration;

use engine::framework::{Entry, Point};
use engine::model::write_duration;
use serde::Serialize;
use serde_json::Value;

use super::Errors;
use super::build::complete_args;
use super::colocation;
use super::types::{Configuration, Extender};

/// A configuration without defaults, but for names that are left open. It is written as a KubeSchedulerConfiguration that means the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Effective {
    api_version: String,
    kind: &'static str,
    parallelism: i32,
    leader_election: LeaderElection,
    client_connection: ClientConnection,
    #[serde(skip_serializing_if = "Option::is_none")]
    healthz_bind_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics_bind_address: Option<String>,
    enable_profiling: bool,
    enable_contention_profiling: bool,
    pod_initial_backoff_seconds: u64,
    pod_max_backoff_seconds: u64,
    pub profiles: Vec<Profile>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    extenders: Vec<Extender>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    delay_cache_until_active: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct LeaderElection {
    leader_elect: bool,
    lease_duration: String,
    renew_deadline: String,
    retry_period: String,
    resource_lock: &'static str,
    /// Absent if it is left open: then it depends on how the scheduler is run.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_name: Option<String>,
    resource_namespace: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClientConnection {
    kubeconfig: String,
    accept_content_types: String,
    content_type: String,
    qps: f32,
    burst: i32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// Absent if it is left open: then it depends on how the scheduler is run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    #[serde(serialize_with = "as_plugins")]
    pub plugins: Vec<(Point, Vec<Plugin>)>,
    pub plugin_config: Vec<PluginConfig>,
}

/// A plugin at a point; the weight is there where scores are given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plugin {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PluginConfig {
    pub name: String,
    pub args: Value,
}

/// What runs at a point and nothing else.
#[derive(Serialize)]
struct PluginSet<'a> {
    #[serde(skip_serializing_if = "<[Plugin]>::is_empty")]
    enabled: &'a [Plugin],
    disabled: Vec<Plugin>,
}

fn as_plugins<S: serde::Serializer>(
    plugins: &[(Point, Vec<Plugin>)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let of = |name: &str| Plugin {
        name: name.to_owned(),
        weight: None,
    };
    let lends = plugins.iter().any(|(point, enabled)| {
        *point == Point::Filter && colocation::is_on(enabled.iter().map(|plugin| &plugin.name[..]))
    });
    serializer.collect_map(plugins.iter().map(|(point, enabled)| {
        let mut disabled = vec![of("*")];
        // They would come by themselves.
        let absent = colocation::COMPANIONS.iter().filter(|name| {
            lends
                && colocation::comes_to(name).contains(point)
                && !enabled.iter().any(|plugin| plugin.name == **name)
        });
        disabled.extend(absent.map(|name| of(name)));
        (point.field(), PluginSet { enabled, disabled })
    }))
}

impl Effective {
    pub fn new(configuration: &Configuration, plugins: &[Entry]) -> Result<Self, Errors> {
        let (built, _) = configuration.profiles(plugins)?;
        let election = &configuration.leader_election;
        let client = &configuration.client_connection;
        let profiles = configuration.profiles.iter().zip(built);
        let profiles = profiles.map(|(given, built)| {
            let at = |point: Point| {
                let order = built.at(point).iter().map(|index| &built.plugins()[*index]);
                let named = order.map(|enabled| Plugin {
                    name: enabled.name.to_owned(),
                    weight: (point == Point::Score).then_some(enabled.weight),
                });
                (point, named.collect())
            };
            let args = complete_args(configuration, given, &built, plugins).into_iter();
            let args = args.filter_map(|(name, args)| {
                let is_empty = args.as_object().is_some_and(serde_json::Map::is_empty);
                let name = name.to_owned();
                (!is_empty).then_some(PluginConfig { name, args })
            });
            Profile {
                scheduler_name: given.is_named.then(|| given.scheduler_name.clone()),
                plugins: Point::ALL.map(at).into(),
                plugin_config: args.collect(),
            }
        });
        Ok(Self {
            api_version: configuration.version.to_string(),
            kind: "KubeSchedulerConfiguration",
            parallelism: configuration.parallelism,
            leader_election: LeaderElection {
                leader_elect: election.leader_elect,
                lease_duration: span(election.lease_duration),
                renew_deadline: span(election.renew_deadline),
                retry_period: span(election.retry_period),
                resource_lock: "leases",
                resource_name: election.is_named.then(|| election.resource_name.clone()),
                resource_namespace: election.resource_namespace.clone(),
            },
            client_connection: ClientConnection {
                kubeconfig: client.kubeconfig.clone(),
                accept_content_types: client.accept_content_types.clone(),
                content_type: client.content_type.clone(),
                qps: client.qps,
                burst: client.burst,
            },
            healthz_bind_address: configuration.healthz_bind_address.clone(),
            metrics_bind_address: configuration.metrics_bind_address.clone(),
            enable_profiling: configuration.enable_profiling,
            enable_contention_profiling: configuration.enable_contention_profiling,
            pod_initial_backoff_seconds: configuration.initial_backoff.as_secs(),
            pod_max_backoff_seconds: configuration.max_backoff.as_secs(),
            profiles: profiles.collect(),
            extenders: configuration.extenders.clone(),
            delay_cache_until_active: configuration.delay_cache_until_active,
        })
    }

    /// All settings that are not of a profile, as `field: value`.
    pub fn settings(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        if let Ok(Value::Object(fields)) = serde_json::to_value(self) {
            for (name, value) in fields.iter().filter(|(name, _)| *name != "profiles") {
                match value {
                    Value::Object(inner) => {
                        let inner = inner.iter();
                        all.extend(
                            inner.map(|(field, value)| (format!("{name}.{field}"), plain(value))),
                        );
                    }
                    value => all.push((name.clone(), plain(value))),
                }
            }
        }
        all
    }
}

/// As YAML, as people write it.
pub fn to_yaml(value: &impl Serialize) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|error| format!("# cannot be written: {error}\n"))
}

/// As JSON over several lines.
pub fn to_json(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value);
    text.unwrap_or_else(|error| format!("\"cannot be written: {error}\"")) + "\n"
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn span(duration: Duration) -> String {
    write_duration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}
