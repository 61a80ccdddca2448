//! Pods that the API server has not given a priority. It gives one to most, on creation.

use super::{Name, PreemptionPolicy};

/// What a pod without a priority says about it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenPriority {
    /// `spec.priorityClassName`, if it names one.
    pub class: Option<Name>,
    /// `spec.preemptionPolicy`, which goes before that of the class.
    pub preemption_policy: Option<PreemptionPolicy>,
}
