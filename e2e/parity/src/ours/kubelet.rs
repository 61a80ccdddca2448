//! Whether kubelets would admit the pod.

use engine::binding::kubelet::{Admission, Applicant, Host, admit, failures};
use engine::cluster::Cluster;
use engine::model::Pod;

use super::World;
use crate::generate::Case;
use crate::verdicts;

/// In the order of kube-scheduler's snapshot.
pub(super) fn admissions(
    cluster: &Cluster,
    world: &World,
    case: &Case,
) -> Vec<verdicts::Admission> {
    let nodes = world
        .order
        .iter()
        .filter_map(|node| cluster.nodes().slot(node));
    nodes
        .filter_map(|slot| {
            let others: Vec<&Pod> = cluster.pods_on(slot).map(|placed| &*placed.pod).collect();
            let node = &cluster.nodes().get(slot)?.node;
            let spec = &case.0["pod"]["spec"];
            let policy = &spec["securityContext"]["supplementalGroupsPolicy"];
            let applicant = Applicant {
                os: spec["os"]["name"].as_str(),
                strict_groups: policy == "Strict",
                ..Applicant::new(&world.pod)
            };
            let host = Host {
                supports_strict_groups: supports_strict_groups(case, &node.spec.name),
                ..Host::linux(node)
            };
            Some(admission(applicant, host, &others))
        })
        .collect()
}

fn supports_strict_groups(case: &Case, name: &str) -> bool {
    let mut nodes = case.0["nodes"].as_array().into_iter().flatten();
    let node = nodes.find(|node| node["metadata"]["name"] == name);
    node.is_some_and(|node| node["status"]["features"]["supplementalGroupsPolicy"] == true)
}

fn admission(applicant: Applicant, host: Host, others: &[&Pod]) -> verdicts::Admission {
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
