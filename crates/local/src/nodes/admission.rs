//! Whether a node admits a pod that was bound to it, as its kubelet would decide. The engine decides; this translates.
//!
//! For a critical pod, a real kubelet preempts by QoS class and size; here the lowest priority is preempted first.

use std::{cmp::Reverse, sync::Arc};

use engine::binding::kubelet::{self, Admission, Applicant, CRITICAL_PRIORITY, Host};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use reconcile::true_condition;
use serde_json::{Value, json};

use super::pod_lifecycle;
use crate::objects::{Pod, node};

/// The reason when the kubelet cannot decide or cannot preempt.
const UNEXPECTED: &str = "UnexpectedAdmissionError";
/// The exit code of a killed container.
const KILLED: i32 = 137;
/// Annotation of the API object of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

#[derive(Debug)]
pub(super) enum Decision {
    Admit,
    /// The pod is critical: these are preempted first.
    Preempt(Vec<Arc<Pod>>),
    Reject {
        reason: String,
        message: String,
    },
}

/// What the kubelet of `node` does with a pod, given the pods that it has admitted already.
pub(super) fn decide(pod: &Pod, node: &Node, others: Vec<Arc<Pod>>) -> Decision {
    let reject = |reason: &str, message: String| Decision::Reject {
        reason: reason.to_owned(),
        message,
    };
    let (model, machine) = match (pod.model(), node::model(node)) {
        (Ok(model), Ok(node)) => (model, node),
        (Err(error), _) => return reject(UNEXPECTED, error.to_string()),
        (_, Err(error)) => return reject(UNEXPECTED, error.to_string()),
    };
    let applicant = Applicant {
        pod: model,
        os: Some(pod.spec.os.name.as_str()).filter(|os| !os.is_empty()),
        strict_groups: pod.spec.security_context.supplemental_groups_policy == "Strict",
        is_static: pod.annotation(MIRROR).is_some(),
    };
    let status = node.status.as_ref();
    let info = status.and_then(|status| status.node_info.as_ref());
    let host = Host {
        os: info.map_or("linux", |info| &info.operating_system),
        ..Host::linux(&machine)
    };
    let admit = |others: &[Arc<Pod>]| {
        let others: Vec<_> = others.iter().filter_map(|pod| pod.model().ok()).collect();
        let others: Vec<_> = others.iter().map(|pod| &***pod).collect();
        kubelet::admit(applicant, host, &others)
    };
    match admit(&others) {
        Admission::Admitted => Decision::Admit,
        Admission::Rejected(failure) => reject(&failure.reason(), failure.to_string()),
        Admission::MakeRoom(_) => match victims(pod, others, |rest| admit(rest)) {
            Some(victims) => Decision::Preempt(victims),
            None => {
                let message =
                    "no set of running pods found to reclaim resources for a critical pod";
                reject(UNEXPECTED, message.to_owned())
            }
        },
    }
}

/// The pods of lower priority that must go so that the pod is admitted, and no more than needed.
fn victims(
    pod: &Pod,
    mut others: Vec<Arc<Pod>>,
    admit: impl Fn(&[Arc<Pod>]) -> Admission,
) -> Option<Vec<Arc<Pod>>> {
    let may_go = |other: &Pod| {
        let priority = other.spec.priority;
        priority < pod.spec.priority
            || (priority < CRITICAL_PRIORITY && other.annotation(MIRROR).is_none())
    };
    // The last one goes first: the lowest priority, and of those the youngest.
    others.sort_by_key(|other| {
        let created = other.metadata.creation_timestamp.as_ref();
        let created = created.map(|time| time.0);
        (!may_go(other), other.spec.priority, Reverse(created))
    });
    others.reverse();
    let mut victims = Vec::new();
    while admit(&others) != Admission::Admitted {
        let last = others.pop().filter(|last| may_go(last))?;
        victims.push(last);
    }
    // A pod whose removal did not help stays.
    let needed = victims.len();
    for at in (0..needed).rev() {
        others.push(victims[at].clone());
        if admit(&others) == Admission::Admitted {
            victims.remove(at);
        } else {
            others.pop();
        }
    }
    Some(victims)
}

