//! LimitRanges: their defaults for containers, and the minimum, maximum and ratio that pods and claims must keep to.
//!
//! kube-apiserver sets the defaults before it calls webhooks, again after a webhook changed the pod, and checks the
//! rest on the valid pod.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::kind::Lookup;
use super::quantity::{self, nanos};
use crate::objects::fields::{JsonObject, at, each, inside, is_empty, items, open, text};
use crate::objects::status::{FieldError, Status};

mod amounts;
mod check;

use amounts::{Amounts, of_pod};
pub(super) use check::check;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// The unit of a quantity, in the unit of [`nanos`].
const ONE: i128 = 1_000_000_000;

fn in_namespace(object: &Value, others: &dyn Lookup) -> Vec<std::sync::Arc<Value>> {
    others.list("", "limitranges", text(object, "metadata.namespace"))
}

/// Limits of containers: the maximum is the default limit, and a default limit or a minimum the default request.
pub(super) fn default(object: &mut JsonObject) {
    let Some(spec) = inside(object, "spec") else {
        return;
    };
    for limit in each(spec, "limits") {
        if limit.get("type").is_none_or(|kind| kind != "Container") {
            continue;
        }
        for (from, to) in [
            ("max", "default"),
            ("default", "defaultRequest"),
            ("min", "defaultRequest"),
        ] {
            let Some(Value::Object(amounts)) = limit.get(from).cloned() else {
                continue;
            };
            let filled = open(limit, to);
            for (resource, amount) in amounts {
                filled.entry(resource).or_insert(amount);
            }
        }
    }
}

/// Sets the default requests and limits of a new pod, and names them in an annotation.
pub(super) fn set_defaults(pod: &mut Value, others: &dyn Lookup) {
    for range in in_namespace(pod, others) {
        let mut defaults = json!({"requests": {}, "limits": {}});
        for limit in items(&range, "spec.limits") {
            if text(limit, "type") != "Container" {
                continue;
            }
            for (from, to) in [("defaultRequest", "requests"), ("default", "limits")] {
                for (resource, amount) in at(limit, from).as_object().into_iter().flatten() {
                    defaults[to][resource] = amount.clone();
                }
            }
        }
        let Some(fields) = pod.as_object_mut() else {
            return;
        };
        let mut set = Vec::new();
        if let Some(spec) = inside(fields, "spec") {
            for (list, called) in [
                ("containers", "container"),
                ("initContainers", "init container"),
            ] {
                for container in each(spec, list) {
                    set.extend(set_in_container(container, &defaults, called));
                }
            }
        }
        if !set.is_empty() {
            let note = format!("LimitRanger plugin set: {}", set.join("; "));
            open(open(fields, "metadata"), "annotations").insert(ANNOTATION.into(), note.into());
        }
    }
}

/// What was set, requests first: `cpu, memory request for container c`.
fn set_in_container(container: &mut JsonObject, defaults: &Value, called: &str) -> Vec<String> {
    let name = container.get("name").and_then(Value::as_str);
    let name = name.unwrap_or_default().to_owned();
    let mut notes = Vec::new();
    for (side, what) in [("requests", "request"), ("limits", "limit")] {
        let Some(amounts) = defaults[side].as_object().filter(|map| !map.is_empty()) else {
            continue;
        };
        let given = open(open(container, "resources"), side);
        let mut set: Vec<&str> = Vec::new();
        for (resource, amount) in amounts {
            if !given.contains_key(resource) {
                given.insert(resource.clone(), amount.clone());
                set.push(resource);
            }
        }
        if !set.is_empty() {
            set.sort_unstable();
            notes.push(format!("{} {what} for {called} {name}", set.join(", ")));
        }
    }
    notes
}

/// Whether a pod keeps to the limits of its namespace.
pub(super) fn check_pod(pod: &Value, others: &dyn Lookup) -> Result<(), Status> {
    for range in in_namespace(pod, others) {
        let mut found = Vec::new();
        for limit in items(&range, "spec.limits") {
            match text(limit, "type") {
                "Container" => {
                    let containers = items(pod, "spec.containers").iter();
                    for container in containers.chain(items(pod, "spec.initContainers")) {
                        let resources = at(container, "resources");
                        let requests = Amounts::read(at(resources, "requests"));
                        let limits = Amounts::read(at(resources, "limits"));
                        compare(limit, &requests, &limits, &mut found);
                    }
                }
                "Pod" => {
                    let spec = at(pod, "spec");
                    let (requests, limits) = (of_pod(spec, "requests"), of_pod(spec, "limits"));
                    compare(limit, &requests, &limits, &mut found);
                }
                _ => {}
            }
        }
        refuse("pods", pod, found)?;
    }
    Ok(())
}

