//! Which plugins run at which point: the file merged with the defaults of its version, as kube-scheduler does.

use engine::scheduling::framework::{ConfigVersion, Entry, Point};
use engine::scheduling::plugins::default_plugins::{self, DefaultPlugins};

use super::types::{PluginSet, Profile};

/// A plugin that was chosen for a point, or for all its points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) name: String,
    /// 0 is "not given".
    pub(super) weight: i64,
    /// Where the file enables it; `None` for a default.
    pub(super) place: Option<String>,
}

/// The plugins that a profile chooses for all points at once and for each point.
pub(super) struct Choice<'a> {
    profile: &'a Profile,
    multi_point: Vec<Chosen>,
    version: ConfigVersion,
}

impl<'a> Choice<'a> {
    pub(super) fn new(profile: &'a Profile, version: ConfigVersion) -> Self {
        let multi_point = merged(
            version,
            default_plugins::multi_point(version),
            profile.plugins.multi_point(),
            &format!("{}.plugins.multiPoint", profile.place),
        );
        Self {
            profile,
            multi_point,
            version,
        }
    }

    pub(super) fn multi_point(&self) -> &[Chosen] {
        &self.multi_point
    }

    /// The plugins that the file and the defaults enable at one point by name.
    pub(super) fn own(&self, point: Point) -> Vec<Chosen> {
        let place = format!("{}.plugins.{}", self.profile.place, point.field());
        merged(
            self.version,
            default_plugins::at(self.version, point),
            self.profile.plugins.at(point),
            &place,
        )
    }

    /// All that run at a point, in their order: those of [`Choice::multi_point`] that the point names itself, the others
    /// of them, then what only the point has.
    pub(super) fn at(&self, point: Point, find: impl Fn(&str) -> Option<Entry>) -> Vec<Chosen> {
        let set = self.profile.plugins.at(point);
        let own = self.own(point);
        if set.disables("*") {
            return own;
        }
        let runs_here = |chosen: &&Chosen| {
            let has_point = find(&chosen.name).is_some_and(|entry| entry.points.contains(point));
            has_point && !set.disables(&chosen.name)
        };
        let everywhere: Vec<&Chosen> = self.multi_point.iter().filter(runs_here).collect();
        let is_everywhere =
            |chosen: &Chosen| everywhere.iter().any(|other| other.name == chosen.name);
        let is_own = |chosen: &Chosen| own.iter().any(|other| other.name == chosen.name);
        let (named, rest): (Vec<Chosen>, Vec<Chosen>) =
            own.iter().cloned().partition(is_everywhere);
        let unnamed = everywhere.iter().filter(|chosen| !is_own(chosen));
        let unnamed = unnamed.map(|chosen| (*chosen).clone());
        named.into_iter().chain(unnamed).chain(rest).collect()
    }

    /// The weight of a plugin's scores: that of the point, else that of `multiPoint`, else 1.
    pub(super) fn weight(&self, name: &str) -> i64 {
        let own = self.own(Point::Score);
        let given = own
            .iter()
            .chain(&self.multi_point)
            .find(|chosen| chosen.name == name);
        given
            .map(|chosen| chosen.weight)
            .filter(|weight| *weight != 0)
            .unwrap_or(1)
    }
}

fn merged(
    version: ConfigVersion,
    defaults: DefaultPlugins,
    custom: &PluginSet,
    place: &str,
) -> Vec<Chosen> {
    let custom_at = |i: usize| Chosen {
        name: custom.enabled[i].name.clone(),
        weight: custom.enabled[i].weight.into(),
        place: Some(format!("{place}.enabled[{i}]")),
    };
    let mut replaced = Vec::new();
    let mut all = Vec::new();
    for (name, weight) in defaults {
        // In v1beta1 a default plugin is not replaced, so that enabling it again is enabling it twice.
        let replacement = custom
            .enabled
            .iter()
            .position(|plugin| plugin.name == *name);
        let replacement = replacement.filter(|_| version > ConfigVersion::V1beta1);
        let is_off = custom.disables("*") || custom.disables(name);
        match replacement {
            Some(i) if !is_off => {
                replaced.push(i);
                all.push(custom_at(i));
            }
            _ if is_off => {}
            _ => all.push(Chosen {
                name: (*name).to_owned(),
                weight: *weight,
                place: None,
            }),
        }
    }
    let added = (0..custom.enabled.len()).filter(|i| !replaced.contains(i));
    all.extend(added.map(custom_at));
    all
}
