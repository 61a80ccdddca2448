//! The QoS class that the API server and the kubelet give a pod.

use serde_json::Value;

use super::MOST_SHOWN;
use super::fields::{CONTAINER_LISTS, containers};
use super::resources::Native;
use crate::model::Quantity;
use crate::node::PodQos;

/// As Kubernetes computes it. A quantity that does not parse counts as none.
pub fn pod_qos(pod: &Value) -> PodQos {
    let pod_level = &pod["spec"]["resources"];
    let amounts = |resources: &Value, list: &str| {
        Native::ALL.map(|native| {
            let text = match &resources[list][native.name()] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let amount = Quantity::parse(&text).unwrap_or_default();
            (amount > Quantity::ZERO).then_some(amount)
        })
    };
    let mut requests = [None; 2];
    let mut limits = [None; 2];
    let mut has_all_limits = true;
    let add = |sums: &mut [Option<Quantity>; 2], more: [Option<Quantity>; 2]| {
        for (sum, amount) in sums.iter_mut().zip(more) {
            if let Some(amount) = amount {
                *sum = Some(sum.unwrap_or_default() + amount);
            }
        }
    };
    let mut count = |resources: &Value, needs_limits: bool| {
        let of_limits = amounts(resources, "limits");
        add(&mut requests, amounts(resources, "requests"));
        add(&mut limits, of_limits);
        has_all_limits &= !needs_limits || of_limits.iter().all(Option::is_some);
    };
    if pod_level.is_object() {
        let has_limits = pod_level["limits"]
            .as_object()
            .is_some_and(|limits| !limits.is_empty());
        count(pod_level, has_limits);
    } else {
        containers(pod).for_each(|container| count(&container["resources"], true));
    }
    match (requests, limits) {
        ([None, None], [None, None]) => PodQos::BestEffort,
        (requests, limits) if has_all_limits && requests == limits => PodQos::Guaranteed,
        _ => PodQos::Burstable,
    }
}

/// Its name in Kubernetes.
pub(super) fn qos_name(qos: PodQos) -> &'static str {
    match qos {
        PodQos::Guaranteed => "Guaranteed",
        PodQos::Burstable => "Burstable",
        PodQos::BestEffort => "BestEffort",
    }
}

/// The containers that have something above 0 of cpu or memory, for messages.
pub(super) fn native_users(pod: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for list in CONTAINER_LISTS {
        for container in pod["spec"][list].as_array().into_iter().flatten() {
            let of_one = serde_json::json!({"spec": {"containers": [container]}});
            if pod_qos(&of_one) != PodQos::BestEffort {
                found.push(super::fields::name(container).to_owned());
            }
        }
    }
    let more = found.len().saturating_sub(MOST_SHOWN);
    if more > 0 {
        found.truncate(MOST_SHOWN);
        found.push(format!("and {more} more"));
    }
    found
}