/// Whether a claim keeps to the limits of its namespace.
pub(super) fn check_claim(claim: &Value, others: &dyn Lookup) -> Result<(), Status> {
    let requests = Amounts::read(at(claim, "spec.resources.requests"));
    for range in in_namespace(claim, others) {
        let mut found = Vec::new();
        for limit in items(&range, "spec.limits") {
            let kind = text(limit, "type");
            if kind != "PersistentVolumeClaim" {
                continue;
            }
            each_amount(limit, "min", |resource, bound| {
                found.extend(below(kind, resource, bound, &requests, &Amounts::default()));
            });
            each_amount(limit, "max", |resource, bound| {
                let says = format!("maximum {resource} usage per {kind} is {bound}");
                match requests.get(resource) {
                    None => found.push(format!("{says}.  No request is specified")),
                    Some(request) if Some(request) > nanos(bound) => {
                        found.push(format!(
                            "{says}, but request is {}",
                            requests.text(resource)
                        ));
                    }
                    Some(_) => {}
                }
            });
        }
        refuse("persistentvolumeclaims", claim, found)?;
    }
    Ok(())
}

fn refuse(plural: &str, object: &Value, mut found: Vec<String>) -> Result<(), Status> {
    // Errors of Go are joined so, each text once.
    let mut seen = Vec::new();
    found.retain(|text| {
        !seen.contains(text) && {
            seen.push(text.clone());
            true
        }
    });
    let why = match found.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    let name = text(object, "metadata.name");
    Err(Status::forbidden("", plural, name, why))
}

fn each_amount(limit: &Value, field: &str, mut act: impl FnMut(&str, &str)) {
    for (resource, amount) in at(limit, field).as_object().into_iter().flatten() {
        act(resource, amount.as_str().unwrap_or_default());
    }
}

fn compare(limit: &Value, requests: &Amounts, limits: &Amounts, found: &mut Vec<String>) {
    let kind = text(limit, "type");
    each_amount(limit, "min", |resource, bound| {
        found.extend(below(kind, resource, bound, requests, limits));
    });
    each_amount(limit, "max", |resource, bound| {
        found.extend(above(kind, resource, bound, requests, limits));
    });
    each_amount(limit, "maxLimitRequestRatio", |resource, bound| {
        found.extend(ratio(kind, resource, bound, requests, limits));
    });
}

fn below(
    kind: &str,
    resource: &str,
    bound: &str,
    requests: &Amounts,
    limits: &Amounts,
) -> Option<String> {
    let least = nanos(bound)?;
    let says = format!("minimum {resource} usage per {kind} is {bound}");
    let Some(request) = requests.get(resource) else {
        return Some(format!("{says}.  No request is specified"));
    };
    if request < least {
        return Some(format!(
            "{says}, but request is {}",
            requests.text(resource)
        ));
    }
    let limit = limits.get(resource).filter(|limit| *limit < least);
    limit.map(|_| format!("{says}, but limit is {}", limits.text(resource)))
}

fn above(
    kind: &str,
    resource: &str,
    bound: &str,
    requests: &Amounts,
    limits: &Amounts,
) -> Option<String> {
    let most = nanos(bound)?;
    let says = format!("maximum {resource} usage per {kind} is {bound}");
    let Some(limit) = limits.get(resource) else {
        return Some(format!("{says}.  No limit is specified"));
    };
    if limit > most {
        return Some(format!("{says}, but limit is {}", limits.text(resource)));
    }
    let request = requests.get(resource).filter(|request| *request > most);
    request.map(|_| format!("{says}, but request is {}", requests.text(resource)))
}

