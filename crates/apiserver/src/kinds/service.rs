//! Services. The server allocates their addresses and node ports.

use std::net::{IpAddr, Ipv4Addr};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{selector, spec_status};
use crate::kinds::kind::{Column, Lookup, Name, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{
    JsonObject, at, each, fill, inside, is_empty, items, number, open, put, text,
};
use crate::objects::names::dns_label;
use crate::objects::status::{FieldError, Status};

mod allocation;

pub(super) use allocation::first_address;

/// Three hours.
const AFFINITY_SECONDS: i64 = 10_800;

const DEPRECATED_ADDRESSES: &str =
    "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
const NO_LOAD_BALANCER: &str =
    "Service gets no external address in this cluster: no controller provides load balancers";

pub(super) struct Service;

impl Rules for Service {
    fn default(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        let spec = open(fields, "spec");
        fill(spec, "type", "ClusterIP");
        fill(spec, "sessionAffinity", "None");
        if spec
            .get("sessionAffinity")
            .is_some_and(|affinity| affinity == "ClientIP")
        {
            let config = open(open(spec, "sessionAffinityConfig"), "clientIP");
            fill(config, "timeoutSeconds", AFFINITY_SECONDS);
        }
        for port in each(spec, "ports") {
            fill(port, "protocol", "TCP");
            let number = port.get("port").cloned().unwrap_or_default();
            if port
                .get("targetPort")
                .is_none_or(|target| is_empty(target) || target == 0)
            {
                port.insert("targetPort".to_owned(), number);
            }
        }
        let kind = spec
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        if kind != "ExternalName" {
            fill(spec, "internalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            fill(spec, "allocateLoadBalancerNodePorts", true);
        }
        let reached_from_outside = !spec.get("externalIPs").is_none_or(is_empty);
        if reached_from_outside || ["NodePort", "LoadBalancer"].contains(&kind.as_str()) {
            fill(spec, "externalTrafficPolicy", "Cluster");
        }
        let balancer = open(open(fields, "status"), "loadBalancer");
        for ingress in each(balancer, "ingress") {
            if ingress.contains_key("ip") {
                fill(ingress, "ipMode", "VIP");
            }
        }
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        spec_status::separate_status(object, old, write, |_| json!({"loadBalancer": {}}));
        let Some(spec) = object
            .as_object_mut()
            .and_then(|fields| inside(fields, "spec"))
        else {
            return;
        };
        drop_what_the_type_lacks(spec, old);
        if let Some(old) = old {
            keep_allocations(spec, old);
        }
    }

    fn admit(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        write: Write<'_>,
        others: &dyn Lookup,
    ) -> Result<(), Status> {
        if matches!(write, Write::Subresource(_)) {
            return Ok(());
        }
        allocation::allocate(object, old, others)
    }

    fn validate(&self, object: &Value, old: Option<&Value>, write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = at(object, "spec");
        let kind = text(spec, "type");
        if write == Write::Subresource("status") {
            if kind != "LoadBalancer" && !items(object, "status.loadBalancer.ingress").is_empty() {
                let detail = "may only be used when `spec.type` is 'LoadBalancer'";
                errors.push(FieldError::forbidden("status.loadBalancer.ingress", detail));
            }
            return errors;
        }
        let headless = text(spec, "clusterIP") == "None";
        if items(spec, "ports").is_empty() && !headless && kind != "ExternalName" {
            errors.push(FieldError::required("spec.ports", ""));
        }
        if kind == "ExternalName" && text(spec, "externalName").is_empty() {
            errors.push(FieldError::required("spec.externalName", ""));
        }
        check_ports(items(spec, "ports"), &mut errors);
        let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
        if !kinds.contains(&kind) {
            errors.push(FieldError::not_supported(
                "spec.type",
                at(spec, "type"),
                &kinds,
            ));
        }
        check_addresses(spec, old, &mut errors);
        errors
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        if !items(object, "spec.externalIPs").is_empty() {
            warnings.push(DEPRECATED_ADDRESSES.to_owned());
        }
        if old.is_none() && text(object, "spec.type") == "LoadBalancer" {
            warnings.push(NO_LOAD_BALANCER.to_owned());
        }
        warnings
    }

    fn selectable_fields(&self) -> Vec<Name> {
        super::names(&["spec.clusterIP", "spec.type"])
    }

    fn check_name(&self, name: &str) -> Option<String> {
        crate::objects::names::dns_label_without_dots(name)
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        super::select(object, &["spec.clusterIP", "spec.type"], path)
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        vec![("spec", json!({})), ("status", json!({"loadBalancer": {}}))]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns("Name, Type, Cluster-IP, External-IP, Port(s), Age, Selector*")
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            printer::name(object),
            text(object, "spec.type").into(),
            printer::or_none(text(object, "spec.clusterIP")),
            external_cell(object).into(),
            ports_cell(object).into(),
            printer::created(object, now),
            selector::map_cell(at(object, "spec.selector")).into(),
        ]
    }
}

/// A service that changes its type loses what only the old type has.
fn drop_what_the_type_lacks(spec: &mut JsonObject, old: Option<&Value>) {
    let kind = spec
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let before = old.map(|old| text(old, "spec.type").to_owned());
    if before.is_none_or(|before| before == kind) {
        return;
    }
    if !["NodePort", "LoadBalancer"].contains(&kind.as_str()) {
        put(spec, "externalTrafficPolicy", None);
        for port in each(spec, "ports") {
            put(port, "nodePort", None);
        }
    }
    if kind != "LoadBalancer" {
        put(spec, "allocateLoadBalancerNodePorts", None);
    }
    if kind == "ExternalName" {
        for field in [
            "clusterIP",
            "clusterIPs",
            "ipFamilies",
            "ipFamilyPolicy",
            "internalTrafficPolicy",
        ] {
            put(spec, field, None);
        }
    }
}

/// A client may send the whole service without the addresses and ports that the server allocated.
fn keep_allocations(spec: &mut JsonObject, old: &Value) {
    let has_address = |kind: &str| kind != "ExternalName";
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default();
    if !has_address(kind) || !has_address(text(old, "spec.type")) {
        return;
    }
    if spec.get("clusterIP").is_none_or(is_empty) && spec.get("clusterIPs").is_none_or(is_empty) {
        for field in ["clusterIP", "clusterIPs"] {
            put(spec, field, at(old, "spec").get(field));
        }
    }
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if !spec.contains_key(field) {
            put(spec, field, at(old, "spec").get(field));
        }
    }
    if !["NodePort", "LoadBalancer"]
        .contains(&spec.get("type").and_then(Value::as_str).unwrap_or_default())
    {
        return;
    }
    for port in each(spec, "ports") {
        let same = |other: &&Value| {
            ["port", "protocol"]
                .iter()
                .all(|key| other.get(key) == port.get(*key))
        };
        if let Some(before) = items(old, "spec.ports").iter().find(same)
            && let Some(number) = before.get("nodePort")
        {
            fill(port, "nodePort", number.clone());
        }
    }
}

