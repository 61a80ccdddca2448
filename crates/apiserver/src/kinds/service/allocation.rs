//! Allocates cluster addresses and node ports.
//!
//! The search starts at a hash of the service's uid and takes the next free value, so that the same
//! requests in the same order give the same result.

use std::collections::BTreeSet;
use std::hash::Hasher;
use std::net::Ipv4Addr;

use fnv::FnvHasher;
use serde_json::{Value, json};

use super::parse_v4;
use crate::kinds::kind::Lookup;
use crate::objects::fields::{JsonObject, at, each, fill, inside, is_empty, items, text};
use crate::objects::status::{FieldError, Status};

/// 10.0.0.0/16: the default of the real server.
const NETWORK: u32 = 0x0a00_0000;
const ADDRESSES: u32 = 1 << 16;
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// The address of the API itself.
pub(in crate::kinds) fn first_address() -> Ipv4Addr {
    Ipv4Addr::from(NETWORK + 1)
}

pub(super) fn allocate(
    service: &mut Value,
    old: Option<&Value>,
    others: &dyn Lookup,
) -> Result<(), Status> {
    let name = text(service, "metadata.name").to_owned();
    let namespace = text(service, "metadata.namespace").to_owned();
    let seed = hash(text(service, "metadata.uid"));
    let is_own = |other: &Value| {
        text(other, "metadata.name") == name && text(other, "metadata.namespace") == namespace
    };
    let kind = text(service, "spec.type").to_owned();
    if kind == "ExternalName" {
        return Ok(());
    }
    let had_address = old.is_some_and(|old| !is_empty(at(old, "spec.clusterIP")));
    let needs_ports = ["NodePort", "LoadBalancer"].contains(&kind.as_str());
    let others = match (had_address, needs_ports) {
        (true, false) => Vec::new(),
        _ => others.list("", "services", ""),
    };
    let others = others.iter().filter(|other| !is_own(other));
    let mut addresses = BTreeSet::new();
    let mut ports = BTreeSet::new();
    for other in others {
        addresses.extend(parse_v4(text(other, "spec.clusterIP")));
        ports.extend(
            items(other, "spec.ports")
                .iter()
                .filter_map(|port| at(port, "nodePort").as_i64()),
        );
    }
    let Some(spec) = service
        .as_object_mut()
        .and_then(|fields| inside(fields, "spec"))
    else {
        return Ok(());
    };
    let refuse = |error: FieldError| Status::invalid("", "Service", &name, &[error]);
    if !had_address {
        set_address(spec, seed, &addresses).map_err(refuse)?;
    }
    if needs_ports {
        set_node_ports(spec, seed, &mut ports).map_err(refuse)?;
    }
    Ok(())
}

fn set_address(
    spec: &mut JsonObject,
    seed: u32,
    taken: &BTreeSet<Ipv4Addr>,
) -> Result<(), FieldError> {
    let given = spec
        .get("clusterIP")
        .filter(|address| !is_empty(address))
        .or_else(|| spec.get("clusterIPs")?.get(0))
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let address = match given.as_str() {
        "" => {
            let free = (0..ADDRESSES - 2)
                .map(|i| Ipv4Addr::from(NETWORK + 1 + (seed.wrapping_add(i)) % (ADDRESSES - 2)))
                .find(|address| !taken.contains(address) && *address != first_address());
            let free = free.ok_or_else(|| failed(&given, "range is full"))?;
            free.to_string()
        }
        "None" => given,
        _ => {
            if let Some(address) = parse_v4(&given) {
                if u32::from(address) & !(ADDRESSES - 1) != NETWORK {
                    let range = Ipv4Addr::from(NETWORK);
                    let why = format!(
                        "the provided IP ({given}) is not in the valid range. The range of valid IPs is {range}/16"
                    );
                    return Err(failed(&given, &why));
                }
                if taken.contains(&address) {
                    return Err(failed(&given, "provided IP is already allocated"));
                }
            }
            given
        }
    };
    let headless_anywhere = address == "None" && spec.get("selector").is_none_or(is_empty);
    spec.insert("clusterIP".to_owned(), json!(address));
    fill(spec, "clusterIPs", json!([address]));
    // A headless service without pods of its own may stand for addresses of either family.
    if headless_anywhere {
        fill(spec, "ipFamilies", json!(["IPv4", "IPv6"]));
        fill(spec, "ipFamilyPolicy", "RequireDualStack");
    } else {
        fill(spec, "ipFamilies", json!(["IPv4"]));
        fill(spec, "ipFamilyPolicy", "SingleStack");
    }
    Ok(())
}

fn failed(address: &str, why: &str) -> FieldError {
    let detail = format!("failed to allocate IP {address}: {why}");
    FieldError::invalid("spec.clusterIPs", &json!([address]), &detail)
}

