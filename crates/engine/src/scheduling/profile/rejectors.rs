//! The plugins that rejected a pod: an event helps it if one of them listens to the event.

/// The plugins that rejected a pod. Empty if the attempt ended in an error.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Rejectors {
    pub plugins: Vec<&'static str>,
    /// Those of them that only wait for something on its way.
    pub pending: Vec<&'static str>,
    /// The status of the pod was [`Status::Unresolvable`](crate::scheduling::framework::Status::Unresolvable) on every node.
    pub is_unresolvable: bool,
    /// It was not rejected: another scheduler was faster.
    pub is_conflict: bool,
}

impl Rejectors {
    pub(crate) fn is_blamed(&self) -> bool {
        !self.plugins.is_empty() || !self.pending.is_empty()
    }
}