/// The status of a rejected pod.
pub(super) fn rejected(reason: &str, message: &str, now: Timestamp) -> Value {
    json!({
        "phase": "Failed", "reason": reason, "startTime": Time(now),
        "message": format!("Pod was rejected: {message}"),
    })
}

/// The status of a pod that was preempted for a critical one.
pub(super) fn preempted(pod: &Pod, now: Timestamp) -> Value {
    let mut status = pod_lifecycle::ended(pod, KILLED, now);
    status["reason"] = "Preempting".into();
    status["message"] = "Preempted in order to admit critical pod".into();
    if let Some(conditions) = status["conditions"].as_array_mut() {
        let message = "Pod was preempted by Kubelet to accommodate a critical pod.";
        conditions.push(true_condition(
            "DisruptionTarget",
            "TerminationByKubelet",
            message,
        ));
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::pod::testing::pod;

    fn node() -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"zone": "a"}},
            "spec": {"taints": [{"key": "old", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3"}},
        }))
        .unwrap()
    }

    fn asking(name: &str, cpu: &str, priority: i32) -> Arc<Pod> {
        let requests = json!({"cpu": cpu, "example.com/unknown": "9"});
        Arc::new(pod(
            name,
            json!({"spec": {"nodeName": "n", "priority": priority, "containers": [
                {"name": "main", "image": "i", "resources": {"requests": requests}},
            ]}}),
        ))
    }

    /// `admit`, `evict` and the names, or the reason and the message.
    fn text(decision: Decision) -> String {
        match decision {
            Decision::Admit => "admit".into(),
            Decision::Preempt(pods) => {
                let names: Vec<_> = pods.iter().map(|pod| pod.name()).collect();
                format!("evict {}", names.join(" "))
            }
            Decision::Reject { reason, message } => format!("{reason}: {message}"),
        }
    }

    #[test]
    fn a_pod_that_does_not_fit_is_rejected_with_the_kubelets_message() {
        let elsewhere = pod(
            "p",
            json!({"spec": {"nodeName": "n", "nodeSelector": {"zone": "b"}}}),
        );
        let windows = pod(
            "p",
            json!({"spec": {"nodeName": "n", "os": {"name": "windows"}}}),
        );
        let unreadable = asking("p", "lots", 0);
        for (case, pod, others, want) in [
            (
                "there is room, and nobody counts unknown resources",
                &*asking("p", "2", 0),
                vec![],
                "admit",
            ),
            (
                "no room",
                &asking("p", "1", 0),
                vec![asking("o", "1500m", 0)],
                "OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000",
            ),
            (
                "wrong node",
                &elsewhere,
                vec![],
                "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            ),
            (
                "wrong system",
                &windows,
                vec![],
                "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS",
            ),
            (
                "no number",
                &unreadable,
                vec![],
                "UnexpectedAdmissionError: pod ns/p: cpu of spec.containers: `lots` is not a quantity",
            ),
        ] {
            let got = text(decide(pod, &node(), others));
            assert!(got.starts_with(want), "{case}: {got}");
        }
    }

    #[test]
    fn the_pods_of_lowest_priority_are_preempted_for_a_critical_one() {
        let critical = |cpu| asking("p", cpu, CRITICAL_PRIORITY);
        let full = || {
            vec![
                asking("low", "500m", 1),
                asking("tiny", "0", 0),
                asking("mid", "1500m", 5),
            ]
        };
        for (case, pod, others, want) in [
            (
                "one is enough",
                critical("500m"),
                full()[..1].to_vec(),
                "admit",
            ),
            ("the lowest", critical("400m"), full(), "evict low"),
            ("the lowest two", critical("1900m"), full(), "evict low mid"),
            (
                "too large for the node",
                critical("3"),
                full(),
                "UnexpectedAdmissionError: no set of running pods found to reclaim resources for a critical pod",
            ),
        ] {
            assert_eq!(text(decide(&pod, &node(), others)), want, "{case}");
        }
        let others = vec![asking("o", "2", CRITICAL_PRIORITY)];
        let got = text(decide(&critical("1"), &node(), others));
        assert!(got.starts_with(UNEXPECTED), "its equals stay: {got}");
    }
}
