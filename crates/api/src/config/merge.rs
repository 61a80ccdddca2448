//! Which plugins run where: what the file says over what its version has by default, as kube-scheduler merges them.

use engine::framework::{Entry, Point};

use super::types::{PluginSet, Profile};
use super::version::Version;

/// A plugin that was chosen for a point, or for all its points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) name: String,
    /// 0 is "not given".
    pub(super) weight: i32,
    /// Where the file says so; `None` for a default.
    pub(super) place: Option<String>,
}

/// The choice of a profile: at all points at once, and for each point.
pub(super) struct Choice<'a> {
    profile: &'a Profile,
    multi_point: Vec<Chosen>,
    version: Version,
}

impl<'a> Choice<'a> {
    pub(super) fn new(profile: &'a Profile, version: Version) -> Self {
        let multi_point = merged(
            version,
            version.multi_point(),
            &profile.plugins.multi_point,
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

    /// What the file and the defaults say about one point by name.
    pub(super) fn own(&self, point: Point) -> Vec<Chosen> {
        let place = format!("{}.plugins.{}", self.profile.place, point.field());
        merged(
            self.version,
            self.version.at(point),
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

    /// The factor of a plugin's scores: what the point says, else what is said for all points, else 1.
    pub(super) fn weight(&self, name: &str) -> i32 {
        let own = self.own(Point::Score);
        let said = own
            .iter()
            .chain(&self.multi_point)
            .find(|chosen| chosen.name == name);
        said.map(|chosen| chosen.weight)
            .filter(|weight| *weight != 0)
            .unwrap_or(1)
    }
}

fn merged(
    version: Version,
    defaults: &[(&str, i32)],
    custom: &PluginSet,
    place: &str,
) -> Vec<Chosen> {
    let custom_at = |i: usize| Chosen {
        name: custom.enabled[i].name.clone(),
        weight: custom.enabled[i].weight,
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
        let replacement = replacement.filter(|_| version > Version::V1beta1);
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
