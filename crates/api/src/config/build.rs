//! Builds the engine's profiles and settings from a configuration. Rules about single plugins are in their entries.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::model::Name;
use engine::scheduling::framework::{
    ArgOverride, ConfigVersion, ConfigureError, Entry, Plugin, Point,
};
use engine::scheduling::plugins::retired::RETIRED;
use engine::scheduling::plugins::{default_plugins, elsewhere};
use engine::scheduling::profile::{self, Enabled};
use engine::scheduling::queue::Timing;
use engine::scheduling::scheduler::Settings;

use super::Findings;
use super::args::{ArgsHead, Erased, With};
use super::companions::{add_companions, is_companion};
use super::merge::{Choice, Chosen};
use super::types::{Configuration, PluginConfig, Profile};
use crate::yaml::suggest;

impl Configuration {
    /// The engine's settings besides the profiles. Times that a configuration does not have keep their defaults.
    pub fn settings(&self) -> Settings {
        Settings {
            timing: Timing {
                initial_backoff: self.initial_backoff,
                max_backoff: self.max_backoff,
                ..Timing::default()
            },
            extenders: self.extenders.iter().map(extender).collect(),
            ..Settings::default()
        }
    }
}

fn extender(given: &super::Extender) -> engine::scheduling::extender::Extender {
    let managed = given
        .managed_resources
        .iter()
        .map(|resource| Name::from(&resource.name[..]));
    engine::scheduling::extender::Extender {
        url: given.url_prefix.clone(),
        filters: !given.filter_verb.is_empty(),
        preempts: !given.preempt_verb.is_empty(),
        binds: !given.bind_verb.is_empty(),
        weight: (!given.prioritize_verb.is_empty()).then_some(given.weight),
        ignorable: given.ignorable,
        managed: managed.collect(),
    }
}

/// Profiles without their faults; usable only if no error was found.
pub(super) fn profiles(
    configuration: &Configuration,
    plugins: &[Entry],
    findings: &mut Findings,
) -> Vec<profile::Profile> {
    let build = |profile| {
        let builder = ProfileBuilder::new(configuration, profile, plugins, findings);
        builder.build()
    };
    configuration.profiles.iter().map(build).collect()
}

/// The arguments of all plugins of a valid profile, with their defaults.
pub(super) fn complete_args(
    configuration: &Configuration,
    given: &Profile,
    built: &profile::Profile,
    plugins: &[Entry],
) -> Vec<(&'static str, serde_json::Value)> {
    let mut findings = Findings {
        tree: configuration.tree.clone(),
        ..Findings::default()
    };
    let mut builder = ProfileBuilder::new(configuration, given, plugins, &mut findings);
    let filters = built.at(Point::Filter).iter();
    let filters = filters.map(|index| built.plugins()[*index].name.to_owned());
    builder.filters = filters.collect();
    let args = |enabled: &Enabled| {
        let entry = find(plugins, enabled.name)?;
        let args = builder.made(entry, |args| entry.complete(args))?.ok()??;
        Some((entry.name, serde_json::to_value(&*args).ok()?))
    };
    built.plugins().iter().filter_map(args).collect()
}

struct ProfileBuilder<'a> {
    configuration: &'a Configuration,
    profile: &'a Profile,
    plugins: &'a [Entry],
    findings: &'a mut Findings,
    /// Plugins that have a finding; they get no second one.
    reported: BTreeSet<String>,
    /// The plugins that run at Filter.
    filters: Vec<String>,
}

impl<'a> ProfileBuilder<'a> {
    fn new(
        configuration: &'a Configuration,
        profile: &'a Profile,
        plugins: &'a [Entry],
        findings: &'a mut Findings,
    ) -> Self {
        Self {
            configuration,
            profile,
            plugins,
            findings,
            reported: BTreeSet::new(),
            filters: Vec::new(),
        }
    }

