//! A configuration with all its defaults, and its conversion to v1.

mod convert;

use std::time::Duration;

use engine::model::write_duration;
use engine::scheduling::framework::{Entry, Point};
use serde::Serialize;
use serde_json::{Value, json};

use super::Errors;
use super::build::complete_args;
use super::companions::companions;
use super::types::{ClientConnection, Configuration, Extender};

/// A configuration with all defaults filled in, except for names that depend on how the scheduler runs. It serializes as
/// a KubeSchedulerConfiguration with the same meaning.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Effective {
    api_version: String,
    kind: &'static str,
    parallelism: i32,
    leader_election: EffectiveLeaderElection,
    client_connection: ClientConnection,
    #[serde(skip_serializing_if = "Option::is_none")]
    healthz_bind_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics_bind_address: Option<String>,
    enable_profiling: bool,
    enable_contention_profiling: bool,
    pod_initial_backoff_seconds: u64,
    pod_max_backoff_seconds: u64,
    pub profiles: Vec<EffectiveProfile>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    extenders: Vec<Extender>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    delay_cache_until_active: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct EffectiveLeaderElection {
    leader_elect: bool,
    lease_duration: String,
    renew_deadline: String,
    retry_period: String,
    resource_lock: &'static str,
    /// `None` if the file has no name: then it depends on how the scheduler runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_name: Option<String>,
    resource_namespace: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveProfile {
    /// `None` if the file has no name: then it depends on how the scheduler runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    #[serde(serialize_with = "by_field")]
    pub plugins: Vec<(Point, EffectivePluginSet)>,
    pub plugin_config: Vec<EffectivePluginConfig>,
}

/// A plugin at a point, with its weight at Score.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EffectivePlugin {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EffectivePluginConfig {
    pub name: String,
    pub args: Value,
}

/// All plugins of a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EffectivePluginSet {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub enabled: Vec<EffectivePlugin>,
    /// All others: `*`, and companions, which `*` does not disable.
    disabled: Vec<EffectivePlugin>,
}

fn by_field<S: serde::Serializer>(
    plugins: &[(Point, EffectivePluginSet)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let sets = plugins.iter().map(|(point, set)| (point.field(), set));
    serializer.collect_map(sets)
}

/// The plugins that a profile runs at a point.
fn plugins_at(
    point: Point,
    built: &engine::scheduling::profile::Profile,
    plugins: &[Entry],
) -> EffectivePluginSet {
    let names = |point: Point| {
        let order = built.at(point).iter();
        order.map(|index| &built.plugins()[*index])
    };
    let absent = companions(plugins, names(Point::Filter).map(|enabled| enabled.name))
        .into_iter()
        .filter(|companion| companion.points.contains(&point))
        .map(|companion| companion.plugin)
        .filter(|name| !names(point).any(|enabled| enabled.name == *name));
    let disabled = std::iter::once("*").chain(absent);
    EffectivePluginSet {
        enabled: names(point)
            .map(|enabled| EffectivePlugin {
                name: enabled.name.to_owned(),
                weight: (point == Point::Score).then_some(enabled.weight),
            })
            .collect(),
        disabled: disabled
            .map(|name| EffectivePlugin {
                name: name.to_owned(),
                weight: None,
            })
            .collect(),
    }
}

impl Effective {
    pub fn new(configuration: &Configuration, plugins: &[Entry]) -> Result<Self, Errors> {
        let (built, _) = configuration.profiles(plugins)?;
        let election = &configuration.leader_election;
        let profiles = configuration.profiles.iter().zip(built);
        let profiles = profiles.map(|(given, built)| {
            let args = complete_args(configuration, given, &built, plugins).into_iter();
            let args = args.filter_map(|(name, args)| {
                let is_empty = args.as_object().is_some_and(serde_json::Map::is_empty);
                let name = name.to_owned();
                (!is_empty).then_some(EffectivePluginConfig { name, args })
            });
            EffectiveProfile {
                scheduler_name: given.is_named.then(|| given.scheduler_name.clone()),
                plugins: Point::ALL
                    .map(|point| (point, plugins_at(point, &built, plugins)))
                    .into(),
                plugin_config: args.collect(),
            }
        });
        Ok(Self {
            api_version: configuration.version.to_string(),
            kind: "KubeSchedulerConfiguration",
            parallelism: configuration.parallelism,
            leader_election: EffectiveLeaderElection {
                leader_elect: election.leader_elect,
                lease_duration: span(election.lease_duration),
                renew_deadline: span(election.renew_deadline),
                retry_period: span(election.retry_period),
                resource_lock: "leases",
                resource_name: election.is_named.then(|| election.resource_name.clone()),
                resource_namespace: election.resource_namespace.clone(),
            },
            client_connection: configuration.client_connection.clone(),
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

    /// All settings outside the profiles, as `field: value`.
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

/// As YAML.
pub fn to_yaml(value: &impl Serialize) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|error| format!("# cannot write YAML: {error}\n"))
}

/// As JSON over several lines.
pub fn to_json(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value);
    let error = |error: serde_json::Error| json!({"error": error.to_string()}).to_string();
    text.unwrap_or_else(error) + "\n"
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
