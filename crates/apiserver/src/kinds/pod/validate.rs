//! What the server refuses in a pod spec, in a pod or in the template of a workload.

use serde_json::{Value, json};

use super::spec::containers;
use crate::fields::{at, is_empty, items, text};
use crate::kinds::quantity::{is_whole, nanos};
use crate::metadata::check_labels;
use crate::names::{dns_label, qualified_name};
use crate::status::FieldError;

mod placement;

pub(in crate::kinds) use placement::check_label_selector;

type Errors = Vec<FieldError>;

pub(super) fn validate_pod(pod: &Value) -> Errors {
    let spec = at(pod, "spec");
    let mut errors = Vec::new();
    check_spec(spec, "spec", &mut errors);
    if !items(spec, "schedulingGates").is_empty() && !text(spec, "nodeName").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden("spec.nodeName", detail));
    }
    errors
}

/// The template of a workload, which stands at `field`.
pub(in crate::kinds) fn validate_template(template: &Value, field: &str) -> Errors {
    let mut errors = Vec::new();
    let labels = format!("{field}.labels");
    check_labels(at(template, "metadata.labels"), &labels, &mut errors);
    check_spec(at(template, "spec"), &format!("{field}.spec"), &mut errors);
    errors
}

/// Resources of a vendor: counted in whole units and never promised twice.
pub(in crate::kinds) fn is_extended(resource: &str) -> bool {
    match resource.split_once('/') {
        Some((domain, _)) => domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"),
        None => false,
    }
}

fn check_spec(spec: &Value, field: &str, errors: &mut Errors) {
    check_volumes(spec, field, errors);
    if items(spec, "containers").is_empty() {
        errors.push(FieldError::required(format!("{field}.containers"), ""));
    }
    let mut names = Vec::new();
    // Upstream checks containers first: a name that an init container repeats is the latter's fault.
    let (main, others): (Vec<_>, Vec<_>) =
        containers(spec).partition(|(list, ..)| *list == "containers");
    for (list, i, container) in main.into_iter().chain(others) {
        let path = || format!("{field}.{list}[{i}]");
        check_container(container, spec, &path, errors);
        let name = text(container, "name");
        if !name.is_empty() && names.contains(&name) {
            errors.push(FieldError::duplicate(
                format!("{}.name", path()),
                &json!(name),
            ));
        }
        names.push(name);
        if list == "initContainers" && text(container, "restartPolicy") != "Always" {
            for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
                if container.get(probe).is_some() {
                    let detail = "may not be set for init containers without restartPolicy=Always";
                    errors.push(FieldError::forbidden(format!("{}.{probe}", path()), detail));
                }
            }
        }
    }
    choice(
        spec,
        field,
        "restartPolicy",
        &["Always", "OnFailure", "Never"],
        errors,
    );
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    choice(spec, field, "dnsPolicy", &policies, errors);
    let deadline = at(spec, "activeDeadlineSeconds");
    if deadline.as_i64().is_some_and(|seconds| seconds < 1) {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(
            format!("{field}.activeDeadlineSeconds"),
            deadline,
            detail,
        ));
    }
    let hostname = text(spec, "hostname");
    if !hostname.is_empty()
        && let Some(problem) = dns_label(hostname)
    {
        errors.push(FieldError::invalid(
            format!("{field}.hostname"),
            &json!(hostname),
            &problem,
        ));
    }
    placement::check(spec, field, errors);
}

fn check_volumes(spec: &Value, field: &str, errors: &mut Errors) {
    let volumes = items(spec, "volumes");
    for (i, volume) in volumes.iter().enumerate() {
        let name = text(volume, "name");
        let path = || format!("{field}.volumes[{i}].name");
        if name.is_empty() {
            errors.push(FieldError::required(path(), ""));
        } else if let Some(problem) = dns_label(name) {
            errors.push(FieldError::invalid(path(), &json!(name), &problem));
        }
        if volumes[..i].iter().any(|other| text(other, "name") == name) {
            errors.push(FieldError::duplicate(path(), &json!(name)));
        }
    }
}