fn check_ports(ports: &[Value], errors: &mut Vec<FieldError>) {
    let range = "must be between 1 and 65535, inclusive";
    for (i, port) in ports.iter().enumerate() {
        let field = |name: &str| format!("spec.ports[{i}].{name}");
        let name = text(port, "name");
        if name.is_empty() && ports.len() > 1 {
            errors.push(FieldError::required(field("name"), ""));
        } else if !name.is_empty()
            && let Some(problem) = dns_label(name)
        {
            errors.push(FieldError::invalid(field("name"), &json!(name), &problem));
        }
        if !name.is_empty() && ports[..i].iter().any(|other| text(other, "name") == name) {
            errors.push(FieldError::duplicate(field("name"), &json!(name)));
        }
        let same = |other: &&Value| {
            ["port", "protocol"]
                .iter()
                .all(|key| other.get(*key) == port.get(*key))
        };
        if ports[..i].iter().any(|other| same(&other)) {
            let shown = json!({
                "Name": "", "Protocol": at(port, "protocol"), "AppProtocol": null,
                "Port": at(port, "port"), "TargetPort": 0, "NodePort": 0,
            });
            errors.push(FieldError::duplicate(format!("spec.ports[{i}]"), &shown));
        }
        for number_field in ["port", "targetPort"] {
            let value = at(port, number_field);
            if value
                .as_i64()
                .is_some_and(|number| !(1..=65535).contains(&number))
            {
                errors.push(FieldError::invalid(field(number_field), value, range));
            }
        }
        if at(port, "port").is_null() {
            errors.push(FieldError::invalid(field("port"), &json!(0), range));
        }
        let protocol = at(port, "protocol");
        let protocols = ["SCTP", "TCP", "UDP"];
        if !protocols.contains(&protocol.as_str().unwrap_or_default()) {
            errors.push(FieldError::not_supported(
                field("protocol"),
                protocol,
                &protocols,
            ));
        }
    }
}

fn check_addresses(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let addresses = at(spec, "clusterIPs");
    for (i, address) in items(spec, "clusterIPs").iter().enumerate() {
        let written = address.as_str().unwrap_or_default();
        if written != "None" && written.parse::<IpAddr>().is_err() {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid(
                format!("spec.clusterIPs[{i}]"),
                address,
                detail,
            ));
        }
    }
    let Some(old) = old.filter(|_| text(spec, "type") != "ExternalName") else {
        return;
    };
    let before = at(old, "spec.clusterIPs");
    if !is_empty(before) && before != addresses && text(old, "spec.type") != "ExternalName" {
        errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            addresses,
            "may not change once set",
        ));
    }
}

