//! Faults that are planted on purpose: `cargo xtask chaos --planted NAME` shows that its checker finds each of them.
//!
//! Only a program that is built with the feature `planted-faults` has them; the shipped one does not. The variable
//! `TIDEPOOL_PLANTED_FAULT` then names one.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedFault {
    /// A bind does not have the uid of its pod.
    BindWithoutUid,
    /// A new leader does not wait for what the previous one wrote.
    NoFence,
    /// Pods that a report wakes are not tried before something else happens.
    LostWakeUp,
    /// A pod stays assumed when its bind was refused.
    AssumedForever,
    /// A list that broke off counts as complete.
    IncompleteList,
}

#[cfg(feature = "planted-faults")]
impl PlantedFault {
    const ALL: [(Self, &str); 5] = [
        (Self::BindWithoutUid, "bind-without-uid"),
        (Self::NoFence, "no-fence"),
        (Self::LostWakeUp, "lost-wake-up"),
        (Self::AssumedForever, "assumed-forever"),
        (Self::IncompleteList, "incomplete-list"),
    ];

    fn chosen() -> Option<Self> {
        let name = std::env::var("TIDEPOOL_PLANTED_FAULT").ok()?;
        let found = Self::ALL.iter().find(|(_, known)| *known == name);
        if found.is_none() {
            let names = Self::ALL.map(|(_, name)| name).join(", ");
            tracing::error!("unknown planted fault `{name}`: use one of {names}");
        }
        found.map(|(fault, _)| *fault)
    }
}

/// Whether this program has the fault.
#[cfg(feature = "planted-faults")]
pub fn is_planted(fault: PlantedFault) -> bool {
    static CHOSEN: std::sync::LazyLock<Option<PlantedFault>> =
        std::sync::LazyLock::new(PlantedFault::chosen);
    *CHOSEN == Some(fault)
}

/// The shipped program has none.
#[cfg(not(feature = "planted-faults"))]
pub const fn is_planted(_: PlantedFault) -> bool {
    false
}
