//! Containers: image, ports, environment, mounts, probes and resources.

use serde_json::{Value, json};

use super::choice;
use crate::kinds::quantity::{is_whole, nanos};
use crate::objects::fields::{at, is_empty, items, text};
use crate::objects::names::{dns_label, port_name, qualified_name};
use crate::objects::status::{FieldError, FieldErrors};

const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];
const HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

/// Extended resources: whole units, without overcommitment.
pub(in crate::kinds) fn is_extended(resource: &str) -> bool {
    match resource.split_once('/') {
        Some((domain, _)) => domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"),
        None => false,
    }
}

pub(super) fn check(
    found: &Value,
    spec: &Value,
    path: &dyn Fn() -> String,
    errors: &mut FieldErrors,
) {
    let field = |name: &str| format!("{}.{name}", path());
    let name = text(found, "name");
    if name.is_empty() {
        errors.push(FieldError::required(field("name"), ""));
    } else if let Some(problem) = dns_label(name) {
        errors.push(FieldError::invalid(field("name"), &json!(name), &problem));
    }
    if text(found, "image").is_empty() {
        errors.push(FieldError::required(field("image"), ""));
    }
    choice(
        found,
        "imagePullPolicy",
        &["Always", "IfNotPresent", "Never"],
        path,
        errors,
    );
    check_ports(items(found, "ports"), path, errors);
    for (i, variable) in items(found, "env").iter().enumerate() {
        check_variable(variable, &|| format!("{}.env[{i}]", path()), errors);
    }
    for (i, mount) in items(found, "volumeMounts").iter().enumerate() {
        let mounted = text(mount, "name");
        let known = |volume: &Value| text(volume, "name") == mounted;
        if !items(spec, "volumes").iter().any(known) {
            let field = format!("{}.volumeMounts[{i}].name", path());
            errors.push(FieldError::not_found(field, &json!(mounted)));
        }
        if text(mount, "mountPath").is_empty() {
            errors.push(FieldError::required(
                format!("{}.volumeMounts[{i}].mountPath", path()),
                "",
            ));
        }
    }
    for probe in PROBES {
        if let Some(found) = found.get(probe) {
            check_probe(found, &|| format!("{}.{probe}", path()), errors);
        }
    }
    check_resources(
        at(found, "resources"),
        &|| format!("{}.resources", path()),
        errors,
    );
}

/// Only restartable init containers have probes.
pub(super) fn check_init(found: &Value, path: &dyn Fn() -> String, errors: &mut FieldErrors) {
    for probe in PROBES {
        if found.get(probe).is_some() {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.push(FieldError::forbidden(format!("{}.{probe}", path()), detail));
        }
    }
}

fn check_ports(ports: &[Value], path: &dyn Fn() -> String, errors: &mut FieldErrors) {
    for (i, port) in ports.iter().enumerate() {
        let field = |name: &str| format!("{}.ports[{i}].{name}", path());
        let name = text(port, "name");
        if !name.is_empty() {
            for problem in port_name(name) {
                errors.push(FieldError::invalid(field("name"), &json!(name), problem));
            }
            if ports[..i].iter().any(|other| text(other, "name") == name) {
                errors.push(FieldError::duplicate(field("name"), &json!(name)));
            }
        }
        let number = at(port, "containerPort");
        match number.as_i64().unwrap_or_default() {
            0 => errors.push(FieldError::required(field("containerPort"), "")),
            1..=65535 => {}
            _ => errors.push(FieldError::invalid(
                field("containerPort"),
                number,
                PORT_RANGE,
            )),
        }
        let on_host = at(port, "hostPort");
        if on_host
            .as_i64()
            .is_some_and(|number| !(0..=65535).contains(&number))
        {
            errors.push(FieldError::invalid(field("hostPort"), on_host, PORT_RANGE));
        }
        let here = || format!("{}.ports[{i}]", path());
        choice(port, "protocol", &["SCTP", "TCP", "UDP"], &here, errors);
    }
}

fn check_variable(variable: &Value, path: &dyn Fn() -> String, errors: &mut FieldErrors) {
    let name = text(variable, "name");
    let printable = |c: char| (c.is_ascii_graphic() || c == ' ') && c != '=';
    if name.is_empty() {
        errors.push(FieldError::required(format!("{}.name", path()), ""));
    } else if !name.chars().all(printable) {
        let detail = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        errors.push(FieldError::invalid(
            format!("{}.name", path()),
            &json!(name),
            detail,
        ));
    }
    let source = at(variable, "valueFrom");
    if source.is_object() && !is_empty(at(variable, "value")) {
        let detail = "may not be specified when `value` is not empty";
        errors.push(FieldError::invalid(
            format!("{}.valueFrom", path()),
            &json!(""),
            detail,
        ));
    } else if source.as_object().is_some_and(|source| source.is_empty()) {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.push(FieldError::invalid(
            format!("{}.valueFrom", path()),
            &json!(""),
            detail,
        ));
    }
}

