//! From a configuration to what the engine runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::framework::{ConfigureError, Entry, Plugin, Point};
use engine::model::{Name, RECLAIMED_GROUPS};
use engine::plugins::retired::RETIRED;
use engine::profile::{self, Enabled};
use engine::queue::Timing;
use engine::scheduler::Settings;

use super::args::{ArgsHead, Dictated, Erased, With};
use super::colocation;
use super::merge::{Choice, Chosen};
use super::types::{Configuration, PluginConfig, Profile};
use super::{Findings, Version};
use crate::yaml::suggest;

/// Other kinds of arguments under which a plugin's are known. Those who write them name any version of the group.
const ALIASES: &[(&str, &str)] = &[
    ("NodeResourcesFitPlus", "ResourceTypesArgs"),
    ("ScarceResourceAvoidance", "ResourceTypesArgs"),
];

impl Configuration {
    /// What the engine needs besides the profiles. Times that the configuration does not have keep their defaults.
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

fn extender(given: &super::Extender) -> engine::extender::Extender {
    let managed = given
        .managed_resources
        .iter()
        .map(|resource| Name::from(&resource.name[..]));
    engine::extender::Extender {
        url: given.url_prefix.clone(),
        filters: !given.filter_verb.is_empty(),
        preempts: !given.preempt_verb.is_empty(),
        binds: !given.bind_verb.is_empty(),
        weight: (!given.prioritize_verb.is_empty()).then_some(given.weight),
        ignorable: given.ignorable,
        managed: managed.collect(),
    }
}

/// Profiles without what is wrong with them; they are of use only if no error was found.
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

/// The arguments of all plugins of a good profile, with everything that they leave to defaults.
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
    builder.lends = colocation::is_on(filters.map(|index| built.plugins()[*index].name));
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
    /// Plugins that something was said about, which is enough.
    named: BTreeSet<String>,
    /// Reclaimed resources are taken care of.
    lends: bool,
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
            named: BTreeSet::new(),
            lends: false,
        }
    }

    fn build(mut self) -> profile::Profile {
        let choice = Choice::new(self.profile, self.configuration.version);
        self.check_names(&choice);
        let plugins = self.plugins;
        let find = |name: &str| find(plugins, name).copied();
        let mut chosen = Point::ALL.map(|point| self.known(point, choice.at(point, find)));
        colocation::accompany(self.profile, plugins, &mut chosen);
        self.check_idle_disables(&choice, &chosen);
        self.check_counts(&chosen);
        self.check_scorers(&chosen[Point::Score as usize]);
        let filters = &chosen[Point::Filter as usize];
        self.lends = colocation::is_on(filters.iter().map(String::as_str));
        let is_used = |entry: &&Entry| chosen.iter().flatten().any(|name| name == entry.name);
        let used: Vec<&Entry> = plugins.iter().chain(RETIRED).filter(is_used).collect();
        let mut enabled = Vec::new();
        for entry in &used {
            let weight = i64::from(choice.weight(entry.name));
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

    /// Names that nobody knows, plugins without effect, and defaults that this program lacks.
    fn check_names(&mut self, choice: &Choice<'_>) {
        for (point, set) in self.profile.plugins.all() {
            for (i, plugin) in set.disabled.iter().enumerate() {
                if plugin.name != "*" && find(self.plugins, &plugin.name).is_none() {
                    let place = format!("{}.plugins.{point}.disabled[{i}]", self.profile.place);
                    let text = format!(
                        "there is no plugin `{0}` to disable{1}",
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
                    && self.named.insert(chosen.name.clone())
                {
                    let text = format!(
                        "the default plugin `{}` is not built in and is left out",
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
                        && self.named.insert(chosen.name.clone())
                    {
                        self.findings.warn(place, warning);
                    }
                }
            }
        }
    }

    /// Plugins that are disabled where they are not on. Whoever wrote it expects somebody else to be off.
    fn check_idle_disables(
        &mut self,
        choice: &Choice<'_>,
        chosen: &[Vec<String>; Point::ALL.len()],
    ) {
        for point in Point::ALL {
            let disabled = self.profile.plugins.at(point).disabled.iter();
            for (i, plugin) in disabled.enumerate() {
                let name = &plugin.name[..];
                let is_on = self.configuration.version.at(point).iter();
                let is_on = is_on.map(|(default, _)| *default).any(|on| on == name)
                    || choice.multi_point().iter().any(|on| on.name == name)
                    || self.profile.plugins.multi_point.disables(name)
                    || colocation::COMPANIONS.contains(&name);
                if name == "*" || is_on || find(self.plugins, name).is_none() {
                    continue;
                }
                let place = format!(
                    "{}.plugins.{}.disabled[{i}]",
                    self.profile.place,
                    point.field()
                );
                let mut text = format!("`{name}` is not on, so disabling it has no effect");
                let still = ["NodeResourcesLeastAllocated", "NodeResourcesFit"];
                let still = still.iter().find(|name| {
                    let scores = &chosen[Point::Score as usize];
                    scores.iter().any(|on| on == *name)
                });
                if let Some(still) = still.filter(|_| is_scorer(name)) {
                    text += &format!("; {still} still scores");
                }
                self.findings.warn(place, text);
            }
        }
    }

    fn unknown(&mut self, kind: &str, name: &str, place: &str) {
        if name.is_empty() || !self.named.insert(name.to_owned()) {
            return;
        }
        let nearest = self.nearest(name);
        self.findings
            .error(place, format!("{kind} \"{name}\" does not exist{nearest}"));
    }

    fn nearest(&self, name: &str) -> String {
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

    /// Two that do the same work in different ways.
    fn check_scorers(&mut self, scorers: &[String]) {
        let (plus, native) = ("NodeResourcesFitPlus", "NodeResourcesFit");
        let has = |name: &str| scorers.iter().any(|scorer| scorer == name);
        if has(plus) && has(native) {
            let text = format!(
                "{native} scores nodes by the same resources as well: disable it under score if only {plus} is to do so"
            );
            self.findings.warn(self.place_of(plus), text);
        }
    }

    /// Arguments of plugins that do not run are read all the same, so that their faults are known.
    fn check_unused_arguments(&mut self, used: &[&Entry]) {
        for config in &self.profile.plugin_config {
            let is_used = used.iter().any(|entry| entry.name == config.name);
            match find(self.plugins, &config.name) {
                _ if is_used => {}
                None if config.name.is_empty() => {
                    self.findings.error(
                        &config.place,
                        "Required value: arguments need the name of a plugin",
                    );
                }
                None => self.unknown("plugin", &config.name, &config.place),
                Some(entry) if !self.named.contains(&config.name) => drop(self.configured(entry)),
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
                self.named.insert(entry.name.to_owned());
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
        let mut dictated = self.dictated(entry.name);
        let mut given = self.profile.plugin_config.iter();
        let given = given.find(|config| config.name == entry.name && config.given);
        if let Some(config) = given {
            let head = self.head(config, &place)?;
            dictated.extend(self.dictated_by_version(entry.name, &head, &place));
            let tree = self.findings.tree.clone();
            return self.findings.read(&tree, &place, || With {
                dictated: &dictated,
                make: |args: Erased<'_, '_>| make(Some(args)),
            });
        }
        if dictated.is_empty() {
            return Some(make(None));
        }
        let with = With {
            dictated: &dictated,
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
    fn head(&mut self, config: &PluginConfig, place: &str) -> Option<ArgsHead> {
        let tree = self.findings.tree.clone();
        let head = self.findings.read(&tree, place, ArgsHead::seed)?;
        let (version, name) = (self.configuration.version, &config.name);
        let alias = ALIASES.iter().find(|(plugin, _)| plugin == name);
        let is_version = |found: &str| match alias {
            Some(_) => Version::parse(found).is_some(),
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
            .filter(|kind| alias.is_none_or(|(_, alias)| kind != alias))
        {
            let text = format!("args for plugin {name} were not of type {name}Args, got {found}");
            self.findings.error(format!("{place}.kind"), text);
            return None;
        }
        if name == "DefaultPreemption" {
            for field in head
                .fields
                .iter()
                .filter(|field| field.starts_with("minCandidateNodes"))
            {
                let text = "has no effect: every node that may help is looked at";
                self.findings.warn(format!("{place}.{field}"), text);
            }
        }
        Some(head)
    }

    /// Resources that somebody else takes care of are no matter of NodeResourcesFit: an extender, in every profile, or
    /// who knows what nodes lend.
    fn dictated(&self, plugin: &str) -> Vec<Dictated> {
        let extenders = self.configuration.extenders.iter();
        let ignored: Vec<String> = extenders
            .flat_map(|extender| &extender.managed_resources)
            .filter(|resource| resource.ignored_by_scheduler)
            .map(|resource| resource.name.clone())
            .collect();
        let mut dictated = Vec::new();
        if plugin == "NodeResourcesFit" && !ignored.is_empty() {
            dictated.push(Dictated::Names("ignoredResources", ignored));
        }
        if plugin == "NodeResourcesFit" && self.lends {
            let groups = RECLAIMED_GROUPS.map(str::to_owned).to_vec();
            dictated.push(Dictated::More("ignoredResourceGroups", groups));
        }
        dictated
    }

    /// What v1beta1 means by arguments that later versions read otherwise.
    fn dictated_by_version(
        &mut self,
        plugin: &str,
        head: &ArgsHead,
        place: &str,
    ) -> Option<Dictated> {
        if self.configuration.version > Version::V1beta1 {
            return None;
        }
        match plugin {
            "PodTopologySpread"
                if head.has("defaultConstraints") && !head.has("defaultingType") =>
            {
                Some(Dictated::Text("defaultingType", "List".to_owned()))
            }
            "NodeResourcesFit" if head.has("scoringStrategy") => {
                let text = "unknown field in v1beta1, where NodeResourcesFit gives no scores: it came with v1beta2";
                self.findings
                    .error(format!("{place}.scoringStrategy"), text);
                None
            }
            _ => None,
        }
    }
}

/// What kube-scheduler calls the plugins of a point.
fn kind(point: Point) -> String {
    format!("{point:?}Plugin")
}

/// The scorers of v1beta1 that did what NodeResourcesFit does today.
fn is_scorer(name: &str) -> bool {
    matches!(
        name,
        "NodeResourcesLeastAllocated" | "NodeResourcesMostAllocated" | "RequestedToCapacityRatio"
    )
}

pub(super) fn find<'a>(plugins: &'a [Entry], name: &str) -> Option<&'a Entry> {
    let mut known = plugins.iter().chain(RETIRED);
    known.find(|entry| entry.name == name)
}
