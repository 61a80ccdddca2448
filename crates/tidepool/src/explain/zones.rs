//! The NUMA zones of a node and the pods that have them, from the CustomNodeResource and the pods of the node, by the rules of the
//! scheduler.

use std::sync::Arc;

use api::parse;
use api::wire::core::Pod;
use engine::model::{Amounts, Resource, ZoneSet};
use engine::scheduling::framework::NodeZones;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::foreign::one_line;
use crate::output::{columns, count};

/// Pods that are named in one row.
const MOST_NAMED: usize = 4;

/// The zones of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ZoneTable {
    pub(super) zones: Vec<ZoneLine>,
    /// What pods without zones of their own request.
    pub(super) others: CpuAndMemory,
    /// What the zones have that no pod has alone.
    pub(super) remaining: CpuAndMemory,
    /// Pods whose annotations name zones that an older pod has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) refused: Vec<ZoneOwner>,
    /// Why parts of the report are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ZoneLine {
    pub(super) socket: String,
    pub(super) zone: u8,
    pub(super) allocatable: CpuAndMemory,
    /// All of it if a pod has the zone alone; else what the pods in it request.
    pub(super) used: CpuAndMemory,
    pub(super) state: ZoneState,
    pub(super) pods: Vec<ZoneOwner>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ZoneState {
    Idle,
    Shared,
    Exclusive,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ZoneOwner {
    /// `namespace/name`.
    pub(super) pod: String,
    /// All zones that it has, or that it does not get.
    pub(super) zones: String,
}

/// Quantities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CpuAndMemory {
    pub(super) cpu: String,
    pub(super) memory: String,
}

impl CpuAndMemory {
    fn new(amount: impl Fn(&Resource) -> i64) -> Self {
        let quantity = |resource: Resource| resource.quantity(amount(&resource));
        Self {
            cpu: quantity(Resource::Cpu),
            memory: quantity(Resource::Memory),
        }
    }

    /// Rounded, for people.
    fn readable(&self) -> [String; 2] {
        let integer = |resource: Resource, text: &str| {
            let quantity = engine::model::Quantity::parse(text);
            quantity.map_or(0, |it| resource.integer(it)) as f64
        };
        let decimal = |number: f64, digits: usize| {
            let text = format!("{number:.digits$}");
            let text = text.trim_end_matches('0').trim_end_matches('.');
            text.to_owned()
        };
        let memory = integer(Resource::Memory, &self.memory) / f64::from(1 << 30);
        let memory = match decimal(memory, 1) {
            zero if zero == "0" => zero,
            number => format!("{number}Gi"),
        };
        [
            decimal(integer(Resource::Cpu, &self.cpu) / 1000.0, 3),
            memory,
        ]
    }
}

impl ZoneTable {
    /// None if the CustomNodeResource reports no zones.
    pub(super) fn new(cnr: &Value, pods: &[Pod]) -> Option<Self> {
        let report = serde_json::from_value(cnr.clone()).ok()?;
        let (report, warnings) = parse::custom_node_resource(&report);
        let pods = pods.iter().filter_map(|pod| parse::pod(pod).ok());
        let pods: Vec<_> = pods.map(Arc::new).collect();
        let zones = NodeZones::of(report.topology.as_ref()?, pods.iter());
        Some(Self::of(&zones, warnings))
    }

    fn of(node: &NodeZones, warnings: Vec<String>) -> Self {
        let topology = node.topology();
        let owner = |pod: &engine::scheduling::framework::ZoneHolder, zones: ZoneSet| ZoneOwner {
            pod: format!("{}/{}", pod.namespace, pod.name),
            zones: zones.to_string(),
        };
        let rows = topology.zones().iter().enumerate().map(|(position, zone)| {
            let holders = node.holders().iter();
            let holders = holders.filter(|it| it.zones.contains(zone.id));
            ZoneLine {
                socket: zone.socket.to_string(),
                zone: zone.id,
                allocatable: CpuAndMemory::new(|resource| zone.allocatable.get(resource)),
                used: CpuAndMemory::new(|resource| node.used(position, resource)),
                state: match (node.is_idle(zone), node.exclusive().contains(zone.id)) {
                    (true, _) => ZoneState::Idle,
                    (false, true) => ZoneState::Exclusive,
                    (false, false) => ZoneState::Shared,
                },
                pods: holders.map(|it| owner(it, it.zones)).collect(),
            }
        });
        let others: Amounts = node.elsewhere();
        let rest = topology.all().without(node.exclusive());
        let refused = node.holders().iter().filter(|it| !it.refused.is_empty());
        Self {
            zones: rows.collect(),
            others: CpuAndMemory::new(|resource| others.get(resource)),
            remaining: CpuAndMemory::new(|resource| topology.allocatable(rest, resource)),
            refused: refused.map(|it| owner(it, it.refused)).collect(),
            warnings,
        }
    }

    pub(super) fn text(&self) -> String {
        let mut sockets: Vec<&str> = self.zones.iter().map(|zone| &*zone.socket).collect();
        sockets.sort_unstable();
        sockets.dedup();
        let in_state = |state| self.zones.iter().filter(|it| it.state == state).count();
        let mut text = format!(
            "\nzones      {} in {}; {} idle\n",
            count(self.zones.len(), "NUMA zone"),
            count(sockets.len(), "socket"),
            in_state(ZoneState::Idle),
        );
        let head = ["  SOCKET", "ZONE", "CPU", "MEMORY", "USE", "PODS"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.zones.iter().map(ZoneLine::cells));
        text.push_str(&columns(&rows));
        let [cpu, memory] = self.others.readable();
        let has_others = cpu != "0" || memory != "0";
        if in_state(ZoneState::Exclusive) > 0 && has_others {
            let [has_cpu, has_memory] = self.remaining.readable();
            text.push_str(&format!(
                "others     pods without zones request {cpu} of cpu and {memory} of memory; the zones that no pod has alone \
                 have {has_cpu} and {has_memory}\n"
            ));
        }
        for ZoneOwner { pod, zones } in &self.refused {
            let pod = one_line(pod);
            let (zone, it) = match zones.contains(',') {
                true => ("zones", "them"),
                false => ("zone", "it"),
            };
            text.push_str(&format!(
                "refused    {pod} does not get {zone} {zones} of its annotation: an older pod has {it}\n"
            ));
        }
        for warning in &self.warnings {
            text.push_str(&format!("warning    {}\n", one_line(warning)));
        }
        text
    }
}

