//! Whether kubelets would admit the pod.

use engine::cluster::Cluster;
use engine::kubelet::{Admission, Applicant, Host, admit, failures};
use engine::model::{Node, Pod};

use super::World;
use crate::parity::verdicts;

/// In the order of kube-scheduler's snapshot.
pub(super) fn admissions(cluster: &Cluster, world: &World) -> Vec<verdicts::Admission> {
    let nodes = world
        .order
        .iter()
        .filter_map(|node| cluster.nodes().slot(node));
    nodes
        .filter_map(|slot| {
            let others: Vec<&Pod> = cluster.pods_on(slot).map(|placed| &*placed.pod).collect();
            let node = &cluster.nodes().get(slot)?.node;
            Some(admission(&world.pod, node, &others))
        })
        .collect()
}

fn admission(pod: &Pod, node: &Node, others: &[&Pod]) -> verdicts::Admission {
    let (applicant, host) = (Applicant::new(pod), Host::linux(node));
    // The oracle's kubelet makes no room for critical pods: it only names what they lack.
    let failures = match admit(applicant, host, others) {
        Admission::Rejected(failure) if failure.description().is_none() => vec![failure],
        _ => failures(applicant, host, others),
    };
    verdicts::Admission {
        admit: failures.is_empty(),
        reason: failures.first().map(|f| f.reason()).unwrap_or_default(),
        message: failures
            .first()
            .map(ToString::to_string)
            .unwrap_or_default(),
        failures: failures.iter().filter_map(|f| f.description()).collect(),
    }
}
