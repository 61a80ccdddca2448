//! The pods of a DaemonSet, and the nodes that they are for.

use engine::binding::kubelet::{self, AdmissionFailure, Applicant, Host};
use serde_json::{Value, json};

use crate::{
    objects::{DaemonSet, Pod},
    ownership::{controlled_by, pod_from},
    revisions::HASH,
};

const TEMPLATE_GENERATION: &str = "pod-template-generation";
/// The annotation of the set that counts the changes of its template.
const GENERATION_OF_SET: &str = "deprecated.daemonset.template.generation";

/// Whether pods of a set run on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fit {
    /// The node gets a pod.
    pub(super) runs: bool,
    /// A pod that is there may stay.
    pub(super) stays: bool,
}

/// A pod of the present template, without its node.
pub(super) fn pod(set: &DaemonSet, hash: &str) -> Value {
    let mut pod = pod_from(&set.spec.template, &controlled_by(set));
    let labels = &mut pod["metadata"]["labels"];
    labels[HASH] = hash.into();
    let annotations = set.metadata.annotations.as_ref();
    if let Some(generation) = annotations.and_then(|it| it.get(GENERATION_OF_SET)) {
        labels[TEMPLATE_GENERATION] = generation.clone().into();
    }
    // A daemon stays on a node in trouble: it may be the one that helps.
    let tolerated = [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
        ("network-unavailable", "NoSchedule"),
    ];
    let on_host_network = pod["spec"]["hostNetwork"] == true;
    let wanted = if on_host_network { 7 } else { 6 };
    let added = tolerated[..wanted].iter().map(|(condition, effect)| {
        json!({"key": format!("node.kubernetes.io/{condition}"), "operator": "Exists", "effect": effect})
    });
    match pod["spec"]["tolerations"].as_array_mut() {
        Some(tolerations) => {
            for toleration in added {
                if !tolerations.contains(&toleration) {
                    tolerations.push(toleration);
                }
            }
        }
        None => pod["spec"]["tolerations"] = added.collect(),
    }
    pod
}

/// The pod for a node. The controller has checked the node affinity of the template, so only the node's name is left of it.
pub(super) fn for_node(mut pod: Value, node: &str) -> Value {
    let term =
        json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": [term]});
    pod
}

/// Whether pods like this one run on the node: its name, affinity and tolerations decide, not its requests.
pub(super) fn fit(pod: &engine::model::Pod, node: &engine::model::Node) -> Fit {
    let fails = |heeds_no_schedule| {
        let host = Host {
            heeds_no_schedule,
            ..Host::linux(node)
        };
        let failures = kubelet::failures(Applicant::new(pod), host, &[]);
        failures.iter().any(|failure| {
            matches!(
                failure,
                AdmissionFailure::NodeAffinity
                    | AdmissionFailure::NodeName
                    | AdmissionFailure::Taint
            )
        })
    };
    let stays = !fails(false);
    Fit {
        runs: stays && !fails(true),
        stays,
    }
}

pub(super) fn hash_of(pod: &Pod) -> &str {
    let labels = pod.metadata.labels.as_ref();
    labels
        .and_then(|it| it.get(HASH))
        .map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::node;

    #[test]
    fn a_pod_runs_where_its_node_affinity_and_tolerations_allow_it() {
        let set = |spec: Value| -> DaemonSet {
            let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": spec});
            serde_json::from_value(
                json!({"metadata": {"name": "d", "uid": "1"}, "spec": {"template": template}}),
            )
            .unwrap()
        };
        let ssd = set(json!({"containers": [], "nodeSelector": {"disk": "ssd"}}));
        let all = set(json!({"containers": [], "tolerations": [{"operator": "Exists"}]}));
        let huge =
            set(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1k"}}}]}));
        let taint =
            |key: &str, effect: &str| json!({"spec": {"taints": [{"key": key, "effect": effect}]}});
        let (here, nowhere) = (
            Fit {
                runs: true,
                stays: true,
            },
            Fit {
                runs: false,
                stays: false,
            },
        );
        for (case, set, node, want) in [
            (
                "selected",
                &ssd,
                json!({"metadata": {"labels": {"disk": "ssd"}}}),
                here,
            ),
            ("not selected", &ssd, json!({}), nowhere),
            ("requests do not count", &huge, json!({}), here),
            (
                "a cordoned node",
                &huge,
                taint("node.kubernetes.io/unschedulable", "NoSchedule"),
                here,
            ),
            (
                "a silent node",
                &huge,
                taint("node.kubernetes.io/unreachable", "NoExecute"),
                here,
            ),
            (
                "a taint",
                &huge,
                taint("x", "NoSchedule"),
                Fit {
                    runs: false,
                    stays: true,
                },
            ),
            (
                "a taint that evicts",
                &huge,
                taint("x", "NoExecute"),
                nowhere,
            ),
            ("tolerated", &all, taint("x", "NoExecute"), here),
        ] {
            let pod: Pod = serde_json::from_value(pod(set, "h")).unwrap();
            let mut whole = json!({"metadata": {"name": "n"}});
            crate::objects::pod::testing::merge(&mut whole, node);
            let node = node::model(&serde_json::from_value(whole).unwrap()).unwrap();
            assert_eq!(fit(pod.model().unwrap(), &node), want, "{case}");
        }
        let made = for_node(pod(&ssd, "h"), "n1");
        let made: Pod = serde_json::from_value(made).unwrap();
        assert_eq!(made.target_node(), Some("n1"));
        assert_eq!(hash_of(&made), "h");
    }
}
