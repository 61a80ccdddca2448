//! How a plugin is named, configured and listed.

use std::fmt;

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::{ArgOverride, Catalog, ConfigRules, ConfigVersion, EventPattern, Plan, Plugin};
use crate::model::Pod;

/// The extension points, in the order in which a pod passes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
}

impl Point {
    pub const ALL: [Self; 12] = [
        Self::PreEnqueue,
        Self::QueueSort,
        Self::PreFilter,
        Self::Filter,
        Self::PostFilter,
        Self::PreScore,
        Self::Score,
        Self::Reserve,
        Self::Permit,
        Self::PreBind,
        Self::Bind,
        Self::PostBind,
    ];

    /// The name of its field in a configuration.
    pub const fn field(self) -> &'static str {
        match self {
            Self::PreEnqueue => "preEnqueue",
            Self::QueueSort => "queueSort",
            Self::PreFilter => "preFilter",
            Self::Filter => "filter",
            Self::PostFilter => "postFilter",
            Self::PreScore => "preScore",
            Self::Score => "score",
            Self::Reserve => "reserve",
            Self::Permit => "permit",
            Self::PreBind => "preBind",
            Self::Bind => "bind",
            Self::PostBind => "postBind",
        }
    }
}

/// A set of extension points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Points(u16);

impl Points {
    pub const ALL: Self = Self::of(&Point::ALL);

    pub const fn of(points: &[Point]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < points.len() {
            bits |= 1 << points[i] as u16;
            i += 1;
        }
        Self(bits)
    }

    pub const fn without(self, point: Point) -> Self {
        Self(self.0 & !(1 << point as u16))
    }

    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn contains(self, point: Point) -> bool {
        self.0 & (1 << point as u16) != 0
    }
}

/// Name, points and arguments of a plugin.
pub trait Configure: Plugin + Sized + 'static {
    const NAME: &'static str;
    /// The points at which it can be enabled.
    const POINTS: Points;
    /// How configurations treat the plugin.
    const RULES: ConfigRules = ConfigRules::NONE;
    /// Defaults come from `Default`; unknown fields must be refused (`deny_unknown_fields`).
    type Args: DeserializeOwned + Serialize + Default;

    /// Fills in the arguments that are not given.
    fn complete(_: &mut Self::Args) {}

    /// Checks the arguments, which are complete, and reports every fault.
    fn new(args: Self::Args) -> Result<Self, Vec<ArgsError>>;

    /// What a version of the configuration implies when these arguments are given.
    fn args_in(
        _version: ConfigVersion,
        _given: &[String],
    ) -> Result<Option<ArgOverride>, ArgsError> {
        Ok(None)
    }

    /// Builds the plugin from arguments that may be incomplete.
    fn with(mut args: Self::Args) -> Result<Self, Vec<ArgsError>> {
        Self::complete(&mut args);
        Self::new(args)
    }
}

/// For plugins without arguments.
#[derive(Debug, Clone, Default, serde::Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NoArgs {}

/// One fault in a plugin's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgsError {
    /// Path of the field below the arguments, such as `scoringStrategy.resources[0].weight`.
    pub field: String,
    pub text: String,
}

impl ArgsError {
    pub fn new(field: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            text: text.into(),
        }
    }
}

impl fmt::Display for ArgsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.text)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigureError {
    /// A plugin of an older Kubernetes that nothing replaces.
    #[error("plugin {name} is not supported: {instead}")]
    Refused {
        name: &'static str,
        instead: &'static str,
    },
    /// The text is not of the arguments' type.
    #[error(transparent)]
    Read(erased_serde::Error),
    /// The values are not allowed.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<ArgsError>),
}

/// Arguments as their text has them.
type Args<'a, 'de> = &'a mut dyn erased_serde::Deserializer<'de>;

type Configured = Result<Box<dyn Plugin>, ConfigureError>;
type Completed = Result<Option<Box<dyn erased_serde::Serialize>>, ConfigureError>;

/// A plugin in the list of plugins: its name, points and rules, and how to build it.
#[derive(Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    pub points: Points,
    pub rules: ConfigRules,
    support: Support,
}

