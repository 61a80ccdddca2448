//! Where a pod's priority comes from when the API server has not filled it in. Most do, on creation.

use super::{Name, PreemptionPolicy};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriorityClass {
    pub name: Name,
    pub value: i32,
    /// It is the class of pods that name none.
    pub global_default: bool,
    pub preemption_policy: PreemptionPolicy,
}

/// What a pod says in place of its priority.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenPriority {
    /// `spec.priorityClassName`, if it names one.
    pub class: Option<Name>,
    /// `spec.preemptionPolicy`, which goes before that of the class.
    pub preemption_policy: Option<PreemptionPolicy>,
}
