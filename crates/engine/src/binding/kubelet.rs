//! The kubelet's admission of a pod that was bound to its node: its checks, their order and its messages.
//!
//! A pod that is refused has failed for good, so a scheduler must filter at least what is checked here. [`admit`] is the library for
//! authors of schedulers: a pod, a node and the other pods of the node in, the kubelet's decision out. It is pure and separate from
//! the scheduler. The gate calls it for each bind, and simulated nodes run it as a kubelet would. `examples/own-scheduler` has a
//! scheduler that uses nothing else; docs/extend-the-scheduler.md explains it.
//!
//! | check, in the kubelet's order | [`AdmissionFailure`] | filter of the scheduler |
//! |---|---|---|
//! | label `kubernetes.io/os` of the pod | `OsLabel` | none, as in kube-scheduler |
//! | `spec.os.name` | `Os` | none, as in kube-scheduler |
//! | `supplementalGroupsPolicy: Strict` | `StrictGroups` | none, as in kube-scheduler |
//! | number of pods, resources | `Resource` | NodeResourcesFit |
//! | node affinity and node selector | `NodeAffinity` | NodeAffinity |
//! | `spec.nodeName` | `NodeName` | NodeName |
//! | host ports | `NodePorts` | NodePorts |
//! | NoExecute taints | `Taint` | TaintToleration |
//!
//! Other reasons to refuse a pod are known to the node alone: pressure, device and topology managers, volume limits, shutdown.
//! Extended resources that are not in the node's allocatable, such as reclaimed resources, are not checked either: no kubelet counts
//! them.

use std::borrow::Cow;
use std::fmt;

use crate::model::{Effect, HostPort, Node, NodeSpec, Pod, Resource, tolerated};

/// For pods of this priority or higher the kubelet evicts pods instead of refusing them.
pub const CRITICAL_PRIORITY: i32 = 2_000_000_000;

const OS_LABEL: &str = "kubernetes.io/os";

/// A pod as its kubelet sees it.
#[derive(Debug, Clone, Copy)]
pub struct Applicant<'a> {
    pub pod: &'a Pod,
    /// `spec.os.name`
    pub os: Option<&'a str>,
    /// `spec.securityContext.supplementalGroupsPolicy` is `Strict`.
    pub strict_groups: bool,
    /// From a file or URL of the node itself, or the mirror of such a pod.
    pub is_static: bool,
}

impl<'a> Applicant<'a> {
    /// A pod from the API with nothing unusual.
    pub fn new(pod: &'a Pod) -> Self {
        Self {
            pod,
            os: None,
            strict_groups: false,
            is_static: false,
        }
    }

    fn is_critical(&self) -> bool {
        self.is_static || self.pod.priority >= CRITICAL_PRIORITY
    }
}

/// The machine behind a node's object.
#[derive(Debug, Clone, Copy)]
pub struct Host<'a> {
    pub node: &'a Node,
    pub os: &'a str,
    /// `status.features.supplementalGroupsPolicy`
    pub supports_strict_groups: bool,
    /// Also refuse for NoSchedule taints. A kubelet does not; a binder should.
    pub heeds_no_schedule: bool,
}

impl<'a> Host<'a> {
    /// A Linux machine with a recent container runtime.
    pub fn linux(node: &'a Node) -> Self {
        Self {
            node,
            os: "linux",
            supports_strict_groups: true,
            heeds_no_schedule: false,
        }
    }
}

/// The kubelet's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    Admitted,
    /// A critical pod that lacks only these: lower pods of the node are evicted for it.
    MakeRoom(Vec<AdmissionFailure>),
    /// The pod becomes `Failed`, with the reason and message of this.
    Rejected(AdmissionFailure),
}

/// One check that a pod did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmissionFailure {
    OsLabel,
    Os,
    StrictGroups,
    Resource {
        resource: Resource,
        requested: i64,
        used: i64,
        capacity: i64,
    },
    NodeAffinity,
    NodeName,
    NodePorts,
    Taint,
}

impl AdmissionFailure {
    /// `status.reason` of the refused pod.
    pub fn reason(&self) -> String {
        match self {
            Self::OsLabel => "PodOSSelectorNodeLabelDoesNotMatch".into(),
            Self::Os => "PodOSNotSupported".into(),
            Self::StrictGroups => "SupplementalGroupsPolicyNotSupported".into(),
            Self::Resource { resource, .. } => format!("OutOf{}", resource.name()),
            Self::NodeAffinity => "NodeAffinity".into(),
            Self::NodeName => "NodeName".into(),
            Self::NodePorts => "NodePorts".into(),
            Self::Taint => "TaintToleration".into(),
        }
    }

