//! Networking: endpoint slices, ingresses, network policies and the addresses of services.

use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::kind::Kind;
use super::super::{cluster, namespaced, printer, selector};
use super::{PLAIN, Plain, empty, first_of};
use crate::objects::fields::{JsonObject, at, each, fill, inside, is_empty, items, open, text};
use crate::objects::status::FieldError;

const VERSION: &str = "networking.k8s.io/v1";
const NO_INGRESS: Option<&str> = Some("no ingress controller runs");
const FIXED_RANGE: Option<&str> = Some("services get addresses of a fixed range");

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        namespaced(
            "discovery.k8s.io/v1",
            "endpointslices",
            "EndpointSlice",
            Plain {
                generation: true,
                defaults: default_slice,
                columns: "Name, AddressType, Ports, Endpoints, Age",
                cells: slice_cells,
                no_effect: Some("no traffic is routed but that of admission webhooks"),
                ..PLAIN
            },
        ),
        cluster(
            VERSION,
            "ingressclasses",
            "IngressClass",
            Plain {
                generation: true,
                defaults: default_ingress_class,
                columns: "Name, Controller, Parameters, Age",
                cells: ingress_class_cells,
                no_effect: NO_INGRESS,
                ..PLAIN
            },
        ),
        namespaced(
            VERSION,
            "ingresses",
            "Ingress",
            Plain {
                status: Some(|| json!({"loadBalancer": {}})),
                generation: true,
                check: check_ingress,
                columns: "Name, Class, Hosts, Address, Ports, Age",
                cells: ingress_cells,
                no_effect: NO_INGRESS,
                ..PLAIN
            },
        )
        .short(&["ing"])
        .status(),
        cluster(
            VERSION,
            "ipaddresses",
            "IPAddress",
            Plain {
                check_name: check_address,
                columns: "Name, ParentRef, Age",
                cells: address_cells,
                no_effect: FIXED_RANGE,
                ..PLAIN
            },
        )
        .short(&["ip"]),
        namespaced(
            VERSION,
            "networkpolicies",
            "NetworkPolicy",
            Plain {
                generation: true,
                defaults: default_policy,
                columns: "Name, Pod-Selector, Age",
                cells: |object, now| {
                    let pods = selector::cell(at(object, "spec.podSelector"));
                    vec![
                        printer::name(object),
                        pods.into(),
                        printer::created(object, now),
                    ]
                },
                no_effect: Some("pods have no network"),
                ..PLAIN
            },
        )
        .short(&["netpol"]),
        cluster(
            VERSION,
            "servicecidrs",
            "ServiceCIDR",
            Plain {
                status: Some(empty),
                columns: "Name, CIDRs, Age",
                cells: range_cells,
                no_effect: FIXED_RANGE,
                ..PLAIN
            },
        )
        .status(),
    ]
}

fn default_slice(object: &mut JsonObject) {
    for port in each(object, "ports") {
        fill(port, "name", "");
        fill(port, "protocol", "TCP");
    }
}

fn slice_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports = items(object, "ports").iter();
    let ports: Vec<String> = ports
        .filter_map(|port| Some(at(port, "port").as_i64()?.to_string()))
        .collect();
    let endpoints = items(object, "endpoints").iter();
    let addresses: Vec<String> = endpoints
        .flat_map(|endpoint| items(endpoint, "addresses"))
        .filter_map(|address| Some(address.as_str()?.to_owned()))
        .collect();
    let or_unset = |texts: &[String]| match texts {
        [] => json!("<unset>"),
        texts => first_of(texts, 3).into(),
    };
    vec![
        printer::name(object),
        text(object, "addressType").into(),
        or_unset(&ports),
        or_unset(&addresses),
        printer::created(object, now),
    ]
}

fn default_ingress_class(object: &mut JsonObject) {
    if let Some(spec) = inside(object, "spec")
        && let Some(parameters) = inside(spec, "parameters")
    {
        fill(parameters, "scope", "Cluster");
    }
}

fn ingress_class_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = at(object, "spec.parameters");
    let parameters = match (text(parameters, "kind"), text(parameters, "apiGroup")) {
        ("", _) => "<none>".to_owned(),
        (kind, "") => format!("{kind}/{}", text(parameters, "name")),
        (kind, group) => format!("{kind}.{group}/{}", text(parameters, "name")),
    };
    vec![
        printer::name(object),
        text(object, "spec.controller").into(),
        parameters.into(),
        printer::created(object, now),
    ]
}

fn check_ingress(object: &Value, _old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let rules = items(object, "spec.rules");
    if rules.is_empty() && is_empty(at(object, "spec.defaultBackend")) {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid("spec", &Value::Null, detail));
    }
    for (r, rule) in rules.iter().enumerate() {
        for (p, path) in items(rule, "http.paths").iter().enumerate() {
            check_path(path, &format!("spec.rules[{r}].http.paths[{p}]"), errors);
        }
    }
}

fn check_path(path: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let kinds = ["Exact", "ImplementationSpecific", "Prefix"];
    let found = at(path, "pathType");
    let field = format!("{field}.pathType");
    match found.as_str() {
        None => errors.push(FieldError::required(field, "pathType must be specified")),
        Some(kind) if kinds.contains(&kind) => {}
        Some(_) => errors.push(FieldError::not_supported(field, found, &kinds)),
    }
}

fn ingress_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let rules = items(object, "spec.rules").iter();
    let hosts: Vec<String> = rules
        .map(|rule| text(rule, "host"))
        .filter(|host| !host.is_empty())
        .map(str::to_owned)
        .collect();
    let hosts = match &hosts[..] {
        [] => "*".to_owned(),
        hosts => first_of(hosts, 3),
    };
    let addresses = items(object, "status.loadBalancer.ingress").iter();
    let addresses: Vec<&str> = addresses
        .map(|address| match text(address, "ip") {
            "" => text(address, "hostname"),
            ip => ip,
        })
        .collect();
    let ports = match items(object, "spec.tls").is_empty() {
        true => "80",
        false => "80, 443",
    };
    vec![
        printer::name(object),
        printer::or_none(text(object, "spec.ingressClassName")),
        hosts.into(),
        addresses.join(",").into(),
        ports.into(),
        printer::created(object, now),
    ]
}

fn check_address(name: &str) -> Option<String> {
    let canonical = name
        .parse::<IpAddr>()
        .is_ok_and(|ip| ip.to_string() == name);
    (!canonical).then(|| "must be a valid IP address in canonical form".to_owned())
}

fn address_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let parent = at(object, "spec.parentRef");
    let parts = ["group", "resource", "namespace", "name"].map(|field| text(parent, field));
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    vec![
        printer::name(object),
        parts.join("/").into(),
        printer::created(object, now),
    ]
}

fn default_policy(object: &mut JsonObject) {
    let spec = open(object, "spec");
    open(spec, "podSelector");
    for direction in ["ingress", "egress"] {
        for rule in each(spec, direction) {
            for port in each(rule, "ports") {
                fill(port, "protocol", "TCP");
            }
        }
    }
    if spec.get("policyTypes").is_none_or(is_empty) {
        let leaves = spec.get("egress").is_some_and(|rules| !is_empty(rules));
        let types = match leaves {
            true => json!(["Ingress", "Egress"]),
            false => json!(["Ingress"]),
        };
        spec.insert("policyTypes".to_owned(), types);
    }
}

fn range_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let ranges = items(object, "spec.cidrs").iter();
    let ranges: Vec<&str> = ranges.filter_map(Value::as_str).collect();
    vec![
        printer::name(object),
        ranges.join(",").into(),
        printer::created(object, now),
    ]
}
