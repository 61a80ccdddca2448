//! Moments, as the caller's clock tells them.

use std::time::Duration;

/// Nanoseconds since the Unix epoch; the engine only compares and adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub const SECOND: i64 = 1_000_000_000;

    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(Self::SECOND))
    }

    /// Stays within what can be told.
    pub fn plus(self, duration: Duration) -> Self {
        let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// The whole second at or before.
    pub fn whole_second(self) -> Self {
        Self(self.0.div_euclid(Self::SECOND).saturating_mul(Self::SECOND))
    }
}