fn set_node_ports(
    spec: &mut JsonObject,
    seed: u32,
    taken: &mut BTreeSet<i64>,
) -> Result<(), FieldError> {
    if spec.get("allocateLoadBalancerNodePorts") == Some(&Value::Bool(false)) {
        return Ok(());
    }
    let count = NODE_PORTS.end() - NODE_PORTS.start() + 1;
    for (i, port) in each(spec, "ports").enumerate() {
        let number = match port
            .get("nodePort")
            .and_then(Value::as_i64)
            .filter(|number| *number != 0)
        {
            Some(number) if taken.contains(&number) => {
                let field = format!("spec.ports[{i}].nodePort");
                return Err(FieldError::invalid(
                    field,
                    &json!(number),
                    "provided port is already allocated",
                ));
            }
            Some(number) if !NODE_PORTS.contains(&number) => {
                let field = format!("spec.ports[{i}].nodePort");
                let detail = "provided port is not in the valid range. The range of valid ports is 30000-32767";
                return Err(FieldError::invalid(field, &json!(number), detail));
            }
            Some(number) => number,
            None => {
                let free = (0..count)
                    .map(|step| NODE_PORTS.start() + (i64::from(seed) + step) % count)
                    .find(|number| !taken.contains(number));
                let field = format!("spec.ports[{i}].nodePort");
                free.ok_or_else(|| FieldError::invalid(field, &json!(0), "range is full"))?
            }
        };
        taken.insert(number);
        port.insert("nodePort".to_owned(), json!(number));
    }
    Ok(())
}

/// Spreads uids over the ranges.
fn hash(text: &str) -> u32 {
    let mut hasher = FnvHasher::default();
    hasher.write(text.as_bytes());
    (hasher.finish() >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Services(Vec<Value>);

    impl Lookup for Services {
        fn get(&self, _: &str, _: &str, _: &str, _: &str) -> Option<Arc<Value>> {
            None
        }
        fn list(&self, _: &str, _: &str, _: &str) -> Vec<Arc<Value>> {
            self.0.iter().cloned().map(Arc::new).collect()
        }
    }

    fn allocated(spec: Value, others: &Services) -> Result<Value, String> {
        let mut service = json!({"metadata": {"name": "s", "uid": "u"}, "spec": spec});
        match allocate(&mut service, None, others) {
            Ok(()) => Ok(service["spec"].take()),
            Err(status) => Err(status.message),
        }
    }

    #[test]
    fn addresses_are_unique() {
        let mut others = Services(Vec::new());
        let mut seen = BTreeSet::new();
        for _ in 0..3 {
            let spec = allocated(
                json!({"type": "NodePort", "ports": [{"port": 80}]}),
                &others,
            )
            .unwrap();
            assert!(seen.insert(spec["clusterIP"].to_string()), "{spec}");
            assert!(
                seen.insert(spec["ports"][0]["nodePort"].to_string()),
                "{spec}"
            );
            others
                .0
                .push(json!({"metadata": {"name": "other"}, "spec": spec}));
        }
    }

    #[test]
    fn a_requested_address_or_port_is_allocated_if_it_is_free() {
        let others = Services(vec![
            json!({"metadata": {"name": "o"}, "spec": {"clusterIP": "10.0.0.7", "ports": [{"nodePort": 30000}]}}),
        ]);
        for (case, spec, want) in [
            ("free", json!({"clusterIP": "10.0.0.8"}), Ok("10.0.0.8")),
            ("headless", json!({"clusterIP": "None"}), Ok("None")),
            (
                "taken",
                json!({"clusterIP": "10.0.0.7"}),
                Err("already allocated"),
            ),
            (
                "outside",
                json!({"clusterIP": "9.9.9.9"}),
                Err("not in the valid range"),
            ),
            (
                "a taken port",
                json!({"type": "NodePort", "ports": [{"nodePort": 30000}]}),
                Err("already allocated"),
            ),
            (
                "a port outside",
                json!({"type": "NodePort", "ports": [{"nodePort": 80}]}),
                Err("not in the valid range"),
            ),
        ] {
            match (allocated(spec, &others), want) {
                (Ok(spec), Ok(want)) => assert_eq!(spec["clusterIPs"], json!([want]), "{case}"),
                (Err(found), Err(want)) => assert!(found.contains(want), "{case}: {found}"),
                (found, _) => panic!("{case}: {found:?}"),
            }
        }
    }

    #[test]
    fn an_external_name_has_no_address() {
        let spec = allocated(
            json!({"type": "ExternalName", "externalName": "a.b"}),
            &Services(Vec::new()),
        )
        .unwrap();
        assert_eq!(spec.get("clusterIP"), None);
    }
}
