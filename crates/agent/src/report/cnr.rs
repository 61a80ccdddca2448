//! The fields of the CustomNodeResource.

use api::contracts::TERMS;
use std::collections::BTreeMap;

use engine::model::QosClass;
use engine::node::health::CONDITIONS;
use engine::node::{CpuMemory, ZoneReport};
use serde_json::{Value, json};

use super::{Field, Observation, Share, Source, Target, Urgency, usage, whole};

const CNR: Target = Target::CustomNodeResource;
/// Today's names, then the names of the first version of the API.
const CPU: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
const MEMORY: &str = "resource.katalyst.kubewharf.io/reclaimed_memory";
const OLD_CPU: &str = "katalyst.kubewharf.io/reclaimed_millicpu";
const OLD_MEMORY: &str = "katalyst.kubewharf.io/reclaimed_memory";

/// What the node lends, in today's fields and in those of the first version. Other resources of the same fields stay.
pub struct Headroom;

impl Source<Observation> for Headroom {
    fn fields(&self) -> &'static [Field] {
        const fn now(path: &'static [&'static str]) -> Field {
            whole(CNR, path, Urgency::AtOnce)
        }
        const {
            &[
                now(&["status", "resources", "allocatable", CPU]),
                now(&["status", "resources", "allocatable", MEMORY]),
                now(&["status", "resources", "capacity", CPU]),
                now(&["status", "resources", "capacity", MEMORY]),
                now(&["status", "resourceAllocatable", OLD_CPU]),
                now(&["status", "resourceAllocatable", OLD_MEMORY]),
                now(&["status", "resourceCapacity", OLD_CPU]),
                now(&["status", "resourceCapacity", OLD_MEMORY]),
            ]
        }
    }

    fn values(&self, observed: &Observation) -> Vec<Option<Value>> {
        let report = &observed.reclaimed;
        let amounts = |amount: CpuMemory| [amount.milli_cpu, amount.memory];
        let (allocatable, capacity) = (amounts(report.allocatable), amounts(report.capacity));
        let all = [allocatable, capacity, allocatable, capacity].concat();
        all.iter()
            .map(|amount| Some(json!(amount.to_string())))
            .collect()
    }
}

/// The sums behind the amounts.
pub struct Terms;

impl Source<Observation> for Terms {
    fn fields(&self) -> &'static [Field] {
        const PATH: &[&str] = &["metadata", "annotations", TERMS];
        const { &[whole(CNR, PATH, Urgency::AtOnce)] }
    }

    fn values(&self, observed: &Observation) -> Vec<Option<Value>> {
        let text = || serde_json::to_string(&observed.terms).unwrap_or_default();
        vec![Some(match observed.terms.is_empty() {
            true => Value::Null,
            false => json!(text()),
        })]
    }
}

/// Sockets and NUMA nodes with their capacity, what each of them lends, and the pods that have them.
pub struct Zones;

impl Source<Observation> for Zones {
    fn fields(&self) -> &'static [Field] {
        const { &[whole(CNR, &["status", "topologyZone"], Urgency::AtOnce)] }
    }

    fn values(&self, observed: &Observation) -> Vec<Option<Value>> {
        let zones = observed.zones.as_ref().map(|zones| match &**zones {
            [] => Value::Null,
            zones => sockets(zones, &observed.reclaimed.numa),
        });
        vec![zones]
    }
}

fn sockets(zones: &[ZoneReport], lent: &BTreeMap<u32, CpuMemory>) -> Value {
    let mut sockets: BTreeMap<u32, Vec<Value>> = BTreeMap::new();
    for zone in zones {
        let lent = lent.get(&zone.number).copied().unwrap_or_default();
        sockets
            .entry(zone.socket)
            .or_default()
            .push(numa(zone, lent));
    }
    let sockets = sockets.into_iter().map(|(socket, children)| {
        json!({
            "type": "Socket",
            "name": socket.to_string(),
            "children": children,
        })
    });
    sockets.collect()
}

