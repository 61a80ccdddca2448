//! A profile of a KubeSchedulerConfiguration v1 as the engine's profile.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow};
use engine::scheduling::framework::{Entry, Point};
use engine::scheduling::plugins::{self, DEFAULT};
use engine::scheduling::profile::{Enabled, Profile};
use serde::Deserialize;
use serde_json::Value;

use crate::selection::Selection;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Wire {
    scheduler_name: String,
    plugins: BTreeMap<String, PluginSet>,
    plugin_config: Vec<PluginConfig>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PluginSet {
    enabled: Vec<Plugin>,
    disabled: Vec<Plugin>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Plugin {
    name: String,
    weight: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginConfig {
    name: String,
    args: Value,
}

impl PluginSet {
    fn enables(&self, name: &str) -> Option<&Plugin> {
        self.enabled.iter().find(|plugin| plugin.name == name)
    }

    fn disables(&self, name: &str) -> bool {
        self.disabled.iter().any(|plugin| plugin.name == name)
    }
}

/// What the engine lacks of what is compared.
pub(crate) fn not_built(selection: &Selection) -> Vec<&str> {
    selection
        .plugins()
        .filter(|name| plugins::find(name).is_none())
        .collect()
}

/// `null` is the default profile. Plugins that are not built are left out: they differ.
pub(super) fn profile(value: &Value) -> Result<Profile> {
    let wire: Option<Wire> =
        Deserialize::deserialize(value).context("the profile is not understood")?;
    let wire = wire.unwrap_or_default();
    let none = PluginSet::default();
    let set = |name: &str| wire.plugins.get(name).unwrap_or(&none);
    let everywhere = everywhere(set("multiPoint"));
    let mut built: Vec<(Enabled, &Entry)> = Vec::new();
    let named = wire.plugins.values().flat_map(|set| &set.enabled);
    for plugin in everywhere.iter().chain(named) {
        let Some(entry) = plugins::find(&plugin.name) else {
            continue;
        };
        if built.iter().any(|(enabled, _)| enabled.name == entry.name) {
            continue;
        }
        let weighed = set(Point::Score.field())
            .enables(&plugin.name)
            .unwrap_or(plugin);
        built.push((enabled(entry, weighed.weight.max(1), &wire)?, entry));
    }
    let order = |point: Point| -> Vec<usize> {
        order(set(point.field()), &everywhere, |name| {
            let implements = |(enabled, entry): &(Enabled, &Entry)| {
                enabled.name == name && entry.points.contains(point)
            };
            built.iter().position(implements)
        })
    };
    let orders = Point::ALL.map(|point| (point, order(point)));
    let plugins = built.into_iter().map(|(enabled, _)| enabled).collect();
    let profile = Profile::new(wire.scheduler_name, plugins);
    Ok(orders.into_iter().fold(profile, |profile, (point, order)| {
        profile.with_order(point, order)
    }))
}

fn enabled(entry: &'static Entry, weight: i64, wire: &Wire) -> Result<Enabled> {
    let config = wire.plugin_config.iter().find(|c| c.name == entry.name);
    let plugin = match config {
        None => entry.build(),
        Some(config) => {
            entry.build_with(&mut <dyn erased_serde::Deserializer>::erase(&config.args))
        }
    };
    Ok(Enabled {
        name: entry.name,
        points: entry.points,
        plugin: plugin
            .map_err(|error| anyhow!("arguments of {}: {error}", entry.name))?
            .into(),
        weight,
    })
}

/// The plugins of `multiPoint`: the defaults, as far as they are not disabled, then the others.
fn everywhere(custom: &PluginSet) -> Vec<Plugin> {
    let default = DEFAULT.iter().map(|(name, weight)| Plugin {
        name: (*name).to_owned(),
        weight: *weight,
    });
    let mut list: Vec<Plugin> = default
        .filter(|plugin| !custom.disables("*") && !custom.disables(&plugin.name))
        .map(|plugin| custom.enables(&plugin.name).cloned().unwrap_or(plugin))
        .collect();
    for plugin in &custom.enabled {
        if !list.iter().any(|known| known.name == plugin.name) {
            list.push(plugin.clone());
        }
    }
    list
}

/// Indexes of the plugins that run at a point: overrides of `multiPoint`, the rest of it, then the point's own.
fn order(
    point: &PluginSet,
    everywhere: &[Plugin],
    index: impl Fn(&str) -> Option<usize>,
) -> Vec<usize> {
    let inherited: Vec<&Plugin> = everywhere
        .iter()
        .filter(|plugin| !point.disables("*") && !point.disables(&plugin.name))
        .collect();
    let inherits = |name: &str| inherited.iter().any(|plugin| plugin.name == name);
    let overrides = point.enabled.iter().filter(|plugin| inherits(&plugin.name));
    let rest = inherited
        .iter()
        .copied()
        .filter(|plugin| point.enables(&plugin.name).is_none());
    let own = point
        .enabled
        .iter()
        .filter(|plugin| !inherits(&plugin.name));
    overrides
        .chain(rest)
        .chain(own)
        .filter_map(|plugin| index(&plugin.name))
        .collect()
}
