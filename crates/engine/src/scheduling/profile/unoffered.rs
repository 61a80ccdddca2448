//! Resources that a configuration scores by and no node has: probably misspelled, and without effect.

use std::collections::BTreeMap;
use std::fmt;

use super::Profile;
use crate::model::Resource;
use crate::scheduling::framework::Point;

/// A resource that no node has; displayed as a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unoffered {
    pub resource: Resource,
    /// The plugins that score by it.
    pub plugins: Vec<&'static str>,
    /// The resources that nodes have.
    offered: Vec<Resource>,
}

impl Unoffered {
    /// All such resources, given the resources that nodes have.
    pub fn among<'a>(
        profiles: impl Iterator<Item = &'a Profile>,
        offered: &[Resource],
    ) -> Vec<Self> {
        let mut named: BTreeMap<Resource, Vec<&'static str>> = BTreeMap::new();
        for profile in profiles {
            for &index in profile.at(Point::Score) {
                let enabled = &profile.plugins()[index];
                let unknown = enabled.plugin.scored_resources().into_iter();
                for resource in unknown.filter(|resource| !offered.contains(resource)) {
                    let plugins = named.entry(resource).or_default();
                    if !plugins.contains(&enabled.name) {
                        plugins.push(enabled.name);
                    }
                }
            }
        }
        let named = named.into_iter().map(|(resource, plugins)| Self {
            resource,
            plugins,
            offered: offered.to_vec(),
        });
        named.collect()
    }
}

impl fmt::Display for Unoffered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (resource, plugins) = (self.resource.name(), self.plugins.join(" and "));
        let offered: Vec<&str> = self.offered.iter().map(Resource::name).collect();
        write!(
            f,
            "no node has `{resource}` (scored by {plugins}); nodes have {}",
            offered.join(", ")
        )
    }
}
