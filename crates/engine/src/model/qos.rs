//! QoS classes and levels: one type for the two families of names.

/// What a pod is to its neighbours, from the strongest to the weakest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum QosClass {
    System,
    Dedicated,
    #[default]
    Online,
    MidLatencySensitive,
    MidBestEffort,
    Lent,
    Free,
}

/// Katalyst's levels. Reclaimed resources, QoS taints and preemption go by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum QosLevel {
    System,
    Dedicated,
    #[default]
    Shared,
    Reclaimed,
}

impl QosLevel {
    pub fn parse(text: &str) -> Result<Self, QosError> {
        match text {
            "system_cores" => Ok(Self::System),
            "dedicated_cores" => Ok(Self::Dedicated),
            "shared_cores" => Ok(Self::Shared),
            "reclaimed_cores" => Ok(Self::Reclaimed),
            other => Err(QosError::Level(other.to_owned())),
        }
    }

    fn class(self) -> QosClass {
        match self {
            Self::System => QosClass::System,
            Self::Dedicated => QosClass::Dedicated,
            Self::Shared => QosClass::Online,
            Self::Reclaimed => QosClass::Lent,
        }
    }
}

/// What labels and priority say, before they are brought together.
#[derive(Debug, Clone, Copy, Default)]
pub struct QosLabels<'a> {
    /// `katalyst.kubewharf.io/qos_level`
    pub katalyst_level: Option<&'a str>,
    /// `koordinator.sh/qosClass`
    pub koordinator_class: Option<&'a str>,
    /// `koordinator.sh/priority-class`, which goes before the number.
    pub koordinator_band: Option<&'a str>,
    pub priority: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QosError {
    #[error(
        "`{0}` is not a QoS level: use system_cores, dedicated_cores, shared_cores or reclaimed_cores"
    )]
    Level(String),
    #[error("`{0}` is not a QoS class: use SYSTEM, LSE, LSR, LS or BE")]
    Class(String),
    #[error("`{0}` is not a priority class: use koord-prod, koord-mid, koord-batch or koord-free")]
    Band(String),
    #[error("QoS class {class} does not go with priority class {band}")]
    Pair {
        class: &'static str,
        band: &'static str,
    },
    #[error("the labels name two classes: {first:?} and {second:?}")]
    Contradiction { first: QosClass, second: QosClass },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Band {
    Prod,
    Mid,
    Batch,
    Free,
}

impl QosLabels<'_> {
    /// The class, for a scheduler: what cannot be understood is left out, and of two classes the weaker holds.
    pub fn class(&self) -> QosClass {
        let katalyst = self.katalyst().ok().flatten();
        let koordinator = match self.koordinator() {
            Ok(class) => class,
            // A best-effort label with a stronger band, or the reverse: the weaker of what the two parts say.
            Err(QosError::Pair { .. }) => Some(self.weaker_half()),
            Err(_) => None,
        };
        katalyst.max(koordinator).unwrap_or_default()
    }

    /// The class, for admission: contradictions and unknown values are errors.
    pub fn strict(&self) -> Result<QosClass, QosError> {
        match (self.katalyst()?, self.koordinator()?) {
            (Some(first), Some(second)) if first != second => {
                Err(QosError::Contradiction { first, second })
            }
            (first, second) => Ok(first.or(second).unwrap_or_default()),
        }
    }

    fn katalyst(&self) -> Result<Option<QosClass>, QosError> {
        let level = self.katalyst_level.map(QosLevel::parse).transpose()?;
        Ok(level.map(QosLevel::class))
    }

    fn koordinator(&self) -> Result<Option<QosClass>, QosError> {
        use Band::*;
        use QosClass::{Dedicated, Lent, MidBestEffort, MidLatencySensitive, Online, System};
        Ok(Some(match (self.koordinator_class, self.band()?) {
            (None, None) => return Ok(None),
            (None, Some(Prod)) => Online,
            (None, Some(Mid)) => MidBestEffort,
            (None, Some(Batch)) => Lent,
            (_, Some(Free)) => QosClass::Free,
            (Some("SYSTEM"), None | Some(Prod)) => System,
            (Some("LSE" | "LSR"), None | Some(Prod)) => Dedicated,
            (Some("LS"), None | Some(Prod)) => Online,
            (Some("LS"), Some(Mid)) => MidLatencySensitive,
            (Some("BE"), Some(Mid)) => MidBestEffort,
            (Some("BE"), None | Some(Batch)) => Lent,
            (Some(class), band) => {
                return Err(match (known(class), band) {
                    (Some(class), Some(band)) => QosError::Pair {
                        class,
                        band: band.name(),
                    },
                    _ => QosError::Class(class.to_owned()),
                });
            }
        }))
    }

    fn weaker_half(&self) -> QosClass {
        let class = Self {
            koordinator_band: None,
            priority: None,
            ..*self
        }
        .koordinator()
        .ok()
        .flatten();
        let band = Self {
            koordinator_class: None,
            ..*self
        }
        .koordinator()
        .ok()
        .flatten();
        class.max(band).unwrap_or_default()
    }

    fn band(&self) -> Result<Option<Band>, QosError> {
        match self.koordinator_band {
            None => Ok(self.priority.and_then(Band::of)),
            Some(name) => Band::ALL
                .into_iter()
                .find(|band| band.name() == name)
                .map(Some)
                .ok_or_else(|| QosError::Band(name.to_owned())),
        }
    }
}

