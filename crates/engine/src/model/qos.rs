//! QoS classes and levels: one type for the two families of names.

use super::TierAccount;

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

/// What a pod says about its class, before it is brought together. A bare `spec.priority` says nothing: the numbers of
/// Koordinator's bands are in use in other clusters for other purposes.
#[derive(Debug, Clone, Copy, Default)]
pub struct QosLabels<'a> {
    /// `katalyst.kubewharf.io/qos_level`
    pub katalyst_level: Option<&'a str>,
    /// `koordinator.sh/qosClass`
    pub koordinator_class: Option<&'a str>,
    /// `koordinator.sh/priority-class`, which goes before the PriorityClass.
    pub koordinator_band: Option<&'a str>,
    /// `spec.priorityClassName`; only Koordinator's four classes count.
    pub priority_class: Option<&'a str>,
    /// The account of the tier resources that the pod names; it goes after all others.
    pub account: Option<TierAccount>,
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
    #[error(
        "QoS class {class} does not go with priority class {band}: {class} goes with {}, and {band} goes with {}",
        bands_of(class),
        classes_of(band)
    )]
    Pair {
        class: &'static str,
        band: &'static str,
    },
    #[error(
        "the pod names two classes: {katalyst} by Katalyst's names and {koordinator} by Koordinator's"
    )]
    Contradiction {
        katalyst: QosClass,
        koordinator: QosClass,
    },
}

impl std::fmt::Display for QosClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::System => "system (system_cores, SYSTEM)",
            Self::Dedicated => "dedicated (dedicated_cores, LSE, LSR)",
            Self::Online => "online (shared_cores, koord-prod with LS)",
            Self::MidLatencySensitive => "mid, latency-sensitive (koord-mid with LS)",
            Self::MidBestEffort => "mid, best effort (koord-mid with BE)",
            Self::Lent => "batch or reclaimed (reclaimed_cores, koord-batch with BE)",
            Self::Free => "free (koord-free)",
        })
    }
}

/// The priority classes that go with a QoS class, for messages.
fn bands_of(class: &str) -> &'static str {
    match class {
        "SYSTEM" => "none of Koordinator's priority classes",
        "LSE" | "LSR" => "koord-prod",
        "LS" => "koord-prod or koord-mid",
        _ => "koord-mid, koord-batch or koord-free",
    }
}

/// The QoS classes that go with a priority class, for messages.
fn classes_of(band: &str) -> &'static str {
    match band {
        "koord-prod" => "LSE, LSR or LS",
        "koord-mid" => "LS or BE",
        _ => "BE",
    }
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
            (Some(katalyst), Some(koordinator)) if katalyst != koordinator => {
                Err(QosError::Contradiction {
                    katalyst,
                    koordinator,
                })
            }
            (katalyst, koordinator) => Ok(katalyst.or(koordinator).unwrap_or_default()),
        }
    }

    /// The name of Koordinator's priority class, if the pod names one.
    pub fn band_name(&self) -> Option<&'static str> {
        self.band().ok().flatten().map(Band::name)
    }

    /// Where a pod of this class gets cpu and memory from; none for the node's own.
    pub fn account_of(&self, class: QosClass) -> Option<TierAccount> {
        let is_reclaimed =
            self.katalyst_level.is_some() || self.account == Some(TierAccount::Reclaimed);
        match class {
            QosClass::MidLatencySensitive | QosClass::MidBestEffort => Some(TierAccount::Mid),
            QosClass::Lent if is_reclaimed => Some(TierAccount::Reclaimed),
            QosClass::Lent => Some(TierAccount::Batch),
            QosClass::System | QosClass::Dedicated | QosClass::Online | QosClass::Free => None,
        }
    }

    fn katalyst(&self) -> Result<Option<QosClass>, QosError> {
        let level = self.katalyst_level.map(QosLevel::parse).transpose()?;
        let named = (self.account == Some(TierAccount::Reclaimed)).then_some(QosLevel::Reclaimed);
        Ok(level.or(named).map(QosLevel::class))
    }

    fn koordinator(&self) -> Result<Option<QosClass>, QosError> {
        use Band::*;
        use QosClass::{Dedicated, Lent, MidBestEffort, MidLatencySensitive, Online, System};
        Ok(Some(match (self.koordinator_class, self.band()?) {
            (None, None) => return Ok(None),
            (None, Some(Prod)) => Online,
            (None, Some(Mid)) => MidBestEffort,
            (None, Some(Batch)) => Lent,
            (None | Some("BE"), Some(Free)) => QosClass::Free,
            (Some("SYSTEM"), None) => System,
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
            priority_class: None,
            account: None,
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
        let Some(name) = self.koordinator_band else {
            let by_class = self.priority_class.and_then(Band::parse);
            return Ok(by_class.or(match self.account {
                Some(TierAccount::Mid) => Some(Band::Mid),
                Some(TierAccount::Batch) => Some(Band::Batch),
                Some(TierAccount::Reclaimed) | None => None,
            }));
        };
        Band::parse(name)
            .map(Some)
            .ok_or_else(|| QosError::Band(name.to_owned()))
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

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|band| band.name() == name)
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
                "by PriorityClass",
                QosLabels {
                    priority_class: Some("koord-batch"),
                    ..none
                },
                Lent,
                true,
            ),
            (
                "another PriorityClass",
                QosLabels {
                    priority_class: Some("koord-batch-high"),
                    ..none
                },
                Online,
                true,
            ),
            (
                "the label goes before the PriorityClass",
                QosLabels {
                    koordinator_band: Some("koord-mid"),
                    priority_class: Some("koord-prod"),
                    ..none
                },
                MidBestEffort,
                true,
            ),
            (
                "by resources",
                QosLabels {
                    account: Some(TierAccount::Mid),
                    koordinator_class: Some("LS"),
                    ..none
                },
                MidLatencySensitive,
                true,
            ),
            (
                "by reclaimed resources",
                QosLabels {
                    account: Some(TierAccount::Reclaimed),
                    ..none
                },
                Lent,
                true,
            ),
            (
                "LS with batch resources",
                QosLabels {
                    account: Some(TierAccount::Batch),
                    koordinator_class: Some("LS"),
                    ..none
                },
                Lent,
                false,
            ),
            (
                "LS in free",
                koordinator("LS", Some("koord-free")),
                Free,
                false,
            ),
            (
                "SYSTEM in prod",
                koordinator("SYSTEM", Some("koord-prod")),
                Online,
                false,
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

    /// The rows of the panorama, and no others.
    #[test]
    fn each_forbidden_pair_has_its_own_message() {
        let bands = ["koord-prod", "koord-mid", "koord-batch", "koord-free"];
        let allowed = [
            ("SYSTEM", &[][..]),
            ("LSE", &["koord-prod"]),
            ("LSR", &["koord-prod"]),
            ("LS", &["koord-prod", "koord-mid"]),
            ("BE", &["koord-mid", "koord-batch", "koord-free"]),
        ];
        let mut messages = std::collections::BTreeSet::new();
        let mut forbidden = 0;
        for (class, goes_with) in allowed {
            for band in bands {
                let labels = QosLabels {
                    koordinator_class: Some(class),
                    koordinator_band: Some(band),
                    ..QosLabels::default()
                };
                let strict = labels.strict();
                assert_eq!(strict.is_ok(), goes_with.contains(&band), "{class} {band}");
                if let Err(error) = strict {
                    forbidden += 1;
                    let text = error.to_string();
                    assert!(text.contains(class) && text.contains(band), "{text}");
                    messages.insert(text);
                }
            }
        }
        assert_eq!((forbidden, messages.len()), (13, 13));
    }
}
