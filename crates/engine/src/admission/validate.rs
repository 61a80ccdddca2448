//! Judges the final pod, after all plugins and webhooks that change pods.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fields::{
    accounts, annotation, check_shape, containers, describe, label, name, qos_labels,
};
use super::keys::{
    ENHANCEMENTS, KOORDINATOR_BAND, KOORDINATOR_CLASS, LEVEL, LIMIT_RANGER, MEMORY_ENHANCEMENT,
    SUB_PRIORITY,
};
use super::limit_range::needing_limit;
use super::qos_class::{native_users, pod_qos, qos_name};
use super::resources::{Native, ResourceField, check_tier, read};
use super::translate::{check_account, check_pair, foreign_account};
use super::{AdmissionRequest, Refused, owned_keys};
use crate::model::{QosClass, QosLabels, Quantity, TierAccount};
use crate::node::PodQos;

/// What the validating webhook finds in a new pod.
pub fn validate(request: &AdmissionRequest<'_>) -> Result<(), Refused> {
    let pod = request.pod;
    check_shape(pod).map_err(Refused::one)?;
    Refused::unless_empty(owned_keys::faults_of_new(request))?;
    judge(request)
}

/// What it finds in the pod itself, whichever user wrote it.
fn judge(request: &AdmissionRequest<'_>) -> Result<(), Refused> {
    let pod = request.pod;
    let mut faults = enhancement_faults(pod);
    let labels = qos_labels(pod);
    let class = match labels.strict() {
        Ok(class) => class,
        Err(error) => {
            faults.push(format!("{error}; found: {}", describe(&labels)));
            return Err(Refused(faults));
        }
    };
    match labels.account_of(class) {
        Some(account) => faults.extend(tier_faults(pod, class, account)),
        None => {
            let foreign = accounts(pod).into_iter().next();
            faults.extend(foreign.map(|foreign| foreign_account(class, None, foreign)));
        }
    }
    if matches!(labels.koordinator_class, Some("LSE" | "LSR")) {
        faults.extend(core_fault(
            pod,
            labels.koordinator_class.unwrap_or_default(),
        ));
    }
    // Other faults explain a wrong QoS class better.
    if faults.is_empty() {
        faults.extend(row_fault(request, &labels, class));
    }
    Refused::unless_empty(faults)
}

/// What it finds in an update: the class of a pod and how it uses NUMA zones must not change, because the node counts the pod by
/// them already. deploy/policies.yaml has the same rules for the API server.
pub fn validate_update(request: &AdmissionRequest<'_>, old: &Value) -> Result<(), Refused> {
    let new = request.pod;
    check_shape(new).map_err(Refused::one)?;
    let mut faults = owned_keys::faults_of_change(request, old);
    let mut compare = |field: &str, old: Option<&str>, new: Option<&str>| {
        if old != new {
            let show =
                |value: Option<&str>| value.map_or("none".to_owned(), |it| format!("`{it}`"));
            let (old, new) = (show(old), show(new));
            faults.push(format!("{field} is immutable: it was {old}, found {new}"));
        }
    };
    for key in [KOORDINATOR_CLASS, KOORDINATOR_BAND, SUB_PRIORITY] {
        compare(&format!("label {key}"), label(old, key), label(new, key));
    }
    for key in [LEVEL, MEMORY_ENHANCEMENT] {
        compare(
            &format!("annotation {key}"),
            annotation(old, key),
            annotation(new, key),
        );
    }
    compare(
        "spec.priorityClassName",
        old["spec"]["priorityClassName"].as_str(),
        new["spec"]["priorityClassName"].as_str(),
    );
    for key in ENHANCEMENTS {
        if annotation(old, key) != annotation(new, key) {
            faults.extend(enhancement_fault(new, key));
        }
    }
    Refused::unless_empty(faults)?;
    let resources =
        |pod: &Value| -> Vec<Value> { containers(pod).map(|it| it["resources"].clone()).collect() };
    // A pod that was admitted while the webhook was away must stay editable: only a resize is judged again.
    match resources(old) == resources(new) {
        true => Ok(()),
        false => judge(request),
    }
}

fn enhancement_faults(pod: &Value) -> Vec<String> {
    ENHANCEMENTS
        .iter()
        .filter_map(|key| enhancement_fault(pod, key))
        .collect()
}

fn enhancement_fault(pod: &Value, key: &str) -> Option<String> {
    let text = annotation(pod, key)?;
    let parsed = serde_json::from_str::<BTreeMap<String, String>>(text);
    let error = parsed.err()?;
    Some(format!(
        "annotation {key} must be a JSON object of strings, such as {{\"numa_binding\": \"true\"}}: {error}"
    ))
}

fn tier_faults(pod: &Value, class: QosClass, account: TierAccount) -> Vec<String> {
    if let Err(refused) = check_account(pod, class, account) {
        return refused.0;
    }
    let mut faults = Vec::new();
    for container in containers(pod) {
        for native in Native::ALL {
            faults.extend(container_fault(container, class, account, native).err());
        }
    }
    faults
}