    fn build(mut self) -> profile::Profile {
        let choice = Choice::new(self.profile, self.configuration.version);
        self.check_names(&choice);
        let plugins = self.plugins;
        let find = |name: &str| find(plugins, name).copied();
        let mut chosen = Point::ALL.map(|point| self.known(point, choice.at(point, find)));
        add_companions(self.profile, plugins, &mut chosen);
        self.check_idle_disables(&choice, &chosen);
        self.check_counts(&chosen);
        self.check_scorers(&chosen[Point::Score as usize]);
        self.filters.clone_from(&chosen[Point::Filter as usize]);
        let is_used = |entry: &&Entry| chosen.iter().flatten().any(|name| name == entry.name);
        let used: Vec<&Entry> = plugins.iter().chain(RETIRED).filter(is_used).collect();
        let mut enabled = Vec::new();
        for entry in &used {
            let weight = choice.weight(entry.name);
            let scores = chosen[Point::Score as usize]
                .iter()
                .any(|name| name == entry.name);
            if scores && weight < 0 {
                let place = self.place_of(entry.name);
                let text = format!(
                    "plugin \"{}\" has weight {weight}: a weight must not be negative",
                    entry.name
                );
                self.findings.error(place, text);
            }
            if let Some(plugin) = self.configured(entry) {
                enabled.push(Enabled {
                    name: entry.name,
                    points: entry.points,
                    plugin,
                    weight,
                });
            }
        }
        self.check_unused_arguments(&used);
        let position = |name: &String| enabled.iter().position(|plugin| plugin.name == *name);
        let orders = chosen.map(|names| names.iter().filter_map(position).collect::<Vec<usize>>());
        let built = profile::Profile::new(&self.profile.scheduler_name[..], enabled);
        Point::ALL
            .into_iter()
            .zip(orders)
            .fold(built, |built, (point, order)| {
                built.with_order(point, order)
            })
    }

    /// Unknown names, plugins without effect, and default plugins that are not built in.
    fn check_names(&mut self, choice: &Choice<'_>) {
        for (point, set) in self.profile.plugins.all() {
            for (i, plugin) in set.disabled.iter().enumerate() {
                if plugin.name != "*" && find(self.plugins, &plugin.name).is_none() {
                    let place = format!("{}.plugins.{point}.disabled[{i}]", self.profile.place);
                    let text = format!(
                        "unknown plugin `{0}` is disabled{1}",
                        plugin.name,
                        self.nearest(&plugin.name)
                    );
                    self.findings.warn(place, text);
                }
            }
        }
        let everywhere = choice.multi_point().iter().cloned();
        let everywhere = everywhere.map(|chosen| ("plugin".to_owned(), chosen));
        let own = Point::ALL.into_iter().flat_map(|point| {
            let own = choice.own(point).into_iter();
            own.map(move |chosen| (kind(point), chosen))
        });
        for (kind, chosen) in everywhere.chain(own).collect::<Vec<_>>() {
            let Some(place) = &chosen.place else {
                if find(self.plugins, &chosen.name).is_none()
                    && self.reported.insert(chosen.name.clone())
                {
                    let text = format!(
                        "ignoring default plugin `{}`: it is not built in",
                        chosen.name
                    );
                    self.findings.warn("", text);
                }
                continue;
            };
            match find(self.plugins, &chosen.name) {
                None => self.unknown(&kind, &chosen.name, place),
                Some(entry) => {
                    if let Some(warning) = entry.warning()
                        && self.reported.insert(chosen.name.clone())
                    {
                        self.findings.warn(place, warning);
                    }
                }
            }
        }
    }

    /// Plugins that are disabled where they are not enabled: the author expects another plugin to stop.
    fn check_idle_disables(
        &mut self,
        choice: &Choice<'_>,
        chosen: &[Vec<String>; Point::ALL.len()],
    ) {
        for point in Point::ALL {
            let disabled = self.profile.plugins.at(point).disabled.iter();
            for (i, plugin) in disabled.enumerate() {
                let name = &plugin.name[..];
                let mut defaults = default_plugins::at(self.configuration.version, point).iter();
                let is_on = defaults.any(|(default, _)| *default == name)
                    || choice.multi_point().iter().any(|on| on.name == name)
                    || self.profile.plugins.multi_point().disables(name)
                    || is_companion(self.plugins, name);
                let Some(entry) = find(self.plugins, name).filter(|_| !is_on) else {
                    continue;
                };
                let place = format!(
                    "{}.plugins.{}.disabled[{i}]",
                    self.profile.place,
                    point.field()
                );
                let mut text = format!("disabling `{name}` has no effect: it is not enabled here");
                let scorers = &chosen[Point::Score as usize];
                if let Some(other) = scorers.iter().find(|other| self.is_variant(entry, other)) {
                    text += &format!("; {other} still scores");
                }
                self.findings.warn(place, text);
            }
        }
    }

    /// Whether another plugin gives the same kind of scores: the successor of this one, or one with the same successor.
    fn is_variant(&self, entry: &Entry, other: &str) -> bool {
        let successor = |entry: &Entry| Some(entry.rules.successor?.plugin);
        let own = successor(entry);
        let others = find(self.plugins, other).and_then(successor);
        own.is_some() && (own == Some(other) || own == others)
    }