fn check_probe(probe: &Value, path: &dyn Fn() -> String, errors: &mut FieldErrors) {
    let present: Vec<&str> = HANDLERS
        .into_iter()
        .filter(|handler| probe.get(handler).is_some())
        .collect();
    match present[..] {
        [] => errors.push(FieldError::required(path(), "must specify a handler type")),
        [_, ref others @ ..] => {
            for extra in others {
                let detail = "may not specify more than 1 handler type";
                errors.push(FieldError::forbidden(format!("{}.{extra}", path()), detail));
            }
        }
    }
    for handler in ["httpGet", "tcpSocket"] {
        let port = at(at(probe, handler), "port");
        let field = || format!("{}.{handler}.port", path());
        if port
            .as_i64()
            .is_some_and(|number| !(1..=65535).contains(&number))
        {
            errors.push(FieldError::invalid(field(), port, PORT_RANGE));
        }
        for problem in port.as_str().map(port_name).unwrap_or_default() {
            errors.push(FieldError::invalid(field(), port, problem));
        }
    }
}

fn check_resources(resources: &Value, path: &dyn Fn() -> String, errors: &mut FieldErrors) {
    for side in ["limits", "requests"] {
        for (name, amount) in at(resources, side).as_object().into_iter().flatten() {
            let field = || format!("{}.{side}[{name}]", path());
            check_resource_name(name, &field, errors);
            let value = amount.as_str().unwrap_or_default();
            if nanos(value).is_some_and(|amount| amount < 0) {
                let detail = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(field(), amount, detail));
            }
            if is_extended(name) && !is_whole(value) {
                errors.push(FieldError::invalid(field(), amount, "must be an integer"));
            }
        }
    }
    check_huge_pages(resources, path, errors);
    let limits = at(resources, "limits");
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
        let relation = match (amount(request), amount(limit)) {
            (Some(request), Some(limit)) if exact && request != limit => "must be equal to",
            (Some(request), Some(limit)) if request > limit => "must be less than or equal to",
            _ => continue,
        };
        let limit = limit.as_str().unwrap_or_default();
        let detail = format!("{relation} {name} limit of {limit}");
        errors.push(FieldError::invalid(
            format!("{}.requests", path()),
            request,
            &detail,
        ));
    }
}

/// Huge pages need cpu or memory beside them.
fn check_huge_pages(resources: &Value, path: &dyn Fn() -> String, errors: &mut FieldErrors) {
    let sides = [at(resources, "limits"), at(resources, "requests")];
    let names = || {
        sides
            .iter()
            .filter_map(|side| side.as_object())
            .flat_map(|side| side.keys())
    };
    let huge = names().any(|name| name.starts_with("hugepages-"));
    if huge && !names().any(|name| name == "cpu" || name == "memory") {
        errors.push(FieldError::forbidden(
            path(),
            "HugePages require cpu or memory",
        ));
    }
}

fn check_resource_name(name: &str, field: &dyn Fn() -> String, errors: &mut FieldErrors) {
    let standard = ["cpu", "memory", "ephemeral-storage"];
    if standard.contains(&name) || name.starts_with("hugepages-") {
        return;
    }
    for problem in qualified_name(name) {
        errors.push(FieldError::invalid(field(), &json!(name), &problem));
    }
    if !name.contains('/') {
        for detail in [
            "must be a standard resource type or fully qualified",
            "must be a standard resource for containers",
        ] {
            errors.push(FieldError::invalid(field(), &json!(name), detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(change: Value) -> Vec<String> {
        let mut found = json!({"name": "c", "image": "i"});
        for (key, value) in change.as_object().unwrap() {
            found[key] = value.clone();
        }
        let mut errors = Vec::new();
        check(&found, &Value::Null, &|| "c".to_owned(), &mut errors);
        errors
            .iter()
            .map(|e| format!("{}: {}", e.field, e.message))
            .collect()
    }

    #[test]
    fn invalid_containers_are_refused() {
        for (change, want) in [
            (json!({"name": ""}), "c.name: Required value"),
            (json!({"image": ""}), "c.image: Required value"),
            (
                json!({"imagePullPolicy": "Foo"}),
                "c.imagePullPolicy: Unsupported value: \"Foo\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
            ),
            (
                json!({"ports": [{}]}),
                "c.ports[0].containerPort: Required value",
            ),
            (
                json!({"ports": [{"containerPort": 70000}]}),
                "c.ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ),
            (
                json!({"ports": [{"containerPort": 80, "name": "80"}]}),
                "c.ports[0].name: Invalid value: \"80\": must contain at least one letter (a-z)",
            ),
            (
                json!({"env": [{"name": ""}]}),
                "c.env[0].name: Required value",
            ),
            (
                json!({"env": [{"name": "x", "value": "a", "valueFrom": {"fieldRef": {}}}]}),
                "c.env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
            ),
            (
                json!({"volumeMounts": [{"name": "v", "mountPath": "/x"}]}),
                "c.volumeMounts[0].name: Not found: \"v\"",
            ),
            (
                json!({"livenessProbe": {}}),
                "c.livenessProbe: Required value: must specify a handler type",
            ),
            (
                json!({"livenessProbe": {"httpGet": {"port": 80}, "exec": {}}}),
                "c.livenessProbe.httpGet: Forbidden: may not specify more than 1 handler type",
            ),
            (
                json!({"livenessProbe": {"tcpSocket": {"port": 0}}}),
                "c.livenessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive",
            ),
        ] {
            assert_eq!(messages(change), [want]);
        }
        assert_eq!(messages(json!({})), [""; 0]);
    }

    #[test]
    fn invalid_resources_are_refused() {
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
            assert_eq!(
                messages(json!({"resources": resources}))[0],
                format!("c.resources.{want}")
            );
        }
    }

    #[test]
    fn extended_resources_need_a_domain() {
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
