//! The NUMA zones of a CustomNodeResource. Only sockets and the NUMA nodes below them are read; what is invalid is left out
//! with a warning, so that one bad zone does not hide the others.

use engine::model::{
    Allocation, Amounts, Quantity, Reclaimed, ReclaimedResource, Resource, Topology,
    TopologyPolicy, Zone, ZoneSet,
};

use super::lent;
use crate::parse::name;
use crate::wire::katalyst as wire;
use crate::wire::meta::ResourceList;

/// More than any zone has, as for reclaimed resources: sums over zones cannot overflow.
const MOST: i64 = 1 << 50;
/// A report with more faults has one cause; the first ones name it.
const MOST_WARNINGS: usize = 8;

/// `None` if the report has no valid zone.
pub(super) fn topology(
    status: &wire::CustomNodeResourceStatus,
    warnings: &mut Vec<String>,
) -> Option<Topology> {
    let mut found = Vec::new();
    let mut faults = Vec::new();
    for (i, socket) in status.topology_zone.iter().enumerate() {
        if socket.kind != "Socket" {
            continue;
        }
        for (j, child) in socket.children.iter().enumerate() {
            let path = format!("status.topologyZone[{i}].children[{j}]");
            let child = match serde_json::from_value::<wire::TopologyZone>(child.clone()) {
                Ok(child) => child,
                Err(error) => {
                    faults.push(format!("ignoring {path}: it is not a zone: {error}"));
                    continue;
                }
            };
            if child.kind == "Numa" {
                found.extend(zone(&path, &socket.name, &child, &found, &mut faults));
            }
        }
    }
    let more = faults.len().saturating_sub(MOST_WARNINGS);
    warnings.extend(faults.into_iter().take(MOST_WARNINGS));
    if more > 0 {
        warnings.push(format!(
            "{more} more invalid fields below status.topologyZone"
        ));
    }
    let policy = TopologyPolicy::parse(&status.topology_policy);
    (!found.is_empty()).then(|| Topology::new(policy, found))
}

fn zone(
    path: &str,
    socket: &str,
    zone: &wire::TopologyZone,
    known: &[Zone],
    faults: &mut Vec<String>,
) -> Option<Zone> {
    let Some(id) = ZoneSet::parse_id(&zone.name) else {
        faults.push(format!(
            "ignoring {path}: name is `{}`: use an id from 0 to 63",
            zone.name
        ));
        return None;
    };
    if let Some(first) = known.iter().find(|zone| zone.id == id) {
        faults.push(format!(
            "ignoring {path}: NUMA zone {id} is repeated: it is in socket {} already",
            first.socket
        ));
        return None;
    }
    let list = |list: &Option<ResourceList>, field: &str, faults: &mut Vec<String>| {
        let path = format!("{path}.resources.{field}");
        amounts(list.as_ref()?, &path, faults).into()
    };
    let allocatable = list(&zone.resources.allocatable, "allocatable", faults);
    let capacity: Option<Amounts> = list(&zone.resources.capacity, "capacity", faults);
    let mut allocatable = allocatable.unwrap_or_default();
    if let Some(capacity) = &capacity {
        limit(&mut allocatable, capacity, path, faults);
    }
    let attribute = |name: &str| {
        let found = zone.attributes.iter().find(|found| found.name == name);
        found.map_or("", |found| &found.value)
    };
    Some(Zone {
        id,
        socket: name(socket),
        reclaimed: reclaimed(zone, path, faults),
        capacity: capacity.unwrap_or_else(|| allocatable.clone()),
        allocatable,
        distances: distances(attribute("numa_distance"), path, faults),
        reserved_cpus: name(attribute("reserved_cpu_list")),
        allocations: allocations(zone, path, faults),
    })
}

fn amounts(list: &ResourceList, path: &str, faults: &mut Vec<String>) -> Amounts {
    let amount = |(name, text): (&String, &crate::wire::meta::Quantity)| {
        let resource = Resource::parse(name)?;
        if ReclaimedResource::of(&resource).is_some() {
            return None;
        }
        let found = match Quantity::parse(&text.0) {
            Ok(quantity) => resource.integer(quantity),
            Err(error) => {
                faults.push(format!(
                    "{name} of {path} is `{}`: {error}; using 0",
                    text.0
                ));
                0
            }
        };
        let used = found.clamp(0, MOST);
        if used != found {
            let used = resource.quantity(used);
            faults.push(format!("{name} of {path} is `{}`: using {used}", text.0));
        }
        Some((resource, used))
    };
    list.iter().filter_map(amount).collect()
}

