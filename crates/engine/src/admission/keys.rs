//! Labels and annotations that admission reads and writes.
//!
//! Annotations of pods that one component writes and another believes, with what refuses those of other users (`owned_keys` and
//! deploy/policies.yaml, with the same rules) or makes them useless:
//!
//! | annotation | owner | believed by | written by other users |
//! |---|---|---|---|
//! | `tidepool.io/numa-zones` | scheduler, with the Binding | scheduler, gate, agent, tier controller | refused; the Binding replaces what is there; no more zones count than the request can need |
//! | `tidepool.io/policy-unit` | scheduler, with the Binding; controller of ResourcePolicies | controller of ResourcePolicies | refused; the Binding replaces it; a forged one only has the pod's own cost corrected |
//! | `tidepool.io/profiles` | mutating webhook, on create | mutating webhook, called again | replaced on create, refused later |
//! | `node.koordinator.sh/extended-resource-spec` | mutating webhook, on create | Koordinator's agent | replaced on create, refused later |
//! | `kubernetes.io/config.*` | kubelet of the pod's node | agent, controllers, webhook | refused |
//! | `katalyst.kubewharf.io/qos_level`, `memory_enhancement` | author, on create | all | refused later, to the author, too; so are Koordinator's labels of the class |

/// Label: Koordinator's QoS class.
pub const KOORDINATOR_CLASS: &str = "koordinator.sh/qosClass";
/// Label: Koordinator's priority class; it goes before `spec.priorityClassName`.
pub const KOORDINATOR_BAND: &str = "koordinator.sh/priority-class";
/// Label: the order of pods within a priority class.
pub const SUB_PRIORITY: &str = "koordinator.sh/priority";
/// Annotation: Katalyst's QoS level.
pub const LEVEL: &str = "katalyst.kubewharf.io/qos_level";
/// Annotation: Katalyst's settings of memory, as a JSON object of strings.
pub const MEMORY_ENHANCEMENT: &str = "katalyst.kubewharf.io/memory_enhancement";
/// Every annotation that is a JSON object of strings.
pub const ENHANCEMENTS: [&str; 3] = [
    MEMORY_ENHANCEMENT,
    "katalyst.kubewharf.io/cpu_enhancement",
    "katalyst.kubewharf.io/network_enhancement",
];
/// Annotation: the tier resources of each container, for agents that do not see the pod's spec.
pub const EXTENDED_RESOURCES: &str = "node.koordinator.sh/extended-resource-spec";
/// Annotation: the profiles that were applied, in order; a skipped one has `-` before its name.
pub const PROFILES: &str = "tidepool.io/profiles";
/// Annotations of mirror pods, which the kubelet creates for static pods, begin with this.
pub const KUBELET_PREFIX: &str = "kubernetes.io/config.";
/// Annotation of a mirror pod.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
/// Annotation of a profile: pods that it matches keep their resources.
pub const SKIP_RESOURCES: &str = "config.koordinator.sh/skip-update-resources";
/// Annotation: the scheduler of a pod, from before `spec.schedulerName`.
pub const SCHEDULER_ANNOTATION: &str = "scheduler.alpha.kubernetes.io/name";
/// Label of a pod: `true` if its scheduler is not to be changed.
pub const KEEP_SCHEDULER: &str = "tidepool.io/keep-scheduler";
/// Label of a namespace: the scheduler of its pods that name none.
pub const NAMESPACE_SCHEDULER: &str = "tidepool.io/scheduler";
/// Label of a namespace: `deny` if pods of a scheduler that does not run are refused.
pub const SCHEDULER_CHECK: &str = "tidepool.io/scheduler-check";
/// Annotation: what the API server filled in from LimitRanges. A forged one drops native resources of its own pod, and nothing else.
pub(super) const LIMIT_RANGER: &str = "kubernetes.io/limit-ranger";