#[derive(Clone, Copy)]
enum Support {
    Active {
        build: fn(Option<Args<'_, '_>>) -> Configured,
        complete: fn(Option<Args<'_, '_>>) -> Completed,
        args_in: fn(ConfigVersion, &[String]) -> Result<Option<ArgOverride>, ArgsError>,
    },
    /// Accepted with any arguments, without effect.
    Neutral {
        why: &'static str,
    },
    Refused {
        instead: &'static str,
    },
}

impl Entry {
    pub const fn of<P: Configure>() -> Self {
        let support = Support::Active {
            build: build::<P>,
            complete: complete::<P>,
            args_in: P::args_in,
        };
        Self {
            name: P::NAME,
            points: P::POINTS,
            rules: P::RULES,
            support,
        }
    }

    /// A plugin of an older Kubernetes that is accepted without effect.
    pub const fn neutral(
        name: &'static str,
        points: Points,
        removed_in: ConfigVersion,
        why: &'static str,
    ) -> Self {
        Self::retired(name, points, removed_in, Support::Neutral { why })
    }

    /// A plugin of an older Kubernetes that is refused.
    pub const fn refused(
        name: &'static str,
        points: Points,
        removed_in: ConfigVersion,
        instead: &'static str,
    ) -> Self {
        Self::retired(name, points, removed_in, Support::Refused { instead })
    }

    const fn retired(
        name: &'static str,
        points: Points,
        removed_in: ConfigVersion,
        support: Support,
    ) -> Self {
        Self {
            name,
            points,
            rules: ConfigRules {
                removed_in: Some(removed_in),
                ..ConfigRules::NONE
            },
            support,
        }
    }

    /// The warning for configurations that enable this plugin.
    pub fn warning(&self) -> Option<String> {
        match self.support {
            Support::Neutral { why } => Some(format!("plugin {} has no effect: {why}", self.name)),
            Support::Active { .. } | Support::Refused { .. } => None,
        }
    }

    /// See [`Configure::args_in`].
    pub fn args_in(
        &self,
        version: ConfigVersion,
        given: &[String],
    ) -> Result<Option<ArgOverride>, ArgsError> {
        match self.support {
            Support::Active { args_in, .. } => args_in(version, given),
            Support::Neutral { .. } | Support::Refused { .. } => Ok(None),
        }
    }

    /// With default arguments.
    pub fn build(&self) -> Configured {
        self.configure(None)
    }

    pub fn build_with(&self, args: Args<'_, '_>) -> Configured {
        self.configure(Some(args))
    }

    /// The arguments with all defaults; `None` for a plugin without effect.
    pub fn complete(&self, args: Option<Args<'_, '_>>) -> Completed {
        match self.support {
            Support::Active { complete, .. } => complete(args),
            Support::Neutral { .. } | Support::Refused { .. } => Ok(None),
        }
    }

    fn configure(&self, args: Option<Args<'_, '_>>) -> Configured {
        if let Support::Active { build, .. } = self.support {
            return build(args);
        }
        if let Some(args) = args {
            // The reader of the text continues behind the arguments.
            erased_serde::deserialize::<IgnoredAny>(args).map_err(ConfigureError::Read)?;
        }
        match self.support {
            Support::Refused { instead } => Err(ConfigureError::Refused {
                name: self.name,
                instead,
            }),
            _ => Ok(Box::new(Neutral)),
        }
    }
}

fn build<P: Configure>(args: Option<Args<'_, '_>>) -> Configured {
    let plugin = P::new(completed::<P>(args)?).map_err(ConfigureError::Invalid)?;
    Ok(Box::new(plugin))
}

fn complete<P: Configure>(args: Option<Args<'_, '_>>) -> Completed {
    Ok(Some(Box::new(completed::<P>(args)?)))
}

fn completed<P: Configure>(args: Option<Args<'_, '_>>) -> Result<P::Args, ConfigureError> {
    let mut args = match args {
        Some(args) => erased_serde::deserialize(args).map_err(ConfigureError::Read)?,
        None => P::Args::default(),
    };
    P::complete(&mut args);
    Ok(args)
}

/// Does nothing anywhere.
struct Neutral;

impl Plugin for Neutral {
    fn prepare(&self, _: &Pod, _: &Catalog, _: &mut Plan) {}

    fn events(&self) -> Vec<EventPattern> {
        Vec::new()
    }
}
