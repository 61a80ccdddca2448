//! The core group and `apps`: endpoints, limits, quotas, templates and revisions.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::kind::Kind;
use super::super::{cluster, limit_range, namespaced, pod, printer, selector};
use super::{CREATED_AT, PLAIN, Plain, created_at, empty, first_of};
use crate::objects::fields::{JsonObject, at, each, fill, items, open, text};
use crate::objects::status::FieldError;

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        cluster(
            "v1",
            "componentstatuses",
            "ComponentStatus",
            Plain {
                columns: "Name, Status, Message, Error",
                cells: |object, _| vec![printer::name(object), "".into(), "".into(), "".into()],
                ..PLAIN
            },
        )
        .short(&["cs"])
        .only(&["get", "list"])
        .deprecated("v1 ComponentStatus is deprecated in v1.19+"),
        namespaced(
            "v1",
            "endpoints",
            "Endpoints",
            Plain {
                defaults: default_endpoints,
                creates_on_update: true,
                columns: "Name, Endpoints, Age",
                cells: endpoints_cells,
                no_effect: Some("no traffic is routed"),
                ..PLAIN
            },
        )
        .short(&["ep"])
        .deprecated("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        namespaced(
            "v1",
            "limitranges",
            "LimitRange",
            Plain {
                defaults: limit_range::default,
                check: limit_range::check,
                creates_on_update: true,
                columns: CREATED_AT,
                cells: created_at,
                ..PLAIN
            },
        )
        .short(&["limits"]),
        namespaced(
            "v1",
            "podtemplates",
            "PodTemplate",
            Plain {
                generation: true,
                defaults: |object| pod::default_template(open(object, "template")),
                columns: "Name, Containers, Images, Pod Labels",
                cells: template_cells,
                ..PLAIN
            },
        )
        .returns_deleted(),
        namespaced(
            "v1",
            "resourcequotas",
            "ResourceQuota",
            Plain {
                status: Some(empty),
                columns: "Name, Request, Limit, Age",
                cells: quota_cells,
                no_effect: Some("quotas are not enforced"),
                ..PLAIN
            },
        )
        .short(&["quota"])
        .returns_deleted()
        .status(),
        namespaced(
            "apps/v1",
            "controllerrevisions",
            "ControllerRevision",
            Plain {
                check: check_revision,
                columns: "Name, Controller, Revision, Age",
                cells: revision_cells,
                ..PLAIN
            },
        ),
    ]
}

fn default_endpoints(object: &mut JsonObject) {
    for subset in each(object, "subsets") {
        for port in each(subset, "ports") {
            fill(port, "protocol", "TCP");
        }
    }
}

fn endpoints_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut endpoints = Vec::new();
    for subset in items(object, "subsets") {
        let addresses = items(subset, "addresses");
        let ports = items(subset, "ports");
        if ports.is_empty() {
            endpoints.extend(addresses.iter().map(|a| text(a, "ip").to_owned()));
        }
        for port in ports {
            let number = at(port, "port");
            endpoints.extend(
                addresses
                    .iter()
                    .map(|a| format!("{}:{number}", text(a, "ip"))),
            );
        }
    }
    vec![
        printer::name(object),
        printer::or_none(&first_of(&endpoints, 3)),
        printer::created(object, now),
    ]
}

fn template_cells(object: &Value, _now: Timestamp) -> Vec<Value> {
    let joined = |field: &str| {
        let containers = items(object, "template.spec.containers").iter();
        let texts: Vec<&str> = containers.map(|container| text(container, field)).collect();
        Value::from(texts.join(","))
    };
    vec![
        printer::name(object),
        joined("name"),
        joined("image"),
        selector::map_cell(at(object, "template.metadata.labels")).into(),
    ]
}

/// What is used of each amount, requests apart from limits.
fn quota_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let used = at(object, "status.used");
    let mut cells = [Vec::new(), Vec::new()];
    let hard = at(object, "status.hard").as_object().into_iter().flatten();
    for (resource, amount) in hard {
        let used = match text_at(used, resource) {
            "" => "0",
            used => used,
        };
        let cell = format!("{resource}: {used}/{}", amount.as_str().unwrap_or_default());
        cells[usize::from(resource.starts_with("limits."))].push((resource, cell));
    }
    let [requests, limits] = cells.map(|mut cells| {
        cells.sort();
        let texts: Vec<String> = cells.into_iter().map(|(_, cell)| cell).collect();
        Value::from(texts.join(", "))
    });
    vec![
        printer::name(object),
        requests,
        limits,
        printer::created(object, now),
    ]
}

/// A field whose name has dots.
fn text_at<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn check_revision(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let data = at(object, "data");
    if data.is_null() {
        errors.push(FieldError::required("data", "data is mandatory"));
    }
    if old.is_some_and(|old| at(old, "data") != data) {
        errors.push(FieldError::invalid("data", data, "field is immutable"));
    }
}

fn revision_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let owners = items(object, "metadata.ownerReferences").iter();
    let controller = owners
        .filter(|owner| at(owner, "controller") == &Value::Bool(true))
        .map(|owner| {
            let group = text(owner, "apiVersion").split_once('/');
            let kind = text(owner, "kind").to_lowercase();
            let name = text(owner, "name");
            match group {
                Some((group, _)) => format!("{kind}.{group}/{name}"),
                None => format!("{kind}/{name}"),
            }
        })
        .next();
    vec![
        printer::name(object),
        controller.map_or_else(|| json!("<none>"), Value::from),
        at(object, "revision").clone(),
        printer::created(object, now),
    ]
}