fn ratio(
    kind: &str,
    resource: &str,
    bound: &str,
    requests: &Amounts,
    limits: &Amounts,
) -> Option<String> {
    let says = format!("{resource} max limit to request ratio per {kind} is {bound}");
    let given = |amounts: &Amounts| amounts.get(resource).filter(|amount| *amount != 0);
    let Some(request) = given(requests) else {
        return Some(format!(
            "{says}, but no request is specified or request is 0"
        ));
    };
    let Some(limit) = given(limits) else {
        return Some(format!("{says}, but no limit is specified or limit is 0"));
    };
    let observed = limit as f64 / request as f64;
    let most = nanos(bound)? as f64 / ONE as f64;
    (observed > most).then(|| format!("{says}, but provided ratio is {observed:.6}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Ranges(Vec<Value>);

    impl Lookup for Ranges {
        fn get(&self, _: &str, _: &str, _: &str, _: &str) -> Option<Arc<Value>> {
            None
        }
        fn list(&self, _: &str, _: &str, _: &str) -> Vec<Arc<Value>> {
            let range = |limit: &Value| Arc::new(json!({"spec": {"limits": [limit]}}));
            self.0.iter().map(range).collect()
        }
    }

    fn pod(resources: Value) -> Value {
        let spec = json!({"containers": [{"name": "c", "resources": resources}]});
        json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec})
    }

    #[test]
    fn limits_of_containers_get_defaults() {
        let mut object = json!({"spec": {"limits": [
            {"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1", "memory": "1Mi"}, "defaultRequest": {"cpu": "500m"}},
            {"type": "Pod", "max": {"cpu": "2"}},
        ]}});
        default(object.as_object_mut().unwrap());
        let limits = &object["spec"]["limits"];
        assert_eq!(limits[0]["default"], json!({"cpu": "2"}));
        let requests = json!({"cpu": "500m", "memory": "1Mi"});
        assert_eq!(limits[0]["defaultRequest"], requests);
        assert_eq!(limits[1], json!({"type": "Pod", "max": {"cpu": "2"}}));
    }

    #[test]
    fn a_pod_gets_what_it_lacks_and_a_note_about_it() {
        let ranges = Ranges(vec![json!({
            "type": "Container", "default": {"memory": "1Gi", "cpu": "2"}, "defaultRequest": {"cpu": "1"},
        })]);
        let mut pod = pod(json!({"limits": {"cpu": "0"}}));
        set_defaults(&mut pod, &ranges);
        let container = &pod["spec"]["containers"][0];
        let want = json!({"limits": {"cpu": "0", "memory": "1Gi"}, "requests": {"cpu": "1"}});
        assert_eq!(container["resources"], want);
        let note = &pod["metadata"]["annotations"][ANNOTATION];
        let want =
            "LimitRanger plugin set: cpu request for container c; memory limit for container c";
        assert_eq!(note, want);
        let first = pod.clone();
        set_defaults(&mut pod, &ranges);
        assert_eq!(pod, first);
    }

    #[test]
    fn a_pod_out_of_bounds_is_refused() {
        let bounds = |field: &str| json!({"type": "Container", field: {"cpu": "1"}});
        for (limit, resources, want) in [
            (
                bounds("min"),
                json!({}),
                "minimum cpu usage per Container is 1.  No request is specified",
            ),
            (
                bounds("min"),
                json!({"requests": {"cpu": "500m"}}),
                "minimum cpu usage per Container is 1, but request is 500m",
            ),
            (
                bounds("max"),
                json!({}),
                "maximum cpu usage per Container is 1.  No limit is specified",
            ),
            (
                bounds("max"),
                json!({"limits": {"cpu": "2"}}),
                "maximum cpu usage per Container is 1, but limit is 2",
            ),
            (
                bounds("maxLimitRequestRatio"),
                json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1500m"}}),
                "cpu max limit to request ratio per Container is 1, but provided ratio is 1.500000",
            ),
            (
                bounds("maxLimitRequestRatio"),
                json!({"requests": {"cpu": "0"}}),
                "cpu max limit to request ratio per Container is 1, but no request is specified or request is 0",
            ),
        ] {
            let refused = check_pod(&pod(resources), &Ranges(vec![limit])).unwrap_err();
            assert_eq!(refused.message, format!("pods \"p\" is forbidden: {want}"));
        }
        let within = pod(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}));
        let all = ["min", "max", "maxLimitRequestRatio"].map(bounds);
        assert_eq!(check_pod(&within, &Ranges(all.into())), Ok(()));
    }

    #[test]
    fn a_claim_out_of_bounds_is_refused() {
        let limit = json!({"type": "PersistentVolumeClaim", "min": {"storage": "2Gi"}, "max": {"storage": "4Gi"}});
        let ranges = Ranges(vec![limit]);
        for (amount, want) in [
            (
                "1Gi",
                Some("minimum storage usage per PersistentVolumeClaim is 2Gi, but request is 1Gi"),
            ),
            ("3Gi", None),
            (
                "5Gi",
                Some("maximum storage usage per PersistentVolumeClaim is 4Gi, but request is 5Gi"),
            ),
        ] {
            let spec = json!({"resources": {"requests": {"storage": amount}}});
            let claim = json!({"metadata": {"name": "c"}, "spec": spec});
            let refused = check_claim(&claim, &ranges)
                .err()
                .map(|status| status.message);
            let want = want.map(|why| format!("persistentvolumeclaims \"c\" is forbidden: {why}"));
            assert_eq!(refused, want);
        }
    }
}
