//! Annotations and labels of pods and of the Node. No other module of the agent reads them.
//!
//! Users who may edit a pod can write its annotations and labels. So each function says why what it returns may be believed.

use engine::admission::keys::{KOORDINATOR_BAND, KOORDINATOR_CLASS, LEVEL, MEMORY_ENHANCEMENT};
use engine::model::{Labels, NUMA_ZONES};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The hash of a static pod's file, on its mirror pod. The cgroup has this name instead of the uid.
const STATIC_POD_HASH: &str = "kubernetes.io/config.hash";
const MIRROR: &str = "kubernetes.io/config.mirror";
/// CPUs that Koordinator's scheduler bound the pod to.
const KOORDINATOR_STATUS: &str = "scheduling.koordinator.sh/resource-status";
const RAW_ALLOCATABLE: &str = "node.koordinator.sh/raw-allocatable";
const RESERVATION: &str = "node.koordinator.sh/reservation";

/// Believed of the pod itself: it makes the pod weaker, or leaves it what Kubernetes gives every pod. Resources of a tier
/// decide first. `dedicated_cores` takes from others only with [`numa_zones`]. The scheduler chose the node by the same value: the
/// API server lets no user change it later (deploy/policies.yaml).
pub(super) fn level(meta: &ObjectMeta) -> Option<&str> {
    annotation(meta, LEVEL)
}

/// Believed like [`level`]. The CPUs of LSE pods are theirs alone, but only those that the kubelet bound or that
/// [`koordinator_status`] names.
pub(super) fn koordinator_class(meta: &ObjectMeta) -> Option<&str> {
    label(meta, KOORDINATOR_CLASS)
}

/// Believed like [`level`].
pub(super) fn koordinator_band(meta: &ObjectMeta) -> Option<&str> {
    label(meta, KOORDINATOR_BAND)
}

/// Believed because it says only how the pod uses the zones that it has, and because the scheduler chose them by the same value: the
/// API server lets no user change it later (deploy/policies.yaml).
pub(super) fn memory_enhancement(meta: &ObjectMeta) -> Option<&str> {
    annotation(meta, MEMORY_ENHANCEMENT)
}

/// Believed because only a Binding may bring it: admission refuses it from users. And no more zones count than the request of the
/// pod can need; see [`engine::model::ZoneSet::needed`].
pub(super) fn numa_zones(meta: &ObjectMeta) -> Option<&str> {
    annotation(meta, NUMA_ZONES)
}

/// Not believed: it is a claim, on which [`engine::node::groups::settle`] decides.
pub(super) fn static_pod_hash(meta: &ObjectMeta) -> Option<&str> {
    annotation(meta, STATIC_POD_HASH)
}

/// Believed because the kubelet runs no pod that has it, and the API server lets no user add it later: a forged one has no processes.
pub(super) fn is_mirror(meta: &ObjectMeta) -> bool {
    annotation(meta, MIRROR).is_some()
}

/// Believed only where an administrator says that users cannot write it; of LSE and LSR pods, and no more CPUs than they request.
pub(super) fn koordinator_status(meta: &ObjectMeta) -> Option<&str> {
    annotation(meta, KOORDINATOR_STATUS)
}

/// Believed because users write no Nodes.
pub(super) fn raw_allocatable(node: &ObjectMeta) -> Option<&str> {
    annotation(node, RAW_ALLOCATABLE)
}

/// Believed because users write no Nodes.
pub(super) fn reservation(node: &ObjectMeta) -> Option<&str> {
    annotation(node, RESERVATION)
}

/// They select settings. Believed because users write no Nodes.
pub(super) fn node_labels(node: &ObjectMeta) -> Labels {
    let labels = node.labels.iter().flatten();
    labels.map(|(key, value)| (&**key, &**value)).collect()
}

fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}