    /// The name of the failed check; `None` for checks that are made before all others.
    pub fn description(&self) -> Option<String> {
        Some(match self {
            Self::OsLabel | Self::Os | Self::StrictGroups => return None,
            Self::Resource { resource, .. } => format!("Insufficient {}", resource.name()),
            Self::NodeAffinity => "node(s) didn't match Pod's node affinity/selector".into(),
            Self::NodeName => "node(s) didn't match the requested node name".into(),
            Self::NodePorts => "node(s) didn't have free ports for the requested pod ports".into(),
            Self::Taint => "node(s) had taints that the pod didn't tolerate".into(),
        })
    }
}

impl fmt::Display for AdmissionFailure {
    /// What follows `Pod was rejected: ` in `status.message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OsLabel => f.write_str(
                "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
            ),
            Self::Os => f.write_str("Failed to admit pod as the OS field doesn't match node OS"),
            Self::StrictGroups => {
                f.write_str("SupplementalGroupsPolicy=Strict is not supported in this node")
            }
            Self::Resource {
                resource,
                requested,
                used,
                capacity,
            } => write!(
                f,
                "Node didn't have enough resource: {}, requested: {requested}, used: {used}, capacity: {capacity}",
                resource.name()
            ),
            other => write!(
                f,
                "Predicate {} failed: {}",
                other.reason(),
                other.description().unwrap_or_default()
            ),
        }
    }
}

/// The kubelet's decision. `others` are the active pods on the node, without this one.
pub fn admit(applicant: Applicant, host: Host, others: &[&Pod]) -> Admission {
    if let Some(failure) = unsupported(applicant, host) {
        return Admission::Rejected(failure);
    }
    let mut failures = failures(applicant, host, others);
    let is_resource =
        |failure: &AdmissionFailure| matches!(failure, AdmissionFailure::Resource { .. });
    if applicant.is_critical() && !failures.is_empty() {
        if failures.iter().all(is_resource) {
            return Admission::MakeRoom(failures);
        }
        failures.retain(|failure| !is_resource(failure));
    }
    failures
        .into_iter()
        .next()
        .map_or(Admission::Admitted, Admission::Rejected)
}

/// Checks whose result no change of the node's pods can change.
fn unsupported(applicant: Applicant, host: Host) -> Option<AdmissionFailure> {
    let label = applicant.pod.labels().get(OS_LABEL);
    if label.is_some_and(|os| os != host.os) {
        Some(AdmissionFailure::OsLabel)
    } else if applicant.os.is_some_and(|os| os != host.os) {
        Some(AdmissionFailure::Os)
    } else if applicant.strict_groups && !host.supports_strict_groups {
        Some(AdmissionFailure::StrictGroups)
    } else {
        None
    }
}

/// Every other check that the pod does not pass, in the kubelet's order.
pub fn failures(applicant: Applicant, host: Host, others: &[&Pod]) -> Vec<AdmissionFailure> {
    let (pod, node) = (applicant.pod, host.node);
    let mut failures = resources(pod, node, others);
    if !pod.nodes.matches(&own_view(host)) {
        failures.push(AdmissionFailure::NodeAffinity);
    }
    if pod
        .node
        .as_ref()
        .is_some_and(|name| *name != node.spec.name)
    {
        failures.push(AdmissionFailure::NodeName);
    }
    let taken = || others.iter().flat_map(|other| &other.kind.ports);
    if pod
        .kind
        .ports
        .iter()
        .any(|port| taken().any(|other| conflict(port, other)))
    {
        failures.push(AdmissionFailure::NodePorts);
    }
    let heeded = |effect: &Effect| match effect {
        Effect::NoExecute => true,
        effect => host.heeds_no_schedule && effect.forbids(),
    };
    let untolerated = node
        .spec
        .taints
        .iter()
        .any(|taint| heeded(&taint.effect) && !tolerated(taint, &pod.tolerations));
    if untolerated && !applicant.is_static {
        failures.push(AdmissionFailure::Taint);
    }
    failures
}

