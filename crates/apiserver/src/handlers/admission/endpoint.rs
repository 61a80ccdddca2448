//! Where a webhook is: its URL, or the address behind its Service.

use std::net::SocketAddr;

use serde_json::Value;

use crate::kinds::kind::Lookup;
use crate::objects::fields::{at, items, label, number, text};
use crate::resources::backends::{ServiceBackend, ServiceHandler};
use crate::resources::state::ServerState;

/// The address of a webhook as errors show it, and the way to it.
pub(super) struct Endpoint {
    /// `https://host[:port]/path`.
    pub(super) url: String,
    /// The name that the certificate must be for.
    pub(super) host: String,
    pub(super) target: Result<Target, String>,
}

pub(super) enum Target {
    Host(String, u16),
    Address(SocketAddr),
    InProcess(ServiceHandler),
}

impl Endpoint {
    pub(super) fn find(server: &ServerState, client: &Value) -> Self {
        let service = at(client, "service");
        if !service.is_object() {
            return Self::of_url(text(client, "url"));
        }
        let (namespace, name) = (text(service, "namespace"), text(service, "name"));
        let host = format!("{name}.{namespace}.svc");
        let port = match number(service, "port") {
            0 => 443,
            port => port,
        };
        let path = full_path(text(service, "path"));
        Self {
            url: format!("https://{host}:{port}{path}"),
            host,
            target: behind(server, namespace, name, port),
        }
    }

    fn of_url(url: &str) -> Self {
        let rest = url.strip_prefix("https://").unwrap_or(url);
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (host, port) = match authority.rsplit_once(':') {
            // The colons of an IPv6 address are in brackets.
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (authority, "443"),
        };
        let host = host.trim_matches(['[', ']']).to_owned();
        let target = match port.parse() {
            Ok(port) => Ok(Target::Host(host.clone(), port)),
            Err(_) => Err(format!("dial tcp: address {port}: invalid port")),
        };
        Self {
            url: format!("https://{authority}{}", full_path(path)),
            host,
            target,
        }
    }
}

/// With one slash at its start and none at its end.
fn full_path(path: &str) -> String {
    format!("/{}", path.trim_matches('/'))
}

/// What serves a port of a Service: this process, an external name, or the first endpoint.
fn behind(server: &ServerState, namespace: &str, name: &str, port: i64) -> Result<Target, String> {
    match server.backends.get(namespace, name) {
        Some(ServiceBackend::Address(address)) => return Ok(Target::Address(address)),
        Some(ServiceBackend::InProcess(handler)) => return Ok(Target::InProcess(handler)),
        None => {}
    }
    let service = server.get("", "services", namespace, name);
    let service = service.ok_or_else(|| format!("service {name:?} not found"))?;
    let valid = |port: i64| u16::try_from(port).map_err(|_| format!("invalid port {port}"));
    if text(&service, "spec.type") == "ExternalName" {
        let host = text(&service, "spec.externalName").to_owned();
        return Ok(Target::Host(host, valid(port)?));
    }
    if text(&service, "spec.clusterIP") == "None" {
        return Err("cannot route to service with ClusterIP \"None\"".to_owned());
    }
    let mut ports = items(&service, "spec.ports").iter();
    let found = ports.find(|candidate| number(candidate, "port") == port);
    let found =
        found.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let (address, port) = endpoint(server, namespace, name, text(found, "name"))
        .ok_or_else(|| format!("no endpoints available for service {name:?}"))?;
    Ok(Target::Host(address, valid(port)?))
}

/// The first ready address of an EndpointSlice or of Endpoints.
fn endpoint(
    server: &ServerState,
    namespace: &str,
    service: &str,
    port_name: &str,
) -> Option<(String, i64)> {
    let port_of = |ports: &[Value]| {
        let named = ports.iter().find(|port| text(port, "name") == port_name);
        named.map(|port| number(port, "port"))
    };
    for slice in server.list("discovery.k8s.io", "endpointslices", namespace) {
        if label(&slice, "kubernetes.io/service-name") != Some(service) {
            continue;
        }
        let ready = |endpoint: &&Value| at(endpoint, "conditions.ready") != &Value::Bool(false);
        let address = items(&slice, "endpoints")
            .iter()
            .filter(ready)
            .find_map(|endpoint| items(endpoint, "addresses").first()?.as_str());
        if let (Some(address), Some(port)) = (address, port_of(items(&slice, "ports"))) {
            return Some((address.to_owned(), port));
        }
    }
    let endpoints = server.get("", "endpoints", namespace, service)?;
    items(&endpoints, "subsets").iter().find_map(|subset| {
        let address = text(items(subset, "addresses").first()?, "ip");
        Some((address.to_owned(), port_of(items(subset, "ports"))?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_port_and_a_path() {
        for (url, shown, want) in [
            ("https://a.b", "https://a.b/", ("a.b", 443)),
            (
                "https://127.0.0.1:8443/x/",
                "https://127.0.0.1:8443/x",
                ("127.0.0.1", 8443),
            ),
            ("https://[::1]:9/x", "https://[::1]:9/x", ("::1", 9)),
            ("https://[::1]", "https://[::1]/", ("::1", 443)),
        ] {
            let endpoint = Endpoint::of_url(url);
            assert_eq!(endpoint.url, shown);
            let Ok(Target::Host(host, port)) = endpoint.target else {
                panic!("{url} has a host");
            };
            assert_eq!((host.as_str(), port), want);
            assert_eq!(endpoint.host, host);
        }
    }
}