/// A zone cannot give more than it has.
fn limit(allocatable: &mut Amounts, capacity: &Amounts, path: &str, faults: &mut Vec<String>) {
    let found: Vec<(Resource, i64)> = allocatable
        .iter()
        .filter(|(resource, amount)| {
            capacity.contains(resource) && capacity.get(resource) < *amount
        })
        .map(|(resource, _)| (resource.clone(), capacity.get(resource)))
        .collect();
    for (resource, most) in found {
        let (name, used) = (resource.name(), resource.quantity(most));
        faults.push(format!(
            "{name} of {path}.resources.allocatable is more than its capacity: using {used}"
        ));
        allocatable.set(resource, most);
    }
}

/// What the zone lends; `None` if it names no reclaimed resource.
fn reclaimed(zone: &wire::TopologyZone, path: &str, faults: &mut Vec<String>) -> Option<Reclaimed> {
    let list = zone.resources.allocatable.as_ref()?;
    let path = format!("{path}.resources.allocatable");
    let cpu = lent(list, &path, ReclaimedResource::Cpu, faults);
    let memory = lent(list, &path, ReclaimedResource::Memory, faults);
    (cpu.is_some() || memory.is_some())
        .then(|| Reclaimed::lent(cpu.unwrap_or(0), memory.unwrap_or(0)))
}

fn distances(text: &str, path: &str, faults: &mut Vec<String>) -> Vec<u32> {
    if text.is_empty() {
        return Vec::new();
    }
    let parts: Result<Vec<u32>, _> = text.split(',').map(|part| part.trim().parse()).collect();
    parts.unwrap_or_else(|_| {
        faults.push(format!(
            "ignoring numa_distance of {path}: found `{text}`; use numbers separated by commas"
        ));
        Vec::new()
    })
}

