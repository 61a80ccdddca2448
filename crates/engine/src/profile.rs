//! What one scheduler name runs: plugins, their order at each point, and their weights.

mod profiles;
mod unoffered;

use std::sync::Arc;

use crate::framework::{ConfigureError, Entry, Plugin, Point, Points};
use crate::model::Name;

pub use profiles::{EXTENDER, Hint, Profiles, ProfilesError};
pub use unoffered::Unoffered;

/// A plugin as a profile has it.
#[derive(Clone)]
pub struct Enabled {
    pub name: &'static str,
    /// Points it can be enabled at, whether it is or not.
    pub points: Points,
    pub plugin: Arc<dyn Plugin>,
    /// Factor of its scores.
    pub weight: i64,
}

/// Plugins of one scheduler name.
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

    /// The same with an order of its own at one point. Plugins left out do not run there.
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
