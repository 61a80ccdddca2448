//! From any version to v1: the same plugins in the same order with the same arguments, and what v1 cannot say as warnings.

use engine::framework::{Entry, Point};
use serde_json::{Map, Value, json};

use super::super::build::find;
use super::super::{Configuration, Version};
use super::{Effective, PluginConfig, Profile};

/// Scorers of v1beta1, and what NodeResourcesFit calls them.
const SCORERS: [(&str, &str); 3] = [
    ("NodeResourcesLeastAllocated", "LeastAllocated"),
    ("NodeResourcesMostAllocated", "MostAllocated"),
    ("RequestedToCapacityRatio", "RequestedToCapacityRatio"),
];

const FIT: &str = "NodeResourcesFit";

impl Effective {
    /// The same in v1, and what has no equivalent there.
    pub fn in_v1(&self, plugins: &[Entry]) -> (Self, Vec<String>) {
        let mut converted = self.clone();
        let mut warnings = Vec::new();
        converted.api_version = Version::V1.to_string();
        for (field, address) in [
            ("healthzBindAddress", converted.healthz_bind_address.take()),
            ("metricsBindAddress", converted.metrics_bind_address.take()),
        ] {
            if let Some(address) = address {
                warnings.push(format!(
                    "{field}: `{address}` is left out: v1 has no such field, the address is a flag there (--bind-address)"
                ));
            }
        }
        for (i, profile) in converted.profiles.iter_mut().enumerate() {
            profile.without_effect_left_out(plugins);
            let place = format!("profiles[{i}]");
            let lost = profile.with_one_scorer();
            warnings.extend(lost.into_iter().map(|text| format!("{place}: {text}")));
        }
        (converted, warnings)
    }

    /// As a file of v1 that says no more than it must; of what is in v1.
    pub fn without_defaults(&self, plugins: &[Entry]) -> Value {
        let own = serde_json::to_value(self).unwrap_or_default();
        let defaults = Self::new(&Configuration::default(), plugins);
        let defaults = defaults.map(|defaults| serde_json::to_value(defaults).unwrap_or_default());
        let (Value::Object(own), Ok(defaults)) = (own, defaults) else {
            return Value::Null;
        };
        let mut short = Map::new();
        for (name, value) in own {
            let default = defaults.get(&name);
            match (&name[..], value) {
                ("apiVersion" | "kind", value) => drop(short.insert(name, value)),
                ("profiles", Value::Array(profiles)) => {
                    let default = default.and_then(|profiles| profiles.get(0));
                    let profiles = profiles
                        .into_iter()
                        .map(|profile| shorter(profile, default));
                    let profiles: Vec<Value> = profiles.collect();
                    if profiles != [json!({})] {
                        short.insert(name, profiles.into());
                    }
                }
                (_, value) => {
                    if let Some(value) = differing(value, default) {
                        short.insert(name, value);
                    }
                }
            }
        }
        Value::Object(short)
    }
}

impl Profile {
    fn without_effect_left_out(&mut self, plugins: &[Entry]) {
        let has_effect =
            |name: &str| find(plugins, name).is_none_or(|entry| entry.warning().is_none());
        for (_, enabled) in &mut self.plugins {
            enabled.retain(|plugin| has_effect(&plugin.name));
        }
    }

    /// v1 has one plugin for all strategies, hence one strategy. What is lost is said.
    fn with_one_scorer(&mut self) -> Vec<String> {
        let mut lost = Vec::new();
        let Some((_, scorers)) = self
            .plugins
            .iter_mut()
            .find(|(point, _)| *point == Point::Score)
        else {
            return lost;
        };
        let mut taken = scorers.iter().any(|plugin| plugin.name == FIT);
        let mut strategy = None;
        scorers.retain_mut(|plugin| {
            let Some((old, kind)) = SCORERS.iter().find(|(old, _)| *old == plugin.name) else {
                return true;
            };
            if taken {
                lost.push(format!(
                    "plugin {old} with weight {} is left out: in v1 a profile has one strategy of {FIT}",
                    plugin.weight.unwrap_or(1)
                ));
                return false;
            }
            taken = true;
            strategy = Some((*old, *kind));
            FIT.clone_into(&mut plugin.name);
            true
        });
        let is_old = |config: &PluginConfig| SCORERS.iter().any(|(old, _)| *old == config.name);
        if let Some((old, kind)) = strategy {
            let args = self.plugin_config.iter().find(|config| config.name == old);
            let args = args.map(|config| config.args.clone()).unwrap_or_default();
            let mut scoring = json!({"type": kind, "resources": args["resources"]});
            if kind == "RequestedToCapacityRatio" {
                scoring["requestedToCapacityRatio"] = json!({"shape": args["shape"]});
            }
            match self
                .plugin_config
                .iter_mut()
                .find(|config| config.name == FIT)
            {
                Some(config) => config.args["scoringStrategy"] = scoring,
                None => self.plugin_config.push(PluginConfig {
                    name: FIT.to_owned(),
                    args: json!({"scoringStrategy": scoring}),
                }),
            }
        }
        self.plugin_config.retain(|config| !is_old(config));
        lost
    }
}

/// A profile without points and arguments that are those of every profile.
fn shorter(profile: Value, default: Option<&Value>) -> Value {
    let Value::Object(fields) = profile else {
        return profile;
    };
    let of_default = |field: &str| default.and_then(|profile| profile.get(field));
    let mut short = Map::new();
    for (name, value) in fields {
        let value = match (&name[..], value) {
            ("plugins", value) => differing_points(value, of_default("plugins")),
            ("pluginConfig", Value::Array(configs)) => {
                let known = of_default("pluginConfig").and_then(Value::as_array);
                let is_new = |config: &Value| !known.is_some_and(|known| known.contains(config));
                let configs: Vec<Value> = configs.into_iter().filter(is_new).collect();
                (!configs.is_empty()).then_some(Value::Array(configs))
            }
            (_, value) => Some(value),
        };
        if let Some(value) = value {
            short.insert(name, value);
        }
    }
    Value::Object(short)
}

/// Whole points: half of a set would mean something else.
fn differing_points(plugins: Value, default: Option<&Value>) -> Option<Value> {
    let Value::Object(points) = plugins else {
        return Some(plugins);
    };
    let differs = |(point, set): &(String, Value)| {
        default.and_then(|plugins| plugins.get(point)) != Some(set)
    };
    let points: Map<String, Value> = points.into_iter().filter(differs).collect();
    (!points.is_empty()).then_some(Value::Object(points))
}

fn differing(value: Value, default: Option<&Value>) -> Option<Value> {
    match (value, default) {
        (value, Some(default)) if value == *default => None,
        (Value::Object(fields), Some(default)) => {
            let fields = fields.into_iter();
            let fields = fields.filter(|(name, value)| default.get(name) != Some(value));
            Some(Value::Object(fields.collect()))
        }
        (value, _) => Some(value),
    }
}