fn check_container(
    container: &Value,
    spec: &Value,
    path: &dyn Fn() -> String,
    errors: &mut Errors,
) {
    let name = text(container, "name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{}.name", path()), ""));
    } else if let Some(problem) = dns_label(name) {
        errors.push(FieldError::invalid(
            format!("{}.name", path()),
            &json!(name),
            &problem,
        ));
    }
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(format!("{}.image", path()), ""));
    }
    let policy = at(container, "imagePullPolicy");
    let policies = ["Always", "IfNotPresent", "Never"];
    if policy
        .as_str()
        .is_some_and(|policy| !policies.contains(&policy))
    {
        errors.push(FieldError::not_supported(
            format!("{}.imagePullPolicy", path()),
            policy,
            &policies,
        ));
    }
    for (i, port) in items(container, "ports").iter().enumerate() {
        check_port(port, &|| format!("{}.ports[{i}]", path()), errors);
    }
    for (i, variable) in items(container, "env").iter().enumerate() {
        if text(variable, "name").is_empty() {
            errors.push(FieldError::required(
                format!("{}.env[{i}].name", path()),
                "",
            ));
        }
    }
    for (i, mount) in items(container, "volumeMounts").iter().enumerate() {
        let mounted = text(mount, "name");
        if !items(spec, "volumes")
            .iter()
            .any(|volume| text(volume, "name") == mounted)
        {
            errors.push(FieldError::not_found(
                format!("{}.volumeMounts[{i}].name", path()),
                &json!(mounted),
            ));
        }
        if text(mount, "mountPath").is_empty() {
            errors.push(FieldError::required(
                format!("{}.volumeMounts[{i}].mountPath", path()),
                "",
            ));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let found = at(container, probe);
        let handlers = ["exec", "httpGet", "tcpSocket", "grpc"];
        if found.is_object() && !handlers.iter().any(|handler| found.get(handler).is_some()) {
            let detail = "must specify a handler type";
            errors.push(FieldError::required(format!("{}.{probe}", path()), detail));
        }
    }
    check_resources(
        at(container, "resources"),
        &|| format!("{}.resources", path()),
        errors,
    );
}

fn check_port(port: &Value, path: &dyn Fn() -> String, errors: &mut Errors) {
    let number = at(port, "containerPort");
    match number.as_i64().unwrap_or_default() {
        0 => errors.push(FieldError::required(
            format!("{}.containerPort", path()),
            "",
        )),
        1..=65535 => {}
        _ => {
            let detail = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(
                format!("{}.containerPort", path()),
                number,
                detail,
            ));
        }
    }
    choice_at(port, "protocol", &["SCTP", "TCP", "UDP"], path, errors);
}

fn check_resources(resources: &Value, path: &dyn Fn() -> String, errors: &mut Errors) {
    let limits = at(resources, "limits");
    for side in ["limits", "requests"] {
        for (name, amount) in at(resources, side).as_object().into_iter().flatten() {
            let field = || format!("{}.{side}[{name}]", path());
            check_resource_name(name, &field, errors);
            let value = amount.as_str().unwrap_or_default();
            if nanos(value).is_some_and(|amount| amount < 0) {
                errors.push(FieldError::invalid(
                    field(),
                    amount,
                    "must be greater than or equal to 0",
                ));
            }
            if is_extended(name) && !is_whole(value) {
                errors.push(FieldError::invalid(field(), amount, "must be an integer"));
            }
        }
    }
    for (name, request) in at(resources, "requests").as_object().into_iter().flatten() {
        let exact = is_extended(name) || name.starts_with("hugepages-");
        let Some(limit) = limits.get(name) else {
            if exact {
                let detail = "Limit must be set for non overcommitable resources";
                errors.push(FieldError::required(format!("{}.limits", path()), detail));
            }
            continue;
        };
        let amount = |value: &Value| nanos(value.as_str().unwrap_or_default());
        let detail = match (amount(request), amount(limit)) {
            (Some(request), Some(limit)) if exact && request != limit => "must be equal to",
            (Some(request), Some(limit)) if request > limit => "must be less than or equal to",
            _ => continue,
        };
        let detail = format!(
            "{detail} {name} limit of {}",
            limit.as_str().unwrap_or_default()
        );
        errors.push(FieldError::invalid(
            format!("{}.requests", path()),
            request,
            &detail,
        ));
    }
}