fn container_fault(
    container: &Value,
    class: QosClass,
    account: TierAccount,
    native: Native,
) -> Result<(), String> {
    let tier = |kind: ResourceField| {
        let names = container["resources"][kind.field()].as_object();
        let Some(names) = names else { return Ok(None) };
        let resource = native.spelling(account, names);
        let written = read(container, kind, resource)?;
        if let Some(written) = &written {
            check_tier(container, kind, resource, written)?;
        }
        Ok::<_, String>(written)
    };
    let (request, limit) = (tier(ResourceField::Requests)?, tier(ResourceField::Limits)?);
    check_pair(container, native, account, request.as_ref(), limit.as_ref())?;
    let own =
        |kind| Ok::<_, String>(read(container, kind, native.name())?.filter(|it| it.is_positive()));
    let place = || format!("container {}", name(container));
    if let Some(request) = own(ResourceField::Requests)? {
        return Err(format!(
            "{}: requests.{} is {}: a pod of class {class} requests {} instead",
            place(),
            native.name(),
            request.text,
            native.in_account(account)
        ));
    }
    if class == QosClass::MidLatencySensitive && own(ResourceField::Limits)?.is_none() {
        return Err(format!(
            "{} has no limits.{}: a pod of class {class} needs limits.cpu and limits.memory on every container",
            place(),
            native.name()
        ));
    }
    Ok(())
}

/// LSE and LSR pods get whole cores of their own.
fn core_fault(pod: &Value, class: &str) -> Option<String> {
    let total = match cpu_request(pod) {
        Ok(total) => total,
        Err(fault) => return Some(fault),
    };
    if total.is_zero() {
        return Some(format!(
            "a pod of QoS class {class} must request cpu: whole cores are reserved for it"
        ));
    }
    (total.milli() % 1000 != 0 || Quantity::from_milli(total.milli()) != total).then(|| {
        format!(
            "a pod of QoS class {class} must request whole cores, found {}m of cpu in total",
            total.milli()
        )
    })
}

/// What the pod requests of cpu, as the scheduler counts it.
fn cpu_request(pod: &Value) -> Result<Quantity, String> {
    let of = |container: &Value| {
        let written = read(container, ResourceField::Requests, Native::Cpu.name())?;
        Ok::<_, String>(written.map_or(Quantity::ZERO, |it| it.amount))
    };
    let list = |list: &str| pod["spec"][list].as_array().cloned().unwrap_or_default();
    let mut total = Quantity::ZERO;
    for container in &list("containers") {
        total += of(container)?;
    }
    let (mut sidecars, mut most) = (Quantity::ZERO, Quantity::ZERO);
    for container in &list("initContainers") {
        if container["restartPolicy"] == "Always" {
            sidecars += of(container)?;
            total += of(container)?;
            most = most.max(sidecars);
        } else {
            most = most.max(sidecars + of(container)?);
        }
    }
    total = total.max(most);
    let quantity = |value: &Value| match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    };
    if let Some(pod_level) = quantity(&pod["spec"]["resources"]["requests"]["cpu"]) {
        total = pod_level;
    }
    Ok(total + quantity(&pod["spec"]["overhead"]["cpu"]).unwrap_or_default())
}

/// The QoS class must be the one of the pod's row in the panorama.
fn row_fault(
    request: &AdmissionRequest<'_>,
    labels: &QosLabels<'_>,
    class: QosClass,
) -> Option<String> {
    let allowed: &[PodQos] = match (class, labels.koordinator_class) {
        (QosClass::MidLatencySensitive, _) => &[PodQos::Burstable],
        (QosClass::MidBestEffort | QosClass::Lent, _) => &[PodQos::BestEffort],
        (_, Some("LSE" | "LSR")) => &[PodQos::Guaranteed],
        (QosClass::Online, Some("LS")) => &[PodQos::Guaranteed, PodQos::Burstable],
        _ => return None,
    };
    let found = pod_qos(request.pod);
    if allowed.contains(&found) {
        return None;
    }
    let allowed: Vec<&str> = allowed.iter().map(|it| qos_name(*it)).collect();
    let mut fault = format!(
        "the pod's QoS class in Kubernetes is {}, but a pod of class {class} must be {}",
        qos_name(found),
        allowed.join(" or ")
    );
    let filled =
        annotation(request.pod, LIMIT_RANGER).filter(|_| labels.account_of(class).is_some());
    let range = Native::ALL
        .into_iter()
        .find_map(|native| needing_limit(request.limit_ranges, native));
    if let (Some(filled), Some(range)) = (filled, range) {
        fault.push_str(&format!(
            ": LimitRange {} filled in cpu or memory ({filled}); write limits of 0, or remove its defaults",
            range.name
        ));
    } else if found != PodQos::BestEffort {
        let users = native_users(request.pod);
        fault.push_str(&format!("; cpu or memory is set in: {}", users.join(", ")));
    }
    Some(fault)
}