/// A kubelet knows its own system better than the node's labels do.
fn own_view<'a>(host: Host<'a>) -> Cow<'a, NodeSpec> {
    let spec = &host.node.spec;
    if spec.labels.get(OS_LABEL) == Some(host.os) {
        return Cow::Borrowed(spec);
    }
    let known = spec
        .labels
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()));
    let labels = known.chain([(OS_LABEL.into(), host.os.into())]).collect();
    Cow::Owned(NodeSpec {
        labels,
        ..spec.clone()
    })
}

fn resources(pod: &Pod, node: &Node, others: &[&Pod]) -> Vec<AdmissionFailure> {
    let pods = others.len() as i64;
    let count = (Resource::Pods, 1, pods);
    let wanted = pod.requests.wanted.iter().filter(|(resource, amount)| {
        // An extended resource that the node does not know is not the kubelet's to count.
        let foreign = resource.is_extended() && !node.allocatable.contains(resource);
        *amount > 0 && **resource != Resource::Pods && !foreign
    });
    let asked = wanted.map(|(resource, amount)| {
        let used = others.iter().fold(0_i64, |sum, other| {
            sum.saturating_add(other.requests.placed.get(resource))
        });
        (resource.clone(), amount, used)
    });
    std::iter::once(count)
        .chain(asked)
        .map(|(resource, requested, used)| {
            let capacity = node.allocatable.get(&resource);
            AdmissionFailure::Resource {
                resource,
                requested,
                used,
                capacity,
            }
        })
        .filter(|failure| match failure {
            AdmissionFailure::Resource {
                requested,
                used,
                capacity,
                ..
            } => *requested > capacity.saturating_sub(*used),
            _ => false,
        })
        .collect()
}

