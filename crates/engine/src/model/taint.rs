//! Taints of nodes and the tolerations of pods.

use std::fmt;

use super::Name;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
    /// Kept so that equality works; nothing acts on it.
    Other(Name),
}

impl Effect {
    pub fn parse(text: &str) -> Self {
        match text {
            "NoSchedule" => Self::NoSchedule,
            "PreferNoSchedule" => Self::PreferNoSchedule,
            "NoExecute" => Self::NoExecute,
            other => Self::Other(other.into()),
        }
    }

    /// New pods must stay away.
    pub fn forbids(&self) -> bool {
        matches!(self, Self::NoSchedule | Self::NoExecute)
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
            Self::Other(name) => name,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Taint {
    pub key: Name,
    pub value: Name,
    pub effect: Effect,
}

impl fmt::Display for Taint {
    /// As kubectl writes it: `key=value:Effect`, or `key:Effect` without a value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.value.is_empty() { "" } else { "=" };
        let Self { key, value, effect } = self;
        write!(f, "{key}{separator}{value}:{effect}")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum TolerationOperator {
    #[default]
    Equal,
    Exists,
    /// Operators that are off by default or unknown: such a toleration tolerates nothing.
    Other(Name),
}

impl TolerationOperator {
    pub fn parse(text: &str) -> Self {
        match text {
            "" | "Equal" => Self::Equal,
            "Exists" => Self::Exists,
            other => Self::Other(other.into()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Toleration {
    /// Empty: any key.
    pub key: Name,
    pub operator: TolerationOperator,
    pub value: Name,
    /// `None`: any effect.
    pub effect: Option<Effect>,
}

impl Toleration {
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect
            .as_ref()
            .is_none_or(|effect| *effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator {
                TolerationOperator::Equal => self.value == taint.value,
                TolerationOperator::Exists => true,
                TolerationOperator::Other(_) => false,
            }
    }
}

pub fn tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations
        .iter()
        .any(|toleration| toleration.tolerates(taint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toleration_against_one_taint() {
        let taint = Taint {
            key: "k".into(),
            value: "v".into(),
            effect: Effect::NoSchedule,
        };
        for (key, operator, value, effect, want) in [
            ("k", "", "v", "NoSchedule", true),
            ("k", "Equal", "v", "", true),
            ("k", "Equal", "w", "", false),
            ("k", "Exists", "", "", true),
            ("k", "Exists", "", "NoExecute", false),
            ("", "Exists", "", "", true),
            ("", "Equal", "v", "", true),
            ("other", "Exists", "", "", false),
            ("k", "Gt", "1", "", false),
        ] {
            let toleration = Toleration {
                key: key.into(),
                operator: TolerationOperator::parse(operator),
                value: value.into(),
                effect: (!effect.is_empty()).then(|| Effect::parse(effect)),
            };
            assert_eq!(
                toleration.tolerates(&taint),
                want,
                "{key} {operator} {value} {effect}"
            );
        }
    }
}