fn numa(zone: &ZoneReport, lent: CpuMemory) -> Value {
    let amounts = |own: CpuMemory| {
        json!({
            "cpu": cores(own.milli_cpu),
            "memory": own.memory.to_string(),
            CPU: lent.milli_cpu.to_string(),
            MEMORY: lent.memory.to_string(),
        })
    };
    let mut attributes = Vec::new();
    if !zone.distances.is_empty() {
        let distances: Vec<String> = zone.distances.iter().map(u32::to_string).collect();
        attributes.push(json!({"name": "numa_distance", "value": distances.join(",")}));
    }
    if !zone.reserved_cpus.0.is_empty() {
        let cpus = zone.reserved_cpus.to_string();
        attributes.push(json!({"name": "reserved_cpu_list", "value": cpus}));
    }
    let allocations = zone.allocations.iter().map(|allocation| {
        let (namespace, name, uid) = (&allocation.namespace, &allocation.name, &allocation.uid);
        json!({
            "consumer": format!("{namespace}/{name}/{uid}"),
            "requests": {
                "cpu": cores(allocation.requests.milli_cpu),
                "memory": allocation.requests.memory.to_string(),
            },
        })
    });
    // Empty lists are written, too: the writer takes a key that is missing inside of a list for a default of the server, and
    // would leave the pods of before there.
    json!({
        "type": "Numa",
        "name": zone.number.to_string(),
        "resources": {
            "allocatable": amounts(zone.allocatable),
            "capacity": amounts(zone.capacity),
        },
        "attributes": attributes,
        "allocations": allocations.collect::<Vec<_>>(),
    })
}

/// In the canonical form of a quantity.
fn cores(milli_cpu: i64) -> String {
    match milli_cpu % 1000 {
        0 => (milli_cpu / 1000).to_string(),
        _ => format!("{milli_cpu}m"),
    }
}

/// The agent's own conditions; others stay.
pub struct Conditions;

impl Source<Observation> for Conditions {
    fn fields(&self) -> &'static [Field] {
        fn is_ours(condition: &Value) -> bool {
            condition["type"]
                .as_str()
                .is_some_and(|kind| CONDITIONS.contains(&kind))
        }
        const {
            &[Field {
                target: CNR,
                path: &["status", "conditions"],
                share: Share::Items(is_ours),
                urgency: Urgency::AtOnce,
            }]
        }
    }

    fn values(&self, observed: &Observation) -> Vec<Option<Value>> {
        let conditions = observed.conditions.iter().map(|(condition, since)| {
            json!({
                "type": condition.kind,
                "status": if condition.status { "True" } else { "False" },
                "lastHeartbeatTime": since.whole_second().to_string(),
                "reason": condition.reason,
                "message": condition.message,
            })
        });
        vec![Some(conditions.collect())]
    }
}

/// The use of the node by QoS level and by NUMA node.
pub struct UseByLevel;

impl Source<Observation> for UseByLevel {
    fn fields(&self) -> &'static [Field] {
        const {
            &[whole(
                CNR,
                &["status", "nodeMetricStatus"],
                Urgency::Periodic,
            )]
        }
    }

    fn values(&self, observed: &Observation) -> Vec<Option<Value>> {
        let metric = &observed.metric;
        let Some(node) = metric.node_usage else {
            return vec![None];
        };
        let mut levels: BTreeMap<&str, (CpuMemory, Vec<String>)> = BTreeMap::new();
        for pod in &metric.pods {
            let (total, names) = levels.entry(level(pod.class)).or_default();
            *total = total.plus(pod.usage);
            names.push(format!("{}/{}", pod.namespace, pod.name));
        }
        let groups = levels.iter().map(|(level, (total, names))| {
            json!({"QoSLevel": level, "genericUsage": usage(*total), "podList": names})
        });
        let sample = observed.sample.as_deref();
        let nodes = sample.into_iter().flat_map(|sample| &sample.numa);
        let nodes = nodes.filter_map(|(number, used)| {
            let memory = used.memory_total?.0.checked_sub(used.memory_free?.0)?;
            let milli_cpu = i64::try_from(used.cpu?.0 / 1_000_000).ok()?;
            let amount = CpuMemory::new(milli_cpu, i64::try_from(memory).ok()?);
            Some(json!({"numaId": number, "usage": usage(amount)}))
        });
        vec![Some(json!({
            "updateTime": observed.at.whole_second().to_string(),
            "nodeMetric": {"genericUsage": usage(node), "numaUsage": nodes.collect::<Vec<_>>()},
            "groupMetric": groups.collect::<Vec<_>>(),
        }))]
    }
}

/// Katalyst's level of a class.
fn level(class: QosClass) -> &'static str {
    match class {
        QosClass::System => "system_cores",
        QosClass::Dedicated => "dedicated_cores",
        QosClass::Online | QosClass::MidLatencySensitive => "shared_cores",
        QosClass::MidBestEffort | QosClass::Lent | QosClass::Free => "reclaimed_cores",
    }
}