fn conflict(a: &HostPort, b: &HostPort) -> bool {
    const ANY: &str = "0.0.0.0";
    a.port == b.port && a.protocol == b.protocol && (a.ip == b.ip || *a.ip == *ANY || *b.ip == *ANY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NodeBuilder, PodBuilder, node, pod};

    fn small() -> NodeBuilder {
        node("n").allocatable("cpu=2 memory=1Gi ephemeral-storage=1Gi example.com/x=2 pods=3")
    }

    fn port(pod: PodBuilder, ip: &str, protocol: &str, port: i32) -> PodBuilder {
        pod.kind(|kind| {
            kind.ports.push(HostPort {
                ip: ip.into(),
                protocol: protocol.into(),
                port,
            });
        })
    }

    /// `ok`, `room: reasons` or `reason: message`.
    fn answer(pod: &PodBuilder, node: NodeBuilder, others: &[PodBuilder]) -> String {
        let (pod, node) = (pod.build(), node.build());
        let others: Vec<_> = others.iter().map(PodBuilder::build).collect();
        let others: Vec<&Pod> = others.iter().map(|other| &**other).collect();
        words(admit(Applicant::new(&pod), Host::linux(&node), &others))
    }

    fn words(admission: Admission) -> String {
        match admission {
            Admission::Admitted => "ok".into(),
            Admission::MakeRoom(failures) => {
                let reasons: Vec<String> = failures.iter().map(AdmissionFailure::reason).collect();
                format!("room: {}", reasons.join(", "))
            }
            Admission::Rejected(failure) => format!("{}: {failure}", failure.reason()),
        }
    }

    // The expected texts are those of the kubelet of v1.36.4.
    #[test]
    fn reasons_and_messages() {
        let other = || pod("o").on("n");
        for (case, pod, node, others, want) in [
            ("fits", pod("p").container("cpu=2"), small(), vec![], "ok"),
            (
                "lent resources are not the kubelet's",
                pod("p").reclaimed().container(
                    "resource.katalyst.kubewharf.io/reclaimed_millicpu=9k katalyst.kubewharf.io/reclaimed_memory=9Gi",
                ),
                small(),
                vec![],
                "ok",
            ),
            (
                "cpu",
                pod("p").container("cpu=1500m"),
                small(),
                vec![other().container("cpu=700m")],
                "OutOfcpu: Node didn't have enough resource: cpu, requested: 1500, used: 700, capacity: 2000",
            ),
            (
                "memory",
                pod("p").container("memory=2Gi"),
                small(),
                vec![],
                "OutOfmemory: Node didn't have enough resource: memory, requested: 2147483648, used: 0, \
                 capacity: 1073741824",
            ),
            (
                "pods",
                pod("p"),
                small().allocatable("pods=1"),
                vec![other()],
                "OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1",
            ),
            (
                "an extended resource",
                pod("p").container("example.com/x=3"),
                small(),
                vec![],
                "OutOfexample.com/x: Node didn't have enough resource: example.com/x, requested: 3, used: 0, \
                 capacity: 2",
            ),
            (
                "one that the node does not know",
                pod("p").container("example.com/y=3"),
                small(),
                vec![],
                "ok",
            ),
            (
                "huge pages are never unknown",
                pod("p").container("hugepages-2Mi=4Mi"),
                small(),
                vec![],
                "OutOfhugepages-2Mi: Node didn't have enough resource: hugepages-2Mi, requested: 4194304, used: 0, \
                 capacity: 0",
            ),
            (
                "overcommitted, but asks for something else",
                pod("p").container("memory=1"),
                small(),
                vec![other().container("cpu=4")],
                "ok",
            ),
            (
                "an init container",
                pod("p").init("cpu=5"),
                small(),
                vec![],
                "OutOfcpu: Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 2000",
            ),
            (
                "another node's label",
                pod("p").node_selector("a", "b"),
                small(),
                vec![],
                "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            ),
            (
                "a label that the kubelet knows better",
                pod("p").node_selector("kubernetes.io/os", "linux"),
                small().label("kubernetes.io/os", "plan9"),
                vec![],
                "ok",
            ),
            (
                "another node",
                pod("p").on("m"),
                small(),
                vec![],
                "NodeName: Predicate NodeName failed: node(s) didn't match the requested node name",
            ),
            (
                "a taken port",
                port(pod("p"), "10.0.0.1", "TCP", 80),
                small(),
                vec![port(other(), "0.0.0.0", "TCP", 80)],
                "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
            ),
            (
                "another address",
                port(pod("p"), "10.0.0.1", "TCP", 80),
                small(),
                vec![port(other(), "10.0.0.2", "TCP", 80)],
                "ok",
            ),
            (
                "a taint that evicts",
                pod("p"),
                small().taint("k", "v", "NoExecute"),
                vec![],
                "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
            ),
            (
                "a taint that does not",
                pod("p"),
                small().taint("k", "v", "NoSchedule").unschedulable(),
                vec![],
                "ok",
            ),
            (
                "the wrong system by label",
                pod("p").label("kubernetes.io/os", "windows"),
                small(),
                vec![],
                "PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the `kubernetes.io/os` label doesn't match \
                 node label",
            ),
            (
                "the first of many",
                pod("p").on("m").node_selector("a", "b").container("cpu=5"),
                small(),
                vec![],
                "OutOfcpu: Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 2000",
            ),
            (
                "a critical pod",
                pod("p")
                    .priority(CRITICAL_PRIORITY)
                    .container("cpu=5 memory=5Gi"),
                small(),
                vec![],
                "room: OutOfcpu, OutOfmemory",
            ),
            (
                "a critical pod in the wrong place",
                pod("p")
                    .priority(CRITICAL_PRIORITY)
                    .node_selector("a", "b")
                    .container("cpu=5"),
                small(),
                vec![],
                "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            ),
        ] {
            assert_eq!(answer(&pod, node, &others), want, "{case}");
        }
    }

    #[test]
    fn what_the_pods_spec_alone_says() {
        let (pod, tainted) = (
            pod("p").build(),
            small().taint("k", "v", "NoExecute").build(),
        );
        let plain = Applicant::new(&pod);
        let host = Host::linux(&tainted);
        let is_static = Applicant {
            is_static: true,
            ..plain
        };
        assert_eq!(words(admit(is_static, host, &[])), "ok");
        let windows = Applicant {
            os: Some("windows"),
            ..plain
        };
        assert_eq!(
            words(admit(windows, host, &[])),
            "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS"
        );
        let strict = Applicant {
            strict_groups: true,
            ..is_static
        };
        let old = Host {
            supports_strict_groups: false,
            ..host
        };
        assert_eq!(
            words(admit(strict, old, &[])),
            "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node"
        );
        assert_eq!(words(admit(strict, host, &[])), "ok");
    }

    #[test]
    fn a_binder_may_be_stricter() {
        let (pod, node) = (
            pod("p").build(),
            small().taint("k", "v", "NoSchedule").build(),
        );
        let strict = Host {
            heeds_no_schedule: true,
            ..Host::linux(&node)
        };
        assert_eq!(
            failures(Applicant::new(&pod), strict, &[]),
            [AdmissionFailure::Taint]
        );
    }
}