fn known(class: &str) -> Option<&'static str> {
    ["SYSTEM", "LSE", "LSR", "LS", "BE"]
        .into_iter()
        .find(|name| *name == class)
}

impl Band {
    const ALL: [Self; 4] = [Self::Prod, Self::Mid, Self::Batch, Self::Free];

    fn name(self) -> &'static str {
        match self {
            Self::Prod => "koord-prod",
            Self::Mid => "koord-mid",
            Self::Batch => "koord-batch",
            Self::Free => "koord-free",
        }
    }

    /// Koordinator's bands of a thousand; a priority outside of them says nothing.
    fn of(priority: i32) -> Option<Self> {
        match priority {
            9000..=9999 => Some(Self::Prod),
            7000..=7999 => Some(Self::Mid),
            5000..=5999 => Some(Self::Batch),
            3000..=3999 => Some(Self::Free),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use QosClass::*;

    #[test]
    fn both_families_meet_in_one_class() {
        let none = QosLabels::default();
        let katalyst = |level| QosLabels {
            katalyst_level: Some(level),
            ..none
        };
        let koordinator = |class, band| QosLabels {
            koordinator_class: Some(class),
            koordinator_band: band,
            ..none
        };
        for (case, labels, class, strict) in [
            ("nothing said", none, Online, true),
            ("system", katalyst("system_cores"), System, true),
            ("dedicated", katalyst("dedicated_cores"), Dedicated, true),
            ("reclaimed", katalyst("reclaimed_cores"), Lent, true),
            ("unknown level", katalyst("gold"), Online, false),
            ("LSR", koordinator("LSR", None), Dedicated, true),
            (
                "LS in mid",
                koordinator("LS", Some("koord-mid")),
                MidLatencySensitive,
                true,
            ),
            (
                "BE in mid",
                koordinator("BE", Some("koord-mid")),
                MidBestEffort,
                true,
            ),
            ("BE", koordinator("BE", None), Lent, true),
            ("free", koordinator("BE", Some("koord-free")), Free, true),
            (
                "BE in prod",
                koordinator("BE", Some("koord-prod")),
                Lent,
                false,
            ),
            (
                "LSR in batch",
                koordinator("LSR", Some("koord-batch")),
                Lent,
                false,
            ),
            (
                "by number",
                QosLabels {
                    priority: Some(5500),
                    ..none
                },
                Lent,
                true,
            ),
            (
                "a plain priority",
                QosLabels {
                    priority: Some(1000),
                    ..none
                },
                Online,
                true,
            ),
            (
                "two families agree",
                QosLabels {
                    koordinator_class: Some("BE"),
                    ..katalyst("reclaimed_cores")
                },
                Lent,
                true,
            ),
            (
                "two families differ",
                QosLabels {
                    koordinator_class: Some("BE"),
                    ..katalyst("shared_cores")
                },
                Lent,
                false,
            ),
        ] {
            assert_eq!(labels.class(), class, "{case}");
            assert_eq!(labels.strict().is_ok(), strict, "{case}");
        }
    }
}
