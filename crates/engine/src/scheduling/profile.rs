//! A profile: the plugins of one scheduler name, their order at each extension point, and their weights.

mod profiles;
mod rejectors;
mod unoffered;

use std::sync::Arc;

use crate::model::{Name, Pod, Topology, ZoneSet};
use crate::scheduling::framework::{ConfigureError, Entry, NodeZones, Plugin, Point, Points};

pub use profiles::{EXTENDER, Hint, Profiles, ProfilesError};
pub use rejectors::Rejectors;
pub use unoffered::Unoffered;

/// A plugin in a profile.
#[derive(Clone)]
pub struct Enabled {
    pub name: &'static str,
    /// The points that the plugin supports.
    pub points: Points,
    pub plugin: Arc<dyn Plugin>,
    /// The weight of its scores.
    pub weight: i64,
}

/// The plugins of one scheduler name.
#[derive(Clone)]
pub struct Profile {
    pub scheduler_name: Name,
    plugins: Vec<Enabled>,
    /// Indexes into `plugins`, for each point of [`Point::ALL`], in the order of execution.
    order: [Vec<usize>; Point::ALL.len()],
}

impl Profile {
    /// Every plugin at every point it has, in the order given.
    pub fn new(scheduler_name: impl Into<Name>, plugins: Vec<Enabled>) -> Self {
        let order = Point::ALL.map(|point| {
            (0..plugins.len())
                .filter(|index| plugins[*index].points.contains(point))
                .collect()
        });
        Self {
            scheduler_name: scheduler_name.into(),
            plugins,
            order,
        }
    }

    /// This profile with another order at one point. Plugins that are not in the order do not run there.
    pub fn with_order(mut self, point: Point, order: Vec<usize>) -> Self {
        self.order[point as usize] = order;
        self
    }

    pub fn plugins(&self) -> &[Enabled] {
        &self.plugins
    }

    pub fn into_plugins(self) -> Vec<Enabled> {
        self.plugins
    }

    /// Indexes of the plugins that run at a point.
    pub fn at(&self, point: Point) -> &[usize] {
        &self.order[point as usize]
    }

    /// The NUMA zones that the pod gets on a node, by the first plugin of Reserve that gives it some.
    pub(crate) fn zones(&self, pod: &Pod, node: Option<&NodeZones>) -> Option<ZoneSet> {
        let mut plugins = self.at(Point::Reserve).iter();
        plugins.find_map(|index| self.plugins[*index].plugin.zones(pod, node))
    }

    /// The NUMA zones of a node with these pods on it, and with others that come first and get theirs now. They may wait until
    /// pods that end have left their zones.
    pub(crate) fn zones_with<'p>(
        &self,
        topology: &Arc<Topology>,
        pods: &[&'p Arc<Pod>],
        first: impl Iterator<Item = &'p Arc<Pod>>,
    ) -> NodeZones {
        let pods = pods.iter().copied();
        let stays = |pod: &&Arc<Pod>| !pod.kind.terminating;
        let mut staying = NodeZones::of(topology, pods.clone().filter(stays));
        let mut zones = NodeZones::of(topology, pods);
        for pod in first {
            let now = self.zones(pod, Some(&zones));
            let given = now.or_else(|| self.zones(pod, Some(&staying)));
            zones.add(pod, given.unwrap_or_default());
            staying.add(pod, given.unwrap_or_default());
        }
        zones
    }
}

impl Enabled {
    /// With default arguments.
    pub fn new(entry: &Entry, weight: i64) -> Result<Self, ConfigureError> {
        Ok(Self {
            name: entry.name,
            points: entry.points,
            plugin: entry.build()?.into(),
            weight,
        })
    }
}
