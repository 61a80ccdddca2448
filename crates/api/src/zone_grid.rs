//! NUMA zones of equal size, for simulated nodes: `2x2` means two sockets with two zones each.

use std::{fmt, str::FromStr};

use engine::model::{MOST_ZONES, Quantity, Resource};
use serde_json::{Value, json};

use crate::wire::katalyst::CustomNodeResource;

/// How many sockets a node has, and how many NUMA zones each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneGrid {
    sockets: usize,
    per_socket: usize,
}

impl FromStr for ZoneGrid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is not SOCKETSxZONES, such as 2x2, with at most {MOST_ZONES} zones")
        };
        let (sockets, per_socket) = text.split_once('x').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<usize>().ok().filter(|number| *number > 0);
        let grid = Self {
            sockets: number(sockets).ok_or_else(wrong)?,
            per_socket: number(per_socket).ok_or_else(wrong)?,
        };
        let zones = grid.sockets.checked_mul(grid.per_socket);
        match zones.is_some_and(|zones| zones <= MOST_ZONES) {
            true => Ok(grid),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for ZoneGrid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.sockets, self.per_socket)
    }
}

impl ZoneGrid {
    /// The number of zones.
    pub fn zones(&self) -> usize {
        self.sockets * self.per_socket
    }

    /// The CustomNodeResource of a node whose cpu and memory are divided equally.
    pub fn report(&self, node: &str, cpu: &str, memory: &str) -> Result<Value, String> {
        let zones = self.zones();
        let part = |resource: Resource, text: &str| {
            let amount = Quantity::parse(text).map_err(|error| format!("{text}: {error}"))?;
            let part = resource.integer(amount) / i64::try_from(zones).unwrap_or(1);
            Ok::<String, String>(resource.quantity(part))
        };
        let amounts = json!({
            "cpu": part(Resource::Cpu, cpu)?,
            "memory": part(Resource::Memory, memory)?,
        });
        let zone = |id: usize| {
            let distances = (0..zones).map(|other| self.distance(id, other).to_string());
            let distances: Vec<String> = distances.collect();
            json!({
                "type": "Numa",
                "name": id.to_string(),
                "resources": {"allocatable": amounts, "capacity": amounts},
                "attributes": [{"name": "numa_distance", "value": distances.join(",")}],
            })
        };
        let sockets = (0..self.sockets).map(|socket| {
            let first = socket * self.per_socket;
            let children: Vec<Value> = (first..first + self.per_socket).map(zone).collect();
            json!({"type": "Socket", "name": socket.to_string(), "children": children})
        });
        Ok(json!({
            "apiVersion": "node.katalyst.kubewharf.io/v1alpha1",
            "kind": "CustomNodeResource",
            "metadata": {"name": node},
            "status": {
                "topologyPolicy": "NumericContainerLevel",
                "topologyZone": sockets.collect::<Vec<Value>>(),
            },
        }))
    }

    /// The report of [`ZoneGrid::report`], decoded.
    pub fn manifest(
        &self,
        node: &str,
        cpu: &str,
        memory: &str,
    ) -> Result<CustomNodeResource, String> {
        let report = self.report(node, cpu, memory)?;
        serde_json::from_value(report).map_err(|error| error.to_string())
    }

    /// As on common machines.
    fn distance(&self, from: usize, to: usize) -> u32 {
        match (from == to, from / self.per_socket == to / self.per_socket) {
            (true, _) => 10,
            (_, true) => 12,
            (_, false) => 32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_divides_the_node() {
        let grid: ZoneGrid = "2x2".parse().unwrap();
        let report = grid.manifest("n", "8", "32Gi").unwrap();
        let (report, warnings) = crate::parse::custom_node_resource(&report);
        assert_eq!(warnings, Vec::<String>::new());
        let topology = report.topology.unwrap();
        let found = topology.zones().iter().map(|zone| {
            let cpu = zone.allocatable.get(&Resource::Cpu);
            (zone.id, &*zone.socket, cpu, &zone.distances[..])
        });
        assert_eq!(
            found.collect::<Vec<_>>(),
            [
                (0, "0", 2000, &[10, 12, 32, 32][..]),
                (1, "0", 2000, &[12, 10, 32, 32][..]),
                (2, "1", 2000, &[32, 32, 10, 12][..]),
                (3, "1", 2000, &[32, 32, 12, 10][..]),
            ]
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "2",
            "2x",
            "0x2",
            "2x0",
            "-1x2",
            "8x9",
            "2x2x2",
            "99999999999x99999999999",
        ] {
            let error = text.parse::<ZoneGrid>().unwrap_err();
            assert!(
                error.contains("is not SOCKETSxZONES, such as 2x2"),
                "{error}"
            );
        }
    }
}
