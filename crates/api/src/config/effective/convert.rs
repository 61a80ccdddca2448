//! From any version to v1: the same plugins in the same order with the same arguments. Warnings name what v1 lacks.

use engine::scheduling::framework::{ConfigVersion, Entry, Point, Successor};
use serde_json::{Map, Value, json};

use super::super::Configuration;
use super::super::build::find;
use super::{Effective, EffectivePluginConfig, EffectiveProfile};

impl Effective {
    /// This configuration in v1, with warnings about settings that v1 lacks.
    pub fn in_v1(&self, plugins: &[Entry]) -> (Self, Vec<String>) {
        let mut converted = self.clone();
        let mut warnings = Vec::new();
        converted.api_version = ConfigVersion::V1.to_string();
        for (field, address) in [
            ("healthzBindAddress", converted.healthz_bind_address.take()),
            ("metricsBindAddress", converted.metrics_bind_address.take()),
        ] {
            if let Some(address) = address {
                warnings.push(format!(
                    "{field}: removed `{address}`: v1 has no such field; use the flag --bind-address"
                ));
            }
        }
        for (i, profile) in converted.profiles.iter_mut().enumerate() {
            profile.remove_neutral(plugins);
            let place = format!("profiles[{i}]");
            let lost = profile.use_successors(plugins);
            warnings.extend(lost.into_iter().map(|text| format!("{place}: {text}")));
        }
        (converted, warnings)
    }

    /// As a v1 file without the fields that have their defaults. The configuration must be of v1.
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

impl EffectiveProfile {
    /// Removes plugins without effect.
    fn remove_neutral(&mut self, plugins: &[Entry]) {
        let has_effect =
            |name: &str| find(plugins, name).is_none_or(|entry| entry.warning().is_none());
        for (_, set) in &mut self.plugins {
            set.enabled.retain(|plugin| has_effect(&plugin.name));
        }
    }

    /// Replaces scorers by their successors in v1. A successor can replace only one scorer; the others are lost and
    /// reported.
    fn use_successors(&mut self, plugins: &[Entry]) -> Vec<String> {
        let successor = |name: &str| find(plugins, name).and_then(|entry| entry.rules.successor);
        let mut lost = Vec::new();
        let mut replaced: Vec<(String, Successor)> = Vec::new();
        let mut sets = self.plugins.iter_mut();
        if let Some((_, set)) = sets.find(|(point, _)| *point == Point::Score) {
            let names = set.enabled.iter().map(|plugin| plugin.name.clone());
            let mut taken: Vec<String> = names.collect();
            set.enabled.retain_mut(|plugin| {
                let Some(new) = successor(&plugin.name) else {
                    return true;
                };
                if taken.iter().any(|name| name == new.plugin) {
                    lost.push(format!(
                        "removed plugin {} with weight {}: in v1 a profile has only one {} of {}",
                        plugin.name,
                        plugin.weight.unwrap_or(1),
                        new.field,
                        new.plugin
                    ));
                    return false;
                }
                taken.push(new.plugin.to_owned());
                let old = std::mem::replace(&mut plugin.name, new.plugin.to_owned());
                replaced.push((old, new));
                true
            });
        }
        for (old, new) in replaced {
            let mut configs = self.plugin_config.iter();
            let config = configs.find(|config| config.name == old);
            let args = config.map(|config| config.args.clone()).unwrap_or_default();
            let mut value = json!({"type": new.kind});
            for (from, to) in new.args {
                let place = to
                    .split('.')
                    .fold(&mut value, |value, step| &mut value[step]);
                *place = args[from].clone();
            }
            let mut configs = self.plugin_config.iter_mut();
            match configs.find(|config| config.name == new.plugin) {
                Some(config) => config.args[new.field] = value,
                None => self.plugin_config.push(EffectivePluginConfig {
                    name: new.plugin.to_owned(),
                    args: json!({new.field: value}),
                }),
            }
        }
        let is_current = |config: &EffectivePluginConfig| successor(&config.name).is_none();
        self.plugin_config.retain(is_current);
        lost
    }
}

/// A profile without the points and arguments that equal the defaults.
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

/// Compares whole points: part of a set would have another meaning.
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