    fn unknown(&mut self, kind: &str, name: &str, place: &str) {
        if name.is_empty() || !self.reported.insert(name.to_owned()) {
            return;
        }
        let nearest = self.nearest(name);
        self.findings
            .error(place, format!("{kind} \"{name}\" does not exist{nearest}"));
    }

    /// What an unknown name may mean.
    fn nearest(&self, name: &str) -> String {
        if let Some(project) = elsewhere::project(name) {
            return format!(": it is a plugin of {project} and has no counterpart here");
        }
        suggest(name, self.plugins.iter().map(|entry| entry.name))
    }

    /// The names that can run at a point, each once.
    fn known(&mut self, point: Point, chosen: Vec<Chosen>) -> Vec<String> {
        let kind = kind(point);
        let mut names: Vec<String> = Vec::new();
        for chosen in chosen {
            let Some(entry) = find(self.plugins, &chosen.name) else {
                continue;
            };
            let place = chosen.place.unwrap_or_default();
            let name = chosen.name;
            if !entry.points.contains(point) {
                self.findings.error(
                    place,
                    format!("plugin \"{name}\" does not extend {kind} plugin"),
                );
            } else if names.contains(&name) {
                self.findings.error(
                    place,
                    format!("plugin \"{name}\" already registered as \"{kind}\""),
                );
            } else {
                names.push(name);
            }
        }
        names
    }

    fn check_counts(&mut self, chosen: &[Vec<String>; Point::ALL.len()]) {
        let name = &self.profile.scheduler_name;
        let sorters = chosen[Point::QueueSort as usize].len();
        let place = |point: Point| format!("{}.plugins.{}", self.profile.place, point.field());
        if sorters != 1 {
            let text = format!(
                "only one queue sort plugin required for profile with scheduler name \"{name}\", but got {sorters}"
            );
            self.findings.error(place(Point::QueueSort), text);
        }
        if chosen[Point::Bind as usize].is_empty() {
            let text = format!(
                "at least one bind plugin is needed for profile with scheduler name \"{name}\""
            );
            self.findings.error(place(Point::Bind), text);
        }
    }

    /// Plugins that score nodes by the same resources.
    fn check_scorers(&mut self, scorers: &[String]) {
        let has = |name: &str| scorers.iter().any(|scorer| scorer == name);
        for entry in self.plugins.iter().filter(|entry| has(entry.name)) {
            for other in entry.rules.overlaps.iter().filter(|other| has(other)) {
                let text = format!(
                    "{other} also scores nodes by the same resources: to use only {}, disable {other} under score",
                    entry.name
                );
                self.findings.warn(self.place_of(entry.name), text);
            }
        }
    }

    /// Reads the arguments of plugins that do not run as well, to report their faults.
    fn check_unused_arguments(&mut self, used: &[&Entry]) {
        for config in &self.profile.plugin_config {
            let is_used = used.iter().any(|entry| entry.name == config.name);
            match find(self.plugins, &config.name) {
                _ if is_used => {}
                None if config.name.is_empty() => {
                    self.findings
                        .error(&config.place, "Required value: name of the plugin");
                }
                None => self.unknown("plugin", &config.name, &config.place),
                Some(entry) if !self.reported.contains(&config.name) => {
                    drop(self.configured(entry))
                }
                Some(_) => {}
            }
        }
    }

    /// `None` if its arguments are wrong.
    fn configured(&mut self, entry: &Entry) -> Option<Arc<dyn Plugin>> {
        let made = self.made(entry, |args| match args {
            Some(args) => entry.build_with(args),
            None => entry.build(),
        })?;
        match made {
            Ok(plugin) => Some(plugin.into()),
            Err(ConfigureError::Invalid(errors)) => {
                let place = self.place_of_args(entry.name);
                for error in errors {
                    self.findings
                        .error(format!("{place}.{}", error.field), error.text);
                }
                None
            }
            Err(error) => {
                self.reported.insert(entry.name.to_owned());
                let place = self.place_of(entry.name);
                self.findings.error(place, error.to_string());
                None
            }
        }
    }

