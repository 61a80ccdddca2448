//! How a scheduler configuration treats a plugin, apart from the values of its arguments.
//!
//! Each plugin declares its rules beside its arguments. The reader of configurations applies them and names no plugin.

use std::fmt;

use super::Point;

/// The versions of KubeSchedulerConfiguration, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigVersion {
    /// Kubernetes 1.19 to 1.22.
    V1beta1,
    /// Kubernetes 1.22 to 1.27.
    V1beta2,
    /// Kubernetes 1.23 to 1.28.
    V1beta3,
    /// Kubernetes 1.25 and later.
    V1,
}

impl ConfigVersion {
    pub const ALL: [Self; 4] = [Self::V1beta1, Self::V1beta2, Self::V1beta3, Self::V1];

    /// The version without its API group.
    pub const fn short(self) -> &'static str {
        match self {
            Self::V1beta1 => "v1beta1",
            Self::V1beta2 => "v1beta2",
            Self::V1beta3 => "v1beta3",
            Self::V1 => "v1",
        }
    }

    /// Reads an `apiVersion`, which has the API group.
    pub fn parse(api_version: &str) -> Option<Self> {
        let mut versions = Self::ALL.into_iter();
        versions.find(|version| version.to_string() == api_version)
    }
}

impl fmt::Display for ConfigVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kubescheduler.config.k8s.io/{}", self.short())
    }
}

/// What a configuration that enables or configures a plugin means beyond the plugin's arguments.
#[derive(Debug, Clone, Copy)]
pub struct ConfigRules {
    /// A second name for the kind of the arguments. Arguments with it may have any version of the API group.
    pub args_kind_alias: Option<&'static str>,
    /// Arguments that are accepted without effect, each with the reason.
    pub ignored_args: &'static [(&'static str, &'static str)],
    /// The argument that lists the resources that extenders manage and the scheduler must ignore.
    pub extender_resources_arg: Option<&'static str>,
    /// The first version that refuses the plugin's name.
    pub removed_in: Option<ConfigVersion>,
    /// How to configure the same scores in v1.
    pub successor: Option<Successor>,
    /// Plugins that score nodes by the same resources, which is rarely wanted together.
    pub overlaps: &'static [&'static str],
    /// Plugins that are enabled wherever this one filters, unless the profile disables them by name.
    pub companions: &'static [Companion],
    /// Values added to arguments of other plugins wherever this one filters.
    pub added_args: &'static [AddedArg],
}

impl ConfigRules {
    pub const NONE: Self = Self {
        args_kind_alias: None,
        ignored_args: &[],
        extender_resources_arg: None,
        removed_in: None,
        successor: None,
        overlaps: &[],
        companions: &[],
        added_args: &[],
    };
}

/// A plugin that is enabled together with another one.
#[derive(Debug, Clone, Copy)]
pub struct Companion {
    pub plugin: &'static str,
    /// The points at which it is enabled.
    pub points: &'static [Point],
    /// The plugin whose place it takes, and the point at which a profile decides on both: if the companion is disabled
    /// there, it is enabled nowhere.
    pub replaces: Option<(&'static str, Point)>,
    /// The plugin that it runs before, if that is enabled; otherwise it runs after all others.
    pub before: Option<&'static str>,
}

/// Values that a plugin appends to an argument of another plugin.
#[derive(Debug, Clone, Copy)]
pub struct AddedArg {
    pub plugin: &'static str,
    pub field: &'static str,
    pub values: &'static [&'static str],
}

/// The v1 plugin that gives the scores of an older plugin.
#[derive(Debug, Clone, Copy)]
pub struct Successor {
    pub plugin: &'static str,
    /// The argument of `plugin` that selects these scores. A profile has it only once.
    pub field: &'static str,
    /// The value of `type` in that argument.
    pub kind: &'static str,
    /// Where the older plugin's arguments go below that argument, as `(from, to)` with dots between levels.
    pub args: &'static [(&'static str, &'static str)],
}

/// An argument whose value the rest of the configuration decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgOverride {
    /// Replaces the value.
    Text(&'static str, String),
    /// Replaces the value.
    List(&'static str, Vec<String>),
    /// Adds to the values.
    Append(&'static str, Vec<String>),
}

impl ArgOverride {
    pub fn field(&self) -> &'static str {
        match self {
            Self::Text(field, _) | Self::List(field, _) | Self::Append(field, _) => field,
        }
    }
}