fn allocations(zone: &wire::TopologyZone, path: &str, faults: &mut Vec<String>) -> Vec<Allocation> {
    let mut all = Vec::new();
    for (i, allocation) in zone.allocations.iter().enumerate() {
        let path = format!("{path}.allocations[{i}]");
        let parts: Vec<&str> = allocation.consumer.split('/').collect();
        let [_, _, uid] = parts[..] else {
            faults.push(format!(
                "ignoring {path}: consumer is `{}`: use namespace/name/uid",
                allocation.consumer
            ));
            continue;
        };
        if uid.is_empty() {
            faults.push(format!(
                "ignoring {path}: consumer `{}` has no uid",
                allocation.consumer
            ));
            continue;
        }
        all.push(Allocation {
            uid: name(uid),
            requests: amounts(&allocation.requests, &path, faults),
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(zones: &str) -> (Option<Topology>, Vec<String>) {
        let status =
            format!(r#"{{"topologyPolicy":"NumericContainerLevel","topologyZone":{zones}}}"#);
        let mut warnings = Vec::new();
        let found = topology(&serde_json::from_str(&status).unwrap(), &mut warnings);
        (found, warnings)
    }

    /// A socket with these children.
    fn socket(name: &str, children: &str) -> String {
        format!(r#"{{"type":"Socket","name":"{name}","children":[{children}]}}"#)
    }

    fn numa(name: &str, rest: &str) -> String {
        format!(r#"{{"type":"Numa","name":"{name}"{rest}}}"#)
    }

    #[test]
    fn zones_as_katalyst_writes_them() {
        let first = numa(
            "0",
            r#","attributes":[{"name":"numa_distance","value":"10,21"},{"name":"reserved_cpu_list","value":"0-1"}],
            "resources":{"allocatable":{"cpu":"46","memory":"180Gi","resource.katalyst.kubewharf.io/reclaimed_millicpu":"20k",
            "resource.katalyst.kubewharf.io/reclaimed_memory":"50Gi"},"capacity":{"cpu":48,"memory":"192Gi"}},
            "allocations":[{"consumer":"default/dedicated/1f0c","requests":{"cpu":"8","memory":"16Gi"}}],
            "siblings":[],"children":[{"type":"L3CacheGroup","name":"0"}]"#,
        );
        let zones = format!(
            r#"[{},{},{{"type":"GPU","name":"7"}}]"#,
            socket("0", &first),
            socket("1", &numa("1", r#","resources":{}"#)),
        );
        let (found, warnings) = read(&zones);
        assert_eq!(warnings, Vec::<String>::new());
        let found = found.unwrap();
        assert_eq!(found.policy, TopologyPolicy::Several);
        let [first, second] = found.zones() else {
            panic!("{found:?}");
        };
        assert_eq!((first.id, &*first.socket), (0, "0"));
        assert_eq!(first.allocatable.get(&Resource::Cpu), 46_000);
        assert_eq!(first.capacity.get(&Resource::Memory), 192 << 30);
        assert_eq!(first.reclaimed, Some(Reclaimed::lent(20_000, 50 << 30)));
        assert_eq!(first.distances, [10, 21]);
        assert_eq!(&*first.reserved_cpus, "0-1");
        assert_eq!(&*first.allocations[0].uid, "1f0c");
        assert_eq!(first.allocations[0].requests.get(&Resource::Cpu), 8_000);
        assert_eq!((second.id, &*second.socket), (1, "1"));
        assert_eq!(second.reclaimed, None);
    }

    #[test]
    fn what_is_invalid_is_left_out_with_a_warning() {
        let at = "status.topologyZone[0].children";
        // (case, children, ids that count, warning)
        for (case, children, ids, warning) in [
            (
                "sparse ids",
                format!("{},{}", numa("3", ""), numa("60", "")),
                vec![3, 60],
                None,
            ),
            (
                "above 63",
                numa("64", ""),
                vec![],
                Some(format!(
                    "ignoring {at}[0]: name is `64`: use an id from 0 to 63"
                )),
            ),
            (
                "no number",
                numa("node0", ""),
                vec![],
                Some(format!(
                    "ignoring {at}[0]: name is `node0`: use an id from 0 to 63"
                )),
            ),
            (
                "repeated",
                format!("{},{}", numa("1", ""), numa("1", "")),
                vec![1],
                Some(format!(
                    "ignoring {at}[1]: NUMA zone 1 is repeated: it is in socket 0 already"
                )),
            ),
            (
                "no zone",
                format!("7,{}", numa("1", "")),
                vec![1],
                Some(format!("ignoring {at}[0]: it is not a zone: ")),
            ),
            (
                "capacity below allocatable",
                numa(
                    "0",
                    r#","resources":{"allocatable":{"cpu":"4"},"capacity":{"cpu":"3"}}"#,
                ),
                vec![0],
                Some(format!(
                    "cpu of {at}[0].resources.allocatable is more than its capacity: using 3"
                )),
            ),
            (
                "no quantity",
                numa("0", r#","resources":{"allocatable":{"cpu":"many"}}"#),
                vec![0],
                Some(format!("cpu of {at}[0].resources.allocatable is `many`: ")),
            ),
            (
                "negative",
                numa("0", r#","resources":{"allocatable":{"memory":"-1"}}"#),
                vec![0],
                Some(format!(
                    "memory of {at}[0].resources.allocatable is `-1`: using 0"
                )),
            ),
            (
                "a consumer of two parts",
                numa("0", r#","allocations":[{"consumer":"default/p"}]"#),
                vec![0],
                Some(format!(
                    "ignoring {at}[0].allocations[0]: consumer is `default/p`: use namespace/name/uid"
                )),
            ),
            (
                "a consumer without uid",
                numa("0", r#","allocations":[{"consumer":"default/p/"}]"#),
                vec![0],
                Some(format!(
                    "ignoring {at}[0].allocations[0]: consumer `default/p/` has no uid"
                )),
            ),
            (
                "distances",
                numa(
                    "0",
                    r#","attributes":[{"name":"numa_distance","value":"near"}]"#,
                ),
                vec![0],
                Some(format!(
                    "ignoring numa_distance of {at}[0]: found `near`; use numbers separated by commas"
                )),
            ),
            (
                "devices",
                r#"{"type":"GPU","name":"0"}"#.to_owned(),
                vec![],
                None,
            ),
        ] {
            let (found, warnings) = read(&format!("[{}]", socket("0", &children)));
            let found = found.map(|found| found.zones().iter().map(|zone| zone.id).collect());
            assert_eq!(found.unwrap_or_else(Vec::new), ids, "{case}");
            match warning {
                None => assert_eq!(warnings, Vec::<String>::new(), "{case}"),
                Some(text) => assert!(
                    warnings.len() == 1 && warnings[0].starts_with(&text),
                    "{case}: {warnings:?}"
                ),
            }
        }
    }

    #[test]
    fn a_zone_is_in_one_socket() {
        let zones = format!(
            "[{},{}]",
            socket("0", &numa("1", "")),
            socket("1", &numa("1", ""))
        );
        let (found, warnings) = read(&zones);
        assert_eq!(&*found.unwrap().zones()[0].socket, "0");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }

    #[test]
    fn sixty_five_zones() {
        let children: Vec<String> = (0..65).map(|id| numa(&id.to_string(), "")).collect();
        let (found, warnings) = read(&format!("[{}]", socket("0", &children.join(","))));
        assert_eq!(found.unwrap().zones().len(), 64);
        assert_eq!(warnings.len(), 1);
        let invalid = vec![r#"{"type":"Numa","name":"x"}"#; 20].join(",");
        let (_, warnings) = read(&format!("[{}]", socket("0", &invalid)));
        assert_eq!(warnings.len(), MOST_WARNINGS + 1);
        assert_eq!(
            warnings[8],
            "12 more invalid fields below status.topologyZone"
        );
    }
}