impl ZoneLine {
    fn cells(&self) -> Vec<String> {
        let [cpu, memory] = self.allocatable.readable();
        let [used_cpu, used_memory] = self.used.readable();
        let state = match self.state {
            ZoneState::Idle => "idle",
            ZoneState::Shared => "shared",
            ZoneState::Exclusive => "exclusive",
        };
        let name = |owner: &ZoneOwner| match owner.zones.contains(',') {
            true => format!("{} (zones {})", owner.pod, owner.zones),
            false => owner.pod.clone(),
        };
        let named = self.pods.iter().take(MOST_NAMED).map(name);
        let mut pods = named.collect::<Vec<String>>().join(", ");
        if self.pods.len() > MOST_NAMED {
            pods.push_str(&format!(" and {} more", self.pods.len() - MOST_NAMED));
        }
        let cells = [
            format!("  {}", self.socket),
            self.zone.to_string(),
            format!("{used_cpu}/{cpu}"),
            format!("{used_memory}/{memory}"),
            state.to_owned(),
            pods,
        ];
        cells.map(|cell| one_line(&cell).into_owned()).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pod of level dedicated_cores, bound to the node.
    fn dedicated(name: &str, created: u32, exclusive: &str, zones: &str) -> Pod {
        let enhancement = format!(r#"{{"numa_binding": "true", "numa_exclusive": "{exclusive}"}}"#);
        // Two zones are needed for more than one has.
        let cpu = if zones.contains(',') { "4" } else { "1500m" };
        let amounts = json!({"cpu": cpu, "memory": "2Gi"});
        serde_json::from_value(json!({
            "metadata": {
                "namespace": "shop", "name": name, "uid": name,
                "creationTimestamp": format!("2026-01-01T00:00:0{created}Z"),
                "annotations": {
                    "katalyst.kubewharf.io/qos_level": "dedicated_cores",
                    "katalyst.kubewharf.io/memory_enhancement": enhancement,
                    "tidepool.io/numa-zones": zones,
                },
            },
            "spec": {"nodeName": "n", "containers": [{"name": "main", "resources": {"requests": amounts}}]},
        }))
        .unwrap()
    }

    fn grid() -> Value {
        let grid: api::zone_grid::ZoneGrid = "2x2".parse().unwrap();
        grid.report("n", "15600m", "63Gi").unwrap()
    }

    #[test]
    fn zones_are_shown_with_their_owners() {
        let plain: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "web"},
            "spec": {"nodeName": "n", "containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]},
        }))
        .unwrap();
        let pods = [
            dedicated("ads", 1, "true", "0,1"),
            dedicated("late", 2, "true", "1"),
            dedicated("x", 3, "false", "2"),
            dedicated("y", 4, "false", "2"),
            plain,
        ];
        let mut cnr = grid();
        let children = cnr["status"]["topologyZone"][1]["children"].as_array_mut();
        let unknown = json!({"type": "Numa", "name": "99"});
        children.unwrap().push(unknown);
        let table = ZoneTable::new(&cnr, &pods).unwrap();
        assert_eq!(
            table.text(),
            "\n\
zones      4 NUMA zones in 2 sockets; 1 idle
  SOCKET  ZONE  CPU      MEMORY         USE        PODS
  0          0  3.9/3.9  15.8Gi/15.8Gi  exclusive  shop/ads (zones 0,1)
  0          1  3.9/3.9  15.8Gi/15.8Gi  exclusive  shop/ads (zones 0,1)
  1          2  3/3.9    4Gi/15.8Gi     shared     shop/x, shop/y
  1          3  0/3.9    0/15.8Gi       idle
others     pods without zones request 3.5 of cpu and 2Gi of memory; the zones that no pod has alone have 7.8 and 31.5Gi
refused    shop/late does not get zone 1 of its annotation: an older pod has it
warning    customnoderesource n: ignoring status.topologyZone[1].children[2]: name is `99`: use an id from 0 to 63
"
        );
        assert_eq!(table.zones[2].used.cpu, "3");
        assert_eq!(table.zones[0].allocatable.memory, "16128Mi");
    }

    #[test]
    fn a_node_without_reported_zones_has_no_table() {
        for cnr in [
            Value::Null,
            json!({}),
            json!({"status": {"topologyZone": []}}),
        ] {
            assert_eq!(ZoneTable::new(&cnr, &[]), None, "{cnr}");
        }
    }

    #[test]
    fn many_pods_of_a_zone_are_counted() {
        let pods: Vec<Pod> = (0..6)
            .map(|i| dedicated(&format!("p{i}"), i, "false", "3"))
            .collect();
        let text = ZoneTable::new(&grid(), &pods).unwrap().text();
        let row = "shared  shop/p0, shop/p1, shop/p2, shop/p3 and 2 more\n";
        assert!(text.contains(row), "{text}");
        assert!(!text.contains("others"), "{text}");
    }
}
