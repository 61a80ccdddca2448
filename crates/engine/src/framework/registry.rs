//! How a plugin is named, configured and listed.

use std::fmt;

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::{Catalog, EventPattern, Plan, Plugin};
use crate::model::Pod;

/// The extension points, in the order of a pod's path.
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

    /// Its field in a configuration.
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
    /// Defaults come from `Default`; unknown fields must be refused (`deny_unknown_fields`).
    type Args: DeserializeOwned + Serialize + Default;

    /// Fills in what is not given, so that the arguments say all that the plugin does.
    fn complete(_: &mut Self::Args) {}

    /// Checks the arguments, which are complete; every fault is reported, not only the first.
    fn new(args: Self::Args) -> Result<Self, Vec<ArgsError>>;

    /// From arguments as they are given.
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
    /// Path of the field below the arguments, as `scoringStrategy.resources[0].weight`.
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
    /// A name that is known only to be refused.
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

/// A plugin in the list of plugins.
#[derive(Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    pub points: Points,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Active {
        build: fn(Option<Args<'_, '_>>) -> Configured,
        complete: fn(Option<Args<'_, '_>>) -> Completed,
    },
    /// Accepted with whatever arguments, and without effect.
    Neutral {
        why: &'static str,
    },
    Refused {
        instead: &'static str,
    },
}

impl Entry {
    pub const fn of<P: Configure>() -> Self {
        Self {
            name: P::NAME,
            points: P::POINTS,
            kind: Kind::Active {
                build: build::<P>,
                complete: complete::<P>,
            },
        }
    }

    /// A name from older days whose work is done elsewhere, or by nobody without harm.
    pub const fn neutral(name: &'static str, points: Points, why: &'static str) -> Self {
        Self {
            name,
            points,
            kind: Kind::Neutral { why },
        }
    }

    /// A name from older days whose work nobody does.
    pub const fn refused(name: &'static str, points: Points, instead: &'static str) -> Self {
        Self {
            name,
            points,
            kind: Kind::Refused { instead },
        }
    }

    /// What somebody who configures this plugin should be told.
    pub fn warning(&self) -> Option<String> {
        match self.kind {
            Kind::Neutral { why } => Some(format!("plugin {} has no effect: {why}", self.name)),
            Kind::Active { .. } | Kind::Refused { .. } => None,
        }
    }

    /// With default arguments.
    pub fn build(&self) -> Configured {
        self.configure(None)
    }

    pub fn build_with(&self, args: Args<'_, '_>) -> Configured {
        self.configure(Some(args))
    }

    /// The arguments with everything that was left out; `None` for names without effect.
    pub fn complete(&self, args: Option<Args<'_, '_>>) -> Completed {
        match self.kind {
            Kind::Active { complete, .. } => complete(args),
            Kind::Neutral { .. } | Kind::Refused { .. } => Ok(None),
        }
    }

    fn configure(&self, args: Option<Args<'_, '_>>) -> Configured {
        if let Kind::Active { build, .. } = self.kind {
            return build(args);
        }
        if let Some(args) = args {
            // Whoever reads the text goes on behind them.
            erased_serde::deserialize::<IgnoredAny>(args).map_err(ConfigureError::Read)?;
        }
        match self.kind {
            Kind::Refused { instead } => Err(ConfigureError::Refused {
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