    /// Something made of the arguments of a plugin; `None` if they are of the wrong type or version.
    fn made<T>(
        &mut self,
        entry: &Entry,
        make: impl Fn(Option<Erased<'_, '_>>) -> Result<T, ConfigureError>,
    ) -> Option<Result<T, ConfigureError>> {
        let place = self.place_of_args(entry.name);
        let mut overrides = self.overrides(entry);
        let mut given = self.profile.plugin_config.iter();
        let given = given.find(|config| config.name == entry.name && config.given);
        if let Some(config) = given {
            let head = self.head(entry, config, &place)?;
            match entry.args_in(self.configuration.version, &head.fields) {
                Ok(implied) => overrides.extend(implied),
                Err(error) => {
                    let field = format!("{place}.{}", error.field);
                    self.findings.error(field, error.text);
                }
            }
            let tree = self.findings.tree.clone();
            return self.findings.read(&tree, &place, || With {
                overrides: &overrides,
                make: |args: Erased<'_, '_>| make(Some(args)),
            });
        }
        if overrides.is_empty() {
            return Some(make(None));
        }
        let with = With {
            overrides: &overrides,
            make: |args: Erased<'_, '_>| make(Some(args)),
        };
        Some(with.without_text())
    }

    fn place_of_args(&self, plugin: &str) -> String {
        let mut configs = self.profile.plugin_config.iter();
        let config = configs.find(|config| config.name == plugin);
        config.map_or_else(String::new, |config| format!("{}.args", config.place))
    }

    /// Where the profile first names a plugin.
    fn place_of(&self, plugin: &str) -> String {
        let profile = self.profile;
        let enabled = profile.plugins.all().find_map(|(point, set)| {
            let i = set
                .enabled
                .iter()
                .position(|enabled| enabled.name == plugin)?;
            Some(format!("{}.plugins.{point}.enabled[{i}]", profile.place))
        });
        let config = || {
            profile
                .plugin_config
                .iter()
                .find(|config| config.name == plugin)
        };
        enabled
            .or_else(|| Some(config()?.place.clone()))
            .unwrap_or_else(|| profile.place.clone())
    }

    /// The head of arguments, if it is that of this plugin in this version.
    fn head(&mut self, entry: &Entry, config: &PluginConfig, place: &str) -> Option<ArgsHead> {
        let tree = self.findings.tree.clone();
        let head = self.findings.read(&tree, place, ArgsHead::seed)?;
        let (version, name) = (self.configuration.version, &config.name);
        let alias = entry.rules.args_kind_alias;
        let is_version = |found: &str| match alias {
            Some(_) => ConfigVersion::parse(found).is_some(),
            None => found == version.to_string(),
        };
        if let Some(found) = head.api_version.as_ref().filter(|found| !is_version(found)) {
            let text = format!(
                "args for plugin {name} are of version {found}, but the file is of version {version}"
            );
            self.findings.error(format!("{place}.apiVersion"), text);
            return None;
        }
        if let Some(found) = head
            .kind
            .as_ref()
            .filter(|kind| **kind != format!("{name}Args"))
            .filter(|kind| alias != Some(&kind[..]))
        {
            let text = format!("args for plugin {name} were not of type {name}Args, got {found}");
            self.findings.error(format!("{place}.kind"), text);
            return None;
        }
        for (field, reason) in entry.rules.ignored_args {
            if head.fields.iter().any(|given| given == field) {
                self.findings.warn(format!("{place}.{field}"), *reason);
            }
        }
        Some(head)
    }

    /// Arguments that extenders and other plugins of the profile set.
    fn overrides(&self, entry: &Entry) -> Vec<ArgOverride> {
        let extenders = self.configuration.extenders.iter();
        let ignored: Vec<String> = extenders
            .flat_map(|extender| &extender.managed_resources)
            .filter(|resource| resource.ignored_by_scheduler)
            .map(|resource| resource.name.clone())
            .collect();
        let field = entry.rules.extender_resources_arg;
        let ignored = field
            .filter(|_| !ignored.is_empty())
            .map(|field| ArgOverride::List(field, ignored));
        let is_on = |other: &&Entry| self.filters.iter().any(|name| name == other.name);
        let others = self.plugins.iter().filter(is_on);
        let added = others
            .flat_map(|other| other.rules.added_args)
            .filter(|added| added.plugin == entry.name)
            .map(|added| {
                let values = added.values.iter().map(|value| (*value).to_owned());
                ArgOverride::Append(added.field, values.collect())
            });
        ignored.into_iter().chain(added).collect()
    }
}

/// What kube-scheduler calls the plugins of a point.
fn kind(point: Point) -> String {
    format!("{point:?}Plugin")
}

pub(super) fn find<'a>(plugins: &'a [Entry], name: &str) -> Option<&'a Entry> {
    let mut known = plugins.iter().chain(RETIRED);
    known.find(|entry| entry.name == name)
}
