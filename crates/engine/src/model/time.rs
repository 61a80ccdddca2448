//! Moments, as the caller's clock tells them.

/// Nanoseconds since the Unix epoch; the engine only compares and adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);
