//! Which CPUs share a core, a socket and a NUMA node, and the distances of NUMA nodes.

use std::collections::BTreeMap;
use std::path::Path;

use engine::node::{CpuSet, NumaUse, Processor};

use crate::parse;

/// The processors of these CPUs. A CPU whose files cannot be read counts as a core of its own in the first socket.
pub fn processors(sys: &Path, cpus: &CpuSet, numa: &BTreeMap<u32, NumaUse>) -> Vec<Processor> {
    let number = |cpu: u32, name: &str| -> Option<u32> {
        let file = sys.join(format!("devices/system/cpu/cpu{cpu}/topology/{name}"));
        u32::try_from(parse::number(&std::fs::read(file).ok()?)?).ok()
    };
    let processor = |&cpu: &u32| Processor {
        cpu,
        core: number(cpu, "core_id").unwrap_or(cpu),
        socket: number(cpu, "physical_package_id").unwrap_or(0),
        numa: numa
            .iter()
            .find(|(_, node)| node.cpus.0.contains(&cpu))
            .map_or(0, |(number, _)| *number),
    };
    cpus.0.iter().map(processor).collect()
}

/// The distances of each of these NUMA nodes to all of them; empty where the file cannot be read.
pub fn distances<'a>(
    sys: &Path,
    numbers: impl Iterator<Item = &'a u32>,
) -> BTreeMap<u32, Vec<u32>> {
    let read = |number: &u32| {
        let file = sys.join(format!("devices/system/node/node{number}/distance"));
        let text = std::fs::read(file).unwrap_or_default();
        (*number, parse::distances(&text).unwrap_or_default())
    };
    numbers.map(read).collect()
}