fn external_cell(service: &Value) -> String {
    let own = items(service, "spec.externalIPs")
        .iter()
        .filter_map(Value::as_str);
    let given = items(service, "status.loadBalancer.ingress")
        .iter()
        .map(|ingress| match text(ingress, "ip") {
            "" => text(ingress, "hostname"),
            ip => ip,
        });
    let cell = match text(service, "spec.type") {
        "ExternalName" => text(service, "spec.externalName").to_owned(),
        "LoadBalancer" => {
            let all: Vec<&str> = given.chain(own).collect();
            match all.is_empty() {
                true => "<pending>".to_owned(),
                false => all.join(","),
            }
        }
        _ => own.collect::<Vec<_>>().join(","),
    };
    if cell.is_empty() {
        "<none>".to_owned()
    } else {
        cell
    }
}

fn ports_cell(service: &Value) -> String {
    let ports: Vec<String> = items(service, "spec.ports")
        .iter()
        .map(|port| {
            let (protocol, on_nodes) = (text(port, "protocol"), number(port, "nodePort"));
            match on_nodes {
                0 => format!("{}/{protocol}", number(port, "port")),
                _ => format!("{}:{on_nodes}/{protocol}", number(port, "port")),
            }
        })
        .collect();
    if ports.is_empty() {
        "<none>".to_owned()
    } else {
        ports.join(",")
    }
}

/// The service by which pods find the API.
pub(super) fn kubernetes_service() -> Value {
    json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": first_address().to_string(),
            "ports": [{"name": "https", "port": 443, "targetPort": 443}],
        },
    })
}

/// Whether a text is an address that this cluster could give out.
fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(spec: Value, old: Option<&Value>) -> Value {
        let mut object = json!({"metadata": {"name": "s", "uid": "u"}, "spec": spec});
        Service.default(&mut object);
        Service.prepare(
            &mut object,
            old,
            if old.is_some() {
                Write::Update
            } else {
                Write::Create
            },
        );
        object
    }

    #[test]
    fn invalid_services_are_refused() {
        for (case, spec, want) in [
            ("a port", json!({"ports": [{"port": 80}]}), None),
            ("no port", json!({}), Some("spec.ports")),
            ("headless without ports", json!({"clusterIP": "None"}), None),
            (
                "two ports without names",
                json!({"ports": [{"port": 80}, {"port": 81}]}),
                Some("spec.ports[0].name"),
            ),
            (
                "port 0",
                json!({"ports": [{"port": 0}]}),
                Some("spec.ports[0].port"),
            ),
            (
                "another type",
                json!({"ports": [{"port": 80}], "type": "X"}),
                Some("spec.type"),
            ),
            (
                "another protocol",
                json!({"ports": [{"port": 80, "protocol": "X"}]}),
                Some("spec.ports[0].protocol"),
            ),
            (
                "no name outside",
                json!({"type": "ExternalName"}),
                Some("spec.externalName"),
            ),
            (
                "no address",
                json!({"ports": [{"port": 80}], "clusterIPs": ["abc"]}),
                Some("spec.clusterIPs[0]"),
            ),
        ] {
            let errors = Service.validate(&service(spec, None), None, Write::Create);
            assert_eq!(errors.first().map(|e| e.field.as_str()), want, "{case}");
        }
    }

    #[test]
    fn an_update_keeps_allocated_addresses() {
        let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "ipFamilies": ["IPv4"], "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30001}]}});
        let kept = service(
            json!({"type": "NodePort", "ports": [{"port": 80}]}),
            Some(&old),
        );
        assert_eq!(kept["spec"]["clusterIP"], "10.0.0.9");
        assert_eq!(kept["spec"]["ports"][0]["nodePort"], 30001);
        let mut inside = old.clone();
        inside["spec"]["type"] = json!("ClusterIP");
        let inside = service(inside["spec"].clone(), Some(&old));
        assert_eq!(
            inside["spec"]["ports"][0].get("nodePort"),
            None,
            "a cluster address needs no node port"
        );
    }

    #[test]
    fn cells_join_the_present_values() {
        let balancer = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP", "nodePort": 31783}, {"port": 81, "protocol": "UDP"}]}, "status": {"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}, {"hostname": "h"}]}}});
        assert_eq!(external_cell(&balancer), "9.9.9.9,h");
        assert_eq!(ports_cell(&balancer), "80:31783/TCP,81/UDP");
        assert_eq!(
            external_cell(&json!({"spec": {"type": "LoadBalancer"}})),
            "<pending>"
        );
        assert_eq!(
            external_cell(&json!({"spec": {"type": "ExternalName", "externalName": "a.b"}})),
            "a.b"
        );
        assert_eq!(ports_cell(&json!({})), "<none>");
    }
}