fn check_resource_name(name: &str, field: &dyn Fn() -> String, errors: &mut Errors) {
    let standard =
        ["cpu", "memory", "ephemeral-storage"].contains(&name) || name.starts_with("hugepages-");
    if standard {
        return;
    }
    if let Some(problem) = qualified_name(name) {
        errors.push(FieldError::invalid(field(), &json!(name), &problem));
    } else if !name.contains('/') {
        for detail in [
            "must be a standard resource type or fully qualified",
            "must be a standard resource for containers",
        ] {
            errors.push(FieldError::invalid(field(), &json!(name), detail));
        }
    }
}

/// A field that takes one of a few words.
fn choice(object: &Value, path: &str, field: &str, words: &[&str], errors: &mut Errors) {
    choice_at(object, field, words, &|| path.to_owned(), errors);
}

fn choice_at(
    object: &Value,
    field: &str,
    words: &[&str],
    path: &dyn Fn() -> String,
    errors: &mut Errors,
) {
    let value = at(object, field);
    if !is_empty(value) && !words.contains(&value.as_str().unwrap_or_default()) {
        errors.push(FieldError::not_supported(
            format!("{}.{field}", path()),
            value,
            words,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(spec: Value) -> Vec<String> {
        let errors = validate_pod(&json!({"spec": spec}));
        errors
            .iter()
            .map(|e| format!("{}: {}", e.field, e.message))
            .collect()
    }

    fn container(change: Value) -> Value {
        let mut container = json!({"name": "c", "image": "i"});
        for (key, value) in change.as_object().unwrap() {
            container[key] = value.clone();
        }
        json!({"containers": [container]})
    }

    #[test]
    fn what_a_container_must_say() {
        for (spec, want) in [
            (json!({}), "spec.containers: Required value"),
            (
                json!({"containers": [{"image": "i"}]}),
                "spec.containers[0].name: Required value",
            ),
            (
                json!({"containers": [{"name": "c"}]}),
                "spec.containers[0].image: Required value",
            ),
            (
                json!({"containers": [{"name": "c", "image": "i"}], "initContainers": [{"name": "c", "image": "i"}]}),
                "spec.initContainers[0].name: Duplicate value: \"c\"",
            ),
            (
                container(json!({"imagePullPolicy": "Foo"})),
                "spec.containers[0].imagePullPolicy: Unsupported value: \"Foo\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
            ),
            (
                container(json!({"ports": [{}]})),
                "spec.containers[0].ports[0].containerPort: Required value",
            ),
            (
                container(json!({"volumeMounts": [{"name": "v", "mountPath": "/x"}]})),
                "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
            ),
            (
                container(json!({"livenessProbe": {}})),
                "spec.containers[0].livenessProbe: Required value: must specify a handler type",
            ),
        ] {
            assert_eq!(messages(spec), [want]);
        }
        assert_eq!(messages(container(json!({}))), [""; 0]);
    }

    #[test]
    fn what_resources_must_be() {
        for (resources, want) in [
            (
                json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
                "requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
            ),
            (
                json!({"requests": {"x.io/gpu": "2"}}),
                "limits: Required value: Limit must be set for non overcommitable resources",
            ),
            (
                json!({"requests": {"x.io/gpu": "1"}, "limits": {"x.io/gpu": "2"}}),
                "requests: Invalid value: \"1\": must be equal to x.io/gpu limit of 2",
            ),
            (
                json!({"limits": {"x.io/gpu": "1500m"}}),
                "limits[x.io/gpu]: Invalid value: \"1500m\": must be an integer",
            ),
            (
                json!({"limits": {"cpu": "-1"}}),
                "limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
            ),
            (
                json!({"limits": {"gpu": "1"}}),
                "limits[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully qualified",
            ),
        ] {
            let found = messages(container(json!({"resources": resources})));
            assert_eq!(found[0], format!("spec.containers[0].resources.{want}"));
        }
    }

    #[test]
    fn a_template_is_named_in_full() {
        let errors = validate_template(&json!({}), "spec.template");
        assert_eq!(errors[0].field, "spec.template.spec.containers");
    }

    #[test]
    fn vendors_own_their_domains() {
        for (resource, extended) in [
            ("x.io/gpu", true),
            ("cpu", false),
            ("kubernetes.io/x", false),
            ("a.kubernetes.io/x", false),
        ] {
            assert_eq!(is_extended(resource), extended, "{resource}");
        }
    }
}
